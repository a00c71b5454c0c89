"""What an audit asks for: enough of everything, chosen by the seed, from whoever owes it."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.audit.draw import draw_seed
from subnet.audit.evidence import drawn_chunks, drawn_outbound, needed
from subnet.stage.layout import SECTIONS, StateLayout
from subnet.wire.merkle import CHUNK_BYTES, num_chunks
from tests.audit.lane import SEED, Lane, lane_run
from tests.model.tiny import tiny_model

seeds = st.binary(min_size=32, max_size=32)


@pytest.fixture(scope="module")
def lane() -> Lane:
    """Three stages, one closed round of two segments."""
    lane = Lane(lane_run(3))
    lane.round(0)
    return lane


@pytest.fixture(scope="module")
def layout() -> StateLayout:
    """A state of several chunks per section."""
    return StateLayout(lane_run(1, model=tiny_model(hidden_size=64, intermediate_size=256, head_dim=16)), 0)


@given(seeds, st.floats(0.01, 1.0), st.booleans())
def test_drawn_chunks_reach_every_section_and_the_counter(layout, seed, frac, whole):
    """At least the fraction, at least one in each section, the last always; all parameters for a contribution."""
    chunks = drawn_chunks(layout, seed, "segment", frac=frac, whole_parameters=whole)
    width = num_chunks(layout.state_bytes)
    assert width > 12 and len(chunks) >= math.ceil(frac * width) and chunks[-1] == width - 1
    for number in range(len(SECTIONS)):
        start, end = number * layout.section_bytes, (number + 1) * layout.section_bytes
        assert any(index * CHUNK_BYTES < end and (index + 1) * CHUNK_BYTES > start for index in chunks)
    if whole:
        assert set(range(math.ceil(layout.section_bytes / CHUNK_BYTES))) <= set(chunks)


def test_every_chunk_is_drawn_under_some_seed(layout):
    """No chunk is safe: at one quarter, one stays undrawn over 100 seeds with chance 0.75^100 = 3e-13."""
    drawn = {
        index
        for number in range(100)
        for index in drawn_chunks(layout, draw_seed("r", str(number), "h", "v"), "s", frac=0.25, whole_parameters=False)
    }
    assert drawn == set(range(num_chunks(layout.state_bytes)))


@settings(max_examples=30)
@given(seeds, st.floats(0.01, 1.0))
def test_of_each_step_and_kind_at_least_the_fraction_and_one_is_fetched_from_its_receiver(lane, seed, frac):
    """A middle stage sends activations to the next stage and gradients to the one before."""
    case = needed(lane.state, lane.segments(1)[0], seed=seed).case
    drawn = drawn_outbound(case, seed, frac=frac)
    for position in range(2):
        for kind, receiver in (("activation", "miner-2"), ("gradient", "miner-0")):
            chosen = [frame for frame in drawn if (frame.hop[0], frame.hop[2]) == (position, kind)]
            assert len(chosen) == math.ceil(frac * 4)
            assert {frame.receiver for frame in chosen} == {receiver}


def test_all_inbound_frames_are_the_audited_miners_to_show(lane):
    """4 microbatches of 2 steps: 8 activations and 8 gradients for a middle stage, 8 for the ends."""
    counts = [len(needed(lane.state, lane.segments(stage)[0], seed=SEED).inbound) for stage in range(3)]
    assert counts == [8, 16, 8]


def test_only_what_is_needed_is_asked_for(lane):
    """A first segment starts at the public state, a later one at its own; a bare close needs both and no chunks."""
    opening, later, close = (needed(lane.state, segment, seed=SEED) for segment in lane.segments(0))
    assert opening.public_root and not opening.start_root and opening.chunks
    assert later.start_root == opening.end_root and not later.public_root
    assert close.public_root and close.start_root == later.end_root and close.contribution
    assert close.chunks == close.inbound == close.outbound == ()


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
