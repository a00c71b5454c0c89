"""What an audit asks for: enough of everything, chosen by the seed, from whoever owes it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.audit.draw import draw_seed
from subnet.audit.evidence import needed, outbound_order
from tests.audit.lane import SEED, Lane, lane_run

seeds = st.binary(min_size=32, max_size=32)


@pytest.fixture(scope="module")
def lane() -> Lane:
    """Three stages, one closed round of two segments."""
    lane = Lane(lane_run(3))
    lane.round(0)
    return lane


@settings(max_examples=30)
@given(seeds)
def test_every_frame_that_was_sent_has_its_place_in_the_order_and_its_receiver(lane, seed):
    """A middle stage sends activations to the next stage and gradients to the one before: four of each in a step."""
    case = needed(lane.state, lane.segments(1)[0], seed=seed).case
    order = outbound_order(case, seed)
    assert len(set(order)) == len(order) == 16
    for position in range(2):
        for kind, receiver in (("activation", "miner-2"), ("gradient", "miner-0")):
            sent = [frame for frame in order if (frame.hop[0], frame.hop[2]) == (position, kind)]
            assert len(sent) == 4 and {frame.receiver for frame in sent} == {receiver}


def test_all_inbound_frames_are_the_audited_miners_to_show(lane):
    """4 microbatches of 2 steps: 8 activations and 8 gradients for a middle stage, 8 for the ends."""
    counts = [len(needed(lane.state, lane.segments(stage)[0], seed=SEED).inbound) for stage in range(3)]
    assert counts == [8, 16, 8]


def test_only_what_is_needed_is_asked_for(lane):
    """A first segment starts at the public state, a later one at its own; a bare close needs both and no leaves."""
    opening, later, close = (needed(lane.state, segment, seed=SEED) for segment in lane.segments(0))
    assert opening.public_root and not opening.start_root and opening.order
    assert later.start_root == opening.end_root and not later.public_root
    assert close.public_root and close.start_root == later.end_root and close.contribution
    assert close.order == close.inbound == close.outbound == ()


def test_another_seed_asks_for_other_frames(lane):
    """The miner cannot know which of its frames will be looked at."""
    segment = lane.segments(1)[0]
    asked = {needed(lane.state, segment, seed=draw_seed("r", str(n), "h", "v")).outbound for n in range(20)}
    assert len(asked) > 1


def test_a_case_is_a_snapshot(lane):
    """The ledger may go on while an audit runs."""
    segment = lane.segments(0)[0]
    need = needed(lane.state, segment, seed=SEED)
    before = msgspec.to_builtins(need.case.receipts)
    segment.tainted = True
    assert msgspec.to_builtins(need.case.receipts) == before
    segment.tainted = False
