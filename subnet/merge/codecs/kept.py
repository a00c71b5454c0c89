"""The largest few of a block: where they are, and a small number for each.

Shared by `sparse` (of the values) and `dct` (of their cosine transform). Of 4,096 places 64 are kept, and of a shorter
block in proportion, each place in 12 bits. Of equal magnitudes the earlier is kept.
"""

import numpy as np
import numpy.typing as npt

from subnet.merge.codecs.rows import Bytes, Whole, pack, require, unpack

WIDTH = 4096
KEPT = 64
PLACE_BITS = 12


def kept_of(w: int) -> int:
    """How many of w places are kept: one of each 64, rounded up."""
    return -(-w * KEPT // WIDTH)


def places_bytes(count: int) -> int:
    """Bytes of so many places."""
    return -(-count * PLACE_BITS // 8)


def kept_bytes(count: int, *, bits: int) -> int:
    """Bytes of so many places, and a number of so many bits for each."""
    return places_bytes(count) + -(-count * bits // 8)


def largest(keys: npt.NDArray[np.uint64], count: int) -> Whole:
    """The ascending places (n, count) of the largest of each row, of equals the earlier. keys: (n, w), below 2^52."""
    w = keys.shape[1]
    distinct = keys << np.uint64(PLACE_BITS) | np.arange(w - 1, -1, -1, dtype=np.uint64)  # so the choice is unique
    chosen = np.argpartition(distinct, w - count, axis=1)[:, w - count :]
    return np.sort(chosen, axis=1).astype(np.int64)


def pack_kept(places: Whole, numbers: Whole, *, bits: int) -> Bytes:
    """Rows of places (n, k), then of the numbers (n, k)."""
    return np.concatenate([pack(places, PLACE_BITS), pack(numbers, bits)], axis=1)


def unpack_kept(data: Bytes, count: int, w: int, *, bits: int, codec: str) -> tuple[Whole, Whole]:
    """The inverse: places and numbers, (n, count). Raises EvidenceError where places do not ascend, or lie behind the
    last of w."""
    end = places_bytes(count)
    places, numbers = unpack(data[:, :end], count, PLACE_BITS, codec), unpack(data[:, end:], count, bits, codec)
    require(bool((np.diff(places, axis=1) > 0).all()), codec, "places that do not ascend")
    require(bool((places < w).all()), codec, f"a place behind the last of {w}")
    return places, numbers
