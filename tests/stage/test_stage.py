"""The invariant `stages_equal_the_model`, and what a stage keeps and forgets."""

from functools import cache

import msgspec
import pytest
import torch
import transformers
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from subnet.config import RunConfig
from subnet.stage.pipeline import one_forward_one_backward
from subnet.stage.stage import Stage
from tests.model.tiny import tiny_microbatches, tiny_model, tiny_run, whole_model

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

cuts = pytest.mark.parametrize("stages", [1, 2, 3, 4])
kinds = pytest.mark.parametrize(
    ("architecture", "tied", "attention"),
    [
        (architecture, tied, attention)
        for architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM")
        for tied in (False, True)
        for attention in ("sdpa", "eager")
    ],
)
half = pytest.mark.parametrize(
    ("architecture", "tied", "attention", "stages"),
    [
        ("LlamaForCausalLM" if llama else "Qwen3ForCausalLM", tied, "sdpa" if sdpa else "eager", stages)
        for llama in (True, False)
        for tied in (False, True)
        for sdpa in (True, False)
        for stages in ((1, 3) if (llama ^ tied ^ sdpa) else (2, 4))
    ],
)


def train_in_stages(
    run: RunConfig, microbatches: list[tuple[Tensor, Tensor]], *, recompute: bool = False
) -> tuple[float, dict[str, Tensor]]:
    """One microbatch after the other through all stages: the mean loss, and all gradients by name."""
    chain = [Stage(run, index, recompute=recompute) for index in range(run.stages)]
    planned = sum(labels.numel() for _, labels in microbatches)
    losses = []
    for number, (tokens, labels) in enumerate(microbatches):
        flowing = tokens
        for stage in chain[:-1]:
            flowing = stage.forward(number, flowing)
        losses.append(chain[-1].loss(number, flowing, labels))
        gradient = None
        for stage in reversed(chain):
            gradient = stage.backward(number, gradient, planned)
    assert gradient is None, "the first stage has no inputs to differentiate"
    return sum(losses) / planned, {name: p.grad for stage in chain for name, p in stage.parameters.items()}


def in_bfloat16(run: RunConfig) -> RunConfig:
    """The same run with matrix products in bfloat16."""
    return msgspec.structs.replace(run, train=msgspec.structs.replace(run.train, dtype="bfloat16"))


@cache
def train_whole(
    architecture: str, tied: bool, attention: str, *, microbatches: int, bfloat16: bool = False
) -> tuple[float, dict[str, Tensor]]:
    """The same by transformers alone: all microbatches as one batch. It is one for all cuts."""
    run = tiny_run(tiny_model(architecture, tie_word_embeddings=tied), attention=attention)
    model: transformers.PreTrainedModel = whole_model(run, tied=tied)
    assert model.config._attn_implementation == attention
    tokens, labels = (torch.cat(part) for part in zip(*tiny_microbatches(microbatches), strict=True))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
        loss = model(
            input_ids=tokens, labels=labels, shift_labels=labels, num_items_in_batch=labels.numel(), use_cache=False
        ).loss
    loss.backward()
    return float(loss.detach()), {name: p.grad for name, p in model.named_parameters()}


def with_tied_gradients(gradients: dict[str, Tensor], whole: dict[str, Tensor]) -> dict[str, Tensor]:
    """The stages' gradients, those of the two copies added where the whole model has one tensor."""
    if HEAD in gradients and HEAD not in whole:
        gradients = gradients | {EMBEDDING: gradients[HEAD] + gradients[EMBEDDING]}
        del gradients[HEAD]
    return gradients


@cuts
@kinds
def test_stages_equal_the_model(architecture: str, tied: bool, attention: str, stages: int) -> None:
    """Loss and every gradient, bit for bit, for one microbatch in float32 on the CPU."""
    run = tiny_run(tiny_model(architecture, tie_word_embeddings=tied), stages=stages, attention=attention)
    expected_loss, expected = train_whole(architecture, tied, attention, microbatches=1)
    loss, gradients = train_in_stages(run, tiny_microbatches(1))
    assert torch.tensor(loss, dtype=torch.float32) == torch.tensor(expected_loss, dtype=torch.float32)
    gradients = with_tied_gradients(gradients, expected)
    assert gradients.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(gradients[name], expected[name])] == []


@half
def test_stages_equal_the_model_over_many_microbatches(
    architecture: str, tied: bool, attention: str, stages: int
) -> None:
    """Accumulated over 4 microbatches: no gradient differs from the whole batch's by more than 1e-5."""
    run = tiny_run(tiny_model(architecture, tie_word_embeddings=tied), stages=stages, attention=attention)
    expected_loss, expected = train_whole(architecture, tied, attention, microbatches=4)
    loss, gradients = train_in_stages(run, tiny_microbatches(4))
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    gradients = with_tied_gradients(gradients, expected)
    assert gradients.keys() == expected.keys()
    assert max(float((gradients[name] - expected[name]).abs().max()) for name in expected) <= 1e-5


@half
def test_stages_equal_the_model_in_bfloat16(architecture: str, tied: bool, attention: str, stages: int) -> None:
    """The stream between two blocks is float32 and the rest is rounded alike, so here too bit for bit."""
    run = in_bfloat16(tiny_run(tiny_model(architecture, tie_word_embeddings=tied), stages=stages, attention=attention))
    expected_loss, expected = train_whole(architecture, tied, attention, microbatches=1, bfloat16=True)
    loss, gradients = train_in_stages(run, tiny_microbatches(1))
    assert torch.tensor(loss, dtype=torch.float32) == torch.tensor(expected_loss, dtype=torch.float32)
    gradients = with_tied_gradients(gradients, expected)
    assert [name for name in expected if not torch.equal(gradients[name], expected[name])] == []
    assert {gradient.dtype for gradient in gradients.values()} == {torch.float32}


def test_bfloat16_rounds_what_is_computed_and_not_what_is_kept() -> None:
    """Another loss than float32's, by about a rounding; parameters, activations and gradients stay float32."""
    run = in_bfloat16(tiny_run())
    tokens, labels = tiny_microbatches(1)[0]
    exact, rounded = Stage(tiny_run(), 0).forward(0, tokens), Stage(run, 0).forward(0, tokens)
    assert exact.dtype == rounded.dtype == torch.float32
    assert 1e-5 < float((exact - rounded).norm() / exact.norm()) < 2e-2
    last = Stage(run, 1)
    last.loss(0, rounded, labels)
    gradient = last.backward(0, None, tokens.numel())
    assert gradient is not None and gradient.dtype == torch.float32
    assert not torch.equal(gradient, gradient.bfloat16().float())
    assert {parameter.dtype for parameter in last.parameters.values()} == {torch.float32}
    assert last.evaluate(rounded).dtype == torch.float32


def test_bfloat16_repeats_bit_for_bit() -> None:
    run = in_bfloat16(tiny_run(stages=3))
    (loss, gradients), (again, repeated) = (train_in_stages(run, tiny_microbatches(2)) for _ in range(2))
    assert loss == again
    assert [name for name in gradients if not torch.equal(gradients[name], repeated[name])] == []


@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
def test_recomputing_changes_no_bit(architecture: str, bfloat16: bool) -> None:
    run = tiny_run(tiny_model(architecture), stages=3)
    run = in_bfloat16(run) if bfloat16 else run
    loss, gradients = train_in_stages(run, tiny_microbatches(2))
    again, recomputed = train_in_stages(run, tiny_microbatches(2), recompute=True)
    assert loss == again
    assert [name for name in gradients if not torch.equal(gradients[name], recomputed[name])] == []


def kept_bytes(stage: Stage) -> int:
    """What a forward leaves allocated until its backward."""
    tokens, _ = tiny_microbatches(1)[0]
    stage.forward(0, tokens)
    stage.drop(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        stage.forward(1, tokens)
    return sum(event.self_device_memory_usage + event.self_cpu_memory_usage for event in profiled.key_averages())


def test_recomputing_keeps_less_of_a_microbatch_in_flight() -> None:
    """Of each block only its input: at least five times less than everything."""
    run = tiny_run(stages=2)
    all_of_it, inputs = kept_bytes(Stage(run, 0)), kept_bytes(Stage(run, 0, recompute=True))
    assert 0 < 5 * inputs < all_of_it


def test_interleaved_microbatches_give_the_gradients_of_one_at_a_time() -> None:
    """1F1B keeps several microbatches in flight; the sums are made in the same order, so bit for bit."""
    run = tiny_run(stages=3)
    microbatches = tiny_microbatches(4)
    _, expected = train_in_stages(run, microbatches)
    chain = [Stage(run, index) for index in range(3)]
    planned = sum(labels.numel() for _, labels in microbatches)
    activations = {(-1, number): tokens for number, (tokens, _) in enumerate(microbatches)}
    gradients: dict[tuple[int, int], Tensor | None] = {(3, number): None for number in range(4)}
    queues = [one_forward_one_backward(index, 3, 4) for index in range(3)]
    while any(queues):
        for index, (stage, queue) in enumerate(zip(chain, queues, strict=True)):
            while queue:
                number = queue[0].position
                if queue[0].kind == "B" and (index + 1, number) in gradients:
                    gradients[index, number] = stage.backward(number, gradients[index + 1, number], planned)
                elif queue[0].kind == "F" and (index - 1, number) in activations:
                    inputs = activations[index - 1, number]
                    if stage.span.head:
                        stage.loss(number, inputs, microbatches[number][1])
                    else:
                        activations[index, number] = stage.forward(number, inputs)
                else:
                    break
                queue.pop(0)
    found = {name: p.grad for stage in chain for name, p in stage.parameters.items()}
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def test_a_dropped_microbatch_leaves_no_gradient_and_does_not_rescale_the_rest() -> None:
    run = tiny_run(stages=1)
    (first, first_labels), (second, second_labels) = tiny_microbatches(2)
    planned = first.numel() + second.numel()
    alone, both = Stage(run, 0), Stage(run, 0)
    alone.loss(0, first, first_labels)
    alone.backward(0, None, planned)
    both.loss(0, first, first_labels)
    both.loss(1, second, second_labels)
    both.drop(1)
    both.backward(0, None, planned)
    assert both.in_flight == ()
    for name, parameter in alone.parameters.items():
        assert torch.equal(parameter.grad, both.parameters[name].grad), name


def test_a_microbatch_cannot_be_started_twice() -> None:
    stage = Stage(tiny_run(), 0)
    (tokens, _) = tiny_microbatches(1)[0]
    stage.forward(0, tokens)
    with pytest.raises(AssertionError, match="microbatch 0 is already in flight"):
        stage.forward(0, tokens)


def test_evaluating_gives_the_same_numbers_and_keeps_nothing() -> None:
    run = tiny_run()
    first, last = Stage(run, 0), Stage(run, 1)
    tokens, labels = tiny_microbatches(1)[0]
    activation = first.evaluate(tokens)
    assert torch.equal(activation, first.forward(0, tokens))
    assert last.evaluate(activation, labels) == last.loss(0, activation, labels)
    first.drop(0)
    last.drop(0)
    assert all(parameter.grad is None for parameter in first.parameters.values())
    assert last.evaluate(activation).shape == (*tokens.shape, 256)


def test_flat_parameters_load_into_another_stage_bit_for_bit() -> None:
    source, target = Stage(tiny_run(seed=1), 1), Stage(tiny_run(seed=2), 1)
    assert not (source.parameters_flat() == target.parameters_flat()).all()
    target.load_flat(source.parameters_flat())
    assert target.parameters_flat().tobytes() == source.parameters_flat().tobytes()


def test_a_stage_touches_no_global_random_state() -> None:
    before = torch.get_rng_state()
    stage = Stage(tiny_run(stages=1), 0)
    tokens, labels = tiny_microbatches(1)[0]
    stage.loss(0, tokens, labels)
    stage.backward(0, None, tokens.numel())
    assert torch.equal(before, torch.get_rng_state())
