"""Stake is conserved to the rao, whatever is added, moved, earned and taken off."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from template.devchain import balances, stakes
from template.devchain.chain import Chain
from template.devchain.context import DispatchError, Origin
from template.devchain.dispatch import CALLS
from template.devchain.genesis import Genesis, development_address

HOT, OTHER = development_address("//validator0//hot"), development_address("//validator1//hot")
RICH, BOB = development_address("//Rich"), development_address("//Bob")
TAO = 10**9


@pytest.fixture
def chain(genesis_for: Callable[..., Genesis]) -> Chain:
    chain = Chain(genesis_for(), start_ms=1)
    chain.storage.begin_block(1)
    return chain


def run(chain: Chain, account: str, name: str, **args: object) -> str | None:
    try:
        with chain.context.undone_on_failure():
            CALLS[f"SubtensorModule.{name}"](chain.context, Origin(account), args)
    except DispatchError as error:
        return str(error.reason).removeprefix("SubtensorModule.")
    return None


def total(chain: Chain) -> int:
    return sum(value for (_, netuid), value in chain.storage.scan("TotalHotkeyAlpha") if netuid == 1)


def test_what_is_staked_is_what_was_paid(chain: Chain) -> None:
    before, pool = balances.free(chain.context, RICH), chain.storage.get("SubnetTAO", 1)
    assert run(chain, RICH, "add_stake", hotkey=HOT, netuid=1, amount_staked=7 * TAO) is None
    assert balances.free(chain.context, RICH) == before - 7 * TAO
    assert stakes.stake_of(chain.storage, HOT, RICH, 1) == 7 * TAO
    assert chain.storage.get("SubnetTAO", 1) == chain.storage.get("SubnetAlphaIn", 1) == pool + 7 * TAO


def test_everything_can_be_taken_off_and_nothing_is_left(chain: Chain) -> None:
    before = balances.free(chain.context, RICH)
    run(chain, RICH, "add_stake", hotkey=HOT, netuid=1, amount_staked=7 * TAO)
    stakes.reward(chain.context, HOT, 1, 123_456_789)
    held = stakes.stake_of(chain.storage, HOT, RICH, 1)
    assert held > 7 * TAO
    assert run(chain, RICH, "remove_stake", hotkey=HOT, netuid=1, amount_unstaked=held) is None
    assert balances.free(chain.context, RICH) == before - 7 * TAO + held
    assert not chain.storage.has("AlphaV2", HOT, RICH, 1)


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "reward", "move"]), st.integers(2_000_000, 50 * TAO)), max_size=12
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_holders_never_own_more_than_the_pool(chain: Chain, steps: list[tuple[str, int]]) -> None:
    """After any history, the parts of a pool add up to it, less at most one rao per holder."""
    for step, amount in steps:
        if step == "add":
            run(chain, RICH, "add_stake", hotkey=HOT, netuid=1, amount_staked=amount)
        elif step == "remove":
            run(chain, RICH, "remove_stake", hotkey=HOT, netuid=1, amount_unstaked=amount)
        elif step == "reward":
            stakes.reward(chain.context, HOT, 1, amount)
        else:
            args = {"origin_hotkey": HOT, "destination_hotkey": OTHER, "origin_netuid": 1, "destination_netuid": 1}
            run(chain, RICH, "move_stake", **args, alpha_amount=amount)
        for hotkey in (HOT, OTHER):
            pool = chain.storage.get("TotalHotkeyAlpha", hotkey, 1)
            parts = [
                stakes.stake_of(chain.storage, hotkey, coldkey, 1)
                for (_, coldkey, netuid), _ in chain.storage.scan("AlphaV2", hotkey)
                if netuid == 1
            ]
            assert 0 <= pool - sum(parts) <= 2 * len(parts)


def test_stake_moves_between_hotkeys_subnets_and_coldkeys(chain: Chain) -> None:
    run(chain, RICH, "add_stake", hotkey=HOT, netuid=1, amount_staked=9 * TAO)
    before = total(chain)
    move = {"origin_hotkey": HOT, "destination_hotkey": OTHER, "origin_netuid": 1, "destination_netuid": 1}
    assert run(chain, RICH, "move_stake", **move, alpha_amount=2 * TAO) is None
    assert total(chain) == before
    swap = {"hotkey": OTHER, "origin_netuid": 1, "destination_netuid": 0, "alpha_amount": TAO}
    assert run(chain, RICH, "swap_stake", **swap) is None
    assert stakes.stake_of(chain.storage, OTHER, RICH, 0) == TAO and total(chain) == before - TAO
    give = {"destination_coldkey": BOB, "hotkey": HOT, "origin_netuid": 1, "destination_netuid": 1}
    assert run(chain, RICH, "transfer_stake", **give, alpha_amount=3 * TAO) is None
    assert stakes.stake_of(chain.storage, HOT, BOB, 1) == pytest.approx(3 * TAO, abs=1)
    chain.context.put("TransferToggle", 1, False)
    assert run(chain, RICH, "transfer_stake", **give, alpha_amount=TAO) == "TransferDisallowed"


def test_root_stake_counts_with_the_chains_tao_weight(chain: Chain) -> None:
    run(chain, RICH, "add_stake", hotkey=OTHER, netuid=0, amount_staked=100 * TAO)
    whole, alpha, tao = stakes.stake_weight(chain.storage, OTHER, 1)
    assert tao == 100 * TAO * chain.storage.get("TaoWeight") >> 64
    assert whole == alpha + tao


def test_unstaking_all_leaves_nothing_on_the_hotkey(chain: Chain) -> None:
    run(chain, RICH, "add_stake", hotkey=HOT, netuid=1, amount_staked=5 * TAO)
    run(chain, RICH, "add_stake", hotkey=HOT, netuid=0, amount_staked=5 * TAO)
    before = balances.free(chain.context, RICH)
    assert run(chain, RICH, "unstake_all", hotkey=HOT) is None
    assert balances.free(chain.context, RICH) == before + 10 * TAO


def test_takes_move_within_their_bounds(chain: Chain) -> None:
    owner = development_address("//validator0")
    assert run(chain, owner, "increase_take", hotkey=HOT, take=11_797) == "DelegateTakeTooHigh"
    assert run(chain, owner, "increase_take", hotkey=HOT, take=100) == "DelegateTakeTooLow"
    assert run(chain, owner, "decrease_take", hotkey=HOT, take=100) is None
    assert run(chain, RICH, "decrease_take", hotkey=HOT, take=10) == "NonAssociatedColdKey"
    assert run(chain, owner, "increase_take", hotkey=HOT, take=200) == "DelegateTxRateLimitExceeded"


def test_burned_and_recycled_alpha_is_gone_and_counted(chain: Chain) -> None:
    run(chain, RICH, "add_stake", hotkey=HOT, netuid=1, amount_staked=5 * TAO)
    before = total(chain)
    assert run(chain, RICH, "burn_alpha", hotkey=HOT, netuid=1, amount=TAO) is None
    assert run(chain, RICH, "recycle_alpha", hotkey=HOT, netuid=1, amount=TAO) is None
    assert total(chain) == before - 2 * TAO
    assert chain.storage.get("AlphaAssets.AlphaBurned", 1) == chain.storage.get("AlphaAssets.AlphaRecycled", 1) == TAO
    assert run(chain, RICH, "burn_alpha", hotkey=HOT, netuid=1, amount=99 * TAO) == "NotEnoughStakeToWithdraw"
