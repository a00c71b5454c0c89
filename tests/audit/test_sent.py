"""Which frames of what was sent an audit looks at: whatever differs from the replay, up to a limit, and no other."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.audit.draw import draw_seed
from subnet.audit.evidence import Evidence, Needed, Outbound, needed
from subnet.audit.judge import Begun, after_replay, before_replay, conclude, examine, with_most
from subnet.audit.sent import frames_chosen, frames_to_repeat, frames_wanted
from subnet.cheats.base import Cheat
from tests.audit.lane import SEED, VERIFIER, Lane, lane_run

MIDDLE = 1
DRAWS = [draw_seed("run", "root", str(number), "validator") for number in range(8)]


class OneFrame(Cheat):
    """Sends one activation of all 1 % too large."""

    def __init__(self) -> None:
        super().__init__(0.01)
        self.sent = 0

    def forward(self, honest, microbatch, inputs):
        self.sent += 1
        return honest(microbatch, inputs) * (1.01 if self.sent == 7 else 1)


def examined(lane: Lane, need: Needed, evidence: Evidence) -> Begun:
    found = examine(need, before_replay(need, evidence), lane.run, corpus=lane.corpus, verifier=VERIFIER)
    assert isinstance(found, Begun)
    return found


def middle(lane: Lane, seed: bytes = SEED) -> tuple[Needed, Evidence]:
    need = needed(lane.state, lane.segments(MIDDLE)[0], seed=seed)
    return need, lane.evidence(need)


@pytest.fixture(scope="module")
def honest() -> Lane:
    lane = Lane(lane_run(3))
    lane.round(0, close=False)
    return lane


@pytest.fixture(scope="module")
def need(honest) -> Needed:
    return middle(honest)[0]


@given(data=st.data())
def test_of_few_that_differ_all_are_looked_at_and_no_other(need, data):
    assert need.most_outbound == 8 < len(need.outbound) == 16
    differ = data.draw(st.frozensets(st.sampled_from(need.outbound), max_size=need.most_outbound))
    assert set(frames_chosen(need, differ)) == differ


@given(data=st.data())
def test_of_many_the_first_by_lot_and_one_of_each_kind_from_its_first_step(need, data):
    few = dataclasses.replace(need, most_outbound=3)
    differ = data.draw(st.frozensets(st.sampled_from(need.outbound)))
    taken = frames_chosen(few, differ)
    assert set(taken) <= differ and len(set(taken)) == len(taken) == min(3, len(differ))
    assert {frame.hop[2] for frame in taken} == {frame.hop[2] for frame in differ}
    assert set([frame for frame in need.outbound if frame in differ][:1]) <= set(taken)
    for kind in ("activation", "gradient"):
        steps = [frame.hop[0] for frame in differ if frame.hop[2] == kind]
        assert not steps or min(steps) in [frame.hop[0] for frame in taken if frame.hop[2] == kind]


def test_one_of_each_kind_is_looked_at_however_small_the_part(need):
    none = dataclasses.replace(need, most_outbound=0)
    assert {frame.hop[2] for frame in frames_chosen(none, frozenset(need.outbound))} == {"activation", "gradient"}


def test_where_all_differ_no_frame_is_safe(honest):
    """At one in four, one stays unlooked at over 100 draws with chance 3e-13."""
    draws = [middle(honest, draw_seed("r", str(number), "h", "v"))[0] for number in range(100)]
    few = [dataclasses.replace(need, most_outbound=4) for need in draws]
    seen: set[Outbound] = set()
    seen.update(*(frames_chosen(need, frozenset(need.outbound)) for need in few))
    assert seen == set(few[0].outbound)


def test_of_an_honest_miner_on_a_like_machine_no_frame_is_fetched(honest):
    need, evidence = middle(honest)
    found = examined(honest, need, evidence)
    assert frames_wanted(need, found.replayed) == ()
    assert not any(step.outbound for step in found.replayed.steps), "nor is one kept"
    assert len(with_most(need, evidence).frames) == len(need.inbound) + need.most_outbound


def test_one_wrong_frame_of_many_is_caught_in_every_draw_and_only_it_is_fetched():
    """Its step's other results follow from it honestly: only the frame itself shows it."""
    lane = Lane(lane_run(3), {MIDDLE: OneFrame()})
    lane.round(0, close=False)
    for seed in DRAWS:
        need, evidence = middle(lane, seed)
        found = examined(lane, need, evidence)
        wanted = found.wanted(need)
        assert len(wanted.frames) == 1 and not wanted.chunks
        judgement = conclude(need, found.with_more(need, after_replay(evidence, wanted)), lane.run, wanted=wanted)
        assert (judgement.verdict, judgement.reason) == ("fail", "activation")
        assert wanted.frames[0].digest in judgement.evidence
        assert frames_to_repeat(need, found.replayed, judgement.evidence) == wanted.frames
