"""Every cheat, on every stage that it can act on: its segments fail for the right reason, and nobody else's do.

Each is judged on all of its segments, so these are the verdicts of the draws that hit; how often a draw hits is
`tests/audit/test_draw.py`'s law. Each detection stands alone: without it, the cheat passes here.
"""

import pytest

from subnet.cheats.registry import make_cheat
from tests.audit.lane import Lane, lane_run, reasons

pytestmark = pytest.mark.flow

CAUGHT = [
    ("idle", 3, 0, "activation"),
    ("idle", 3, 1, "activation"),
    ("idle", 3, 2, "loss"),
    ("idle", 1, 0, "loss"),
    ("stale", 3, 0, "norm"),
    ("stale", 3, 1, "norm"),
    ("stale", 3, 2, "norm"),
    ("stale", 1, 0, "norm"),
    ("scale", 3, 0, "activation"),
    ("scale", 3, 1, "activation"),
    ("scale", 3, 2, "gradient"),
    ("relabel", 3, 0, "activation"),
    ("relabel", 3, 2, "loss"),
    ("relabel", 1, 0, "loss"),
]


@pytest.mark.parametrize(("kind", "stages", "stage", "reason"), CAUGHT)
def test_every_training_segment_of_a_cheat_fails_and_its_neighbours_pass(kind, stages, stage, reason):
    """At the default strength, on two segments of two steps."""
    lane = Lane(lane_run(stages), {stage: make_cheat(kind)})
    lane.round(0, close=False)
    assert [(j.verdict, j.reason) for j in lane.judgements(stage)] == [("fail", reason)] * 2
    honest = [name for other in range(stages) if other != stage for name in reasons(lane.judgements(other))]
    assert honest == ["ok"] * (2 * (stages - 1))


@pytest.mark.parametrize("strength", [0.01, 0.2, -2.0])
def test_scaling_is_found_at_one_percent(strength):
    """The distance of scaling by 1 + x is x."""
    lane = Lane(lane_run(2), {0: make_cheat("scale", strength)})
    lane.round(0, close=False)
    for judgement in lane.judgements(0):
        assert (judgement.verdict, judgement.reason) == ("fail", "activation")
        assert judgement.distance == pytest.approx(abs(strength), rel=1e-5)


def test_a_scaled_contribution_of_the_only_stage_fails_byte_for_byte():
    lane = Lane(lane_run(1), {0: make_cheat("scale")})
    lane.round(0)
    assert reasons(lane.judgements(0)) == ["ok", "ok", "bookkeeping"]


def test_relabelling_one_microbatch_in_four_is_found():
    """Losses are compared for every microbatch of the last stage."""
    lane = Lane(lane_run(2), {1: make_cheat("relabel", 0.25)})
    lane.round(0, close=False)
    assert reasons(lane.judgements(1)) == ["loss", "loss"]


def test_a_middle_stage_has_nothing_to_relabel():
    lane = Lane(lane_run(3), {1: make_cheat("relabel")})
    lane.round(0, close=False)
    assert reasons(lane.judgements(1)) == ["ok", "ok"]
