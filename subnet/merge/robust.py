"""Reductions that a minority cannot steer: the trimmed mean, and centred clipping (arXiv 2012.10333).

Each is bit-equal on any machine, like the mean (`subnet.merge.reduce`): separate multiplies and adds in numpy, in the
contributions' order or, where it sorts, in that of the values. The trimmed mean looks at each element alone. Centred
clipping needs the distance of whole contributions from its centre: holders of shards each publish the exact integer
`squared_distances` of theirs, add up everybody's, and move their shard of the centre by the `clip_shares` that follow.
`reduce_by` does all of it in one place. Knows nothing of who contributed.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32

from subnet.config import ReduceConfig
from subnet.errors import InputError
from subnet.merge.reduce import Values, check, check_finite, clip_factors, coefficients, reduce_stage, spans
from subnet.merge.squares import root, sum_of_squares

SORTED = 1 << 12  # elements sorted at a time; the result does not depend on it

Flat = Float32[np.ndarray, " parameters"]
Rows = Float32[np.ndarray, "contributions elements"]


def reduce_by(
    rule: ReduceConfig, contributions: Sequence[Values], weights: Sequence[int], factors: Sequence[float], centre: Flat
) -> Flat:
    """The reduced pseudo-gradient by the run's rule.

    `weights` are tokens, `factors` the closed set's; `centre` is where centred clipping starts: what the rounds before
    came to. Raises InputError for what does not fit each other, and for values that are not finite.
    """
    if rule.mode == "trimmed_mean":
        return trimmed_mean(contributions, weights, factors, trim_frac=rule.trim_frac)
    if rule.mode == "centred_clipping":
        return centred_clipping(contributions, weights, factors, centre=centre, iterations=rule.clip_iterations)
    return reduce_stage(contributions, weights, factors)


def trimmed_mean(
    contributions: Sequence[Values], weights: Sequence[int], factors: Sequence[float], *, trim_frac: float
) -> Flat:
    """Of each element the weighted mean without the largest and the smallest `trim_frac` of the weight.

    A contribution at the edge counts with the part of its weight that is left. Since weight is cut, not heads, it
    makes no difference whether a contribution comes as one or as many. Where `trim_frac` is above the share of those
    who lie, every element is between two honest ones.
    """
    reduced = np.empty(check(contributions, weights, factors), dtype=np.float32)
    total = sum(weights)
    cut = min(
        math.ceil(trim_frac * total), (total - 1) // 2
    )  # never less than asked for: a liar's last token is enough
    behind = np.array(weights, dtype=np.int64)
    for span in spans(reduced.size):
        rows = np.stack(_scaled(contributions, factors, span))
        for first in range(0, rows.shape[1], SORTED):
            part = slice(first, first + SORTED)
            reduced[span][part] = _trimmed(rows[:, part], behind, cut=cut, total=total)
    check_finite(reduced)
    return reduced


def _trimmed(rows: Rows, behind: npt.NDArray[np.int64], *, cut: int, total: int) -> Flat:
    """Of each column the mean of what lies between the weights `cut` and `total - cut`, when its values are sorted.

    Sums are float64, one row after the other, and rounded once at the end.
    """
    order = np.argsort(rows, axis=0, kind="stable")
    upper = np.cumsum(behind[order], axis=0)
    lower = np.concatenate([np.zeros_like(upper[:1]), upper[:-1]])
    kept = np.maximum(np.minimum(upper, total - cut) - np.maximum(lower, cut), 0).astype(np.float64)
    result = np.zeros(rows.shape[1], dtype=np.float64)
    for row, weight in zip(np.take_along_axis(rows, order, axis=0), kept, strict=True):
        np.add(result, np.multiply(row.astype(np.float64), weight), out=result)
    return np.divide(result, np.float64(total - 2 * cut)).astype(np.float32)


def _scaled(contributions: Sequence[Values], factors: Sequence[float], span: slice) -> list[Flat]:
    """What the contributions have in this span, each clipped by its factor."""
    with np.errstate(under="ignore"):
        rows = [
            np.multiply(values[span], np.float32(factor)) for values, factor in zip(contributions, factors, strict=True)
        ]
    for row in rows:
        check_finite(row)
    return rows


def squared_distances(contributions: Sequence[Values], factors: Sequence[float], centre: Flat) -> list[int]:
    """How far each clipped contribution is from the centre: exact sums of squares, which add up over shards."""
    found = [0] * len(contributions)
    for span in spans(centre.size):
        for place, row in enumerate(_scaled(contributions, factors, span)):
            with np.errstate(over="ignore", under="ignore"):
                found[place] += sum_of_squares(np.subtract(row, centre[span]))
    return found


def clip_shares(weights: Sequence[int], distances: Sequence[int]) -> tuple[np.float32, ...]:
    """By which share of its distance from the centre each contribution moves it: its part of the weight, less what it
    is farther away than the median. `distances` are `squared_distances` of the whole vectors."""
    return coefficients(weights, clip_factors([root(distance) for distance in distances], weights))


def moved(
    contributions: Sequence[Values], factors: Sequence[float], centre: Flat, shares: Sequence[np.float32]
) -> Flat:
    """The centre, moved towards each contribution by its share."""
    result = np.empty(centre.size, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for span in spans(centre.size):
            total = np.zeros(centre[span].size, dtype=np.float32)
            for row, share in zip(_scaled(contributions, factors, span), shares, strict=True):
                np.add(total, np.multiply(np.subtract(row, centre[span]), share), out=total)
            result[span] = np.add(centre[span], total)
    check_finite(result)
    return result


def centred_clipping(
    contributions: Sequence[Values], weights: Sequence[int], factors: Sequence[float], *, centre: Flat, iterations: int
) -> Flat:
    """The centre, moved `iterations` times to the weighted mean of the contributions, none of which pulls from farther
    away than the median of their distances."""
    size = check(contributions, weights, factors)
    if centre.size != size:
        raise InputError(f"expected a centre of {size} values, found {centre.size}; take the public state's momentum")
    for _ in range(iterations):
        shares = clip_shares(weights, squared_distances(contributions, factors, centre))
        centre = moved(contributions, factors, centre, shares)
    return centre
