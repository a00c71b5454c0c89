"""The tour: two rounds of training from chain to chain, in memory: wire, train, commit, audit, merge, publish, pay."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.cheats.base import Cheat
from subnet.cheats.scale import Scale
from subnet.config import RunConfig
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from subnet.ledger.fold import fold
from subnet.ledger.state import state_digest
from template.fake.keys import FakeSigner
from tests.flow.network import Network, network, unhurried

pytestmark = pytest.mark.flow

HONEST = Cheat(0.0)


def short_run() -> RunConfig:
    """Two rounds of six steps on the smallest model; validator-0 draws every segment."""
    run = unhurried(build_run(RunOptions(model="nano", rounds=2, steps=6, segment_steps=2)))
    audit = replace(run.audit, rate_frac=1.0)
    return replace(run, audit=audit, pay=replace(run.pay, audit_window_s=1.0))


async def trained(net: Network, cheats: dict[str, Cheat]) -> None:
    """Run the network until all is trained, published, judged and paid."""
    for number in range(net.num_miners):
        net.start_miner(f"miner-{number}", cheats.get(f"miner-{number}", HONEST))
    for name in ("validator-0", "validator-1"):
        net.start_validator(name)
    rounds = net.run.train.rounds
    await net.until(lambda: net.state.phase == "done" and rounds in net.state.checkpoints)
    await net.until(lambda: all(validator.settled() for validator in net.validators.values()))


async def test_honest_miners_train_merge_alike_and_are_paid_in_full(tmp_path: Path) -> None:
    """Four honest miners on two stages: loss falls, replicas merge to the same root, every verdict passes."""
    run = short_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        await trained(net, {})
        state = net.state
        assert [manifest.dissenting for manifest in state.manifests.values()] == [(), (), ()]
        assert all(len(reports) == 3 for (number, _), reports in state.merged.items() if number > 0)
        verdicts = [verdict for segment in state.segments.values() for verdict in segment.verdicts.values()]
        assert verdicts and {(verdict.verdict, verdict.distance) for verdict in verdicts} == {("pass", 0.0)}
        ledger = books(state, now_ms=state.time_ms + 10_000, own=None)
        assert len(ledger) == 4 and all(book.score == book.committed > 0 for book in ledger.values())
        assert state.checkpoints[2].heldout_loss < state.checkpoints[0].heldout_loss - 0.2
        assert state.rounds[1].steps == 6 and not state.partial
        assert [validator.follower.orchestrator_faults for validator in net.validators.values()] == [[], []]
        assert state_digest(fold(net.orchestrator.ledger.events())) == state_digest(state)


class Poison(Cheat):
    """Contributes the opposite of what it learned, ten times as large."""

    def contribution(
        self, honest: Callable[[np.ndarray, np.ndarray], bytes], start: np.ndarray, end: np.ndarray
    ) -> bytes:
        return honest(end * np.float32(10), start * np.float32(10))


async def test_a_run_merges_by_its_own_reduction_and_outer_step_and_every_node_comes_to_the_same(
    tmp_path: Path,
) -> None:
    """Two stages of three replicas, of which one poisons, and nobody audits: the merge alone has to cope with it."""
    run = build_run(RunOptions(model="nano", rounds=2, steps=9, reduction="trimmed_mean", outer="averaging"))
    async with network(run, load_corpus(run.data), tmp_path, num_miners=6) as net:
        for number in range(6):
            net.start_miner(f"miner-{number}", Poison(1.0) if number == 5 else HONEST)
        await net.until(lambda: net.state.phase == "done" and 2 in net.state.checkpoints)
        state = net.state
        assert [manifest.dissenting for manifest in state.manifests.values()] == [(), (), ()]
        assert all(len(reports) == 4 for (number, _), reports in state.merged.items() if number > 0)
        poisoned = [[entry.hotkey for entry in closed.contributions] for closed in state.closed.values()]
        assert sum(FakeSigner("miner-5").hotkey in hotkeys for hotkeys in poisoned) == 2
        assert state.checkpoints[2].heldout_loss < state.checkpoints[0].heldout_loss - 0.2


async def test_a_miner_that_scales_what_it_sends_is_caught_and_earns_nothing(tmp_path: Path) -> None:
    """One validator draws all of its segments, the other repeats what fails; each has two bad frames or more."""
    run = short_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=5) as net:
        await trained(net, {"miner-4": Scale(0.2)})
        cheater = FakeSigner("miner-4").hotkey
        refuted = [segment for segment in net.state.segments.values() if net.state.upheld(segment)]
        assert {segment.hotkey for segment in refuted} == {cheater}
        for validator in net.validators.values():
            uid = net.chain.find(cheater)
            assert uid is not None and validator.weights.get(uid.uid, 0.0) == 0.0
            assert len(validator.weights) == 4 and abs(sum(validator.weights.values()) - 1) < 1e-9
        honest = [
            book for hotkey, book in books(net.state, now_ms=net.state.time_ms, own=None).items() if hotkey != cheater
        ]
        assert not any(book.refuted for book in honest)
