"""Honest pairs through the real replay: work under other conditions differs, and passes.

`test_honest_work_passes` is the benchmark's law at a reduced count. A rate of flagged segments of 1 in 20 would be
missed by its 64 segments with a chance of 0.95^64 = 4 %; the benchmark's 10,000 bound it at 1 in 3,300.
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from subnet.audit.tolerance import tolerances
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.condition_worker import make_replica
from subnet.edges.conditions import (
    MOVEMENT,
    Condition,
    HonestSegment,
    Setting,
    conditions,
    environments,
    fits,
    honest_segments,
)
from subnet.edges.small_runs import drawn_settings
from subnet.edges.tolerances import read_calibration
from subnet.errors import ConfigError, SubnetError

AS_IT_COMES = Condition()
OTHER = Condition(environment=(("MKL_CBWR", "COMPATIBLE"),), row_parts=2, recompute=True, other_attention=True)


def corpus() -> Corpus:
    tokens = np.random.default_rng(3).integers(0, 256, size=100_000).astype(np.uint8)
    return Corpus(tokens=tokens, digest="", vocabulary=256)


def found(settings: Sequence[Setting], among: Sequence[Condition]) -> list[HonestSegment]:
    return list(honest_segments(settings, among, seed=1, corpus=corpus()))


@pytest.mark.flow
def test_honest_work_passes():
    """Under an instruction set, a kernel, a split and a way to spare memory of one's own."""
    settings = drawn_settings(4, seed=11)
    segments = found(settings, (AS_IT_COMES, OTHER))
    within = tolerances(read_calibration(), dtype="float32", optimizer="adamw", codec="none")
    assert len(segments) == sum(setting.run.stages * 2 * setting.rounds for setting in settings)
    assert {segment.miner == segment.auditor for segment in segments} == {False}
    over = [(kind, each) for each in segments for kind, most in within.items() if each.distances.get(kind, 0.0) > most]
    assert over == []
    assert all({"norm", "delta", "moment", MOVEMENT} <= each.distances.keys() for each in segments)
    assert max(max(segment.distances.values()) for segment in segments) > 0.0


@pytest.mark.flow
def test_a_process_that_dies_is_named_with_its_condition():
    broken = Condition(environment=(("PYTHONHOME", "/nowhere"),))
    with pytest.raises(SubnetError, match="expected an answer under .*PYTHONHOME=/nowhere.*, found the process ended"):
        found(drawn_settings(1, seed=11), (broken, Condition(environment=(("PYTHONHOME", "/nowhere"),), threads=2)))


def test_one_condition_has_nothing_to_be_compared_with():
    with pytest.raises(ConfigError, match="expected at least 2 conditions to compare, found 1"):
        found(drawn_settings(1, seed=11), (AS_IT_COMES,))


def test_every_condition_has_its_name_and_every_way_each_instruction_set():
    among = conditions()
    assert len({condition.name for condition in among}) == len(among) > len(environments()) >= 4
    assert AS_IT_COMES in among


def test_another_attention_kernel_is_another_class_in_bfloat16():
    single, half = (drawn_settings(1, dtype=dtype, seed=1)[0].run for dtype in ("float32", "bfloat16"))
    assert (fits(OTHER, single), fits(OTHER, half)) == (True, False)


def test_drawn_settings_are_the_same_for_a_seed_and_cover_what_a_run_may_choose():
    settings = drawn_settings(60, seed=5)
    assert settings == drawn_settings(60, seed=5)
    assert settings[:5] != drawn_settings(5, seed=6)
    runs = [setting.run for setting in settings]
    assert {run.stages for run in runs} == {1, 2, 3}
    assert {run.model.architecture for run in runs} == {"LlamaForCausalLM", "Qwen3ForCausalLM"}
    assert {run.train.attention for run in runs} == {"sdpa", "eager"}
    assert {setting.skip_rounds > 0 for setting in settings} == {True, False}
    assert max(run.train.lr for run in runs) > 50 * min(run.train.lr for run in runs)


@pytest.mark.parametrize("stage", [0, 1])
def test_rows_in_parts_give_the_same_up_to_rounding(stage: int):
    """Activation, or loss, gradient and parameter gradients of one microbatch."""
    run = next(s.run for s in drawn_settings(60, seed=5) if s.run.stages == 2 and s.run.train.microbatch_sequences > 1)
    whole, parts = (computed(run, stage, row_parts) for row_parts in (1, 2))
    assert len(whole) == len(parts)
    for left, right in zip(whole, parts, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


def computed(run: RunConfig, stage: int, row_parts: int) -> list[torch.Tensor]:
    work = make_replica(run, stage, Condition(row_parts=row_parts)).stage
    chance = torch.Generator().manual_seed(0)
    shape = (run.train.microbatch_sequences, run.data.sequence_tokens)
    width = int(run.model.values["hidden_size"])
    tokens = torch.randint(0, 256, shape, generator=chance)
    gradient = torch.randn(*shape, width, generator=chance)
    if stage == 0:
        output, back = work.forward(3, tokens), work.backward(3, gradient, tokens.numel())
    else:
        output, back = torch.tensor(work.loss(3, gradient, tokens)), work.backward(3, None, tokens.numel())
    gradients = [parameter.grad for parameter in work.parameters.values() if parameter.grad is not None]
    return [output, *([] if back is None else [back]), *gradients]
