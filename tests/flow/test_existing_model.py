"""A run that starts from an existing model: its loss is that of the model from the first checkpoint on."""

import shutil
from pathlib import Path

import pytest
import torch
import transformers

from subnet.config import RunConfig
from subnet.data.pack import Corpus, heldout_microbatch
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from tests.edges.test_origin import saved_model
from tests.flow.network import network

pytestmark = pytest.mark.flow


def loss_by_transformers(folder: Path, run: RunConfig, corpus: Corpus) -> float:
    """The held-out loss of the model in a folder, with transformers alone. Refuses a table of oddities."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report.values()), report
    losses = []
    for index in range(run.data.heldout_microbatches):
        tokens, labels = (torch.from_numpy(part) for part in heldout_microbatch(run, corpus, index))
        with torch.no_grad():
            losses.append(float(model(input_ids=tokens, labels=labels, shift_labels=labels).loss))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
async def test_a_run_goes_on_from_an_existing_model_also_for_miners_that_do_not_have_it(
    tmp_path: Path, architecture: str
) -> None:
    """The first published loss is transformers' own. Then the model is gone: miners download their stage, and train."""
    existing = tmp_path / "existing"
    saved_model(existing, architecture, tied=True, dtype="bfloat16")
    options = RunOptions(
        model=str(existing),
        tokenizer="bytes",
        stages=3,
        rounds=1,
        steps=6,
        segment_steps=2,
        sequence_tokens=32,
        lr=2e-3,
    )
    run = build_run(options)
    corpus = load_corpus(run.data)
    before = loss_by_transformers(existing, run, corpus)
    async with network(run, corpus, tmp_path, num_miners=3) as net:
        await net.until(lambda: 0 in net.state.checkpoints)
        assert net.state.checkpoints[0].heldout_loss == pytest.approx(before, abs=1e-5)
        shutil.rmtree(existing)
        for number in range(3):
            net.start_miner(f"miner-{number}")
        await net.until(lambda: net.state.phase == "done" and 1 in net.state.checkpoints)
        after = net.state.checkpoints[1].heldout_loss
        assert after < before - 0.05
        assert loss_by_transformers(tmp_path / "out" / "round-1", run, corpus) == pytest.approx(after, abs=1e-5)
