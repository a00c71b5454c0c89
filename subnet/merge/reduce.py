"""The reduction of a stage's contributions to one pseudo-gradient, bit-equal on any machine.

Contributions are added in the order given (the closed set's, by digest) with separate float32 multiplies and adds in
numpy on the CPU: no fused operation, no BLAS, no `sum`. Each element depends on the same element of the contributions
only, so any cut into shards gives the same bits. Clip factors are in [0, 1]; 1 means "not clipped". Knows nothing of
who contributed.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from subnet.errors import InputError

BLOCK = 1 << 16  # elements reduced at a time, so that the working memory is small; the result does not depend on it

Flat = Float32[np.ndarray, " parameters"]


def clip_factors(norms: Sequence[float]) -> tuple[float, ...]:
    """For each norm the factor that brings it down to the median of the norms that are not zero, by one division.

    Of two middle norms the lower counts: a step that is too short for one round is made good by the next, one that is
    too long destroys the parameters.
    """
    if not all(0 <= value < float("inf") for value in norms):
        raise InputError(f"expected finite norms of at least 0, found {list(norms)}; leave those contributions out")
    moved = sorted(value for value in norms if value > 0)
    if not moved:
        return (1.0,) * len(norms)
    median = moved[(len(moved) - 1) // 2]
    return tuple(1.0 if value <= median else median / value for value in norms)


def coefficients(weights: Sequence[int], factors: Sequence[float]) -> tuple[np.float32, ...]:
    """What each contribution is multiplied with: its share of the weight times its clip factor, rounded to float32."""
    total = sum(weights)
    return tuple(np.float32(weight * factor / total) for weight, factor in zip(weights, factors, strict=True))


def _check(contributions: Sequence[Flat], weights: Sequence[int], factors: Sequence[float]) -> None:
    sizes = {values.size for values in contributions}
    if len(sizes) != 1:
        raise InputError(f"expected contributions of one size, found the sizes {sorted(sizes)}; close the set again")
    if not len(contributions) == len(weights) == len(factors):
        raise InputError(
            f"expected a weight and a factor for each of {len(contributions)} contributions, "
            f"found {len(weights)} and {len(factors)}; close the set again"
        )
    if min(weights) < 1 or not all(0 <= factor <= 1 for factor in factors):
        raise InputError(
            f"expected weights of at least 1 and factors from 0 to 1, "
            f"found {list(weights)} and {list(factors)}; close the set again"
        )


def reduce_stage(contributions: Sequence[Flat], weights: Sequence[int], factors: Sequence[float]) -> Flat:
    """The weighted mean of the clipped contributions; equal weights and no clipping give the plain mean.

    `weights` are tokens. Raises InputError for contributions of different sizes, none at all, and values or a result
    that are not finite.
    """
    _check(contributions, weights, factors)
    shares = coefficients(weights, factors)
    reduced = np.empty(contributions[0].size, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for first in range(0, reduced.size, BLOCK):
            span = slice(first, first + BLOCK)
            total = np.multiply(contributions[0][span], shares[0])
            for values, share in zip(contributions[1:], shares[1:], strict=True):
                product = np.multiply(values[span], share)
                np.add(total, product, out=total)
            reduced[span] = total
    if not np.isfinite(reduced).all():
        raise InputError(
            "expected a finite reduction, found values that are not; leave the non-finite contribution out"
        )
    return reduced
