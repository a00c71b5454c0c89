"""Encoded pseudo-gradients: the bytes that travel, checked before anything is allocated, decoded piece by piece.

`none` is the values' own bytes and nothing else. Every other codec has a header of 24 bytes before its rows:

| bytes | what |
|---|---|
| 4 | `SPG1` |
| 1 | the codec's number: its place in `CODECS` |
| 3 | zero |
| 8 | how many values, little-endian |
| 8 | the first bytes of the blake3 of what follows |

The length is a function of the codec and the number of values, and is looked at first; then the header; then the
blake3; only then are rows read, a piece at a time.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from subnet.canonical import digest
from subnet.errors import EvidenceError, InputError
from subnet.merge.codecs.dct import Dct
from subnet.merge.codecs.plain import Plain
from subnet.merge.codecs.rows import LARGEST, Bytes, Codec, Flat
from subnet.merge.codecs.scaled import Int4, Int8
from subnet.merge.codecs.sparse import Sparse

CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (Plain(), Int8(), Int4(), Sparse(), Dct())}

MAGIC = b"SPG1"
DIGEST_BYTES = 8
HEADER_BYTES = 24
PIECE = 1 << 18  # values encoded or checked at a time: a multiple of every block; the result does not depend on it

Data = bytes | bytearray | memoryview


def codec_named(name: str) -> Codec:
    """The codec of a run's configuration."""
    return CODECS[name]


def encoded_bytes(codec: Codec, num_values: int) -> int:
    """The length of every encoding of so many values, its header included."""
    return _header_bytes(codec) + _body_bytes(codec, num_values)


def encode(codec: Codec, values: Flat) -> bytes:
    """The bytes of these values (P,), float32. Raises InputError when some are not finite, or larger than any training
    gives."""
    wrong = values.size - int((np.abs(values) <= LARGEST).sum()) if codec.decay is not None else 0
    wrong = wrong or values.size - int(np.isfinite(values).sum())
    if wrong:
        raise InputError(
            f"expected finite pseudo-gradients below 2^95, found {wrong} values that are not; leave this contribution "
            "out of the merge"
        )
    body = b"".join(codec.encode(rows).tobytes() for rows in _pieces(codec, values))
    return _header(codec, values.size, body) + body


class Encoded:
    """Bytes of an encoding of P values that have passed every check. `encoded[a:b]` decodes values a to b - 1, float32;
    `size` is P; `norm_squared` the sum of the squares of all decoded values, the same on every machine.

    It reads as the array of the decoded values would, piece by piece, and holds nothing decoded.
    """

    def __init__(self, codec: Codec, data: Data, num_values: int) -> None:
        """Raises EvidenceError, in one sentence, for bytes that are not an encoding of P values by this codec."""
        self.codec, self.size = codec, num_values
        self._body = memoryview(data)[_header_bytes(codec) :]
        _check_header(codec, memoryview(data), num_values)
        total = 0.0
        for first in range(0, num_values, PIECE):
            for rows, w in self._rows(first, min(num_values, first + PIECE)):
                total = codec.squares(rows, w, total)
        self.norm_squared = total

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, span: slice) -> Flat:
        start, stop, stride = span.indices(self.size)
        assert stride == 1, f"stride {stride}"
        begins = start - start % self.codec.width
        parts = [self.codec.decode(rows, w).reshape(-1) for rows, w in self._rows(begins, stop)]
        found = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
        return found[start - begins : stop - begins]

    def values(self) -> Flat:
        """All decoded values (P,), in memory of their own."""
        found = np.empty(self.size, dtype=np.float32)
        for first in range(0, self.size, PIECE):
            found[first : first + PIECE] = self[first : first + PIECE]
        return found

    def _rows(self, first: int, stop: int) -> Iterator[tuple[Bytes, int]]:
        """The rows of the blocks that hold values `first` (where a block begins) to `stop` - 1: whole ones, then a
        shorter one."""
        width = self.codec.width
        whole, full = self.size // width, self.codec.row_bytes(width)
        low, high = first // width, min(whole, -(-stop // width))
        if low < high:
            rows = np.frombuffer(self._body, dtype=np.uint8, offset=low * full, count=(high - low) * full)
            yield rows.reshape(high - low, full), width
        if stop > max(first, whole * width):
            w = self.size - whole * width
            last = np.frombuffer(self._body, dtype=np.uint8, offset=whole * full, count=self.codec.row_bytes(w))
            yield last.reshape(1, -1), w


def _pieces(codec: Codec, values: Flat) -> Iterator[Flat]:
    """Rows of whole blocks, then the shorter one."""
    whole = values.size - values.size % codec.width
    for first in range(0, whole, PIECE):
        yield values[first : min(whole, first + PIECE)].reshape(-1, codec.width)
    if whole < values.size:
        yield values[whole:].reshape(1, -1)


def _body_bytes(codec: Codec, num_values: int) -> int:
    whole, rest = divmod(num_values, codec.width)
    return whole * codec.row_bytes(codec.width) + (codec.row_bytes(rest) if rest else 0)


def _header_bytes(codec: Codec) -> int:
    return HEADER_BYTES if codec.decay is not None else 0


def _start(codec: Codec, num_values: int) -> bytes:
    number = list(CODECS).index(codec.name)
    return MAGIC + bytes([number, 0, 0, 0]) + num_values.to_bytes(8, "little")


def _header(codec: Codec, num_values: int, body: Data) -> bytes:
    if codec.decay is None:
        return b""
    return _start(codec, num_values) + bytes.fromhex(digest(body))[:DIGEST_BYTES]


def _check_header(codec: Codec, data: memoryview, num_values: int) -> None:
    expected = encoded_bytes(codec, num_values)
    if data.nbytes != expected:
        raise EvidenceError(
            f"expected a contribution of {expected} bytes ({num_values} values by the codec {codec.name}), found "
            f"{data.nbytes}; leave it out of the merge"
        )
    if codec.decay is None:
        return
    start = _start(codec, num_values)
    if data[: len(start)] != start:
        raise EvidenceError(
            f"expected the header {start.hex()} ({num_values} values by the codec {codec.name}), found "
            f"{bytes(data[: len(start)]).hex()}; leave this contribution out of the merge"
        )
    if data[:HEADER_BYTES] != _header(codec, num_values, data[HEADER_BYTES:]):
        raise EvidenceError(
            "expected rows with the blake3 that the header names, found others; fetch this contribution again"
        )
