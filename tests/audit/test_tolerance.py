"""Tolerances follow from what was measured, by one rule, and from nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.audit.compare import KINDS as COMPARED
from subnet.audit.tolerance import (
    FACTOR,
    KINDS,
    LEAST,
    MARGIN,
    RULE,
    VERSION,
    Calibration,
    classes,
    spreads_of,
    tolerance,
    tolerances,
    upper_bound,
)
from subnet.errors import ConfigError

CLASS = ("float32", "adamw", "none")


def calibration(**distances: float) -> Calibration:
    """Of a hundred segments, all of these distances."""
    return Calibration(
        version=VERSION,
        quick=True,
        rule=RULE,
        machine={},
        versions={},
        conditions=(),
        spreads=spreads_of(CLASS, [distances] * 100, settings=3),
    )


@given(st.floats(1e-9, 10.0), st.floats(1.0, 5.0))
def test_a_tolerance_is_the_rule_rounded_up(q999, larger):
    found = tolerance(q999, q999 * larger)
    exact = max(FACTOR * q999, MARGIN * q999 * larger, LEAST)
    assert exact * (1 - 1e-9) <= found <= exact * 1.01


def test_no_tolerance_is_finer_than_float32():
    assert tolerance(0.0, 0.0) >= LEAST


@pytest.mark.parametrize("bad", [(float("nan"), 1.0), (1.0, float("inf")), (-1.0, 1.0)])
def test_distances_that_are_no_numbers_give_no_tolerance(bad):
    with pytest.raises(ConfigError, match="expected finite distances of honest work, found .*; calibrate again"):
        tolerance(*bad)


def test_the_rule_leaves_honest_work_room_and_a_deviation_none():
    assert 1 < MARGIN < FACTOR < 3


@given(st.lists(st.floats(1e-8, 1e-2), min_size=1, max_size=50))
def test_no_segment_that_was_measured_exceeds_the_tolerance(values):
    (spread,) = spreads_of(CLASS, [{"delta": value} for value in values], settings=1)
    assert (spread.count, max(values) <= spread.tolerance) == (len(values), True)
    assert spread.q50 <= spread.q99 * 1.01 <= spread.q999 * 1.03 <= spread.max * 1.05


def test_tolerances_are_those_of_the_class_and_a_class_that_lacks_a_kind_is_refused():
    whole = calibration(**dict.fromkeys(KINDS, 2e-6))
    assert tolerances(whole, dtype="float32", optimizer="adamw", codec="none") == dict.fromkeys(KINDS, 3.5e-6)
    with pytest.raises(ConfigError, match="found none for activation, .*; run `strata calibrate`"):
        tolerances(whole, dtype="bfloat16", optimizer="adamw", codec="none")
    part = calibration(delta=1e-6)
    with pytest.raises(ConfigError, match="found none for activation, gradient, loss, norm, moment"):
        tolerances(part, dtype="float32", optimizer="adamw", codec="none")


def test_a_model_that_was_measured_has_the_larger_tolerance_of_the_two():
    small = spreads_of(CLASS, [dict.fromkeys(KINDS, 2e-6)] * 100, settings=3)
    own = spreads_of(CLASS, [dict.fromkeys(KINDS, 1e-6) | {"delta": 4e-6}] * 10, settings=1, model="mine")
    both = msgspec.structs.replace(calibration(), spreads=(*small, *own))
    found = tolerances(both, dtype="float32", optimizer="adamw", codec="none", model="mine")
    assert found == dict.fromkeys(KINDS, 3.5e-6) | {"delta": 7e-6}
    other = tolerances(both, dtype="float32", optimizer="adamw", codec="none", model="another")
    assert other == dict.fromkeys(KINDS, 3.5e-6)


def test_rounding_on_the_wire_brings_nobody_closer():
    plain = spreads_of(CLASS, [dict.fromkeys(KINDS, 2e-6)] * 100, settings=3)
    coded = spreads_of((*CLASS[:2], "bf16"), [dict.fromkeys(KINDS, 1e-6) | {"gradient": 4e-4}] * 10, settings=1)
    both = msgspec.structs.replace(calibration(), spreads=(*plain, *coded))
    found = tolerances(both, dtype="float32", optimizer="adamw", codec="bf16")
    assert found == dict.fromkeys(KINDS, 3.5e-6) | {"gradient": 7e-4}


def test_a_tolerance_that_somebody_picked_is_refused():
    data = msgspec.to_builtins(calibration(delta=1e-6))
    data["spreads"][0]["tolerance"] *= 2
    with pytest.raises(msgspec.ValidationError, match="from its own numbers, found .*; calibrate again instead of"):
        msgspec.convert(data, type=Calibration)


def test_every_comparison_is_calibrated_in_every_class():
    assert COMPARED == KINDS
    assert len(classes()) == len(set(classes())) == 8


def test_the_upper_bound_is_the_rule_of_three_where_nothing_was_flagged():
    assert upper_bound(0, 10_000) == pytest.approx(3e-4, rel=0.01)
    assert upper_bound(1, 100) == pytest.approx(0.0466, rel=0.01)
    assert upper_bound(5, 5) == pytest.approx(1.0)
