"""Distances: how far claimed values are from recomputed ones, in float64, on the scale of what they are part of.

A distance is the L2 norm of the difference over a size. The size is the L2 norm of the recomputed values, but never
less than their share of the whole that they were cut from (`floor`): honest rounding errors have the scale of the
whole, so that a part which happens to be small (a rarely seen token's row, a fragment that a chunk's edge cut off)
would look far from itself. A deviation of 1 % of the whole is still one of 1 % on every part of the usual size.

How parameters moved is compared with two allowances, both of which follow from the arithmetic and are no tolerances:

- float32 keeps a parameter only to its last place, and each step rounds once. So one unit in the last place per step is
  no difference. It matters where parameters are large and steps small (a norm's ones).
- AdamW divides by the root of the second moment. Where a parameter's gradient is near zero, that blows up its rounding
  error as much as its gradient is smaller than others'. So each element of a tensor counts in proportion to its
  divisor (the harmonic mean over the steps, `Divisors`), from 1 for the usual one down to the root of the dtype's unit
  roundoff, where half of the digits are lost. It never counts for nothing: nobody may move rows that were not trained.

Knows nothing of frames, states or verdicts.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from subnet.stage.layout import FLOAT, Flat
from subnet.wire.merkle import CHUNK_BYTES

MAX_DISTANCE = 1e9
CHUNK_ELEMENTS = CHUNK_BYTES // FLOAT.itemsize
UNIT_ROUNDOFF = {"float32": 2.0**-24, "bfloat16": 2.0**-8}  # by compute dtype

Numbers = int | float | npt.NDArray[np.float32] | npt.NDArray[np.float64]
Array = npt.NDArray[np.float64]


def distance(claimed: Numbers, recomputed: Numbers, *, floor: float = 0.0) -> float:
    """The relative L2 distance, from 0 to MAX_DISTANCE, never NaN.

    Zero against zero is zero. What is not finite, has another shape, or differs from a recomputed zero of floor zero,
    has the largest distance there is, so it never passes.
    """
    left, right = _array(claimed), _array(recomputed)
    if left.size != right.size or not (np.isfinite(left).all() and np.isfinite(right).all()):
        return MAX_DISTANCE
    return _ratio(left - right, right, floor=floor)


def sequence_distance(claimed: npt.NDArray[np.float32], recomputed: npt.NDArray[np.float32]) -> float:
    """The largest distance of any sequence of a microbatch: of its first axis' entries.

    So one corrupted sequence counts like a whole corrupted microbatch. The floor is a sequence's share of the whole.
    """
    if claimed.shape != recomputed.shape:
        return MAX_DISTANCE
    floor = norm(_array(recomputed)) / math.sqrt(len(recomputed))
    return max(distance(left, right, floor=floor) for left, right in zip(claimed, recomputed, strict=True))


def loss_distance(claimed: float, recomputed: float, *, tokens: int, vocabulary: int) -> float:
    """The distance of a sum of token losses. The floor is the loss of a guess among all tokens.

    A loss is a difference of logits, and its rounding error has their scale, however small the loss has become.
    """
    return distance(claimed, recomputed, floor=tokens * math.log(vocabulary))


def share(whole: Array) -> float:
    """The floor of a tensor's pieces: the norm that one chunk of it has on average; all of it where it is smaller."""
    return norm(whole) * math.sqrt(min(1.0, CHUNK_ELEMENTS / max(1, whole.size)))


def delta_distance(claimed: Flat, recomputed: Flat, start: Flat, *, weights: Array, floor: float, steps: int) -> float:
    """The distance of how a piece of a tensor moved from `start`. floor: `share` of the weighted movement."""
    left, right, before = _array(claimed), _array(recomputed), _array(start)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return MAX_DISTANCE
    last_place = np.spacing(np.maximum(np.abs(claimed), np.abs(recomputed))).astype(np.float64)
    apart = np.maximum(0.0, np.abs(left - right) - steps * last_place)
    return _ratio(weights * apart, weights * (right - before), floor=floor)


def weights_of(divisors: Flat, *, dtype: str) -> Array:
    """By how much each element of a tensor counts in its movement: its divisor over the usual one, at most 1."""
    values = _array(divisors)
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


def norm(values: Array) -> float:
    """The L2 norm, without the matrix library: its order of sums and its threads are the machine's own."""
    return math.sqrt(float(np.add.reduce(np.square(values))))


def _array(values: Numbers) -> Array:
    return np.asarray(values, dtype=np.float64).ravel()


def _ratio(difference: Array, recomputed: Array, *, floor: float) -> float:
    apart, size = norm(difference), max(norm(recomputed), floor)
    if apart == 0.0:
        return 0.0
    return min(MAX_DISTANCE, apart / size) if size > 0.0 and math.isfinite(apart) else MAX_DISTANCE
