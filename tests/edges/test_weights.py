"""Safetensors by hand: the library's own files are read, it reads ours, and only what is asked for is touched."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from subnet.edges.weights import INDEX_FILE, SINGLE_FILE, FolderSource, Weights, write_tensors
from subnet.errors import CheckpointError, StoreError

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Counting(FolderSource):
    """A folder that remembers which bytes were read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads: list[tuple[str, int, int]] = []

    def read(self, file: str, start: int, length_bytes: int) -> bytes:
        self.reads.append((file, start, length_bytes))
        return super().read(file, start, length_bytes)

    @property
    def bytes_read(self) -> int:
        return sum(length for _, _, length in self.reads)


def read(weights: Weights, name: str, shape: tuple[int, ...]) -> np.ndarray:
    out = np.empty(int(np.prod(shape)), dtype=np.float32)
    weights.read_into(name, shape, out)
    return out.reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_of_the_library_is_read_exactly(tmp_path: Path, dtype: str) -> None:
    """Every number of a narrower dtype is a float32; subnormal ones too."""
    tensor = torch.tensor([[0.0, -0.0, 1.0, -2.5], [6e-8, 65504.0, 1e-3, 3.1415926]]).to(DTYPES[dtype])
    save_file({"a": torch.ones(3), "b": tensor}, tmp_path / SINGLE_FILE)
    weights = Weights(FolderSource(tmp_path))
    assert weights.names == {"a", "b"}
    assert read(weights, "b", (2, 4)).tobytes() == tensor.float().numpy().tobytes()


def test_the_library_reads_what_is_written_here(tmp_path: Path) -> None:
    tensors = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.zeros((0, 3), np.float32),
        "c": np.ones(1, np.float32),
    }
    write_tensors(tmp_path / "x", tensors)
    found = load_file(tmp_path / "x")
    assert found.keys() == tensors.keys()
    assert all(np.array_equal(found[name].numpy(), tensor) for name, tensor in tensors.items())


def test_a_tensor_larger_than_a_piece_is_read_in_pieces_and_whole(tmp_path: Path) -> None:
    tensor = np.arange(100, dtype=np.float32)
    write_tensors(tmp_path / SINGLE_FILE, {"a": tensor})
    source = Counting(tmp_path)
    assert np.array_equal(read(Weights(source, piece_bytes=64), "a", (100,)), tensor)
    assert max(length for _, _, length in source.reads[2:]) == 64


def test_only_the_header_and_the_tensor_that_is_asked_for_are_read(tmp_path: Path) -> None:
    write_tensors(tmp_path / SINGLE_FILE, {"a": np.zeros(5000, np.float32), "b": np.ones(10, np.float32)})
    source = Counting(tmp_path)
    read(Weights(source), "b", (10,))
    header = int.from_bytes((tmp_path / SINGLE_FILE).read_bytes()[:8], "little")
    assert source.bytes_read == 8 + header + 40


def with_header(path: Path, header: object, data: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "sentence"),
    [
        (b"{", b"", "expected a safetensors file at .*, found: "),
        ({"a": A}, b"1234", "found: a at 0 to 8 of 4 bytes"),
        ({"a": A | {"data_offsets": [8, 0]}}, b"12345678", "found: a at 8 to 0"),
        ({"a": A | {"data_offsets": [-8, 0]}}, b"12345678", "found: a at -8 to 0"),
        ({"a": A | {"data_offsets": [0, 4]}}, b"12345678", r"found: 4 bytes of a of shape \(2,\) in F32"),
        ({"a": A | {"shape": [3]}}, b"12345678", r"expected a of shape \(2,\), found \(3,\)"),
        ({"a": A | {"dtype": "F8_E4M3"}}, b"12345678", "expected a in F32, F16, BF16, found F8_E4M3"),
        ({"a": A}, np.array([1, np.inf], "<f4").tobytes(), "expected finite numbers in a"),
        ({"b": A}, b"12345678", "expected the tensor a in .*, found none"),
    ],
)
def test_a_malformed_file_is_one_sentence(tmp_path: Path, header: object, data: bytes, sentence: str) -> None:
    with_header(tmp_path / SINGLE_FILE, header, data)
    with pytest.raises(CheckpointError, match=sentence):
        read(Weights(FolderSource(tmp_path)), "a", (2,))


@pytest.mark.parametrize("length", [2**63, 9, 1 << 20])
def test_a_header_longer_than_its_file_is_refused_before_it_is_read(tmp_path: Path, length: int) -> None:
    (tmp_path / SINGLE_FILE).write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match=f"a header of {length} bytes in a file of 10"):
        Weights(FolderSource(tmp_path))


def test_an_index_is_followed_and_a_file_that_it_promises_must_be_there(tmp_path: Path) -> None:
    write_tensors(tmp_path / "one", {"a": np.ones(2, np.float32)})
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": "one", "b": "one", "c": "two"}}))
    weights = Weights(FolderSource(tmp_path))
    assert weights.names == {"a", "b", "c"}
    assert read(weights, "a", (2,)).tolist() == [1, 1]
    with pytest.raises(CheckpointError, match="no tensor b, which the index says is there"):
        read(weights, "b", (2,))
    with pytest.raises(CheckpointError, match="/two, found: no such file"):
        read(weights, "c", (2,))
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": "../one"}}))
    with pytest.raises(CheckpointError, match="expected files beside the index"):
        Weights(FolderSource(tmp_path))


def test_a_folder_without_safetensors_and_a_file_that_became_shorter_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"expected model.safetensors or .*, found neither; convert the model"):
        Weights(FolderSource(tmp_path))
    write_tensors(tmp_path / SINGLE_FILE, {"a": np.ones(4, np.float32)})
    weights = Weights(FolderSource(tmp_path))
    with (tmp_path / SINGLE_FILE).open("r+b") as file:
        file.truncate((tmp_path / SINGLE_FILE).stat().st_size - 4)
    with pytest.raises(StoreError, match="found: its end after"):
        read(weights, "a", (4,))
