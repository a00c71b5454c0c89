"""What a codec of contributions is: a lossy function of blocks of values, the same bytes on every machine.

A codec cuts a flat array into blocks of `width` values, the last one shorter, and gives each a row of bytes that
depends on that block alone. So any run of blocks can be decoded without the others. Arithmetic is separate IEEE
operations and integers, in numpy on the CPU: no fused operation, no BLAS, no float sum whose order a machine chooses.

Letters: n blocks, w values in each, b bytes in each row.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from subnet.errors import EvidenceError

Flat = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Whole = npt.NDArray[np.int64]

FLOAT = np.dtype("<f4")
HALF = np.dtype("<u2")  # the upper half of a float32: bfloat16
LARGEST = 2.0**95  # of a value; what exceeds it comes of no training, and its square would leave float64's range
LARGEST_BITS = int(np.float32(2 * LARGEST).view(np.uint32))  # of a stored magnitude; above are the infinite, the
# negative and what is no number


@runtime_checkable
class Codec(Protocol):
    """One lossy function. `width`: values in a block. `decay`: how much of what was lost before is added to the next
    contribution; None where nothing is lost."""

    name: str
    width: int
    decay: float | None

    def row_bytes(self, w: int) -> int:
        """The length of every row of w values, w from 1 to `width`."""

    def encode(self, rows: Flat) -> Bytes:
        """Rows of bytes (n, b) of n rows of w finite values no larger than LARGEST, float32 (n, w)."""

    def decode(self, data: Bytes, w: int) -> Flat:
        """The values float32 (n, w), finite, of rows of bytes (n, b). Raises EvidenceError on bytes that no encoder
        makes."""

    def squares(self, data: Bytes, w: int, total: float) -> float:
        """`total` and the squares of all decoded values, added in a fixed order. Raises as `decode`."""


def added(total: float, squares: npt.NDArray[np.float64]) -> float:
    """`total` and the squares, one after the other: `add.accumulate` has no freedom in its order, `sum` has."""
    if not squares.size:
        return total
    squares = squares.copy()
    squares[0] += total
    return float(np.add.accumulate(squares)[-1])


def require(holds: bool, codec: str, found: str) -> None:
    """Raises EvidenceError unless the bytes are such as the codec makes."""
    if not holds:
        raise EvidenceError(
            f"expected bytes that the codec {codec} makes, found {found}; leave this contribution out of the merge"
        )


def to_half(values: Flat) -> npt.NDArray[np.uint16]:
    """bfloat16, rounded to nearest, ties to even, of finite values of at least 0."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((words + np.uint64(0x7FFF) + (words >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(HALF)


def from_half(halves: npt.NDArray[np.uint16]) -> Flat:
    """The float32 of these bfloat16."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def magnitudes_of_halves(data: Bytes, codec: str) -> Flat:
    """The bfloat16 in these bytes (n, 2 m), as float32 (n, m). Raises EvidenceError for one that is none: infinite,
    negative, or no number."""
    halves = np.ascontiguousarray(data).view(HALF)
    require(bool((halves <= LARGEST_BITS >> 16).all()), codec, "a magnitude that is negative, too large or no number")
    return from_half(halves)


def magnitudes_of_floats(data: Bytes, codec: str) -> Flat:
    """The float32 in these bytes (n, 4 m), as (n, m). Raises as for halves."""
    floats = np.ascontiguousarray(data).view(FLOAT).astype(np.float32)
    good = floats.view(np.uint32) <= LARGEST_BITS
    require(bool(good.all()), codec, "a magnitude that is negative, too large or no number")
    return floats


def pack(values: Whole, bits: int) -> Bytes:
    """Whole numbers (n, k) of so many bits each, from the lowest bit up; zeros fill the last byte of a row."""
    spread = (values[:, :, None] >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(spread.reshape(len(values), -1), axis=1, bitorder="little")


def unpack(data: Bytes, count: int, bits: int, codec: str) -> Whole:
    """The inverse of `pack`: (n, count). Raises EvidenceError where what fills the last byte is not zero."""
    spread = np.unpackbits(np.ascontiguousarray(data), axis=1, bitorder="little")
    require(not spread[:, count * bits :].any(), codec, "bits set behind the last value")
    parts = spread[:, : count * bits].reshape(len(data), count, bits).astype(np.int64)
    values: Whole = np.add.reduce(parts << np.arange(bits), axis=2)
    return values
