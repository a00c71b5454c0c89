"""The beginning of a blob: what has come of an unfinished download, kept so that a restart does not lose it.

A sparse file of the blob's size in a folder of its own. Nothing says which parts of it have come: whoever goes on
checks every part against the blob's name, so that a file that was torn costs only what it lost. Knows nothing of where
the bytes come from.
"""

import os
import time
from pathlib import Path

from subnet.edges.blobs import Bytes, check_name
from subnet.errors import StoreError

KEPT_S = 24 * 3600.0  # an unfinished download that nobody went on with for so long is removed


class Partial:
    """The file of one unfinished download; made by the first write."""

    def __init__(self, folder: Path, name: str) -> None:
        """Removes what other downloads left here long ago. Raises StoreError."""
        check_name(name)
        self._folder, self._path = folder, folder / name
        try:
            for left in folder.iterdir() if folder.is_dir() else ():
                if left != self._path and time.time() - left.stat().st_mtime > KEPT_S:
                    left.unlink()
        except OSError as error:
            raise self._failed(error) from error

    def read(self, size_bytes: int) -> bytes:
        """What is there, as far as it reaches; empty when nothing is, or a file of another size."""
        try:
            if not self._path.is_file() or self._path.stat().st_size != size_bytes:
                return b""
            return self._path.read_bytes()
        except OSError as error:
            raise self._failed(error) from error

    def write(self, start: int, data: Bytes, *, size_bytes: int) -> None:
        """Keep a part that is known to be right."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
                file.truncate(size_bytes)
                file.seek(start)
                file.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def drop(self) -> None:
        """The download is over; the bytes are kept elsewhere, or not wanted."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(
            f"expected to keep an unfinished download in {self._folder}, found {error.strerror!r}; free space there or "
            "check its rights"
        )
