"""The codec `sparse`: the 64 largest of each 4,096 values, each as a place, a sign and one of two magnitudes.

After SparseLoCo (arXiv 2508.15706, Templar): top-k in blocks with 12-bit places and 2-bit values, and error feedback
with a decay of 0.95. A row is the places, the values, and the two magnitudes as bfloat16: 116 bytes for 4,096 values,
0.227 bits a value. The two magnitudes are the means of the kept ones up to their mean and of those above, so what is
sent takes its own square off what is left: |x - decoded|^2 = |x|^2 - |decoded|^2, but for their rounding by 1/256.
"""

import numpy as np
import numpy.typing as npt

from subnet.merge.codecs.kept import WIDTH, kept_bytes, kept_of, largest, pack_kept, unpack_kept
from subnet.merge.codecs.rows import HALF, Bytes, Flat, Whole, added, magnitudes_of_halves, to_half

BITS = 2  # of a value: the sign, and which magnitude
STEPS = 1 << 20  # magnitudes are averaged as whole parts of the block's largest
MEANS_BYTES = 2 * HALF.itemsize


class Sparse:
    """0.227 bits a value; most of what it leaves out comes with a later contribution."""

    name = "sparse"
    width = WIDTH
    decay: float | None = 0.95

    def row_bytes(self, w: int) -> int:
        """Places, values, and the two magnitudes."""
        return kept_bytes(kept_of(w), bits=BITS) + MEANS_BYTES

    def encode(self, rows: Flat) -> Bytes:
        """Keep the largest."""
        places = largest(np.abs(rows).view(np.uint32).astype(np.uint64), kept_of(rows.shape[1]))
        kept = np.take_along_axis(rows, places, axis=1)
        magnitudes = np.abs(kept).astype(np.float64)
        top = magnitudes.max(axis=1, keepdims=True)
        usable = np.where(top > 0, top, 1.0)
        low, high, above = _two_means(np.floor(magnitudes * STEPS / usable).astype(np.int64))
        means = (np.concatenate([low, high], axis=1) * top / STEPS).astype(np.float32)
        values = (kept < 0).astype(np.int64) | above.astype(np.int64) << 1
        return np.concatenate([pack_kept(places, values, bits=BITS), to_half(means).view(np.uint8)], axis=1)

    def decode(self, data: Bytes, w: int) -> Flat:
        """Zeros, and the kept ones."""
        places, values, means = self._parts(data, w)
        magnitudes = np.where(values & 2, means[:, 1:], means[:, :1])
        rows = np.zeros((len(data), w), dtype=np.float32)
        np.put_along_axis(rows, places, np.where(values & 1, -magnitudes, magnitudes), axis=1)
        return rows

    def squares(self, data: Bytes, w: int, total: float) -> float:
        """From how many of a block have each magnitude."""
        _, values, means = self._parts(data, w)
        large = np.add.reduce(values >> 1, axis=1)
        counts = np.stack([values.shape[1] - large, large], axis=1).astype(np.float64)
        return added(total, np.multiply(counts, np.square(means, dtype=np.float64)).reshape(-1))

    def _parts(self, data: Bytes, w: int) -> tuple[Whole, Whole, Flat]:
        """Places and values (n, k), and the two magnitudes (n, 2)."""
        places, values = unpack_kept(data[:, :-MEANS_BYTES], kept_of(w), w, bits=BITS, codec=self.name)
        return places, values, magnitudes_of_halves(data[:, -MEANS_BYTES:], self.name)


def _two_means(whole: Whole) -> tuple[Whole, Whole, npt.NDArray[np.bool_]]:
    """For each row of magnitudes (n, k) the means (n, 1) of those up to the row's mean and of those above, rounded
    down, and which are above (n, k)."""
    above = whole > np.add.reduce(whole, axis=1, keepdims=True) // whole.shape[1]
    count = np.add.reduce(above, axis=1, keepdims=True, dtype=np.int64)
    high = np.add.reduce(np.where(above, whole, 0), axis=1, keepdims=True) // np.maximum(count, 1)
    low = np.add.reduce(np.where(above, 0, whole), axis=1, keepdims=True) // np.maximum(whole.shape[1] - count, 1)
    return low, high, above
