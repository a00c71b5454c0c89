"""The sum of squares of float32 values as one exact integer, so that it does not depend on who adds what first.

Every float32 is a whole multiple of 2**-149, so its square is one of 2**-298: sums of these integers have no rounding.
The sums of shards, published by whoever holds them, add up to the sum of the whole to the last bit, at any cut. Knows
nothing of what the values are.
"""

import math

import numpy as np
from jaxtyping import Float32

from subnet.errors import InputError

BLOCK = 1 << 16  # values at a time; the sum does not depend on it
SMALLEST_EXPONENT = -149  # of two: the unit of a float32, squared that of a sum
HALF_BITS = 24  # a square of a 24-bit significand, cut into halves whose sums over a block are exact in float64

Flat = Float32[np.ndarray, " values"]


def sum_of_squares(values: Flat) -> int:
    """The exact sum of squares, in units of 2**-298. Raises InputError for a value that is not finite."""
    return sum(_of_block(values[first : first + BLOCK]) for first in range(0, values.size, BLOCK))


def root(total: int) -> float:
    """The square root of such a sum, as a float: the L2 norm of the values."""
    return math.ldexp(math.isqrt(total << 2 * HALF_BITS), SMALLEST_EXPONENT - HALF_BITS)


def _of_block(values: Flat) -> int:
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    exponents = ((bits >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int64)
    if (exponents == 0xFF).any():
        raise InputError("expected finite values, found some that are not; leave this contribution out")
    significands = (bits & np.uint32(0x7FFFFF)).astype(np.uint64)
    significands |= np.where(exponents > 0, np.uint64(1 << 23), np.uint64(0))
    squares = significands * significands
    low = np.bincount(exponents, weights=(squares & np.uint64((1 << HALF_BITS) - 1)).astype(np.float64))
    high = np.bincount(exponents, weights=(squares >> np.uint64(HALF_BITS)).astype(np.float64))
    return sum(
        ((int(upper) << HALF_BITS) + int(lower)) << 2 * max(exponent - 1, 0)
        for exponent, (lower, upper) in enumerate(zip(low, high, strict=True))
    )
