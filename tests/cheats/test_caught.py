"""Every cheat that shows in a replay, on every stage that it can act on, at several strengths: its segments fail.

Each case names the comparisons that catch it. They all must: a comparison that is dropped from the audit fails the
cases that rest on it. And only they do: without them the same segment would be a pass. Each is judged on a drawn
segment in which it deviates; how often segments are drawn is `tests/audit/test_draw.py`'s law.
"""

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.audit.compare import Finding
from subnet.audit.judge import judge
from subnet.cheats.base import Cheat
from subnet.cheats.copying import Copy
from subnet.cheats.registry import make_cheat
from subnet.config import RunConfig
from subnet.sim.segment import cheat_segment, compared, judged
from subnet.stage.layout import StateLayout
from tests.audit.lane import lane_run

pytestmark = pytest.mark.flow

FIRST, MIDDLE, LAST = 0, 1, 2


def short(run: RunConfig) -> RunConfig:
    """Two microbatches a step, two steps a segment, two segments a round."""
    return replace(run, train=replace(run.train, microbatches_per_step=2))


RUN, ALONE = short(lane_run(3)), short(lane_run(1))
LETTERS = {"A": "activation", "G": "gradient", "L": "loss", "N": "norm", "D": "delta", "M": "moment"}

# kind, strengths, stage, number of the segment, what must fail, what may fail too
SHOWN = [
    *(
        (kind, strengths, stage, 0, must, "")
        for kind, strengths in (("scale", (0.01, 0.2, -2.0)), ("signflip", (0.01, 1.0)), ("noise", (0.01, 0.1)))
        for stage, must in ((FIRST, "A"), (MIDDLE, "AG"), (LAST, "G"))
    ),
    *(
        (kind, strengths, stage, 0, "D", "AGLNM")
        for kind, strengths in (
            ("scale-update", (0.01, 0.2)),
            ("signflip-update", (0.01, 1.0)),
            ("noise-update", (0.01, 0.1)),
        )
        for stage in (FIRST, MIDDLE, LAST)
    ),
    *(
        (kind, strengths, stage, 0, must, "N")
        for kind, strengths in (
            ("idle", (0.1,)),
            ("skip-blocks", (0.5, 1.0)),
            ("int4", (4.0, 8.0)),
            ("lowrank", (0.01, 0.5)),
        )
        for stage, must in ((FIRST, "ADM"), (MIDDLE, "AGDM"), (LAST, "LGDM"))
    ),
    *(("skip", (0.25, 1.0), stage, 0, must, "AG") for stage, must in ((FIRST, "NDM"), (MIDDLE, "NDM"), (LAST, "LNDM"))),
    *(("stale", (0.25, 1.0), stage, 1, "NDM", "AGL") for stage in (FIRST, MIDDLE, LAST)),
    *(
        ("stale-state", (0.01, 1.0), stage, 2, must, "LNDM")
        for stage, must in ((FIRST, "A"), (MIDDLE, "AG"), (LAST, "G"))
    ),
    *(("forge", (0.01, 1.0), stage, number, "DM", "AGLN") for stage in (FIRST, MIDDLE, LAST) for number in (0, 2)),
    ("relabel", (0.25, 1.0), FIRST, 0, "DMN", "A"),
    ("relabel", (0.25, 1.0), LAST, 0, "DMNL", "G"),
    ("misreport", (0.01, 0.05), LAST, 0, "L", ""),
]
CASES = [
    pytest.param(kind, strength, stage, number, must, may, id=f"{kind}:{strength}-{stage}-{number}")
    for kind, strengths, stage, number, must, may in SHOWN
    for strength in strengths
]


def names(letters: str) -> set[str]:
    return {LETTERS[letter] for letter in letters}


def failing(findings: list[Finding]) -> set[str]:
    return {finding.name for finding in findings if not finding.holds}


@pytest.mark.parametrize(("kind", "strength", "stage", "number", "must", "may"), CASES)
def test_a_cheat_is_caught_by_these_comparisons_and_would_pass_without_them(kind, strength, stage, number, must, may):
    need, evidence = cheat_segment(RUN, stage, make_cheat(kind, strength), seed=1, number=number)
    judgement, findings = judged(RUN, need, evidence), compared(RUN, need, evidence)
    assert judgement.verdict == "fail" and judgement.reason in names(must + may)
    assert names(must) <= failing(findings) <= names(must + may)
    left = [finding for finding in findings if finding.name not in names(must + may)]
    assert judge(left, unseen=(), evidence=()).verdict == "pass"


@pytest.mark.parametrize("stage", [FIRST, MIDDLE, LAST])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_honest_work_passes_in_the_same_place(stage, number):
    assert judged(RUN, *cheat_segment(RUN, stage, Cheat(0.0), seed=1, number=number)).verdict == "pass"


@pytest.mark.parametrize(("kind", "stage"), [("relabel", MIDDLE), ("misreport", FIRST), ("misreport", MIDDLE)])
def test_a_stage_without_tokens_or_labels_has_nothing_to_lie_about(kind, stage):
    assert judged(RUN, *cheat_segment(RUN, stage, make_cheat(kind), seed=1)).verdict == "pass"


@pytest.mark.parametrize(
    ("kind", "strength", "number", "reason"),
    [
        *(
            ("idle", 0.1, 0, "loss"),
            ("skip", 0.5, 0, "loss"),
            ("skip-blocks", 0.5, 0, "loss"),
            ("int4", 4.0, 0, "loss"),
        ),
        *(("stale", 1.0, 0, "norm"), ("forge", 0.01, 2, "delta"), ("stale-state", 0.01, 2, "loss")),
        *(("scale-update", 0.01, 0, "delta"), ("relabel", 0.25, 0, "loss"), ("misreport", 0.01, 0, "loss")),
    ],
)
def test_the_only_stage_of_a_run_is_caught_too(kind, strength, number, reason):
    need, evidence = cheat_segment(ALONE, 0, make_cheat(kind, strength), seed=1, number=number)
    assert judged(ALONE, need, evidence).verdict == "fail"
    assert reason in failing(compared(ALONE, need, evidence))


@pytest.mark.parametrize("kind", ["scale", "signflip", "noise"])
def test_a_spoilt_contribution_is_not_that_of_the_committed_end_state(kind):
    """Where no tensors are sent, the contribution is what is spoilt; byte for byte, so no strength is too small."""
    need, evidence = cheat_segment(ALONE, 0, make_cheat(kind, 1e-6), seed=1, number=1)
    assert need.case.close is not None
    said = judged(ALONE, need, evidence)
    assert said.reason == "bookkeeping"
    assert said.details[0] == "the contribution is not that of the committed end state"


@pytest.mark.parametrize("strength", [0.0, 1e-3])
def test_another_replicas_contribution_is_not_that_of_the_own_end_state(strength):
    """As it is, or with noise over it."""
    copy = Copy(strength)
    other = np.random.default_rng(1).normal(0, 1e-3, StateLayout(RUN, FIRST).num_parameters)
    copy.offer(other.astype("<f4").tobytes())
    need, evidence = cheat_segment(RUN, FIRST, copy, seed=1, number=1)
    said = judged(RUN, need, evidence)
    assert said.reason == "bookkeeping"
    assert "the contribution is not that of the committed end state" in said.details


@pytest.mark.parametrize(("stage", "hops"), [(FIRST, 4), (MIDDLE, 8), (LAST, 4)])
def test_who_delivers_other_bytes_than_it_states_is_shown_its_own_signatures(stage, hops):
    """Its replay is faultless, and what its receipt names is what the auditor recomputes."""
    need, evidence = cheat_segment(RUN, stage, make_cheat("equivocate", 0.01), seed=1)
    judgement = judged(RUN, need, evidence)
    assert (judgement.verdict, judgement.reason, judgement.distance) == ("fail", "equivocated", float(hops))
    assert failing(compared(RUN, need, evidence)) == set()
