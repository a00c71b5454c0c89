"""The integer transform: its table is the cosine's, and it is its own inverse but for rounding."""

import math

import numpy as np

from subnet.merge.codecs.dct import COSINES, SIDE, TABLE, TABLE_BITS, _transformed, cosine


def test_the_table_is_the_rounded_cosine():
    unit = (1 << TABLE_BITS) * math.sqrt(2) / 8
    assert list(COSINES) == [round(unit * math.cos(math.pi * m / 128)) for m in range(SIDE + 1)]
    for m in range(600):
        assert abs(cosine(m) - unit * math.cos(math.pi * m / 128)) <= 0.5 + 1e-9


def test_the_table_is_orthonormal_to_its_last_places():
    product = TABLE @ TABLE.T / float(1 << 2 * TABLE_BITS)
    assert np.abs(product - np.eye(SIDE)).max() < 2e-4


def test_there_and_back_is_where_it_began():
    whole = (np.arange(2 * SIDE * SIDE, dtype=np.int64) * 7919 % 32769 - 16384).reshape(2, -1)
    back = _transformed(_transformed(whole, TABLE), np.ascontiguousarray(TABLE.T))
    assert np.abs(back - whole).max() <= 24


def test_a_constant_square_has_one_coefficient():
    whole = np.full((1, SIDE * SIDE), 1000, dtype=np.int64)
    found = _transformed(whole, TABLE)[0]
    assert found[0] == 64_000
    assert np.abs(found[1:]).max() <= 64
