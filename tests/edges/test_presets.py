"""Runs from options: every preset is a model that `transformers` accepts; what cannot work is one sentence."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from subnet.data.pack import heldout_microbatch, microbatch
from subnet.edges.data import load_corpus
from subnet.edges.presets import PRESETS, RunOptions, build_run, with_block_time
from subnet.errors import ConfigError, CorpusError, ModelError


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("all work and no play makes a dull day\n" * 200)
    return str(folder)


def config_file(path: Path, **changes: object) -> str:
    path.write_text(json.dumps(PRESETS["nano"] | {"transformers_version": "5.24.0"} | changes))
    return str(path)


def test_the_default_run_has_two_stages_of_a_llama_on_standard_library_source():
    run = build_run(RunOptions())
    assert (run.stages, run.train.rounds, run.train.steps_per_round) == (2, 6, 32)
    assert (run.data.source, run.data.location, run.data.sequence_tokens) == ("stdlib", "", 128)
    assert run.audit.rate_frac == 1 / 3
    assert not run.allow_same_identity


def test_the_same_options_are_the_same_run_and_any_other_option_another(texts: str):
    base = {"data": texts, "model": "nano"}
    changes = ({}, {"seed": 1}, {"stages": 3}, {"rounds": 7}, {"codec": "bf16"}, {"lr": 1e-3}, {"model": "tiny"})
    changes += ({"reduction": "trimmed_mean"}, {"reduction": "centred_clipping"}, {"outer": "averaging"})
    assert build_run(RunOptions(**base)).run_id == build_run(RunOptions(**base)).run_id
    assert len({build_run(RunOptions(**(base | change))).run_id for change in changes}) == len(changes)


@pytest.mark.parametrize(("preset", "parameters"), [("tiny", 869_504), ("nano", 66_848)])
def test_a_preset_is_a_model_that_transformers_builds(preset: str, parameters: int, texts: str):
    import transformers

    run = build_run(RunOptions(model=preset, data=texts))
    config = transformers.LlamaConfig(**run.model.values)
    model = transformers.LlamaForCausalLM(config)
    assert sum(tensor.numel() for tensor in model.parameters()) == parameters
    kept = config.to_dict()
    assert {key: kept[key] for key in run.model.values} == run.model.values


def test_the_runs_data_loads_and_gives_training_and_held_out_microbatches(texts: str):
    run = build_run(RunOptions(model="nano", data=texts))
    corpus = load_corpus(run.data)
    assert microbatch(run, corpus, 0)[0].shape == (2, 32)
    for index in range(run.data.heldout_microbatches):
        heldout_microbatch(run, corpus, index)


@pytest.mark.flow
def test_a_run_is_built_without_any_large_library():
    lines = (
        "import sys",
        "from subnet.edges.presets import RunOptions, build_run",
        "build_run(RunOptions())",
        "sys.stdout.write(' '.join({'torch', 'transformers', 'datasets'} & set(sys.modules)))",
    )
    answer = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert answer.stdout == ""


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_model_comes_from_a_configuration_file_or_its_folder(as_folder: bool, texts: str, tmp_path: Path):
    path = config_file(tmp_path / "config.json", architectures=["Qwen3ForCausalLM"], model_type="qwen3")
    run = build_run(RunOptions(model=str(tmp_path) if as_folder else path, data=texts))
    assert run.model.architecture == "Qwen3ForCausalLM"
    assert "transformers_version" not in run.model.values
    assert run.data.sequence_tokens == 32


def test_a_data_set_is_named_with_its_revision_and_column(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"body": "all work and no play " * 50}) for _ in range(20)))
    run = build_run(RunOptions(model="nano", data=f"datasets:{path}@main#body"))
    assert (run.data.source, run.data.location, run.data.revision) == ("datasets", f"{path}#body", "main")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"reduction": "median"}, "expected a reduction of mean, trimmed_mean, centred_clipping, found 'median'"),
        ({"outer": "noloco"}, "expected the outer step averaging or diloco in a run, found 'noloco'"),
    ],
)
def test_a_merge_that_a_run_does_not_have_is_refused_before_anything_is_looked_up(change: dict, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        build_run(RunOptions(data="/no/such/folder", model="nano", **change))


@pytest.mark.parametrize("stages", [0, 5, -1])
def test_a_wrong_stage_count_is_refused(stages: int, texts: str):
    with pytest.raises(ConfigError, match=f"expected 1 to 4 stages for a model of 4 blocks, found {stages}"):
        build_run(RunOptions(stages=stages, data=texts, model="nano"))


def test_an_unknown_preset_or_a_missing_file_is_refused(texts: str, tmp_path: Path):
    for model in ("huge", str(tmp_path), str(tmp_path / "config.json")):
        with pytest.raises(ModelError, match="expected a model of tiny, nano or a config.json, found nothing at"):
            build_run(RunOptions(model=model, data=texts))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "expected JSON in .*, found Expecting"),
        ("\xff", "expected JSON in .*; use the model's config.json"),
        ("[]", "expected an object in .*, found a list"),
        ("{}", "expected hidden_size of at least 1 in the model's configuration, found None"),
        ('{"hidden_size": "big"}', "expected hidden_size of at least 1 in the model's configuration, found 'big'"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(text: str, sentence: str, texts: str, tmp_path: Path):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=sentence):
        build_run(RunOptions(model=str(tmp_path), data=texts))


def test_a_family_that_cannot_be_cut_is_refused(texts: str, tmp_path: Path):
    config_file(tmp_path / "config.json", architectures=["GPT2LMHeadModel"], model_type="gpt2")
    with pytest.raises(ConfigError, match="expected a model of LlamaForCausalLM or Qwen3ForCausalLM, found 'GPT2LM"):
        build_run(RunOptions(model=str(tmp_path), data=texts))


def test_sequences_and_tokens_that_the_model_cannot_hold_are_refused(texts: str, tmp_path: Path):
    with pytest.raises(ModelError, match="expected sequences of at most 32 tokens, the model's context, found 33"):
        build_run(RunOptions(model="nano", data=texts, sequence_tokens=33))
    path = config_file(tmp_path / "config.json", vocab_size=100)
    with pytest.raises(ModelError, match="expected a model whose vocabulary holds 256 tokens .* found 100"):
        build_run(RunOptions(model=path, data=texts))


def test_too_little_text_is_refused(tmp_path: Path):
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(CorpusError, match="expected at least 1281 tokens of text in .*, found 6; give more text"):
        build_run(RunOptions(model="nano", data=str(tmp_path)))


@pytest.mark.parametrize("block_time_s", [0.25, 1.0, 12.0])
def test_a_segment_is_drawn_before_it_is_payable(block_time_s: float, texts: str):
    run = build_run(RunOptions(data=texts, block_time_s=block_time_s))
    assert with_block_time(build_run(RunOptions(data=texts)), block_time_s) == run
    drawn_after_s = (run.audit.draw_every_blocks + run.audit.draw_delay_blocks) * block_time_s
    assert run.pay.audit_window_s >= 2 * drawn_after_s
