"""Distances and judgements: what is not finite never passes, and every word has its rank."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.audit.compare import END, Finding, tolerance_of
from subnet.audit.distance import MAX_DISTANCE, distance
from subnet.audit.judge import REASONS, judge
from tests.data.small import small_run

finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)
vectors = st.lists(finite, min_size=1, max_size=8)


def row(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def finding(name: str, apart: float, position: int = 0, tolerance: float = 1e-3) -> Finding:
    return Finding(name=name, position=position, distance=apart, tolerance=tolerance)


@given(vectors)
def test_equal_values_have_no_distance(values):
    assert distance(row(*values), row(*values)) == 0.0


@given(vectors, st.floats(-0.5, 0.5))
def test_a_scaled_value_is_as_far_as_the_scale(values, by):
    """Poisoning by x is found as a distance of x."""
    array = np.array(values, dtype=np.float64)
    if not np.linalg.norm(array) > 1e-30:
        return
    assert distance(array * (1 + by), array) == pytest.approx(abs(by), abs=1e-12)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_passes(wrong):
    """On either side, in one element or all."""
    for claimed, recomputed in (((1.0, wrong), (1.0, 2.0)), ((1.0, 2.0), (1.0, wrong)), ((wrong,), (wrong,))):
        assert distance(row(*claimed), row(*recomputed)) == MAX_DISTANCE
    assert distance(wrong, 1.0) == MAX_DISTANCE
    assert not finding("loss", math.nan).holds


def test_zero_against_zero_is_no_distance_and_anything_against_zero_the_largest():
    assert distance(row(0.0, 0.0), row(0.0, 0.0)) == 0.0
    assert distance(row(1e-30), row(0.0)) == MAX_DISTANCE
    assert distance(row(0.0), row(1.0)) == 1.0


def test_values_of_another_size_have_the_largest_distance():
    assert distance(row(1.0), row(1.0, 1.0)) == MAX_DISTANCE


def test_distances_stay_below_the_largest_so_that_verdicts_are_canonical():
    assert distance(row(3e38), row(1e-38)) == MAX_DISTANCE


def test_every_comparison_has_a_tolerance_of_the_run():
    audit = small_run().audit
    assert [tolerance_of(audit, name) for name in ("activation", "gradient", "norm")] == [1e-4] * 3
    assert tolerance_of(audit, "loss") == 1e-5
    assert [tolerance_of(audit, name) for name in ("delta", "moment")] == [1e-3] * 2


def test_findings_within_tolerance_pass_with_the_one_that_came_closest():
    judgement = judge([finding("activation", 1e-6), finding("delta", 5e-4, END)], unseen=(), evidence=())
    assert (judgement.verdict, judgement.reason, judgement.distance) == ("pass", "ok", 5e-4)
    assert [check.name for check in judgement.checks] == ["activation", "delta"]


def test_a_distance_at_the_tolerance_passes_and_one_above_fails():
    assert judge([finding("loss", 1e-3)], unseen=(), evidence=()).verdict == "pass"
    assert judge([finding("loss", math.nextafter(1e-3, 1))], unseen=(), evidence=()).verdict == "fail"


def test_the_reason_is_what_went_wrong_first():
    """The first step rests on the committed start alone, the end state on the updates; later steps inherit."""
    first, end, later = finding("gradient", 1.0), finding("delta", 1.0, END), finding("activation", 9.0, 1)
    assert judge([later, end, first], unseen=(), evidence=()).reason == "gradient"
    assert judge([later, end], unseen=(), evidence=()).reason == "delta"
    assert judge([later], unseen=(), evidence=()).reason == "activation"


def test_a_fail_states_the_largest_distance_of_its_reason():
    judgement = judge([finding("loss", 0.1), finding("loss", 0.3), finding("norm", 0.9)], unseen=(), evidence=())
    assert (judgement.reason, judgement.distance, judgement.tolerance) == ("loss", 0.3, 1e-3)


def test_frames_that_a_neighbour_does_not_show_make_a_pass_void_but_do_not_hide_a_fail():
    """No verdict is not a pass; and the missing bytes are not the miner's fault."""
    good, bad = finding("activation", 0.0), finding("delta", 1.0, END)
    void = judge([good], unseen=("ab" * 32,), evidence=("cd" * 32,))
    assert (void.verdict, void.reason, void.evidence) == ("void", "neighbour-missing", ("ab" * 32,))
    assert judge([good, bad], unseen=("ab" * 32,), evidence=()).verdict == "fail"


def test_every_reason_word_is_in_the_documentation(repository):
    """Fixed lower-case words, each with its meaning."""
    text = (repository / "docs" / "audit.md").read_text(encoding="utf-8")
    assert all(f"`{reason}`" in text and reason == reason.lower() for reason in REASONS)
