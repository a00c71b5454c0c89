"""The inner step against AdamW written out, clipping, and the learning rate."""

import math

import msgspec
import numpy as np
import pytest
import torch

from subnet.config import TrainConfig
from subnet.errors import InputError
from subnet.stage.optim import AdamW, gradient_norm, inner_step, learning_rate
from subnet.stage.stage import Stage
from tests.model.tiny import tiny_microbatches, tiny_run

TRAIN = tiny_run().train


def worked_stage(scale: float = 1.0) -> Stage:
    """A whole tiny model with the gradients of one microbatch, times `scale`."""
    stage = Stage(tiny_run(stages=1), 0)
    ((tokens, labels),) = tiny_microbatches(1)
    stage.loss(0, tokens, labels)
    stage.backward(0, None, tokens.numel())
    for parameter in stage.parameters.values():
        assert parameter.grad is not None
        parameter.grad.mul_(scale)
    return stage


def test_the_inner_step_is_adamw_without_decay_of_norms() -> None:
    """Ten steps with the same gradients, against the paper's formula in float64."""
    stage = worked_stage()
    optimizer = AdamW(TRAIN, stage.layout, stage.parameters)
    expected = {name: parameter.detach().double().clone() for name, parameter in stage.parameters.items()}
    gradients = {name: parameter.grad.double().clone() for name, parameter in stage.parameters.items()}
    for step in range(1, 11):
        inner_step(stage.parameters, optimizer, lr=0.01, max_grad_norm=0.0)
        for name, gradient in gradients.items():
            decay = TRAIN.weight_decay if gradient.ndim == 2 else 0.0
            mean = gradient * (1 - TRAIN.beta1**step) / (1 - TRAIN.beta1**step)
            square = gradient**2 * (1 - TRAIN.beta2**step) / (1 - TRAIN.beta2**step)
            expected[name] = expected[name] * (1 - 0.01 * decay) - 0.01 * mean / (square.sqrt() + TRAIN.eps)
    for name, parameter in stage.parameters.items():
        assert torch.allclose(parameter.double(), expected[name], atol=2e-6), name
    assert optimizer.moments().step == 10


def test_the_step_repeats_bit_for_bit() -> None:
    states = []
    for _ in range(2):
        stage = worked_stage()
        optimizer = AdamW(TRAIN, stage.layout, stage.parameters)
        norm = inner_step(stage.parameters, optimizer, lr=0.01, max_grad_norm=1.0)
        states.append((norm, stage.parameters_flat().tobytes(), optimizer.moments().exp_avg_sq.tobytes()))
    assert states[0] == states[1]


def test_the_norm_is_of_all_gradients_and_is_returned_unclipped() -> None:
    stage = worked_stage(scale=100.0)
    flat = np.concatenate([p.grad.double().numpy().reshape(-1) for p in stage.parameters.values()])
    expected = float(np.sqrt((flat**2).sum()))
    assert expected > 1.0
    norm = inner_step(stage.parameters, AdamW(TRAIN, stage.layout, stage.parameters), lr=0.01, max_grad_norm=1.0)
    assert norm == pytest.approx(expected, rel=1e-12)
    assert gradient_norm(stage.parameters) == pytest.approx(1.0, rel=1e-6)


def test_gradients_below_the_limit_are_left_as_they_are() -> None:
    stage = worked_stage()
    norm = gradient_norm(stage.parameters)
    inner_step(stage.parameters, AdamW(TRAIN, stage.layout, stage.parameters), lr=0.01, max_grad_norm=norm)
    assert gradient_norm(stage.parameters) == norm


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    stage = worked_stage()
    next(iter(stage.parameters.values())).grad[0, 0] = math.inf
    optimizer = AdamW(TRAIN, stage.layout, stage.parameters)
    before = stage.parameters_flat().tobytes()
    with pytest.raises(InputError, match="expected a finite gradient norm, found inf"):
        inner_step(stage.parameters, optimizer, lr=0.01, max_grad_norm=1.0)
    assert stage.parameters_flat().tobytes() == before
    assert optimizer.moments().step == 0


def test_a_step_without_any_gradient_only_decays() -> None:
    """A lane whose microbatches were all dropped still steps: the receipt chain has no holes."""
    stage = Stage(tiny_run(), 0)
    before = stage.parameters_flat()
    norm = inner_step(stage.parameters, AdamW(TRAIN, stage.layout, stage.parameters), lr=0.01, max_grad_norm=1.0)
    assert norm == 0.0
    np.testing.assert_allclose(stage.parameters_flat(), before, rtol=1.1 * 0.01 * TRAIN.weight_decay)


def test_the_learning_rate_warms_up_and_then_falls_to_a_tenth() -> None:
    rates = [learning_rate(TRAIN, step) for step in range(TRAIN.rounds * TRAIN.steps_per_round + 5)]
    assert rates[:5] == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])
    assert all(later <= earlier for earlier, later in zip(rates[4:], rates[5:], strict=False))
    assert rates[20:] == pytest.approx([0.001] * 5)
    assert min(rates[4:]) >= 0.001 - 1e-12


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    train: TrainConfig = msgspec.structs.replace(TRAIN, warmup_steps=0)
    assert learning_rate(train, 0) == 0.01
