"""Laws of the audit's benchmark: its list of cheats, what it counts as fetched, and that its figures can fail."""

import pytest
from msgspec.structs import replace

from scripts.bench.audit import byte_figures, cheat_figures, honest_figures
from scripts.bench.audit_costs import Compute, Fetched
from scripts.bench.audit_counts import (
    CASES,
    CLASSES,
    EVERYWHERE,
    SMALL,
    Caught,
    Deviate,
    Honest,
    catch,
    cheated_segments,
    nano_run,
)
from subnet.cheats.registry import CHEATS
from subnet.sim.segment import compared

NOT_IN_A_REPLAY = {"badmerge", "copy", "flood", "replay", "starve", "sybil", "withhold"}


def test_every_cheat_that_shows_in_a_replay_is_counted():
    assert {kind for kind, _, _ in CASES} == set(CHEATS) - NOT_IN_A_REPLAY


def caught(*fails: bool) -> list[Caught]:
    return [Caught(kind="scale", strength=0.01, stage=stage, fails=(True, fail)) for stage, fail in enumerate(fails)]


def test_a_cheat_that_gets_away_once_on_one_stage_fails_its_figure():
    (good,), (bad,) = cheat_figures(CLASSES[0], caught(True, True)), cheat_figures(CLASSES[0], caught(True, False))
    assert (good.value, good.holds) == (1.0, True)
    assert (bad.value, bad.holds) == (0.5, False) and "stages [1]" in bad.how


def test_muon_is_measured_and_not_judged():
    assert [figure.holds for figure in cheat_figures(CLASSES[1], caught(False))] == [None]


def test_one_flagged_honest_segment_fails_and_too_few_do_not_hold():
    limits, usual = {"delta": 1e-6, "norm": 1e-7}, {"delta": 9e-7, "norm": 1e-8}
    found = {
        CLASSES[0]: Honest(distances=[usual] * 9_998 + [{"delta": 9e-7, "norm": 2e-7}], within=limits),
        CLASSES[1]: Honest(distances=[{"norm": 1e-7}], within=limits),
    }
    holds = {figure.name: figure.holds for figure in honest_figures(found, quick=False)}
    assert (holds["honest_flagged_float32_adamw"], holds["honest_flagged_float32_muon"]) == (False, True)
    assert holds["honest_segments"] is True
    del found[CLASSES[1]]
    assert {figure.name: figure.holds for figure in honest_figures(found, quick=False)}["honest_segments"] is False


def test_what_is_fetched_is_counted_beyond_a_start_state_and_a_quarter_of_an_end_state():
    assert Fetched(evidence=185, traffic=100, start=100, end=100, plain=True).traffic_frac == pytest.approx(0.6)


def test_one_segment_over_the_limit_fails_the_bytes_and_those_that_only_state_do_not():
    def of(evidence: int, *, plain: bool) -> Fetched:
        return Fetched(evidence=evidence, traffic=100, start=100, end=100, plain=plain)

    alike, apart = [of(185, plain=False), of(125, plain=True)], [of(300, plain=False), of(185, plain=True)]
    assert [figure.holds for figure in byte_figures(alike, apart)] == [True, True, None]
    worse = [figure.holds for figure in byte_figures([*alike, of(186, plain=True)], [*apart, of(186, plain=True)])]
    assert worse == [False, False, None]


def test_compute_is_the_median_of_the_turns():
    assert Compute(trained_s=(1.0, 2.0, 1.0), audited_s=(1.1, 2.0, 9.0)).ratio == pytest.approx(1.1)


@pytest.mark.flow
@pytest.mark.parametrize("kind", ["activation", "gradient", "loss", "norm", "delta", "moment"])
def test_a_planted_deviation_is_in_its_own_kind_of_number(kind: str):
    """And as large as planted, by the audit's own comparison of every chunk. Where a chunk's edge cuts a tensor in two,
    a draw may have the smaller part, which is measured on the scale of the whole."""
    run = nano_run(CLASSES[0])
    run = replace(run, audit=replace(run.audit, chunk_frac=1.0))
    stage = 0 if kind == "activation" else 2
    segment = next(cheated_segments(run, stage, Deviate(kind, 0.05), rounds=1))
    findings = compared(run, segment.need, segment.evidence)
    assert max(finding.distance for finding in findings if finding.name == kind) >= 0.04


@pytest.mark.flow
@pytest.mark.parametrize("run_class", [CLASSES[0], CLASSES[2]], ids=" ".join)
def test_named_cheats_fail(run_class: tuple[str, str]):
    """The benchmark's law at a reduced count: each cheat on one stage, the stages by turns, at the smallest strength
    that must be caught (1 % in float32, 5 % in bfloat16).

    Cheats of which one drawn segment in ten got away would all fail here by luck with a chance of 0.9^33 = 3 %. Every
    stage and more strengths, in float32: tests/cheats/test_caught.py.
    """
    found = []
    for number, case in enumerate(CASES):
        found += catch(run_class, rounds=1, stages=(case[2][number % len(case[2])],), cases=(case,))
    assert [each for each in found if not all(each.fails)] == []
    assert sum(len(each.fails) for each in found) >= 33 and {each.stage for each in found} == set(EVERYWHERE)
    assert min(each.strength for each in found) == SMALL[run_class[0]]
