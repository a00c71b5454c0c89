"""The cheats that no replay shows, in a whole network in one process: what they send is refused, or is not paid."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.cheats.base import Cheat
from subnet.cheats.flood import Flood
from subnet.cheats.registry import make_cheat
from subnet.config import RunConfig
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import Book, books
from subnet.ledger.closed import DISSENT, UNCLOSED
from subnet.ledger.events import Said
from subnet.ledger.state import Segment
from template.fake.keys import FakeSigner
from tests.flow.network import LIMIT_S, STARVED_S, Network, network, unhurried

pytestmark = pytest.mark.flow


def small_run(*, stages: int = 2, steps: int = 4, deadline_s: float = LIMIT_S) -> RunConfig:
    """The smallest model; a round of two segments, or of one where each step ends by its deadline only."""
    run = build_run(RunOptions(model="nano", stages=stages, rounds=1, steps=steps, segment_steps=min(steps, 2)))
    return replace(unhurried(run, deadline_s=deadline_s), pay=replace(run.pay, audit_window_s=1.0))


async def train(net: Network, cheats: dict[int, Cheat]) -> None:
    """All miners, those of these numbers with their cheats, until training is over."""
    for number in range(net.num_miners):
        net.start_miner(f"miner-{number}", cheats.get(number))
        await net.until(lambda: hotkey(number) in net.state.members)  # noqa: B023
    await net.until(lambda: net.state.phase == "done")


def hotkey(number: int) -> str:
    return FakeSigner(f"miner-{number}").hotkey


def segments(net: Network, number: int) -> list[Segment]:
    return [segment for segment in net.state.segments.values() if segment.hotkey == hotkey(number)]


def book(net: Network, number: int) -> Book:
    """What a miner is paid for in the end."""
    return books(net.state, now_ms=net.state.time_ms + 10**9, own=None).get(hotkey(number), Book(hotkey=hotkey(number)))


LAST = max(range(2), key=hotkey)  # of two miners the one that takes the last stage: they are seated by hotkey


async def test_who_starves_its_neighbour_is_not_paid_and_the_neighbour_is_not_late(tmp_path: Path) -> None:
    """No gradient is acknowledged, so none is payable; that the stage before can do nothing is not its fault."""
    run = small_run(steps=1, deadline_s=STARVED_S)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        await train(net, {LAST: make_cheat("starve")})
        assert net.state.members[hotkey(LAST)].stage == 1
        assert segments(net, LAST) and book(net, LAST).committed == book(net, LAST).unpaid > 0
        assert book(net, LAST).score == 0
        assert net.state.members[hotkey(1 - LAST)].missed_steps == 0


async def test_who_starves_now_and_then_is_not_paid_for_that(tmp_path: Path) -> None:
    """Half of its gradients go nowhere; its neighbour is paid for the other half."""
    run = small_run(steps=1, deadline_s=STARVED_S)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        await train(net, {LAST: make_cheat("starve", 0.5)})
        done = [work for r in net.state.receipts.values() if r.hotkey == hotkey(LAST) for work in r.work]
        assert any(work.index % 2 for work in done) and not any(work.gradient_ack for work in done if work.index % 2)
        assert book(net, LAST).unpaid > 0 and book(net, LAST).payable > 0
        passed_on = [work.index for r in net.state.receipts.values() if r.hotkey == hotkey(1 - LAST) for work in r.work]
        assert passed_on and not any(index % 2 for index in passed_on)
        assert book(net, 1 - LAST).payable == book(net, 1 - LAST).committed > 0


async def test_an_old_receipt_is_refused_and_an_old_frame_too(tmp_path: Path) -> None:
    """It stands in the ledger once, what is sent as a frame is dropped, and its author earns less than the others."""
    run = small_run(steps=2, deadline_s=STARVED_S)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        await train(net, {3: make_cheat("replay", 0.5)})
        said = [r for r in net.state.receipts.values() if r.hotkey == hotkey(3) and r.kind == "step"]
        assert said and len({(receipt.round, receipt.step) for receipt in said}) == len(said)
        assert book(net, 3).payable < min(book(net, number).payable for number in range(3))


async def test_a_flood_is_refused_and_stops_nobody(tmp_path: Path) -> None:
    """Only what it has said before is answered, by where it stands in the log; what it spoils is paid to nobody."""
    run = small_run(steps=2, deadline_s=STARVED_S)
    flood = Flood(100.0)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        await train(net, {3: flood})
        assert set(flood.taken) <= {"repeated"}
        assert net.state.global_step == run.train.steps_per_round
        said = [r for r in net.state.receipts.values() if r.hotkey == hotkey(3) and r.kind != "rollback"]
        assert len({(receipt.kind, receipt.step) for receipt in said}) == len(said) <= run.train.steps_per_round + 1
        assert sum(isinstance(event.body, Said) for event in net.orchestrator.events) < 20 * net.num_miners
        assert all(book(net, number).score > 0 for number in range(3))


@pytest.mark.parametrize("strength", [0.0, 0.01])
async def test_a_copied_contribution_is_dropped_and_its_round_not_paid(tmp_path: Path, strength: float) -> None:
    """As it is, it belongs to who committed it first. With noise over it, it is not that of the own end state."""
    run = small_run(stages=1)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        await train(net, {1: make_cheat("copy", strength)})
        closes, closed = net.state.closes[0], net.state.closed[0, 0]
        same = closes[hotkey(0)].contribution == closes[hotkey(1)].contribution
        assert same == (strength == 0.0)
        if same:
            assert [entry.hotkey for entry in closed.contributions] == [hotkey(0)]
            assert {segment.forfeit for segment in segments(net, 1)} == {UNCLOSED} and book(net, 1).score == 0
        own = net.miners["miner-1"].custody
        assert own is not None
        start, end = own.pseudo_gradient(0)
        handed_in = np.frombuffer(net.orchestrator.store.get(closes[hotkey(1)].contribution), dtype="<f4")
        assert not np.allclose(handed_in, start - end, rtol=1e-3)
        assert book(net, 0).score > 0


async def test_a_wrong_merge_costs_the_round_alone_and_with_a_partner(tmp_path: Path) -> None:
    """Two who agree with each other are outvoted by what the closed set gives, as two validators find too; the next
    round starts from that."""
    run = small_run(stages=1)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        for name in ("validator-0", "validator-1"):
            net.start_validator(name)
        await train(net, {2: make_cheat("badmerge", 0.01), 3: make_cheat("badmerge", 0.01)})
        await net.until(lambda: len(net.state.merged[1, 0]) == 7)
        merged = net.state.merged[1, 0]
        assert merged[hotkey(2)].root == merged[hotkey(3)].root != merged[hotkey(0)].root == merged[hotkey(1)].root
        assert net.state.manifests[1].stages[0].root == merged[hotkey(0)].root
        for number, reason, paid in ((0, "", True), (1, "", True), (2, DISSENT, False), (3, DISSENT, False)):
            assert {segment.forfeit for segment in segments(net, number)} == {reason}
            assert (book(net, number).score > 0) == paid


async def test_a_wrong_merge_of_all_replicas_is_merged_again_by_the_validators(tmp_path: Path) -> None:
    """Both agree with each other, and nobody of the stage with the manifest: two validators settle it all the same."""
    run = small_run(stages=1)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        for name in ("validator-0", "validator-1"):
            net.start_validator(name)
        await train(net, {0: make_cheat("badmerge", 0.01), 1: make_cheat("badmerge", 0.01)})
        await net.until(lambda: len(net.state.merged[1, 0]) == 5)
        root = net.state.manifests[1].stages[0].root
        assert {net.state.merged[1, 0][FakeSigner(f"validator-{n}").hotkey].root for n in (0, 1)} == {root}
        for number in (0, 1):
            assert {segment.forfeit for segment in segments(net, number)} == {DISSENT}
            assert book(net, number).score == 0
