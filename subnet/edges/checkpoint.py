"""Checkpoints that `transformers` loads by itself, written and read one stage at a time.

One safetensors shard per stage, an index, the configuration, and a tokenizer. A folder appears whole or not at all.
Reading refuses every missing, unexpected or mismatched tensor, where `from_pretrained` prints a table and draws
random numbers. Does not know rounds, the ledger, or how a checkpoint is published.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import GenerationConfig, PreTrainedTokenizerFast

from subnet.config import RunConfig
from subnet.edges.weights import INDEX_FILE, SINGLE_FILE, Index, write_tensors
from subnet.errors import CheckpointError, StoreError
from subnet.model.cost import FLOAT_BYTES, parameters, spans
from subnet.model.partition import whole_config
from subnet.model.shapes import Shape, span_shapes

StageTensors = Mapping[str, Tensor] | Mapping[str, npt.NDArray[np.float32]]


def write_checkpoint(
    folder: Path,
    run: RunConfig,
    stage_tensors: Iterable[StageTensors],
    tokenizer_files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the model of all stages to `folder`, replacing what is there, and return it.

    stage_tensors: each stage's tensors by their name in the whole model, in the order of the stages; taken one by
    one, so that a generator keeps one stage in memory. tokenizer_files: name -> content; without them a run on
    bytes gets the byte tokenizer. Raises CheckpointError when the tensors are not the run's, StoreError when the
    disk refuses; either way the folder is as it was.
    """
    partial = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.partial"
    try:
        partial.mkdir(parents=True)
        _write_shards(partial, run, stage_tensors)
        _write_configuration(partial, run)
        _write_tokenizer(partial, run, tokenizer_files)
        _replace(folder, partial)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"expected to write the checkpoint {folder}, found: {error}; free space or choose another folder"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _write_shards(partial: Path, run: RunConfig, stage_tensors: Iterable[StageTensors]) -> None:
    weight_map: dict[str, str] = {}
    num_stages = 0
    for index, tensors in enumerate(stage_tensors):
        num_stages += 1
        if index == run.stages:
            break
        shard = f"model-{index + 1:05d}-of-{run.stages:05d}.safetensors"
        _write_shard(partial / shard, tensors, span_shapes(run, spans(run)[index]), index)
        weight_map |= dict.fromkeys(span_shapes(run, spans(run)[index]), shard)
        del tensors  # before the next stage is made
    if num_stages != run.stages:
        found = num_stages if num_stages < run.stages else "more"
        raise CheckpointError(f"expected {run.stages} stages to write, found {found}; pass each stage once")
    total_bytes = FLOAT_BYTES * sum(parameters(run, span) for span in spans(run))
    index_json = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (partial / INDEX_FILE).write_text(json.dumps(index_json, indent=2, sort_keys=True) + "\n")


def _write_shard(path: Path, tensors: StageTensors, shapes: Mapping[str, Shape], index: int) -> None:
    _check_names(f"the tensors of stage {index}", set(tensors), set(shapes))
    for name, shape in shapes.items():
        _check_shape(name, tuple(tensors[name].shape), shape)
    write_tensors(path, {name: _as_array(tensors[name]) for name in shapes})


def _as_array(value: Tensor | npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return value.detach().to(torch.float32).numpy() if isinstance(value, Tensor) else value


def _write_configuration(partial: Path, run: RunConfig) -> None:
    config = whole_config(run)
    config.save_pretrained(partial)
    GenerationConfig.from_model_config(config).save_pretrained(partial)


def _write_tokenizer(partial: Path, run: RunConfig, files: Mapping[str, bytes] | None) -> None:
    if files is None and run.data.tokenizer == "bytes":
        byte_tokenizer().save_pretrained(partial)
    for name, content in (files or {}).items():
        (partial / Path(name).name).write_bytes(content)


def _replace(folder: Path, partial: Path) -> None:
    """Put the finished folder in place; a folder of that name is set aside first, and removed last."""
    for path in partial.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    aside = partial.with_suffix(".replaced")
    if folder.exists():
        folder.rename(aside)
    partial.rename(folder)
    shutil.rmtree(aside, ignore_errors=True)


def read_stage(folder: Path, run: RunConfig, index: int) -> dict[str, Tensor]:
    """The tensors of one stage by their name in the whole model, in canonical order; only these are read.

    Raises CheckpointError when any tensor of the whole model is missing from the checkpoint or unexpected in it,
    or when one of this stage has another shape or dtype.
    """
    weight_map = _weight_map(folder)
    expected = {name for span in spans(run) for name in span_shapes(run, span)}
    _check_names(f"the checkpoint {folder}", set(weight_map), expected)
    shapes = span_shapes(run, spans(run)[index])
    tensors: dict[str, Tensor] = {}
    for shard in dict.fromkeys(weight_map[name] for name in shapes):
        names = [name for name in shapes if weight_map[name] == shard]
        tensors |= _read_shard(folder / shard, {name: shapes[name] for name in names})
    return {name: tensors[name] for name in shapes}


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor name -> shard file, from the index, or from the one file of a checkpoint without one."""
    try:
        if not (folder / INDEX_FILE).exists():
            with safe_open(folder / SINGLE_FILE, framework="pt") as file:
                return dict.fromkeys(file.keys(), SINGLE_FILE)
        weight_map = msgspec.json.decode((folder / INDEX_FILE).read_bytes(), type=Index).weight_map
    except (OSError, SafetensorError, msgspec.MsgspecError) as error:
        raise CheckpointError(
            f"expected a checkpoint in {folder}, found: {error}; download it again or choose another folder"
        ) from error
    outside = [shard for shard in weight_map.values() if Path(shard).name != shard]
    if outside:
        raise CheckpointError(f"expected shards beside the index of {folder}, found {outside[0]!r}; do not use it")
    return weight_map


def _read_shard(path: Path, shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            held = set(file.keys())
            _check_names(f"the shard {path}", held & shapes.keys(), set(shapes))
            for name, shape in shapes.items():
                part = file.get_slice(name)
                _check_shape(name, tuple(part.get_shape()), shape)
                if part.get_dtype() != "F32":
                    raise CheckpointError(f"expected {name} in F32, found {part.get_dtype()}; convert the checkpoint")
            return {name: file.get_tensor(name) for name in shapes}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"expected a safetensors shard at {path}, found: {error}; download it again") from error


def _check_names(where: str, found: set[str], expected: set[str]) -> None:
    missing, unexpected = sorted(expected - found), sorted(found - expected)
    if missing or unexpected:
        raise CheckpointError(
            f"expected {where} to have exactly the run's {len(expected)} tensors, found {len(missing)} missing "
            f"({', '.join(missing[:3])}) and {len(unexpected)} unexpected ({', '.join(unexpected[:3])}); "
            "use a checkpoint of this run's model"
        )


def _check_shape(name: str, found: Shape, expected: Shape) -> None:
    if found != expected:
        raise CheckpointError(
            f"expected {name} of shape {expected}, found {found}; use a checkpoint of this run's model"
        )


def byte_tokenizer() -> Any:
    """A `transformers` tokenizer whose id i is the byte i: 256 tokens, no specials, nothing merged or normalised."""
    tokenizer = Tokenizer(models.BPE(vocab=_byte_characters(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def _byte_characters() -> dict[str, int]:
    """The character that the byte-level alphabet writes for each byte.

    Printable Latin-1 stands for itself; the 68 others follow in order from 256.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte if byte in printable else 256 + others.index(byte)): byte for byte in range(256)}
