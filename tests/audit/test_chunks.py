"""Which chunks of an end state an audit looks at: whatever differs from the replay, up to a limit, and no other."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.audit.chunks import CutChunks, chosen, chunks_to_repeat, chunks_wanted, end_parameters, known_chunks
from subnet.audit.draw import draw_seed
from subnet.audit.evidence import Evidence, Needed, Wanted, needed, needed_of, verified
from subnet.audit.judge import Begun, Judgement, after_replay, audit, before_replay, conclude, examine
from subnet.audit.pinned import read_pack, to_pin
from subnet.cheats.base import Cheat, owner
from subnet.config import RunConfig
from subnet.edges.presets import RunOptions, build_run
from subnet.ledger.state import Segment
from subnet.sim.segment import VERIFIER, cheat_segment, segment_corpus
from subnet.stage.layout import COUNTER_BYTES, FLOAT, StateLayout, state_from_bytes
from subnet.stage.view import view_of_bytes
from subnet.wire.merkle import HASH_BYTES, check_chunk, check_leaves, merkle_leaves, merkle_root
from tests.audit.lane import SEED, Lane, lane_run
from tests.audit.lane import VERIFIER as LANE_VERIFIER
from tests.ledger.simulation import Simulation

MIDDLE = 1
WIDTH = 74  # chunks of the middle stage's state
STRENGTH = 0.01
SEGMENT_STEPS = 2
RUN = build_run(RunOptions(model="tiny", stages=3, steps=4, segment_steps=SEGMENT_STEPS, microbatches=2))
DRAWS = [draw_seed("run", "root", str(number), "validator") for number in range(16)]
MATRIX, NORM = "self_attn.q_proj.weight", "post_attention_layernorm.weight"


class OneTensor(Cheat):
    """Moves one tensor too far, in the last step of the segment only."""

    def __init__(self, name: str) -> None:
        super().__init__(STRENGTH)
        self.name, self.steps = name, 0

    def optimizer_step(self, honest, global_step: int) -> float:
        stage = owner(honest).stage
        before, norm, self.steps = stage.parameters_flat(), honest(global_step), self.steps + 1
        if self.steps == SEGMENT_STEPS:
            after, layout = stage.parameters_flat(), stage.layout
            place = next(place for name, place in layout.slices.items() if name.endswith(self.name))
            after[place] += np.float32(self.strength) * (after[place] - before[place])
            stage.load_flat(after)
        return norm


def begun(cheat: Cheat) -> tuple[Needed, Evidence, Begun]:
    """A segment of the middle stage, and its audit as far as the replay."""
    need, evidence = cheat_segment(RUN, MIDDLE, cheat, seed=1)
    found = examine(need, before_replay(need, evidence), RUN, corpus=segment_corpus(RUN), verifier=VERIFIER)
    assert isinstance(found, Begun)
    return need, evidence, found


@pytest.fixture(scope="module")
def honest() -> tuple[Needed, Evidence, Begun]:
    return begun(Cheat(0.0))


def concluded(need: Needed, evidence: Evidence, found: Begun) -> tuple[tuple[int, ...], Judgement]:
    """What the miner is asked for, and the judgement once it has shown it."""
    wanted = found.wanted(need)
    shown = after_replay(evidence, wanted)
    return wanted.chunks, conclude(need, found.with_more(need, shown), RUN, wanted=wanted)


def elsewhere(found: Begun, need: Needed, run: RunConfig = RUN) -> Begun:
    """The replay of a machine on which every chunk comes out otherwise in a last bit, within what is honest."""
    assert found.replayed.end is not None
    end, case = found.replayed.end[:], need.case
    values = np.frombuffer(end[:-COUNTER_BYTES], dtype=FLOAT).copy()
    values[::1000] = np.nextafter(values[::1000], np.float32(np.inf))
    other = view_of_bytes(StateLayout(run, case.stage), values.tobytes() + end[-COUNTER_BYTES:])
    replayed = dataclasses.replace(found.replayed, end=other)
    return dataclasses.replace(found, replayed=replayed)


# The choice by itself.

seeds = st.binary(min_size=32, max_size=32)


@pytest.fixture(scope="module")
def case(honest):
    return honest[0].case


@settings(max_examples=60, deadline=None)
@given(seed=seeds, data=st.data())
def test_of_few_that_differ_all_are_looked_at_and_no_other(case, seed, data):
    """None where none differs, and exactly these up to the drawn part of the state."""
    need = needed_of(case, RUN, seed=seed)
    assert need.most_chunks == math.floor(RUN.audit.chunk_frac * WIDTH) < WIDTH == len(need.order)
    differ = data.draw(st.frozensets(st.integers(0, WIDTH - 1), max_size=need.most_chunks))
    assert chosen(need, differ) == tuple(sorted(differ))


@settings(max_examples=60, deadline=None)
@given(seed=seeds, differ=st.frozensets(st.integers(0, WIDTH - 1)))
def test_of_many_the_first_by_lot_and_some_of_each_section_that_differs(case, seed, differ):
    need = needed_of(case, RUN, seed=seed)
    taken = chosen(need, differ)
    ranked = [index for index in need.order if index in differ]
    least = len(need.sections) + 1
    assert set(ranked[: need.most_chunks - least]) <= set(taken) <= differ
    assert len(taken) == min(need.most_chunks, len(differ)) and least < need.most_chunks
    assert (WIDTH - 1 in taken) == (WIDTH - 1 in differ)
    for first, end in need.sections:
        assert any(first <= index < end for index in taken) == any(first <= index < end for index in differ)
    assert taken == chosen(needed_of(case, RUN, seed=seed), differ), "the seed alone decides"


@settings(max_examples=30, deadline=None)
@given(seed=seeds, differ=st.frozensets(st.integers(0, WIDTH - 1)))
def test_a_contribution_takes_every_chunk_with_parameters_that_differs(case, seed, differ):
    need = dataclasses.replace(needed_of(case, RUN, seed=seed), contribution="c" * 64)
    first, end = need.sections[0]
    parameters = {index for index in differ if first <= index < end}
    assert parameters <= set(chosen(need, differ)) <= differ


def test_where_all_differ_no_chunk_is_safe(case):
    """At one quarter, one stays unlooked at over 100 draws with chance 0.75^100 = 3e-13."""
    needs = [needed_of(case, RUN, seed=draw_seed("r", str(number), "h", "v")) for number in range(100)]
    assert {index for need in needs for index in chosen(need, frozenset(need.order))} == set(range(WIDTH))


# On a real stage of 74 chunks.


@pytest.mark.flow
def test_an_honest_miner_on_a_like_machine_shows_no_chunk(honest):
    need, evidence, found = honest
    wanted, judgement = concluded(need, evidence, found)
    assert (wanted, judgement.verdict, judgement.distance) == ((), "pass", 0.0)
    assert {"delta", "moment"} <= {check.name for check in judgement.checks}


@pytest.mark.flow
def test_an_honest_miner_on_another_machine_shows_the_drawn_part_and_passes(honest):
    """Every chunk differs in a last bit somewhere: a quarter is looked at, and something of each section."""
    need, evidence, found = honest
    wanted, judgement = concluded(need, evidence, elsewhere(found, need))
    assert len(wanted) == need.most_chunks <= WIDTH / 4
    assert judgement.verdict == "pass" and judgement.distance > 0


@pytest.mark.flow
@pytest.mark.parametrize("name", [MATRIX, NORM])
def test_one_percent_of_one_tensor_in_the_last_step_is_caught_in_every_draw(name):
    """A tensor has one to three of the 74 chunks; no seed leaves them out, and nothing else is fetched."""
    need, evidence, found = begun(OneTensor(name))
    case = need.case
    for seed in DRAWS:
        wanted, judgement = concluded(needed_of(case, RUN, seed=seed), evidence, found)
        assert (judgement.verdict, judgement.reason) == ("fail", "delta")
        assert 0 < len(wanted) <= 3


@pytest.mark.flow
def test_leaves_are_bound_by_the_root(honest):
    """Who spoils a tensor cannot show the leaves of an honest state: they are another root's, as good as none."""
    _, right, _ = honest
    need, evidence = cheat_segment(RUN, MIDDLE, OneTensor(MATRIX), seed=1)
    assert right.leaves is not None and evidence.leaves is not None and right.leaves != evidence.leaves
    place = next(at for at in range(0, len(right.leaves), HASH_BYTES) if right.leaves[at] != evidence.leaves[at])
    mended = evidence.leaves[:place] + right.leaves[place : place + HASH_BYTES] + evidence.leaves[place + HASH_BYTES :]
    for forged in (right.leaves, mended, evidence.leaves[:-HASH_BYTES], evidence.leaves + bytes(HASH_BYTES), b""):
        shown = dataclasses.replace(evidence, leaves=forged)
        assert verified(need, Evidence(leaves=forged)).leaves is None
        for refused, verdict in ((False, "void"), (True, "fail")):
            said = audit(need, shown, RUN, corpus=segment_corpus(RUN), verifier=VERIFIER, refused=refused)
            assert (said.verdict, said.reason) == (verdict, "withheld")


@pytest.mark.flow
def test_a_chunk_that_differs_is_owed():
    """Not shown: void in the grace, a fail after it; and so is a chunk of other bytes."""
    need, evidence = cheat_segment(RUN, MIDDLE, OneTensor(NORM), seed=1)
    other = CutChunks(bytes(need.end_bytes))
    for chunks in ({}, other):
        shown = dataclasses.replace(evidence, chunks=chunks)
        for refused, verdict in ((False, "void"), (True, "fail")):
            said = audit(need, shown, RUN, corpus=segment_corpus(RUN), verifier=VERIFIER, refused=refused)
            assert (said.verdict, said.reason) == (verdict, "withheld") and said.details[0].startswith("chunk ")


@pytest.mark.flow
def test_a_fail_is_repeated_on_another_machine_from_what_its_author_pinned():
    """There every chunk differs, and the miner serves none any more: the one that shows the fail is in the pack."""
    need, evidence, found = begun(OneTensor(MATRIX))
    wanted, _ = concluded(need, evidence, found)
    fetched = found.with_more(need, Evidence(chunks={index: evidence.chunks[index] for index in wanted}))
    pack = read_pack(list(to_pin(need, fetched.evidence, found.replayed).values())[-1])
    assert check_leaves(need.end_root, need.end_bytes, pack.leaves)
    assert set(wanted) < pack.chunks.keys() and len(pack.chunks) <= need.most_chunks + 6
    for index, chunk in pack.chunks.items():
        assert check_chunk(need.end_root, need.end_bytes, index, chunk.data, chunk.proof)
    there = elsewhere(found, need)
    repeated = chunks_to_repeat(need, there.evidence, there.replayed, pack.chunks.keys())
    assert set(repeated) == pack.chunks.keys()
    said = conclude(need, there.with_more(need, Evidence(chunks=pack.chunks)), RUN, wanted=Wanted(chunks=repeated))
    assert (said.verdict, said.reason) == ("fail", "delta")


# The close of a round, and who looks after a fail.


@pytest.fixture(scope="module")
def lane() -> Lane:
    """Two stages, one closed round that ends within a segment: its last segments have steps and a contribution."""
    made = Lane(lane_run(2, steps=3))
    made.round(0)
    return made


def closing(lane: Lane, stage: int) -> Segment:
    segment = lane.segments(stage)[-1]
    assert len(segment.receipts) == 2
    return segment


def examined(lane: Lane, need: Needed, evidence: Evidence) -> Begun:
    found = examine(need, evidence, lane.run, corpus=lane.corpus, verifier=LANE_VERIFIER)
    assert isinstance(found, Begun)
    return found


@pytest.mark.flow
def test_a_contribution_is_recomputed_from_the_replay(lane):
    """No chunk is shown, since none differs; and the contribution of another state is found out all the same."""
    need = needed(lane.state, closing(lane, 0), seed=SEED)
    shown = before_replay(need, lane.evidence(need))
    assert need.contribution
    said = audit(need, shown, lane.run, corpus=lane.corpus, verifier=LANE_VERIFIER, refused=False)
    assert said.verdict == "pass"
    found = examined(lane, need, shown)
    layout = StateLayout(lane.run, 0)
    committed = state_from_bytes(layout, lane.miners[0].states[need.end_root]).parameters
    assert np.array_equal(end_parameters(need, found.evidence, found.replayed, layout), committed)
    close = msgspec.structs.replace(need.case.receipts[-1], contribution="ab" * 32)
    other = dataclasses.replace(need, case=dataclasses.replace(need.case, receipts=(need.case.receipts[0], close)))
    said = conclude(other, found, lane.run, wanted=Wanted())
    assert said.reason == "bookkeeping"
    assert said.details == ("the contribution is not that of the committed end state",)


@pytest.mark.flow
def test_where_parameters_differ_the_contribution_is_of_the_committed_ones(lane):
    """Every chunk with parameters that differs is fetched and put in the replay's place."""
    need = needed(lane.state, closing(lane, 0), seed=SEED)
    evidence = lane.evidence(need)
    found = elsewhere(examined(lane, need, before_replay(need, evidence)), need, lane.run)
    first, end = need.sections[0]
    wanted = found.wanted(need)
    assert set(range(first, end)) <= set(wanted.chunks)
    found = found.with_more(need, after_replay(evidence, wanted))
    layout = StateLayout(lane.run, 0)
    committed = state_from_bytes(layout, lane.miners[0].states[need.end_root]).parameters
    assert np.array_equal(end_parameters(need, found.evidence, found.replayed, layout), committed)
    assert conclude(need, found, lane.run, wanted=wanted).verdict == "pass"


@pytest.mark.flow
def test_once_somebody_fails_a_segment_all_that_differs_is_looked_at(lane):
    """What shows on the accuser's machine may be one chunk of many that differ on the next one's."""
    segment = closing(lane, 0)
    drawn = needed(lane.state, segment, seed=SEED)
    segment.verdicts["validator-a"] = Simulation().verdict("validator-0", segment, "fail")
    all_of_it = needed(lane.state, segment, seed=SEED)
    assert all_of_it.most_chunks == len(drawn.order) > drawn.most_chunks
    assert all_of_it.most_outbound == len(drawn.outbound) > drawn.most_outbound
    segment.verdicts["validator-a"] = Simulation().verdict("validator-0", segment, "pass")
    assert needed(lane.state, segment, seed=SEED) == drawn
    del segment.verdicts["validator-a"]


@pytest.mark.flow
def test_what_an_accuser_knows_is_what_it_fetched_and_what_its_replay_has(lane):
    """Without a replay or leaves it knows only what it was shown."""
    need = needed(lane.state, closing(lane, 0), seed=SEED)
    found = examined(lane, need, before_replay(need, lane.evidence(need)))
    assert chunks_wanted(need, found.evidence, found.replayed) == ()
    known = known_chunks(need, found.evidence, found.replayed)
    assert known.keys() == set(chosen(need, frozenset(need.order)))
    assert known_chunks(need, Evidence(), found.replayed) == {}


def test_a_cut_state_has_its_chunks_and_leaves():
    data = bytes(range(256)) * 700
    cut = CutChunks(data)
    assert list(cut) == [0, 1, 2] and len(cut) == 3 and cut.leaves == b"".join(merkle_leaves(data))
    assert all(check_chunk(merkle_root(data), len(data), i, c.data, c.proof) for i, c in cut.items())
    assert 3 not in cut and -1 not in cut
