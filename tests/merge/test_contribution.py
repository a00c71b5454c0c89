"""Laws of contributions: byte for byte from the two ends, refused unless whole and finite, a norm without a machine."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.errors import EvidenceError, InputError
from subnet.merge.contribution import (
    check_contribution,
    contribution_bytes,
    make_contribution,
    norm,
    read_contribution,
    squared_norm,
)

VALUES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50)


def flat(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@given(start=VALUES, draw=st.data())
def test_a_contribution_is_start_minus_end_and_checks_against_them(start: list[float], draw: st.DataObject):
    end = draw.draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=len(start), max_size=len(start)))
    data = make_contribution(flat(start), flat(end))
    assert len(data) == contribution_bytes(len(start))
    assert (read_contribution(data, len(start)) == flat(start) - flat(end)).all()
    assert check_contribution(data, flat(start), flat(end))


def test_the_bytes_are_pinned():
    assert (
        make_contribution(flat([1.0, 0.5, 0.0]), flat([0.5, 0.75, 2.0])).hex() == "0000003f" + "000080be" + "000000c0"
    )


@given(values=VALUES, draw=st.data())
def test_one_flipped_bit_is_not_the_contribution(values: list[float], draw: st.DataObject):
    start, end = flat(values), np.zeros(len(values), dtype=np.float32)
    data = bytearray(make_contribution(start, end))
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    data[bit // 8] ^= 1 << bit % 8
    assert not check_contribution(data, start, end)


def test_a_contribution_of_another_size_is_refused():
    for wrong in (bytes(11), bytes(13), b""):
        with pytest.raises(EvidenceError, match=f"expected a contribution of 12 bytes .* found {len(wrong)}"):
            read_contribution(wrong, 3)


def test_values_that_are_not_finite_are_refused_when_read_and_when_made():
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(InputError, match="found 1 values that are not"):
            read_contribution(flat([0.0, value]).tobytes(), 2)
        with pytest.raises(InputError, match="found 1 values that are not"):
            make_contribution(flat([0.0, value]), flat([0.0, 0.0]))
    largest = float(np.finfo(np.float32).max)
    with pytest.raises(InputError, match="found 1 values that are not"):
        make_contribution(flat([largest]), flat([-largest]))


def test_the_norm_is_the_sequential_float64_one_to_the_last_bit():
    """Over three of its blocks and a rest; a pairwise sum of these values differs in its last bits."""
    values = np.random.default_rng(3).standard_normal(200_001).astype(np.float32)
    total = 0.0
    for value in values.tolist():
        total += value * value
    assert squared_norm(values) == total
    assert norm(values) == math.sqrt(total)
    assert float(np.sum(np.square(values, dtype=np.float64))) != total


def test_the_norm_of_nothing_is_zero():
    assert norm(flat([])) == 0.0
