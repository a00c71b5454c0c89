"""Checkpoints: transformers alone loads them, and reading one stage refuses anything odd."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from subnet.config import RunConfig
from subnet.edges.checkpoint import byte_tokenizer, read_stage, write_checkpoint
from subnet.edges.weights import INDEX_FILE
from subnet.errors import CheckpointError, StoreError
from subnet.model.partition import initial_tensors
from subnet.stage.evaluate import heldout_loss
from tests.model.tiny import tiny_microbatches, tiny_model, tiny_run

TOKENIZER = byte_tokenizer()


def write(folder: Path, run: RunConfig) -> Path:
    return write_checkpoint(folder, run, (initial_tensors(run, index) for index in range(run.stages)))


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(("tied", "stages"), [(False, 3), (True, 1), (True, 2)])
def test_transformers_alone_loads_a_checkpoint_with_the_same_loss(
    tmp_path: Path, architecture: str, tied: bool, stages: int
) -> None:
    run = tiny_run(tiny_model(architecture, tie_word_embeddings=tied), stages=stages)
    folder = write(tmp_path / "round-1", run)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert type(model).__name__ == architecture
    assert model.config.tie_word_embeddings == (tied and stages == 1)
    ((tokens, labels),) = tiny_microbatches(1)
    with torch.no_grad():
        loss = float(model(input_ids=tokens, labels=labels, shift_labels=labels).loss)
    stages_tensors = (read_stage(folder, run, index) for index in range(stages))
    assert heldout_loss(run, stages_tensors, [(tokens, labels)]) == pytest.approx(loss, abs=1e-5)


def test_a_checkpoint_generates_text_with_transformers_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "round-1", tiny_run())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("def f(x):", return_tensors="pt")
    made = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    assert made.shape == (1, 9 + 5)
    assert tokenizer.decode(made[0, :9]) == "def f(x):"


def test_reading_gives_back_every_tensor_bit_for_bit(tmp_path: Path) -> None:
    run = tiny_run(stages=3)
    folder = write(tmp_path / "round-1", run)
    for index in range(3):
        written, found = initial_tensors(run, index), read_stage(folder, run, index)
        assert list(found) == list(written)
        assert all(torch.equal(found[name], written[name]) for name in written)


def test_numpy_arrays_are_written_like_tensors(tmp_path: Path) -> None:
    run = tiny_run()
    arrays = [{name: t.numpy() for name, t in initial_tensors(run, index).items()} for index in range(2)]
    write_checkpoint(tmp_path / "a", run, arrays)
    write(tmp_path / "b", run)
    for path in sorted((tmp_path / "b").iterdir()):
        assert (tmp_path / "a" / path.name).read_bytes() == path.read_bytes()


def test_a_checkpoint_replaces_the_one_before_and_leaves_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "latest", tiny_run(seed=1))
    write(tmp_path / "latest", tiny_run(seed=2))
    found = read_stage(tmp_path / "latest", tiny_run(seed=2), 0)
    assert torch.equal(
        found["model.embed_tokens.weight"], initial_tensors(tiny_run(seed=2), 0)["model.embed_tokens.weight"]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["latest"]


@pytest.mark.parametrize("given_stages", [1, 3])
def test_too_few_or_too_many_stages_leave_no_folder(tmp_path: Path, given_stages: int) -> None:
    run = tiny_run()
    with pytest.raises(CheckpointError, match="expected 2 stages to write, found"):
        write_checkpoint(tmp_path / "x", run, [initial_tensors(run, min(i, 1)) for i in range(given_stages)])
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_one_sentence_and_leaves_no_folder(tmp_path: Path) -> None:
    """A file where the parent folder should be stands for a disk that refuses."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="expected to write the checkpoint .* free space or choose another folder"):
        write(tmp_path / "file" / "round-1", tiny_run())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def drop_a_tensor(tensors: dict[str, Tensor]) -> None:
    del tensors["model.norm.weight"]


def change_a_shape(tensors: dict[str, Tensor]) -> None:
    tensors["model.norm.weight"] = torch.ones(31)


def change_a_dtype(tensors: dict[str, Tensor]) -> None:
    tensors["model.norm.weight"] = torch.ones(32, dtype=torch.float16)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (drop_a_tensor, r"found 1 missing \(model.norm.weight\)"),
        (change_a_shape, r"expected model.norm.weight of shape \(32,\), found \(31,\)"),
        (change_a_dtype, "expected model.norm.weight in F32, found F16"),
    ],
)
def test_a_damaged_shard_is_refused(tmp_path: Path, damage: Callable[[dict[str, Tensor]], None], sentence: str) -> None:
    run = tiny_run()
    shard = write(tmp_path / "c", run) / "model-00002-of-00002.safetensors"
    tensors = load_file(shard)
    damage(tensors)
    save_file(tensors, shard)
    with pytest.raises(CheckpointError, match=sentence):
        read_stage(tmp_path / "c", run, 1)
    assert read_stage(tmp_path / "c", run, 0).keys() == initial_tensors(run, 0).keys()


def test_a_tensor_that_the_model_does_not_have_is_refused_whichever_stage_is_read(tmp_path: Path) -> None:
    run = tiny_run()
    path = write(tmp_path / "c", run) / INDEX_FILE
    index = json.loads(path.read_text())
    index["weight_map"]["model.extra"] = "model-00002-of-00002.safetensors"
    path.write_text(json.dumps(index))
    for stage in range(2):
        with pytest.raises(CheckpointError, match=r"found 0 missing \(\) and 1 unexpected \(model.extra\)"):
            read_stage(tmp_path / "c", run, stage)


def test_an_index_that_points_outside_its_folder_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "c", tiny_run()) / INDEX_FILE
    path.write_text(path.read_text().replace("model-00001", "../model-00001"))
    with pytest.raises(CheckpointError, match="expected shards beside the index"):
        read_stage(tmp_path / "c", tiny_run(), 0)


@pytest.mark.parametrize("content", [None, b"not safetensors"])
def test_a_missing_or_broken_file_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    with pytest.raises(CheckpointError, match="expected a checkpoint in"):
        read_stage(tmp_path, tiny_run(), 0)
    shard = write(tmp_path / "c", tiny_run()) / "model-00001-of-00002.safetensors"
    shard.unlink()
    if content is not None:
        shard.write_bytes(content)
    with pytest.raises(CheckpointError, match="expected a safetensors shard at"):
        read_stage(tmp_path / "c", tiny_run(), 0)


def test_a_checkpoint_of_one_file_without_an_index_is_read(tmp_path: Path) -> None:
    run = tiny_run(stages=1)
    transformers.AutoModelForCausalLM.from_pretrained(write(tmp_path / "c", run)).save_pretrained(tmp_path / "hf")
    assert not (tmp_path / "hf" / INDEX_FILE).exists()
    found = read_stage(tmp_path / "hf", tiny_run(stages=2), 1)
    assert all(torch.equal(found[name], value) for name, value in initial_tensors(tiny_run(stages=2), 1).items())


@given(st.text())
def test_token_ids_are_the_bytes_of_the_text(text: str) -> None:
    assert TOKENIZER(text)["input_ids"] == list(text.encode())
    assert TOKENIZER.decode(list(text.encode())) == text


def test_all_256_bytes_have_their_own_id_after_loading(tmp_path: Path) -> None:
    """Bytes that never occur in UTF-8 are seen by decoding them: each becomes one replacement character."""
    write(tmp_path / "c", tiny_run())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "c")
    assert sorted(tokenizer.get_vocab().values()) == list(range(256))
    for code in (*range(0x80), *range(0x80, 0x800, 7), 0x20AC, 0x1F600):
        assert tokenizer(chr(code))["input_ids"] == list(chr(code).encode())
    for byte in range(256):
        assert tokenizer.decode([byte]) == bytes([byte]).decode(errors="replace")
    assert tokenizer("a  b .\n c")["input_ids"] == list(b"a  b .\n c")
