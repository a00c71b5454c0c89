"""Blobs: bytes kept under the name that their content gives them. A protocol, a folder, and a dictionary.

A name is the blake3 digest of the bytes, or their Merkle root (for states, of which single chunks can be proven); both
are 64 hex digits, and the two hashes differ, so a name fits one of them. What is read is verified, except ranges, which
the reader verifies with a chunk proof. Errors of the file system stop here. Knows nothing of who may read.
"""

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from subnet.canonical import digest
from subnet.errors import BlobMissing, EvidenceError, StoreError, StoreFull
from subnet.wire.merkle import merkle_root

Bytes = bytes | bytearray | memoryview

_HEX = frozenset("0123456789abcdef")
_INCOMING = "incoming"


@runtime_checkable
class BlobStore(Protocol):
    """Bytes by name. A missing blob, and a store that fails or is full, raise StoreError; ask with `has` first."""

    def put(self, data: Bytes) -> str:
        """Keep the bytes; returns their blake3 digest. Keeping the same bytes twice changes nothing."""
        ...

    def put_named(self, name: str, data: Bytes) -> None:
        """Keep the bytes under their digest or Merkle root. Raises EvidenceError when it is neither."""
        ...

    def get(self, name: str) -> bytes:
        """The bytes, verified. Raises EvidenceError when they are no longer what the name says."""
        ...

    def get_range(self, name: str, start: int, length_bytes: int) -> bytes:
        """Part of the bytes, not verified; shorter where the blob ends. Raises EvidenceError for a negative number."""
        ...

    def size(self, name: str) -> int:
        """How many bytes the blob has."""
        ...

    def kept_since_s(self, name: str) -> float:
        """When the blob was last put (unix seconds)."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is a blob of this name."""
        ...

    def delete(self, name: str) -> None:
        """Forget the blob. Deleting what is not there changes nothing."""
        ...

    def digests(self) -> list[str]:
        """All names, sorted."""
        ...


def check_name(name: str) -> None:
    """Raises EvidenceError unless the name is 64 lower-case hex digits, so that no name can be a path."""
    if len(name) != 64 or not _HEX.issuperset(name):
        raise EvidenceError(f"expected a name of 64 lower-case hex digits, found {name[:80]!r}; use the blob's digest")


def check_blob(name: str, data: Bytes) -> None:
    """Raises EvidenceError unless `name` is the digest or the Merkle root of the bytes."""
    if digest(data) != name and merkle_root(data) != name:
        raise EvidenceError(
            f"expected bytes of digest or root {name[:16]}, found {memoryview(data).nbytes} bytes of digest "
            f"{digest(data)[:16]}; fetch the blob again from another source"
        )


def _check_range(start: int, length_bytes: int) -> None:
    if start < 0 or length_bytes < 0:
        raise EvidenceError(f"expected a range from 0 on, found {length_bytes} bytes from {start}; correct the request")


def _missing(name: str) -> BlobMissing:
    return BlobMissing(f"expected a blob {name[:16]} in the store, found none; ask its author or the run's store")


def _full(size_bytes: int, limit_bytes: int) -> StoreFull:
    return StoreFull(
        f"expected the store to stay within {limit_bytes} bytes, found it would need {size_bytes}; "
        "raise the limit or delete old blobs"
    )


class MemoryBlobs:
    """Blobs in a dictionary: the same contract without a disk."""

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._blobs: dict[str, bytes] = {}
        self._since_s: dict[str, float] = {}

    def put(self, data: Bytes) -> str:
        name = digest(data)
        self._keep(name, data)
        return name

    def put_named(self, name: str, data: Bytes) -> None:
        check_name(name)
        check_blob(name, data)
        self._keep(name, data)

    def _keep(self, name: str, data: Bytes) -> None:
        needed_bytes = sum(map(len, self._blobs.values())) + memoryview(data).nbytes
        if name not in self._blobs and needed_bytes > self._limit_bytes:
            raise _full(needed_bytes, self._limit_bytes)
        self._blobs[name], self._since_s[name] = bytes(data), time.time()

    def get(self, name: str) -> bytes:
        check_name(name)
        if name not in self._blobs:
            raise _missing(name)
        return self._blobs[name]

    def get_range(self, name: str, start: int, length_bytes: int) -> bytes:
        _check_range(start, length_bytes)
        return self.get(name)[start : start + length_bytes]

    def size(self, name: str) -> int:
        return len(self.get(name))

    def kept_since_s(self, name: str) -> float:
        self.get(name)
        return self._since_s[name]

    def has(self, name: str) -> bool:
        check_name(name)
        return name in self._blobs

    def delete(self, name: str) -> None:
        check_name(name)
        self._blobs.pop(name, None)
        self._since_s.pop(name, None)

    def digests(self) -> list[str]:
        return sorted(self._blobs)


class LocalBlobs:
    """Blobs in a folder of one process: DIR/ab/abcd... A blob is written beside its place and then renamed into it.

    A process that is killed leaves no half blob under a name; what it left unfinished is removed at the next start.
    Files are not synced: after a power cut a blob may be damaged, and `get` then says so.
    """

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        try:
            (folder / _INCOMING).mkdir(parents=True, exist_ok=True)
            for left in (folder / _INCOMING).iterdir():
                left.unlink()
            self._used_bytes = sum(path.stat().st_size for path in self._files())
        except OSError as error:
            raise self._failed("open", error) from error

    def put(self, data: Bytes) -> str:
        name = digest(data)
        self._write(name, data)
        return name

    def put_named(self, name: str, data: Bytes) -> None:
        check_name(name)
        check_blob(name, data)
        self._write(name, data)

    def get(self, name: str) -> bytes:
        data = self.get_range(name, 0, self.size(name))
        check_blob(name, data)
        return data

    def get_range(self, name: str, start: int, length_bytes: int) -> bytes:
        _check_range(start, length_bytes)
        try:
            with self._path(name).open("rb") as file:
                file.seek(start)
                return file.read(length_bytes)
        except FileNotFoundError as error:
            raise _missing(name) from error
        except OSError as error:
            raise self._failed("read from", error) from error

    def size(self, name: str) -> int:
        return self._stat(name).st_size

    def kept_since_s(self, name: str) -> float:
        return self._stat(name).st_mtime

    def _stat(self, name: str) -> os.stat_result:
        try:
            return self._path(name).stat()
        except FileNotFoundError as error:
            raise _missing(name) from error
        except OSError as error:
            raise self._failed("read from", error) from error

    def has(self, name: str) -> bool:
        return self._path(name).is_file()

    def delete(self, name: str) -> None:
        try:
            size_bytes = self._path(name).stat().st_size
            self._path(name).unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed("delete from", error) from error
        self._used_bytes -= size_bytes

    def digests(self) -> list[str]:
        return sorted(path.name for path in self._files())

    def _files(self) -> Iterator[Path]:
        return self._folder.glob("[0-9a-f][0-9a-f]/*")

    def _path(self, name: str) -> Path:
        check_name(name)
        return self._folder / name[:2] / name

    def _failed(self, verb: str, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        return kind(
            f"expected to {verb} the blob store {self._folder}, found {reason!r}; free space there or check its rights"
        )

    def _write(self, name: str, data: Bytes) -> None:
        path, temporary = self._path(name), None
        try:
            path.parent.mkdir(exist_ok=True)
            replaced_bytes = path.stat().st_size if path.is_file() else 0
            needed_bytes = self._used_bytes - replaced_bytes + memoryview(data).nbytes
            if needed_bytes > self._limit_bytes:
                raise _full(needed_bytes, self._limit_bytes)
            handle, temporary = tempfile.mkstemp(dir=self._folder / _INCOMING)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError as error:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
            raise self._failed("write to", error) from error
        self._used_bytes = needed_bytes
