"""Safetensors files, read and written tensor by tensor with numpy alone.

Of a file only its header and the tensors that are asked for are read, in pieces; of a model only the files that hold
them. What a header says is checked against the file before anything is allocated. Numbers become float32: bfloat16 and
float16 exactly. Does not know models or stages, nor where files come from: see `subnet.edges.origin`.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from subnet.errors import CheckpointError, StoreError

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000  # the format's own limit
MOST_INDEX_BYTES = 100_000_000
ALIGNED_BYTES = 8
PIECE_BYTES = 16 << 20
STORED: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}

Floats = npt.NDArray[np.float32]


@runtime_checkable
class Source(Protocol):
    """The files of a model by name, any part of which can be read."""

    @property
    def name(self) -> str:
        """What a sentence calls it."""
        ...

    def size(self, file: str) -> int | None:
        """How many bytes a file has; None when there is no such file. Raises StoreError."""
        ...

    def read(self, file: str, start: int, length_bytes: int) -> bytes:
        """These bytes of a file, all of them. Raises StoreError."""
        ...


class FolderSource:
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def name(self) -> str:
        return str(self._folder)

    def size(self, file: str) -> int | None:
        path = self._folder / file
        try:
            return path.stat().st_size if path.is_file() else None
        except OSError as error:
            raise self._failed(file, error.strerror) from error

    def read(self, file: str, start: int, length_bytes: int) -> bytes:
        try:
            with (self._folder / file).open("rb", buffering=0) as opened:
                opened.seek(start)
                data = opened.read(length_bytes)
        except OSError as error:
            raise self._failed(file, error.strerror) from error
        if len(data) != length_bytes:
            raise self._failed(file, f"its end after {start + len(data)} bytes")
        return data

    def _failed(self, file: str, found: object) -> StoreError:
        return StoreError(
            f"expected to read {self._folder / file}, found: {found}; check its rights, or copy the model again"
        )


class Index(msgspec.Struct, frozen=True):
    """The part of a model's index that we read: tensor name -> file."""

    weight_map: dict[str, str]


class Entry(msgspec.Struct, frozen=True):
    """What a file's header says of one tensor; offsets count from the header's end."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Weights:
    """The tensors of a model's safetensors files by name, each read when it is asked for."""

    def __init__(self, source: Source, *, piece_bytes: int = PIECE_BYTES) -> None:
        """Reads the index, or the header of the one file. Raises CheckpointError or StoreError."""
        self.source = source
        self._piece_bytes = piece_bytes
        self._headers: dict[str, tuple[int, dict[str, Entry]]] = {}
        self._files = self._index()

    @property
    def names(self) -> set[str]:
        """All tensors that the model is said to have."""
        return set(self._files)

    def _index(self) -> dict[str, str]:
        size = self.source.size(INDEX_FILE)
        if size is not None:
            return self._read_index(size)
        if self.source.size(SINGLE_FILE) is None:
            raise CheckpointError(
                f"expected {SINGLE_FILE} or {INDEX_FILE} in {self.source.name}, found neither; convert the model to "
                "safetensors, other formats are not read"
            )
        return dict.fromkeys(self._header(SINGLE_FILE)[1], SINGLE_FILE)

    def _read_index(self, size_bytes: int) -> dict[str, str]:
        where = f"{self.source.name}/{INDEX_FILE}"
        if size_bytes > MOST_INDEX_BYTES:
            raise CheckpointError(
                f"expected an index of at most {MOST_INDEX_BYTES} bytes, found {size_bytes} in {where}"
            )
        try:
            files = msgspec.json.decode(self.source.read(INDEX_FILE, 0, size_bytes), type=Index).weight_map
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CheckpointError(f"expected a model's index in {where}, found: {error}; download it again") from error
        outside = [file for file in files.values() if Path(file).name != file]
        if outside:
            raise CheckpointError(f"expected files beside the index {where}, found {outside[0]!r}; do not use it")
        return files

    def _header(self, file: str) -> tuple[int, dict[str, Entry]]:
        """Where the tensors of a file begin, and what it says of each."""
        if file not in self._headers:
            self._headers[file] = self._read_header(file)
        return self._headers[file]

    def _read_header(self, file: str) -> tuple[int, dict[str, Entry]]:
        size = self.source.size(file)
        if size is None:
            raise self._refused(file, "no such file")
        length = int.from_bytes(self.source.read(file, 0, LENGTH_BYTES), "little") if size >= LENGTH_BYTES else size
        if length > min(MOST_HEADER_BYTES, size - LENGTH_BYTES):
            raise self._refused(file, f"a header of {length} bytes in a file of {size}")
        try:
            parts = msgspec.json.decode(self.source.read(file, LENGTH_BYTES, length), type=dict[str, msgspec.Raw])
            parts.pop("__metadata__", None)
            entries = {name: msgspec.json.decode(part, type=Entry) for name, part in parts.items()}
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._refused(file, str(error)) from error
        start = LENGTH_BYTES + length
        for name, entry in entries.items():
            begin, end = entry.data_offsets
            if not 0 <= begin <= end <= size - start:
                raise self._refused(file, f"{name} at {begin} to {end} of {size - start} bytes")
        return start, entries

    def _refused(self, file: str, found: str) -> CheckpointError:
        return CheckpointError(
            f"expected a safetensors file at {self.source.name}/{file}, found: {found}; download it again"
        )

    def read_into(self, name: str, shape: tuple[int, ...], out: Floats) -> None:
        """Read one tensor, which must have this shape, into a flat array of as many float32.

        Raises CheckpointError when there is none, or one of another shape or dtype, or that is not finite.
        """
        if name not in self._files:
            raise CheckpointError(f"expected the tensor {name} in {self.source.name}, found none; use a whole model")
        file = self._files[name]
        start, entries = self._header(file)
        if name not in entries:
            raise self._refused(file, f"no tensor {name}, which the index says is there")
        entry = entries[name]
        if entry.shape != shape:
            raise CheckpointError(
                f"expected {name} of shape {shape}, found {entry.shape}; use a checkpoint of this run's model"
            )
        stored = STORED.get(entry.dtype)
        if stored is None:
            raise CheckpointError(
                f"expected {name} in {', '.join(STORED)}, found {entry.dtype}; use the model before quantization"
            )
        begin, end = entry.data_offsets
        if end - begin != math.prod(shape) * stored.itemsize:
            raise self._refused(file, f"{end - begin} bytes of {name} of shape {shape} in {entry.dtype}")
        step = self._piece_bytes // stored.itemsize
        for first in range(0, out.size, step):
            piece = out[first : first + step]
            data = self.source.read(file, start + begin + first * stored.itemsize, piece.size * stored.itemsize)
            piece[:] = _floats(np.frombuffer(data, dtype=stored), entry.dtype)
            if not np.isfinite(piece).all():
                raise CheckpointError(
                    f"expected finite numbers in {name} of {self.source.name}, found others; do not use it"
                )


def _floats(stored: npt.NDArray[np.generic], dtype: str) -> Floats:
    if dtype == "BF16":  # the upper half of a float32
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32)


def write_tensors(path: Path, tensors: Mapping[str, Floats]) -> None:
    """Write a safetensors file of float32 tensors and sync it; nothing is copied. Raises OSError."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED_BYTES)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, dtype="<f4").data.cast("B") if tensor.size else b"")
        file.flush()
        os.fsync(file.fileno())
