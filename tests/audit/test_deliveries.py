"""Whose word a frame is: what came in has its sender's signature, and who states other than it signed is found out."""

import dataclasses
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from subnet.audit.case import disputes_of
from subnet.audit.evidence import needed
from subnet.audit.judge import Judgement, audit
from subnet.canonical import digest
from subnet.cheats.base import Cheat
from subnet.ledger.state import Segment
from subnet.wire.delivery import LINE_BYTES
from subnet.wire.messages import Receipt, Work
from tests.audit.lane import SEED, VERIFIER, Lane, lane_run, reasons, signed_line

pytestmark = pytest.mark.flow


def judged(
    lane: Lane, segment: Segment, change: Callable[[dict[str, bytes]], None], *, refused: bool = False
) -> Judgement:
    """The judgement when the signed deliveries are changed on their way."""
    need = needed(lane.state, segment, seed=SEED)
    whole = lane.evidence(need)
    deliveries = dict(whole.deliveries)
    change(deliveries)
    evidence = dataclasses.replace(whole, deliveries=deliveries)
    return audit(need, evidence, lane.run, corpus=lane.corpus, verifier=VERIFIER, refused=refused)


class Says(Cheat):
    """A miner whose receipts are changed before they are signed."""

    def __init__(self, change: Callable[[Work], Work]) -> None:
        super().__init__(1.0)
        self.change = change

    def receipt(self, honest: Callable[[Receipt], Receipt], receipt: Receipt) -> Receipt:
        return replace(receipt, work=tuple(map(self.change, receipt.work)))


@pytest.fixture(scope="module")
def lane() -> Lane:
    """Three honest stages, one segment of two steps."""
    lane = Lane(lane_run(3, steps=2))
    lane.round(0, close=False)
    return lane


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_deliveries_that_are_not_shown_are_withheld(lane: Lane, stage: int) -> None:
    """The miner owes them as it owes the frames."""
    segment = lane.segments(stage)[0]
    name = lane.state.receipts[segment.receipts[1]].deliveries
    judgement = judged(lane, segment, lambda shown: shown.pop(name))
    assert (judgement.verdict, judgement.reason, judgement.details) == ("void", "withheld", (name,))
    judgement = judged(lane, segment, lambda shown: shown.pop(name), refused=True)
    assert (judgement.verdict, judgement.reason) == ("fail", "withheld")


def test_other_bytes_in_their_place_are_as_good_as_none(lane: Lane) -> None:
    segment = lane.segments(1)[0]
    name = lane.state.receipts[segment.receipts[0]].deliveries
    judgement = judged(lane, segment, lambda shown: shown.update({name: shown[name][::-1]}))
    assert (judgement.verdict, judgement.reason) == ("void", "withheld")


def invented(lane: Lane, stage: int, sender: str) -> None:
    """Make a miner's committed lines what it could make up: for its first frame, another hotkey's signature."""
    miner = lane.miners[stage]
    give = lane.deliver

    def deliver(source: object, receiver: object, key: tuple[int, int, int, str], data: bytes) -> None:
        give(source, receiver, key, data)  # type: ignore[arg-type]
        if receiver is miner and key[2] == 0:
            miner.lines[key] = signed_line(lane.run, key, digest(data), sender=sender, receiver=miner.hotkey)

    lane.deliver = deliver  # type: ignore[method-assign]


@pytest.mark.parametrize("sender", ["miner-1", "miner-2", "stranger"])
def test_a_frame_without_the_neighbour_s_signature_fails_as_bookkeeping(sender: str) -> None:
    """A miner that trains on frames that it invented: its own signature, a friend's, or anybody's is not the plan's."""
    lane = Lane(lane_run(3, steps=2))
    invented(lane, 1, sender)
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(1)[0])
    assert (judgement.verdict, judgement.reason) == ("fail", "bookkeeping")
    assert any(detail.endswith("is not one that miner-0 signed") for detail in judgement.details)
    assert reasons([lane.judge(lane.segments(stage)[0]) for stage in (0, 2)]) == ["ok", "ok"]


def test_lines_of_another_step_are_no_evidence_for_this_one() -> None:
    """`replay`: a signature that was given once, shown again."""
    lane = Lane(lane_run(2, steps=2))
    shown = lane.miners[1].lines
    give = lane.deliver

    def deliver(source: object, receiver: object, key: tuple[int, int, int, str], data: bytes) -> None:
        give(source, receiver, key, data)  # type: ignore[arg-type]
        if key[1] == 1 and receiver is lane.miners[1]:
            shown[key] = shown[0, 0, key[2] - 4, key[3]]

    lane.deliver = deliver  # type: ignore[method-assign]
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(1)[0])
    assert (judgement.verdict, judgement.reason, judgement.distance) == ("fail", "bookkeeping", 4.0)


def test_lines_of_another_length_fail_as_bookkeeping() -> None:
    lane = Lane(lane_run(2, steps=2))
    lane.miners[1].lines = _Long()
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(1)[0])
    assert (judgement.verdict, judgement.reason) == ("fail", "bookkeeping")
    assert f"{4 * (LINE_BYTES + 1)} bytes, 4 frames came in" in judgement.details[0]


class _Long(dict[tuple[int, int, int, str], bytes]):
    def __getitem__(self, key: tuple[int, int, int, str]) -> bytes:
        return super().__getitem__(key) + b"\0"


EQUIVOCATIONS = [
    (0, "activation", lambda work: replace(work, output="ee" * 32)),
    (1, "activation", lambda work: replace(work, output="ee" * 32)),
    (1, "gradient", lambda work: replace(work, gradient_out="ee" * 32)),
    (2, "gradient", lambda work: replace(work, gradient_out="ee" * 32)),
]


@pytest.mark.parametrize(("stage", "kind", "change"), EQUIVOCATIONS)
def test_who_states_another_digest_than_it_signed_has_equivocated(
    stage: int, kind: str, change: Callable[[Work], Work]
) -> None:
    """Every hop is joined, drawn or not: all eight frames of the kind are named; its neighbours pass."""
    lane = Lane(lane_run(3, steps=2), {stage: Says(change)})
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(stage)[0])
    assert (judgement.verdict, judgement.reason, judgement.distance) == ("fail", "equivocated", 8.0)
    assert all(detail.startswith(f"the {kind} of microbatch ") for detail in judgement.details)
    others = [lane.judge(lane.segments(other)[0]) for other in range(3) if other != stage]
    assert reasons(others) == ["ok", "ok"]


@pytest.mark.parametrize(("stage", "kind"), [(1, "input"), (1, "gradient_in"), (0, "gradient_in"), (2, "input")])
def test_a_receiver_that_claims_another_frame_than_it_got_costs_its_neighbour_nothing(stage: int, kind: str) -> None:
    """It has no signature for what it claims: its own books are wrong, and whoever sent to it passes."""
    lane = Lane(lane_run(3, steps=2), {stage: Says(lambda work: replace(work, **{kind: "ee" * 32}))})
    lane.round(0, close=False)
    assert lane.judge(lane.segments(stage)[0]).verdict != "pass"
    others = [lane.judge(lane.segments(other)[0]) for other in range(3) if other != stage]
    assert reasons(others) == ["ok", "ok"]
    sender = stage - 1 if kind == "input" else stage + 1
    receipts = tuple(lane.state.receipts[name] for name in lane.segments(sender)[0].receipts)
    assert len(disputes_of(lane.state, receipts)) == 8, "the hop is in dispute all the same"


def test_a_neighbour_that_shows_no_signature_proves_nothing() -> None:
    """Without the line, an equivocation is not proven; the neighbour's own audit asks it for the line."""
    lane = Lane(lane_run(2, steps=2), {0: Says(lambda work: replace(work, output="ee" * 32))})
    lane.round(0, close=False)
    segment, own = (
        lane.segments(0)[0],
        {receipt.deliveries for receipt in lane.state.receipts.values() if not receipt.stage},
    )
    judgement = judged(lane, segment, lambda shown: [shown.pop(name) for name in list(shown) if name not in own])
    assert judgement.reason not in ("equivocated", "withheld") and judgement.verdict != "fail"


def test_honest_hops_are_in_no_dispute(lane: Lane) -> None:
    receipts = tuple(lane.state.receipts.values())
    assert [disputes_of(lane.state, (receipt,)) for receipt in receipts] == [()] * 6
