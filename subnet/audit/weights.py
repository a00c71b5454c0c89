"""How much each part of a tensor counts when its movement is compared: in proportion to what the optimizer divided by.

AdamW divides each element by the root of its second moment; Muon multiplies a matrix M by (M'M + d^2)^(-1/2), which is
to divide each direction by the root of what M has of it. Where that divisor is small, rounding errors grow as much, and
say nothing about whether the work was done. Weighed by the divisor they are as small as in the gradient again. Both
have a least value, so nothing counts for nothing, and nobody may move rows that were not trained: AdamW's counts from 1
for the usual divisor down to the root of the dtype's unit roundoff, where half of the digits are lost; Muon's least one
is its damping.

The weights are the harmonic mean over a segment's steps: an inverse divisor is what errors were multiplied by, and
these add up. They come from the replay alone. Knows nothing of chunks, tolerances or verdicts.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from subnet.audit.distance import UNIT_ROUNDOFF, Array, norm
from subnet.stage.layout import Flat


@runtime_checkable
class Weights(Protocol):
    """Of one tensor."""

    def weigh(self, values: Array, part: slice) -> Array:
        """Values that lie at `part` of the flat tensor, each direction times its weight."""


@dataclass(frozen=True, kw_only=True)
class ByElement:
    """A weight for each element."""

    weights: Array

    def weigh(self, values: Array, part: slice) -> Array:
        """Element by element."""
        return self.weights[part] * values


@dataclass(frozen=True, kw_only=True)
class ByRow:
    """Every row times one matrix. Whatever the part lacks of its first and last row counts as zero."""

    columns: Array

    def weigh(self, values: Array, part: slice) -> Array:
        """Row by row."""
        width = len(self.columns)
        first, end = part.start // width, -(-part.stop // width)
        rows = np.zeros((end - first) * width)
        rows[part.start - first * width : part.stop - first * width] = values
        weighed: Array = (rows.reshape(-1, width) @ self.columns).ravel()
        return weighed


def weights_of(divisors: Flat, *, dtype: str) -> Array:
    """By how much each element of a tensor counts in its movement: its divisor over the usual one, at most 1."""
    values = divisors.astype(np.float64)
    usual = norm(values) / math.sqrt(max(1, values.size))
    return np.clip(values / usual, math.sqrt(UNIT_ROUNDOFF[dtype]), 1.0) if usual > 0 else np.ones_like(values)


class Divisors:
    """What AdamW divided each parameter's first moment by: the harmonic mean over a segment's steps.

    Where there is no second moment (Muon's matrices) all are equal, and every element counts the same.
    """

    def __init__(self, size: int, *, beta2: float, eps: float) -> None:
        self._beta2, self._eps = np.float32(beta2), np.float32(eps)
        self._inverse: Flat = np.zeros(size, dtype=np.float32)
        self._steps = 0

    def add(self, second_moments: Iterable[tuple[slice, Flat]], step: int) -> None:
        """Take in the second moments after a step, each with its place; one at a time, to be sparing of memory."""
        for place, values in second_moments:
            with np.errstate(all="ignore"):
                divisor = values.ravel() / np.float32(1.0 - float(self._beta2) ** max(1, step))
                np.sqrt(divisor, out=divisor)
                divisor += self._eps
                np.divide(np.float32(1.0), divisor, out=divisor)
            self._inverse[place] += divisor
        self._steps += 1

    def mean(self) -> Flat:
        """The harmonic mean of what was taken in. Ends the taking in: the sums make room for it."""
        with np.errstate(all="ignore"):
            np.divide(np.float32(self._steps), self._inverse, out=self._inverse)
        return np.nan_to_num(self._inverse, copy=False)


class Roots:
    """What Muon multiplied the rows of each matrix by: the mean over a segment's steps."""

    def __init__(self) -> None:
        self._sums, self._steps = dict[str, Flat](), 0

    def add(self, roots: Iterable[tuple[str, Flat]]) -> None:
        """Take in the inverse roots of the momenta after a step, by name."""
        for name, root in roots:
            if name in self._sums:
                self._sums[name] += root
            else:
                self._sums[name] = root
        self._steps += 1

    def mean(self) -> Mapping[str, Flat]:
        """Of each matrix."""
        return {name: total / np.float32(max(1, self._steps)) for name, total in self._sums.items()}


def weights_by_row(mean: Flat) -> ByRow:
    """The weights of a matrix from its `Roots`."""
    return ByRow(columns=np.linalg.inv(mean.astype(np.float64)))
