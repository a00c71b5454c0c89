"""The weighted mean of a stage's contributions, bit-equal on any machine, and by how much each is clipped before.

Contributions are added in the order given (the closed set's, by digest) with separate float32 multiplies and adds in
numpy on the CPU: no fused operation, no BLAS, no `sum`. Each element depends on the same element of the contributions
only, so any cut into shards gives the same bits. Clip factors are in [0, 1]; 1 means "not clipped". Rules that hold out
against more than too large a contribution are in `subnet.merge.robust`. Knows nothing of who contributed.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32

from subnet.errors import InputError

BLOCK = 1 << 16  # elements reduced at a time, so that the working memory is small; the result does not depend on it

Flat = Float32[np.ndarray, " parameters"]


@runtime_checkable
class Values(Protocol):
    """A contribution's float32 values, or whatever can give them: an array, or a decoder of encoded bytes.

    It is read one span after another, from the first element on, so that a decoder need not hold all of them. Any span
    but the last is as long as a multiple of 65,536 elements.
    """

    @property
    def size(self) -> int:
        """How many there are."""

    def __getitem__(self, span: slice, /) -> Flat:
        """Those of a span."""


def clip_factors(norms: Sequence[float], weights: Sequence[int] | None = None) -> tuple[float, ...]:
    """For each norm the factor that brings it down to the median of the norms that are not zero, by one division.

    The median is that of the weight behind each norm, so that a contribution cut into many moves it no further; equal
    weights where none are given. Where it lies between two norms the lower counts: a step that is too short for one
    round is made good by the next, one that is too long destroys the parameters.
    """
    if not all(0 <= value < float("inf") for value in norms):
        raise InputError(f"expected finite norms of at least 0, found {list(norms)}; leave those contributions out")
    behind = [1] * len(norms) if weights is None else weights
    moved = sorted((value, weight) for value, weight in zip(norms, behind, strict=True) if value > 0)
    if not moved:
        return (1.0,) * len(norms)
    behind_so_far = accumulate(weight for _, weight in moved)
    half = (sum(weight for _, weight in moved) + 1) // 2
    median = next(value for (value, _), so_far in zip(moved, behind_so_far, strict=True) if so_far >= half)
    return tuple(1.0 if value <= median else median / value for value in norms)


def coefficients(weights: Sequence[int], factors: Sequence[float]) -> tuple[np.float32, ...]:
    """What each contribution is multiplied with: its share of the weight times its clip factor, rounded to float32."""
    total = sum(weights)
    return tuple(np.float32(weight * factor / total) for weight, factor in zip(weights, factors, strict=True))


def check(contributions: Sequence[Values], weights: Sequence[int], factors: Sequence[float]) -> int:
    """How many elements each contribution has. Raises InputError unless they fit each other, before any is read."""
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
    return sizes.pop()


def spans(size: int) -> Iterator[slice]:
    """The spans in which so many elements are read."""
    return (slice(first, min(first + BLOCK, size)) for first in range(0, size, BLOCK))


def check_finite(reduced: Flat) -> None:
    """Raises InputError for a value that is not finite."""
    if not np.isfinite(reduced).all():
        raise InputError(
            "expected a finite reduction, found values that are not; leave the non-finite contribution out"
        )


def reduce_stage(contributions: Sequence[Values], weights: Sequence[int], factors: Sequence[float]) -> Flat:
    """The weighted mean of the clipped contributions; equal weights and no clipping give the plain mean.

    `weights` are tokens. Raises InputError for contributions of different sizes, none at all, and values or a result
    that are not finite.
    """
    reduced = np.empty(check(contributions, weights, factors), dtype=np.float32)
    shares = coefficients(weights, factors)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for span in spans(reduced.size):
            total = np.multiply(contributions[0][span], shares[0])
            for values, share in zip(contributions[1:], shares[1:], strict=True):
                product = np.multiply(values[span], share)
                np.add(total, product, out=total)
            reduced[span] = total
    check_finite(reduced)
    return reduced
