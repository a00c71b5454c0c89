"""What is emitted is paid, to the rao, and to whom the rules say."""

from collections.abc import Callable

import pytest

from template.devchain import coinbase, neurons, stakes
from template.devchain.chain import Chain
from template.devchain.genesis import Genesis, development_address

MINER, MINER_COLD = development_address("//miner//hot"), development_address("//miner")
OWNER, OWNER_HOT = development_address("//Owner"), development_address("//Owner//hot")
VALIDATOR, VALIDATOR_COLD = development_address("//validator0//hot"), development_address("//validator0")


@pytest.fixture
def chain(genesis_for: Callable[..., Genesis]) -> Chain:
    """A miner at uid 3; both validators vote for it alone. Epochs at blocks 10, 20, ..."""
    chain = Chain(genesis_for(), start_ms=1)
    ctx = chain.context
    neurons.link_owner(ctx, MINER, MINER_COLD)
    neurons.register(ctx, 1, MINER)
    ctx.put("LastUpdate", 1, [1, 1, 1, 1])
    for uid in (1, 2):
        ctx.put("Weights", 1, uid, [(3, 65535)])
    return chain


def run_to(chain: Chain, block: int) -> None:
    while chain.head.number < block:
        chain.produce(chain.head.number + 2)


def staked(chain: Chain) -> int:
    return sum(value for (_, netuid), value in chain.storage.scan("TotalHotkeyAlpha") if netuid == 1)


def test_an_epoch_pays_all_but_rounding(chain: Chain) -> None:
    """Ten blocks of one alpha; nothing is burned, since the owner mines nothing. Less than a millionth is lost."""
    before = staked(chain)
    run_to(chain, 10)
    assert 0 <= before + 10 * 10**9 - staked(chain) < 10**4
    pending = [chain.storage.get(name, 1) for name in ("PendingServerEmission", "PendingValidatorEmission")]
    assert pending == [0, 0]


def test_owner_miner_and_validators_get_their_parts(chain: Chain) -> None:
    """18 % to the owner, half of the rest to the miner, half to the validators by stake."""
    run_to(chain, 10)
    owner = stakes.stake_of(chain.storage, OWNER_HOT, OWNER, 1)
    assert owner == 10 * (10**9 * 11796 // 65535)
    miner = stakes.stake_of(chain.storage, MINER, MINER_COLD, 1)
    assert miner == pytest.approx((10 * 10**9 - owner) / 2, rel=1e-4)
    gain = stakes.stake_of(chain.storage, VALIDATOR, VALIDATOR_COLD, 1) - 2000 * 10**9
    assert gain == pytest.approx(miner * 2 / 3, rel=1e-3)
    assert chain.storage.get("Incentive", 1) == [0, 0, 0, 65535]


def test_what_the_owners_own_hotkeys_earn_as_miners_is_burned(chain: Chain) -> None:
    chain.context.put("Owner", MINER, OWNER)
    run_to(chain, 10)
    assert stakes.stake_of(chain.storage, MINER, MINER_COLD, 1) == 0
    assert chain.storage.get("AlphaAssets.AlphaBurned", 1) > 4 * 10**9


def test_those_who_stake_on_a_validator_share_its_dividends_less_its_take(chain: Chain) -> None:
    nominator = development_address("//nominator")
    stakes.add_stake(chain.context, VALIDATOR, nominator, 1, 2000 * 10**9)
    run_to(chain, 10)
    mine = stakes.stake_of(chain.storage, VALIDATOR, VALIDATOR_COLD, 1) - 2000 * 10**9
    theirs = stakes.stake_of(chain.storage, VALIDATOR, nominator, 1) - 2000 * 10**9
    take = (mine + theirs) * 11796 // 65535
    assert theirs == pytest.approx((mine + theirs - take) / 2, rel=1e-4)


def test_epochs_run_every_tempo_and_when_one_is_pending(chain: Chain) -> None:
    run_to(chain, 9)
    assert coinbase.next_epoch(chain.storage, 1) == 10
    run_to(chain, 10)
    assert chain.storage.get("LastEpochBlock", 1) == 10 and coinbase.next_epoch(chain.storage, 1) == 20
    chain.context.put("PendingEpochAt", 1, 12)
    assert coinbase.next_epoch(chain.storage, 1) == 12
    run_to(chain, 12)
    assert chain.storage.get("LastEpochBlock", 1) == 12 and chain.storage.get("PendingEpochAt", 1) == 0
    assert chain.storage.get("SubnetEpochIndex", 1) == 2
    assert chain.storage.get("BlocksSinceLastStep", 1) == 0


def test_a_silent_validator_loses_its_dividends(genesis_for: Callable[..., Genesis]) -> None:
    """The activity cutoff is one tempo here; the second validator last spoke at block 1."""
    chain = Chain(genesis_for(activity_cutoff_factor_milli=1000), start_ms=1)
    ctx = chain.context
    neurons.link_owner(ctx, MINER, MINER_COLD)
    neurons.register(ctx, 1, MINER)
    for uid in (1, 2):
        ctx.put("Weights", 1, uid, [(3, 65535)])
    ctx.put("LastUpdate", 1, [1, 15, 1, 1])
    run_to(chain, 10)
    before = chain.storage.get("Dividends", 1)
    run_to(chain, 20)
    assert chain.storage.get("Active", 1) == [False, True, False, False]
    after = chain.storage.get("Dividends", 1)
    assert after[1] > before[1] and after[2] < before[2]


def test_a_subnet_that_is_not_started_emits_nothing(chain: Chain) -> None:
    chain.context.put("SubtokenEnabled", 1, False)
    before = staked(chain)
    run_to(chain, 20)
    assert staked(chain) == before
