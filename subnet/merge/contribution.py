"""A replica's contribution to a merge: its pseudo-gradient, round-start parameters minus its own end parameters.

Version 1 is float32, little-endian, one number per parameter in the stage's order, uncompressed: the subtraction is one
rounding, so an auditor who has both ends gets the same bytes. Knows nothing of who contributes, nor of weights.
"""

import math

import numpy as np
from jaxtyping import Float32

from subnet.errors import EvidenceError, InputError

ELEMENT_BYTES = 4
NORM_BLOCK = 1 << 16  # elements squared at a time; the sum does not depend on it

Flat = Float32[np.ndarray, " parameters"]


def contribution_bytes(num_parameters: int) -> int:
    """How many bytes a contribution of this many parameters has."""
    return ELEMENT_BYTES * num_parameters


def _require_finite(values: Flat, what: str) -> None:
    wrong = values.size - int(np.isfinite(values).sum())
    if wrong:
        raise InputError(f"expected finite {what}, found {wrong} values that are not; leave this contribution out")


def make_contribution(start: Flat, end: Flat) -> bytes:
    """The contribution of a replica that went from `start` to `end`. Raises InputError when it is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference: Flat = np.subtract(start, end, dtype=np.float32)
    _require_finite(difference, "pseudo-gradients")
    return difference.astype("<f4").tobytes()


def check_contribution(data: bytes | bytearray | memoryview, start: Flat, end: Flat) -> bool:
    """Whether `data` is, byte for byte, the contribution of these two ends."""
    return make_contribution(start, end) == data


def read_contribution(data: bytes | bytearray | memoryview, num_parameters: int) -> Flat:
    """The pseudo-gradient of these bytes, in memory of its own.

    Raises EvidenceError on a wrong size, before anything is allocated, and InputError on a value that is not finite.
    """
    expected, found = contribution_bytes(num_parameters), memoryview(data).nbytes
    if found != expected:
        raise EvidenceError(
            f"expected a contribution of {expected} bytes for {num_parameters} parameters, found {found}; "
            "leave this contribution out"
        )
    values = np.frombuffer(data, dtype="<f4").astype(np.float32)
    _require_finite(values, "contributions")
    return values


def squared_norm(values: Flat) -> float:
    """The sum of squares, added one after the other in float64: the same on every machine.

    Squares of float32 are exact in float64, and `add.accumulate` has no freedom in its order, which `sum` and `dot` do.
    """
    total = 0.0
    for first in range(0, values.size, NORM_BLOCK):
        squares = np.square(values[first : first + NORM_BLOCK], dtype=np.float64)
        squares[0] += total
        total = float(np.add.accumulate(squares)[-1])
    return total


def norm(values: Flat) -> float:
    """The L2 norm in float64, the same on every machine."""
    return math.sqrt(squared_norm(values))
