"""Distances: how far claimed values are from recomputed ones, in float64, on the scale of what they are part of.

A distance is the L2 norm of the difference over a size. The size is the L2 norm of the recomputed values, but never
less than their share of the whole that they were cut from (`floor`): honest rounding errors have the scale of the
whole, so that a part which happens to be small (a rarely seen token's row, a fragment that a chunk's edge cut off)
would look far from itself. A deviation of 1 % of the whole is still one of 1 % on every part of the usual size.

How parameters moved is compared with two allowances, both of which follow from the arithmetic and are no tolerances:

- float32 keeps a parameter only to its last place, and each step rounds once. So one unit in the last place per step is
  no difference. It matters where parameters are large and steps small (a norm's ones).
- An optimizer divides by how much there is of an element or direction, which blows up the rounding errors of those that
  there is little of. So each counts in proportion to its divisor (`weights.py`).

Knows nothing of frames, states or verdicts.
"""

import math
from collections.abc import Callable

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


def delta_distance(
    claimed: Flat, recomputed: Flat, start: Flat, *, weigh: Callable[[Array], Array], floor: float, steps: int
) -> float:
    """The distance of how a piece of a tensor moved from `start`. floor: `share` of the weighed movement."""
    left, right, before = _array(claimed), _array(recomputed), _array(start)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return MAX_DISTANCE
    last_place = np.spacing(np.maximum(np.abs(claimed), np.abs(recomputed))).astype(np.float64)
    apart = np.copysign(np.maximum(0.0, np.abs(left - right) - steps * last_place), left - right)
    return _ratio(weigh(apart), weigh(right - before), floor=floor)


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
