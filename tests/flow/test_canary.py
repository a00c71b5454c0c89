"""A canary in a network: planted before it joins, caught by who looks, revealed before the merge, never paid."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.cheats.registry import make_cheat
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from subnet.ledger.canary import measured_of
from subnet.ledger.events import Planted, Revealed
from subnet.nodes.canaries import Listed, consenting
from template.fake.keys import FakeSigner
from tests.flow.network import DRAWS_ALL_RAO, Held, Network, network, unhurried
from tests.flow.test_accusations import Lazy

pytestmark = pytest.mark.flow

STEPS = 20


def has_judged(net: Network, validator: str, miner: str) -> bool:
    """Whether a validator has drawn a segment of this miner, and said what it found."""
    verdicts = (net.state.segments[name].verdicts for name in net.state.chains.get(miner, ()))
    said = (each.get(FakeSigner(validator).hotkey) for each in verdicts)
    return any(verdict is not None and verdict.draw is not None for verdict in said)


async def test_a_canary_tells_who_looks_from_who_does_not(tmp_path: Path) -> None:
    """The honest validator catches all that it drew, the lazy one none. Each draws each segment with a chance of 1/2:
    that one of them draws none of the nineteen that are theirs to judge has a chance of 2 / 2^19, one in 260,000.

    In the last step the honest miners wait until both have judged one: what is judged after the reveal measures nobody.
    """
    run = unhurried(build_run(RunOptions(model="nano", stages=1, rounds=1, steps=STEPS, segment_steps=1)))
    run = replace(run, audit=replace(run.audit, rate_frac=1.0), pay=replace(run.pay, audit_window_s=60.0))
    listed = Listed(wallet="owner", hotkey="miner-2", cheat="stale", strength=1.0, salt="5a" * 32)
    (canary,) = consenting([listed], run.run_id, signer_of=lambda _, hotkey: FakeSigner(hotkey))
    stakes_rao = (DRAWS_ALL_RAO, DRAWS_ALL_RAO)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=3, stakes_rao=stakes_rao) as net:
        net.orchestrator.canaries = (canary,)
        honest_miners = [Held(STEPS - 1), Held(STEPS - 1)]
        for number, held in enumerate(honest_miners):
            net.start_miner(f"miner-{number}", held)
        net.start_miner("miner-2", make_cheat("stale"))
        net.start_validator("validator-0")
        net.start_validator("validator-1", Lazy)
        await net.until(lambda: all(has_judged(net, name, canary.hotkey) for name in net.validators))
        for held in honest_miners:
            held.go.set()
        await net.until(lambda: net.state.phase == "done")
        kinds = [type(event.body) for event in net.orchestrator.events]
        assert kinds.count(Planted) == kinds.count(Revealed) == 1 and kinds.index(Planted) < kinds.index(Revealed)
        honest, lazy = (measured_of(net.state, FakeSigner(name).hotkey) for name in ("validator-0", "validator-1"))
        assert honest.missed == 0 and honest.caught >= honest.drawn > 0
        assert lazy.caught == 0 and lazy.missed >= lazy.drawn > 0
        merged = {entry.hotkey for closed in net.state.closed.values() for entry in closed.contributions}
        assert merged and canary.hotkey not in merged
        assert [validator.follower.orchestrator_faults for validator in net.validators.values()] == [[], []]
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=None)
        assert book[canary.hotkey].payable == 0
