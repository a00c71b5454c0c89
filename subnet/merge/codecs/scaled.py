"""The codecs `int8` and `int4`: whole multiples of a scale, one scale for each block.

A row is the block's scale, then its codes. The scale is the block's largest magnitude over the largest code, so a value
comes back within half a scale. int8: 256 values to a float32 scale, a signed byte each, 8.125 bits a value. int4: 64
values to a bfloat16 scale, two to a byte (the earlier in the lower half, plus 8), 4.25 bits a value. bfloat16 rounds
the scale by up to 1/256, which the largest values of a block feel as up to 3 % of a scale more.
"""

import numpy as np
import numpy.typing as npt

from subnet.merge.codecs.rows import (
    FLOAT,
    HALF,
    Bytes,
    Flat,
    Whole,
    added,
    from_half,
    magnitudes_of_floats,
    magnitudes_of_halves,
    require,
    to_half,
)

NO_CODE = -128  # of int8, so that codes are symmetric
OFFSET = 8  # of int4's codes


def _divided(rows: Flat, scales: Flat, top: int) -> npt.NDArray[np.int8]:
    """Whole multiples of each row's scale, nearest first, ties to even."""
    usable = np.where(scales > 0, scales, np.float32(1))
    codes = np.rint(np.divide(rows, usable))
    return np.where(scales > 0, np.clip(codes, -top, top), 0).astype(np.int8)


def _times(codes: npt.NDArray[np.int8], scales: Flat) -> Flat:
    values: Flat = np.multiply(codes.astype(np.float32), scales)
    return values


def _block_squares(codes: npt.NDArray[np.int8], scales: Flat, total: float) -> float:
    """From integer sums of squares: one for each block, exact, times the square of its scale."""
    whole: Whole = np.add.reduce(np.square(codes.astype(np.int64)), axis=1)
    return added(total, np.multiply(whole.astype(np.float64), np.square(scales[:, 0], dtype=np.float64)))


class Int8:
    """A float32 scale for each 256 values, then one signed byte a value."""

    name = "int8"
    width = 256
    decay: float | None = 1.0
    top = 127

    def row_bytes(self, w: int) -> int:
        """The scale, and one for each value."""
        return FLOAT.itemsize + w

    def encode(self, rows: Flat) -> Bytes:
        """Scale and codes."""
        scales = np.divide(np.abs(rows).max(axis=1, keepdims=True), np.float32(self.top))
        codes = _divided(rows, scales, self.top)
        return np.concatenate([scales.astype(FLOAT).view(np.uint8), codes.view(np.uint8)], axis=1)

    def decode(self, data: Bytes, w: int) -> Flat:
        """Code times scale."""
        return _times(*self._parts(data))

    def squares(self, data: Bytes, w: int, total: float) -> float:
        """From the codes."""
        return _block_squares(*self._parts(data), total)

    def _parts(self, data: Bytes) -> tuple[npt.NDArray[np.int8], Flat]:
        scales = magnitudes_of_floats(data[:, : FLOAT.itemsize], self.name)
        codes = np.ascontiguousarray(data[:, FLOAT.itemsize :]).view(np.int8)
        require(bool((codes != NO_CODE).all()), self.name, f"the code {NO_CODE}")
        return codes, scales


class Int4:
    """A bfloat16 scale for each 64 values, then two values a byte."""

    name = "int4"
    width = 64
    decay: float | None = 1.0
    top = 7

    def row_bytes(self, w: int) -> int:
        """The scale, and one for each two values."""
        return HALF.itemsize + -(-w // 2)

    def encode(self, rows: Flat) -> Bytes:
        """Scale and codes; the half byte behind an odd number of values is a code of zero."""
        halves = to_half(np.divide(np.abs(rows).max(axis=1, keepdims=True), np.float32(self.top)))
        codes = np.full((len(rows), 2 * -(-rows.shape[1] // 2)), OFFSET, dtype=np.uint8)
        codes[:, : rows.shape[1]] = _divided(rows, from_half(halves), self.top) + np.int8(OFFSET)
        return np.concatenate([halves.view(np.uint8), codes[:, 0::2] | codes[:, 1::2] << 4], axis=1)

    def decode(self, data: Bytes, w: int) -> Flat:
        """Code times scale."""
        return _times(*self._parts(data, w))

    def squares(self, data: Bytes, w: int, total: float) -> float:
        """From the codes."""
        return _block_squares(*self._parts(data, w), total)

    def _parts(self, data: Bytes, w: int) -> tuple[npt.NDArray[np.int8], Flat]:
        scales, packed = magnitudes_of_halves(data[:, : HALF.itemsize], self.name), data[:, HALF.itemsize :]
        codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)
        require(bool((codes > 0).all()), self.name, "a code below -7")
        require(bool((codes[:, w:] == OFFSET).all()), self.name, "a value behind the last one")
        return codes[:, :w].astype(np.int8) - np.int8(OFFSET), scales
