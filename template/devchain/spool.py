"""Bytes that are rarely read again, kept on disk instead of in memory.

Owns temporary files, one per segment, that have no name and vanish with the
spool or the process. A place in them is one number. Nothing is ever changed
in place; a segment is dropped as a whole.
"""

import os
import tempfile
import weakref

_LENGTH_BITS, _OFFSET_BITS = 28, 36  # 256 MiB at a time, 64 GiB in a segment
SEGMENT_SHIFT = _LENGTH_BITS + _OFFSET_BITS
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1


def _close(files: dict[int, int]) -> None:
    while files:
        os.close(files.popitem()[1])


class Spool:
    """An append-only store of byte strings."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self.close = weakref.finalize(self, _close, self._files)

    def put(self, segment: int, data: bytes) -> int:
        """Store the bytes in a segment and give their place: the segment above SEGMENT_SHIFT, the rest below."""
        assert len(data) <= _LENGTH_MASK
        if segment not in self._files:
            self._files[segment], path = tempfile.mkstemp(prefix="devchain-")
            os.unlink(path)
            self._sizes[segment] = 0
        offset = self._sizes[segment]
        os.pwrite(self._files[segment], data, offset)
        self._sizes[segment] = offset + len(data)
        return segment << SEGMENT_SHIFT | offset << _LENGTH_BITS | len(data)

    def get(self, place: int) -> bytes:
        """The bytes at a place."""
        length = place & _LENGTH_MASK
        offset = place >> _LENGTH_BITS & ((1 << _OFFSET_BITS) - 1)
        return os.pread(self._files[place >> SEGMENT_SHIFT], length, offset)

    def drop_before(self, segment: int) -> None:
        """Forget every segment with a lower number."""
        for each in [number for number in self._files if number < segment]:
            os.close(self._files.pop(each))
            del self._sizes[each]
