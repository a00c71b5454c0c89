"""The codec `dct`: the largest of a block's cosine transform, in whole numbers from end to end.

After DeMo (arXiv 2411.19870): blocks of 4,096 values as squares of 64 by 64, a two-dimensional orthonormal DCT-II, and
of its coefficients the 64 largest, each as a sign and how often the block's largest is halved. The transform is one of
integers with a table of integers: values as 14-bit multiples of a power of two, table entries in 2^-15, int64 sums
(exact, so that their order does not matter), each pass rounded once. A block shorter than 4,096 has zeros behind it.

A row is the places in 12 bits and the values in 4, the largest magnitude as a 16-bit whole number, and the exponent of
two: 132 bytes for 4,096 values, 0.258 bits a value. A kept coefficient comes back within a third of itself; what is
less than 3/256 of the block's largest, as zero. Good where neighbours in a stage's flat parameters move alike.
"""

import numpy as np
import numpy.typing as npt

from subnet.merge.codecs.kept import KEPT, WIDTH, kept_bytes, largest, pack_kept, unpack_kept
from subnet.merge.codecs.rows import HALF, Bytes, Flat, Whole, added, require

SIDE = 64
TABLE_BITS = 15  # after the point in a table entry
VALUE_BITS = 14  # of the largest value of a block
BITS = 4  # of a kept coefficient: its sign, and how often the largest is halved
HALVINGS = 7  # of which the last leaves nothing
COARSE_BITS = 5  # that a coefficient loses, so that a magnitude fits 16 bits
EXPONENT = np.dtype("<i2")
EXPONENTS = (-149, 96)  # of the smallest float32, and of LARGEST
FIRST = 4096  # the entries of a table's first row: 2^15 / 8
# round(2^15 sqrt(2) / 8 cos(pi m / 128)) for m from 0 to 64
COSINES = (
    5793, 5791, 5786, 5777, 5765, 5749, 5730, 5707, 5681, 5652, 5619, 5583, 5543, 5500, 5454, 5404, 5352, 5296, 5236,
    5174, 5109, 5040, 4968, 4894, 4816, 4736, 4653, 4567, 4478, 4386, 4292, 4195, 4096, 3994, 3890, 3784, 3675, 3564,
    3451, 3335, 3218, 3099, 2978, 2855, 2731, 2604, 2477, 2347, 2217, 2085, 1951, 1817, 1682, 1545, 1407, 1269, 1130,
    990, 850, 709, 568, 426, 284, 142, 0,
)  # fmt: skip
TAIL_BYTES = HALF.itemsize + EXPONENT.itemsize


def cosine(m: int) -> int:
    """The table's cos(pi m / 128), for any m of at least 0."""
    turned = m % 256
    turned = min(turned, 256 - turned)
    return COSINES[turned] if turned <= SIDE else -COSINES[2 * SIDE - turned]


TABLE: Whole = np.array(
    [[FIRST if k == 0 else cosine((2 * j + 1) * k) for j in range(SIDE)] for k in range(SIDE)], dtype=np.int64
)


def _shifted(values: Whole, bits: int) -> Whole:
    """Divided by 2^bits, to nearest, halves up."""
    return values + (1 << bits - 1) >> bits


def _pass(squares: Whole, table: Whole) -> Whole:
    """The table times each square, along its columns; then turned over, so that two passes take both axes."""
    return _shifted(np.matmul(squares.transpose(0, 2, 1), table.T), TABLE_BITS)


def _transformed(whole: Whole, table: Whole) -> Whole:
    """(n, 4096) whole numbers as squares through both passes."""
    squares = whole.reshape(-1, SIDE, SIDE)
    return _pass(_pass(squares, table), table).reshape(len(whole), -1)


class Dct:
    """0.258 bits a value; most of what it leaves out comes with a later contribution."""

    name = "dct"
    width = WIDTH
    decay: float | None = 0.95

    def row_bytes(self, w: int) -> int:
        """Places, values, the largest magnitude and the exponent, of a shorter block too."""
        return kept_bytes(KEPT, bits=BITS) + TAIL_BYTES

    def encode(self, rows: Flat) -> Bytes:
        """Keep the largest coefficients."""
        exponents = np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1].astype(np.int64)
        whole = np.zeros((len(rows), WIDTH), dtype=np.int64)
        whole[:, : rows.shape[1]] = np.rint(rows.astype(np.float64) * np.ldexp(1.0, VALUE_BITS - exponents))
        coarse = _shifted(_transformed(whole, TABLE), COARSE_BITS)
        places = largest(np.abs(coarse).astype(np.uint64), KEPT)
        kept = np.take_along_axis(coarse, places, axis=1)
        top, halved = np.abs(kept).max(axis=1, keepdims=True), np.zeros_like(kept)
        for times in range(HALVINGS):
            halved += 4 * np.abs(kept) < 3 * (top >> times)
        numbers = (kept < 0).astype(np.int64) | halved << 1
        tail = [top.astype(HALF).view(np.uint8), exponents.astype(EXPONENT).view(np.uint8)]
        return np.concatenate([pack_kept(places, numbers, bits=BITS), *tail], axis=1)

    def decode(self, data: Bytes, w: int) -> Flat:
        """The inverse transform of the kept ones."""
        whole, exponents = self._whole(data, w)
        values: Flat = (whole.astype(np.float64) * np.ldexp(1.0, exponents - VALUE_BITS)).astype(np.float32)
        return values

    def squares(self, data: Bytes, w: int, total: float) -> float:
        """From the whole numbers that decode gives before their exponent."""
        whole, exponents = self._whole(data, w)
        sums = np.add.reduce(np.square(whole), axis=1).astype(np.float64)
        return added(total, np.multiply(sums, np.ldexp(1.0, 2 * (exponents[:, 0] - VALUE_BITS))))

    def _whole(self, data: Bytes, w: int) -> tuple[Whole, npt.NDArray[np.int64]]:
        """Decoded whole numbers (n, w) and exponents (n, 1)."""
        places, numbers = unpack_kept(data[:, :-TAIL_BYTES], KEPT, WIDTH, bits=BITS, codec=self.name)
        top = np.ascontiguousarray(data[:, -TAIL_BYTES : -EXPONENT.itemsize]).view(HALF).astype(np.int64)
        exponents = np.ascontiguousarray(data[:, -EXPONENT.itemsize :]).view(EXPONENT).astype(np.int64)
        within = (exponents >= EXPONENTS[0]) & (exponents <= EXPONENTS[1])
        require(bool(within.all()), self.name, "an exponent that no value has")
        halved = numbers >> 1
        magnitudes = np.where(halved < HALVINGS, top >> halved, 0) << COARSE_BITS
        coefficients = np.zeros((len(data), WIDTH), dtype=np.int64)
        np.put_along_axis(coefficients, places, np.where(numbers & 1, -magnitudes, magnitudes), axis=1)
        return _transformed(coefficients, np.ascontiguousarray(TABLE.T))[:, :w], exponents
