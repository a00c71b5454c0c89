"""A subnet's life beyond the daily work, through the unmodified SDK: shield, stake, subnets, owners, reveals."""

import struct
from typing import Any

import bittensor as bt
import bittensor_core
import pytest
from bittensor.sp_core import Keypair

pytestmark = pytest.mark.usefixtures("sdk_home")

# Quicknet's round 1000 and its public signature.
ROUND = 1000
SIGNATURE = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"


class Wallet:
    """A wallet made of two development keys."""

    def __init__(self, name: str) -> None:
        self.coldkey = self.coldkeypub = Keypair.create_from_uri(f"//{name}")
        self.hotkey = Keypair.create_from_uri(f"//{name}//hot")


@pytest.fixture(scope="module")
def lab(sdk_home: Any, start_chain: Any, genesis_for: Any) -> Any:
    """A chain with test controls and a short start delay."""
    genesis = genesis_for(start_call_delay=2, block_time_s=0.1)
    with start_chain(genesis, dev_controls=True) as running:
        yield running


@pytest.fixture
def sub(lab: Any, connect: Any) -> Any:
    """A client of its own per test: the SDK's nonce cache is stale after a shielded extrinsic."""
    with connect(lab.url) as subtensor:
        yield subtensor


@pytest.fixture
def rich() -> Wallet:
    return Wallet("Rich")


VALIDATOR = Keypair.create_from_uri("//validator0//hot").ss58_address
OTHER = Keypair.create_from_uri("//validator1//hot").ss58_address


def stake_on(sub: Any, wallet: Wallet, hotkey: str) -> float:
    return sub.staking.get(wallet.coldkey.ss58_address, hotkey, 1).alpha


def test_a_shielded_registration_runs_behind_its_carrier(sub: Any, rich: Wallet) -> None:
    result = sub.execute(bt.BurnedRegister(netuid=1), rich)
    assert result.success and result.data["shielded"]
    assert sub.neurons.uid(rich.hotkey.ss58_address, 1) is not None
    block, index = (int(part) for part in result.extrinsic_id.split("-"))
    calls = [each["call"]["call_function"] for each in sub.block_info(block).extrinsics]
    assert calls[index - 1 : index + 1] == ["submit_encrypted", "burned_register"]


def test_a_shielded_call_that_fails_says_so(sub: Any, rich: Wallet) -> None:
    result = sub.execute(bt.BurnedRegister(netuid=1), rich)
    assert not result.success
    assert result.error.name == "HotKeyAlreadyRegisteredInSubNet"


def test_stake_is_added_moved_and_removed_to_the_rao(sub: Any, rich: Wallet) -> None:
    def submit(call: Any) -> Any:
        result = sub.submit_call(call, rich)
        assert result.success, result.message
        return result

    before, module = sub.balances.get(rich.coldkey.ss58_address).rao, bt.calls.SubtensorModule
    fees = submit(module.add_stake(hotkey=VALIDATOR, netuid=1, amount_staked=5 * 10**9)).fee.rao
    assert sub.balances.get(rich.coldkey.ss58_address).rao == before - 5 * 10**9 - fees
    assert stake_on(sub, rich, VALIDATOR) >= 4.999999999  # it is a share of a pool, rounded down
    moved = module.move_stake(
        origin_hotkey=VALIDATOR, destination_hotkey=OTHER, origin_netuid=1, destination_netuid=1, alpha_amount=2 * 10**9
    )
    submit(moved)
    assert stake_on(sub, rich, OTHER) >= 1.999999999
    held = sub.balances.get(rich.coldkey.ss58_address).rao
    fee = submit(module.remove_stake(hotkey=VALIDATOR, netuid=1, amount_unstaked=10**9)).fee.rao
    assert sub.balances.get(rich.coldkey.ss58_address).rao == held + 10**9 - fee


def test_the_sdks_own_stake_intents_work(sub: Any, lab: Any, connect: Any, rich: Wallet) -> None:
    assert sub.execute(bt.AddStake(VALIDATOR, 1, 3.0), rich)
    with connect(lab.url) as second:
        assert second.execute(bt.RemoveStake(VALIDATOR, 1, 1.0), rich)
    with connect(lab.url) as third:
        assert [position.netuid for position in third.staking.positions(rich.coldkey.ss58_address)]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (bt.calls.SubtensorModule.add_stake(hotkey=VALIDATOR, netuid=1, amount_staked=1), "AmountTooLow"),
        (bt.calls.SubtensorModule.add_stake(hotkey=VALIDATOR, netuid=77, amount_staked=10**9), "SubnetNotExists"),
        (
            bt.calls.SubtensorModule.add_stake(hotkey=VALIDATOR, netuid=1, amount_staked=10**18),
            "NotEnoughBalanceToStake",
        ),
        (
            bt.calls.SubtensorModule.add_stake(
                hotkey=Keypair.create_from_uri("//unknown").ss58_address, netuid=1, amount_staked=10**9
            ),
            "HotKeyAccountNotExists",
        ),
        (
            bt.calls.SubtensorModule.remove_stake(hotkey=VALIDATOR, netuid=1, amount_unstaked=10**17),
            "NotEnoughStakeToWithdraw",
        ),
        (
            bt.calls.SubtensorModule.add_stake_limit(
                hotkey=VALIDATOR, netuid=1, amount_staked=10**9, limit_price=1, allow_partial=False
            ),
            "SlippageTooHigh",
        ),
        (
            bt.calls.SubtensorModule.register_limit(
                netuid=1, hotkey=Keypair.create_from_uri("//unknown").ss58_address, limit_price=1
            ),
            "RegistrationPriceLimitExceeded",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refused_call_carries_the_chains_error(sub: Any, rich: Wallet, call: Any, name: str) -> None:
    result = sub.submit_call(call, rich)
    assert not result.success
    assert result.error.name == name


def test_a_subnet_is_made_started_and_named(sub: Any, rich: Wallet) -> None:
    result = sub.submit_call(
        bt.calls.SubtensorModule.register_network(hotkey=Keypair.create_from_uri("//Rich//sn").ss58_address), rich
    )
    assert result.success, result.message
    netuid = max(info.netuid for info in sub.subnets.all())
    assert netuid == 2
    start = bt.calls.SubtensorModule.start_call(netuid=netuid)
    sub.wait_for_block(sub.block + 3, timeout=10)
    assert sub.submit_call(start, rich).success
    assert sub.submit_call(start, rich).error.name == "FirstEmissionBlockNumberAlreadySet"
    graph = sub.subnets.metagraph(netuid)
    assert graph.owner_coldkey == rich.coldkey.ss58_address and len(graph) == 1


def test_start_call_has_to_wait(sub: Any, start_chain: Any, genesis_for: Any, connect: Any, rich: Wallet) -> None:
    with start_chain(genesis_for(start_call_delay=1000, block_time_s=0.1)) as slow, connect(slow.url) as client:
        call = bt.calls.SubtensorModule.register_network(hotkey=rich.hotkey.ss58_address)
        assert client.submit_call(call, rich).success
        early = client.submit_call(bt.calls.SubtensorModule.start_call(netuid=2), rich)
        assert early.error.name == "NeedWaitingMoreBlocksToStarCall"
        assert not client.submit_call(bt.calls.SubtensorModule.start_call(netuid=1), rich)


def test_a_submission_waits_for_finality_where_it_lags(start_chain: Any, genesis_for: Any, connect: Any) -> None:
    genesis = genesis_for(finality_lag_blocks=2, block_time_s=0.1)
    with start_chain(genesis) as lagging, connect(lagging.url) as client:
        result = client.execute(bt.Transfer(Wallet("x").coldkey.ss58_address, 1), Wallet("Rich"))
        assert result.success
        block = int(result.extrinsic_id.split("-")[0])
        assert client.finalized_block >= block and client.block >= block + 2
        soon = client.execute(
            bt.Transfer(Wallet("x").coldkey.ss58_address, 1), Wallet("Rich"), wait_for_finalization=False
        )
        assert soon.success


def test_an_owner_sets_what_owners_may_and_nobody_else_does(sub: Any, rich: Wallet) -> None:
    owner, change = Wallet("Owner"), bt.intents.SetHyperparameter(netuid=1, name="immunity_period", value=77)
    assert sub.execute(change, owner)
    assert sub.hyperparameters.immunity_period(1) == 77
    assert sub.execute(change, rich).error.name == "BadOrigin"
    root_only = bt.calls.AdminUtils.sudo_set_kappa(netuid=1, kappa=1)
    assert sub.submit_call(root_only, owner).error.name == "BadOrigin"
    too_low = bt.calls.AdminUtils.sudo_set_tempo(netuid=1, tempo=20)
    assert sub.submit_call(too_low, owner).error.name == "TempoOutOfBounds"


def test_sudo_sets_what_only_root_may(sub: Any) -> None:
    inner = sub.compose(bt.calls.AdminUtils.sudo_set_weights_set_rate_limit(netuid=1, weights_set_rate_limit=1))
    assert sub.submit_call(bt.calls.Sudo.sudo(call=inner), Wallet("Sudo"))
    assert sub.hyperparameters.weights_rate_limit(1) == 1


def test_an_old_version_key_is_refused(sub: Any) -> None:
    owner = Wallet("Owner")
    assert sub.submit_call(bt.calls.AdminUtils.sudo_set_weights_version_key(netuid=1, weights_version_key=5), owner)
    old = bt.calls.SubtensorModule.set_weights(netuid=1, dests=[0], weights=[65535], version_key=4)
    assert sub.submit_call(old, Wallet("validator0"), signer="hotkey").error.name == "IncorrectWeightVersionKey"
    assert sub.submit_call(bt.calls.AdminUtils.sudo_set_weights_version_key(netuid=1, weights_version_key=0), owner)


def test_a_batch_runs_all_or_nothing(sub: Any, rich: Wallet) -> None:
    target = Keypair.create_from_uri("//batch").ss58_address
    good = sub.compose(bt.calls.Balances.transfer_keep_alive(dest=target, value=10**9))
    bad = sub.compose(bt.calls.Balances.transfer_keep_alive(dest=target, value=10**18))
    assert not sub.submit_call(bt.calls.Utility.batch_all(calls=[good, bad]), rich)
    assert sub.balances.get(target).rao == 0
    assert sub.submit_call(bt.calls.Utility.batch_all(calls=[good, good]), rich)
    assert sub.balances.get(target).tao == 2


def test_a_call_the_dev_chain_does_not_have_is_refused_by_name(sub: Any, rich: Wallet) -> None:
    result = sub.submit_call(bt.calls.SubtensorModule.dissolve_network(rich.coldkey.ss58_address, 1), rich)
    assert result.error.name == "CallFiltered"


@pytest.fixture
def reveal_chain(sdk_home: Any, start_chain: Any, genesis_for: Any) -> Any:
    """A chain with commit-reveal on and epochs of 40 blocks, long enough for a test to stop it within one."""
    with start_chain(genesis_for(commit_reveal=True, tempo=40, weights_rate_limit=0), dev_controls=True) as running:
        yield running


def sealed_weights(hotkey: Keypair, uids: list[int], values: list[int]) -> bytes:
    """A commit as the SDK makes it, but for round 1000."""
    payload = bytes([32 << 2]) + hotkey.public_key
    for numbers in (uids, values):
        payload += bytes([len(numbers) << 2]) + struct.pack(f"<{len(numbers)}H", *numbers)
    envelope, _ = bittensor_core.encrypt_at_round(payload + struct.pack("<Q", 0), ROUND)
    return bytes(bittensor_core.inner_ciphertext(envelope))


def test_timelocked_weights_open_once_their_round_is_known(reveal_chain: Any, connect: Any, rpc: Any) -> None:
    validator = Wallet("validator0")
    with connect(reveal_chain.url) as sub:
        call = bt.calls.SubtensorModule.commit_timelocked_weights(
            netuid=1,
            commit=sealed_weights(validator.hotkey, [2], [65535]),
            reveal_round=ROUND,
            commit_reveal_version=4,
        )
        assert sub.submit_call(call, validator, signer="hotkey").success
        plain = bt.calls.SubtensorModule.set_weights(netuid=1, dests=[2], weights=[1], version_key=0)
        assert sub.submit_call(plain, validator, signer="hotkey").error.name == "CommitRevealEnabled"
        rpc(reveal_chain.url, "dev_pause")
        assert rpc(reveal_chain.url, "dev_submitPulse", ROUND, SIGNATURE)["result"] == ROUND
        assert sub.weights.weights(1) == {}
        rpc(reveal_chain.url, "dev_step", 40)
        assert sub.weights.weights(1) == {1: {2: 1.0}}


def test_a_commit_without_its_pulse_is_kept_and_then_dropped(reveal_chain: Any, connect: Any, rpc: Any) -> None:
    validator = Wallet("validator0")
    with connect(reveal_chain.url) as sub:
        call = bt.calls.SubtensorModule.commit_timelocked_weights(
            netuid=1,
            commit=sealed_weights(validator.hotkey, [2], [65535]),
            reveal_round=ROUND,
            commit_reveal_version=4,
        )
        assert sub.submit_call(call, validator, signer="hotkey").success
        rpc(reveal_chain.url, "dev_pause")
        rpc(reveal_chain.url, "dev_step", 40)
        assert len(list(sub.query_map(bt.storage.SubtensorModule.TimelockedWeightCommits, [1]))) == 1
        rpc(reveal_chain.url, "dev_step", 40)
        assert list(sub.query_map(bt.storage.SubtensorModule.TimelockedWeightCommits, [1])) == []
        assert sub.weights.weights(1) == {}


def test_the_sdks_own_timelocked_commit_lands(reveal_chain: Any, connect: Any) -> None:
    """Its round is in the future, so no offline chain can open it; that it is stored whole is what is shown."""
    with connect(reveal_chain.url) as sub:
        result = sub.execute(bt.SetWeights(netuid=1, weights={2: 1.0}), Wallet("validator0"))
        assert result.success and result.data["reveal_round"] > ROUND
        assert list(sub.query_map(bt.storage.SubtensorModule.TimelockedWeightCommits, [1]))


def test_a_sealed_record_is_revealed_by_its_pulse(lab: Any, sub: Any, rpc: Any) -> None:
    owner = Wallet("Owner")
    envelope, _ = bittensor_core.encrypt_at_round(b"open sesame", ROUND)
    field = {"TimelockEncrypted": {"encrypted": bittensor_core.inner_ciphertext(envelope), "reveal_round": ROUND}}
    call = bt.calls.Commitments.set_commitment(netuid=1, info={"fields": [field]})
    assert sub.submit_call(call, owner, signer="hotkey").success
    assert sub.subnets.commitments(1)[owner.hotkey.ss58_address].status == "sealed"
    rpc(lab.url, "dev_submitPulse", ROUND, SIGNATURE)
    sub.wait_for_block(sub.block + 2, timeout=10)
    found = sub.subnets.commitments(1)[owner.hotkey.ss58_address]
    assert found.status == "revealed" and found.value == "open sesame"
