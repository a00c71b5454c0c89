"""Laws of the exact sum of squares: no rounding, no order, no cut, over all that float32 has."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.errors import InputError
from subnet.merge.squares import root, sum_of_squares

VALUES = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=50)
UNIT = Fraction(1, 2**298)


def flat(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@given(values=VALUES)
def test_the_sum_is_the_sum_of_the_fractions_squares(values: list[float]):
    assert sum_of_squares(flat(values)) * UNIT == sum(Fraction(value) ** 2 for value in values)


@given(values=VALUES, draw=st.data())
def test_neither_order_nor_cut_moves_it(values: list[float], draw: st.DataObject):
    shuffled, cut = draw.draw(st.permutations(values)), draw.draw(st.integers(0, len(values)))
    parts = sum_of_squares(flat(shuffled[:cut])) + sum_of_squares(flat(shuffled[cut:]))
    assert parts == sum_of_squares(flat(values))


def test_it_is_exact_over_blocks_of_the_largest_values_and_some_more():
    """No sum inside a block overflows: every value has the largest significand."""
    largest = float(np.finfo(np.float32).max)
    assert sum_of_squares(np.full(200_001, largest, dtype=np.float32)) * UNIT == 200_001 * Fraction(largest) ** 2


@given(values=VALUES)
def test_the_root_is_the_norm(values: list[float]):
    total = sum((Fraction(value) ** 2 for value in values), Fraction(0))
    scale = max((abs(Fraction(value)) for value in values), default=Fraction(0)) or Fraction(1)
    expected = float(scale) * math.sqrt(total / scale**2)
    assert root(sum_of_squares(flat(values))) == pytest.approx(expected, rel=1e-15)


def test_the_smallest_and_the_largest_have_their_own_norms():
    for value in (1.401298464324817e-45, 1.1754943508222875e-38, 1.0, float(np.finfo(np.float32).max)):
        assert root(sum_of_squares(flat([-value]))) == value


def test_the_numbers_are_pinned():
    """Shards publish these."""
    total = sum_of_squares(flat([0.1, -3e-5, 7.0]))
    assert hex(total) == "0xc40a3d70b86c006d6e204" + 55 * "0"
    assert root(total).hex() == "0x1.c00bb3c7693a7p+2"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value: float):
    with pytest.raises(InputError, match="expected finite values, found some that are not"):
        sum_of_squares(flat([1.0, value]))
