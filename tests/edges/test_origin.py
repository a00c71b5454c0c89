"""Starting from an existing model: transformers' own loss, each stage reads only its own, oddities refused."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from subnet.config import RunConfig
from subnet.edges.origin import has_weights, is_hub_id, opening_public, start_of
from subnet.edges.presets import EXISTING_LR, PRESETS, RunOptions, build_run
from subnet.edges.weights import SINGLE_FILE, Weights
from subnet.errors import CheckpointError, ConfigError, ModelError
from subnet.model.cost import spans
from subnet.model.shapes import span_shapes
from subnet.nodes.custody import own_initial
from subnet.stage.evaluate import heldout_loss
from subnet.stage.layout import StateLayout, public_from_bytes
from tests.edges.test_weights import Counting
from tests.model.tiny import tiny_microbatches, tiny_model, tiny_run

FAMILIES = ("LlamaForCausalLM", "Qwen3ForCausalLM")


def saved_model(
    folder: Path, architecture: str = FAMILIES[0], *, tied: bool = False, dtype: str = "float32", shard: str = "5GB"
) -> transformers.PreTrainedModel:
    """A model of random parameters, saved as transformers saves it."""
    settings = json.loads(tiny_model(architecture, tie_word_embeddings=tied).settings)
    config = getattr(transformers, architecture).config_class.from_dict(settings)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = getattr(transformers, architecture)(config).to(getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size=shard)
    return model.float()


def started(folder: Path, *, stages: int, architecture: str = FAMILIES[0], tied: bool = False) -> RunConfig:
    run = tiny_run(tiny_model(architecture, tie_word_embeddings=tied), stages=stages)
    return msgspec.structs.replace(run, start=start_of(run, str(folder), ""))


def opened(run: RunConfig, stage: int) -> dict[str, torch.Tensor]:
    layout = StateLayout(run, stage)
    public = public_from_bytes(layout, opening_public(run, stage))
    assert not public.outer_momentum.any()
    return {name: torch.from_numpy(np.array(value)) for name, value in layout.split(public.parameters).items()}


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize(("tied", "dtype", "shard"), [(False, "float32", "20KB"), (True, "bfloat16", "5GB")])
@pytest.mark.parametrize("stages", [1, 3])
def test_the_stages_of_an_existing_model_have_its_loss(
    tmp_path: Path, architecture: str, tied: bool, dtype: str, shard: str, stages: int
) -> None:
    model = saved_model(tmp_path, architecture, tied=tied, dtype=dtype, shard=shard)
    run = started(tmp_path, stages=stages, architecture=architecture, tied=tied)
    ((tokens, labels),) = tiny_microbatches(1)
    with torch.no_grad():
        loss = float(model(input_ids=tokens, labels=labels, shift_labels=labels).loss)
    found = heldout_loss(run, (opened(run, stage) for stage in range(stages)), [(tokens, labels)])
    assert found == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_a_stage_reads_its_own_tensors_and_no_others(tmp_path: Path, tied: bool, shard: str) -> None:
    """Bytes read beyond headers are those of the stage's tensors: counted, and nowhere else in the files."""
    saved_model(tmp_path, tied=tied, dtype="bfloat16", shard=shard)
    run = started(tmp_path, stages=3, tied=tied)
    for stage in range(3):
        source = Counting(tmp_path)
        opening_public(run, stage, source)
        headers = {
            (file, start, length) for file, start, length in source.reads if start <= 8 or file.endswith(".json")
        }
        data = [each for each in source.reads if each not in headers]
        assert sum(length for _, _, length in data) == 2 * StateLayout(run, stage).num_parameters
        assert len(data) == len(span_shapes(run, spans(run)[stage]))
        if shard == "20KB":
            weight_map = Weights(Counting(tmp_path))._files
            names = {
                "model.embed_tokens.weight" if tied and n == "lm_head.weight" else n
                for n in span_shapes(run, spans(run)[stage])
            }
            assert {file for file, _, _ in data} == {weight_map[name] for name in names}


def test_the_parameters_do_not_depend_on_the_cut(tmp_path: Path) -> None:
    saved_model(tmp_path, tied=True)
    one, three = started(tmp_path, stages=1, tied=True), started(tmp_path, stages=3, tied=True)
    whole = opened(one, 0)
    cut = {name: tensor for stage in range(3) for name, tensor in opened(three, stage).items()}
    assert torch.equal(cut.pop("lm_head.weight"), whole["model.embed_tokens.weight"])
    assert cut.keys() == whole.keys() and all(torch.equal(cut[name], whole[name]) for name in whole)


def test_another_models_numbers_at_the_same_place_are_refused_and_downloaded_instead(tmp_path: Path) -> None:
    saved_model(tmp_path)
    run = started(tmp_path, stages=2)
    tensors = load_file(tmp_path / SINGLE_FILE)
    tensors["model.norm.weight"][3] += 1e-6
    save_file(tensors, tmp_path / SINGLE_FILE)
    opening_public(run, 0)
    with pytest.raises(CheckpointError, match="found other numbers in stage 1; copy the run's own"):
        opening_public(run, 1)
    assert own_initial(run, 1) == b"" and own_initial(run, 0)
    (tmp_path / SINGLE_FILE).unlink()
    assert own_initial(run, 0) == b""


def edited(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(folder / SINGLE_FILE)
    tensors.pop(name, None)
    save_file(tensors | ({} if tensor is None else {name: tensor}), folder / SINGLE_FILE)


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("model.norm.weight", None, r"found 1 missing \(model.norm.weight\) and 0 unexpected"),
        ("model.layers.9.x", torch.ones(1), r"and 1 unexpected \(model.layers.9.x\)"),
        ("model.norm.weight", torch.ones(31), r"expected model.norm.weight of shape \(32,\), found \(31,\)"),
        (
            "model.norm.weight",
            torch.ones(32, dtype=torch.int8),
            "expected model.norm.weight in F32, F16, BF16, found I8",
        ),
        ("model.norm.weight", torch.full((32,), torch.nan), "expected finite numbers in model.norm.weight"),
    ],
)
def test_a_model_of_other_tensors_is_refused(
    tmp_path: Path, name: str, tensor: torch.Tensor | None, sentence: str
) -> None:
    saved_model(tmp_path)
    edited(tmp_path, name, tensor)
    with pytest.raises(CheckpointError, match=sentence):
        started(tmp_path, stages=2)


def test_what_transformers_ignores_is_ignored(tmp_path: Path) -> None:
    """Rotary buffers of old checkpoints, and a head beside a tied embedding."""
    model = saved_model(tmp_path, tied=True)
    edited(tmp_path, "model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(4))
    edited(tmp_path, "lm_head.weight", torch.ones(256, 32))
    run = started(tmp_path, stages=2, tied=True)
    assert torch.equal(opened(run, 1)["lm_head.weight"], model.model.embed_tokens.weight)


# Whole runs, as `--model FOLDER` makes them.


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("all work and no play makes a dull day\n" * 200)
    return str(folder)


def test_a_folder_with_parameters_is_a_start_and_its_config_file_alone_is_not(tmp_path: Path, texts: str) -> None:
    saved_model(tmp_path)
    options = RunOptions(model=str(tmp_path), data=texts, tokenizer="bytes", stages=3, sequence_tokens=32)
    run, drawn = build_run(options), build_run(replace(options, model=str(tmp_path / "config.json")))
    assert run.start is not None and len(run.start.roots) == 3 and run.start.location == str(tmp_path)
    assert run.train.lr == EXISTING_LR
    assert drawn.start is None and drawn.run_id != run.run_id


def test_the_models_own_tokenizer_is_the_runs_and_a_missing_one_is_asked_for(tmp_path: Path, texts: str) -> None:
    from subnet.edges.checkpoint import byte_tokenizer

    saved_model(tmp_path)
    with pytest.raises(
        ConfigError, match="expected the tokenizer of the model .*, found none beside it; name one with"
    ):
        build_run(RunOptions(model=str(tmp_path), data=texts, sequence_tokens=32))
    byte_tokenizer().save_pretrained(tmp_path)
    assert build_run(RunOptions(model=str(tmp_path), data=texts, sequence_tokens=32)).data.tokenizer == str(tmp_path)


def test_pickled_parameters_are_refused_unless_they_are_not_wanted(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model-00001-of-00002.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="expected safetensors in .*, found pytorch_model-00001-of-00002.bin"):
        has_weights(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}, "expected a model of LlamaForCausalLM or Qwen3"),
        ({"quantization_config": {"bits": 4}}, "expected parameters in full precision"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "rope_parameters": None},
            "rotary embeddings .* 'dynamic'",
        ),
        ({"vocab_size": 300}, "expected model.embed_tokens.weight of shape"),
        ({"num_hidden_layers": 5}, "found 9 missing"),
    ],
)
def test_a_model_that_cannot_be_cut_is_refused_in_one_sentence(
    tmp_path: Path, texts: str, changes: dict[str, object], sentence: str
) -> None:
    saved_model(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises((ConfigError, CheckpointError), match=sentence):
        build_run(RunOptions(model=str(tmp_path), data=texts, tokenizer="bytes", sequence_tokens=32))


def test_a_hub_id_is_told_from_paths_and_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "here").mkdir(parents=True)
    assert is_hub_id("owner/name") and is_hub_id("HuggingFaceTB/SmolLM2-135M@main") and is_hub_id("a/b@v1.0/x")
    assert not any(is_hub_id(each) for each in (*PRESETS, "owner/here", "/a/b", "a/b/c", "./a", "../a", "a", "a/b@"))
