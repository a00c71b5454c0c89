"""The inner step against AdamW and Muon written out, clipping, and the learning rate."""

import math

import msgspec
import numpy as np
import pytest
import torch

from subnet.config import TrainConfig
from subnet.errors import InputError
from subnet.model.shapes import BLOCKS
from subnet.stage.layout import Moments
from subnet.stage.optim import AdamW, Muon, gradient_norm, inner_step, learning_rate, make_optimizer, orthogonal
from subnet.stage.stage import Stage
from tests.model.tiny import tiny_microbatches, tiny_run

TRAIN = tiny_run().train
both = pytest.mark.parametrize("kind", [AdamW, Muon])


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


def orthogonalised(matrix: np.ndarray, damping: float) -> np.ndarray:
    """Singular values s, in root mean squares, to s sqrt((1 + d^2) / (s^2 + d^2)), by their decomposition."""
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    usual = singular / np.sqrt(np.mean(singular**2))
    return (left * (usual * np.sqrt((1 + damping**2) / (usual**2 + damping**2)))) @ right


def test_the_inner_step_is_muon_for_the_blocks_and_adamw_for_the_rest() -> None:
    """Five steps with gradients that turn their sign once, against the formulas in float64."""
    stage = worked_stage()
    muon = Muon(TRAIN, stage.layout, stage.parameters)
    expected = {name: p.detach().double().numpy().copy() for name, p in stage.parameters.items()}
    gradients = {name: p.grad.double().numpy().copy() for name, p in stage.parameters.items()}
    first = {name: np.zeros_like(gradient) for name, gradient in gradients.items()}
    second = {name: np.zeros_like(gradient) for name, gradient in gradients.items()}
    hidden = [name for name in gradients if name.startswith(BLOCKS) and gradients[name].ndim == 2]
    assert len(hidden) == 4 * 7
    for step in range(1, 6):
        sign = -1.0 if step == 3 else 1.0
        for name, parameter in stage.parameters.items():
            parameter.grad = torch.from_numpy(sign * gradients[name]).float()
        inner_step(stage.parameters, muon, lr=0.01, max_grad_norm=0.0)
        for name, gradient in gradients.items():
            g = sign * gradient
            decay = 1 - 0.01 * (TRAIN.weight_decay if g.ndim == 2 else 0.0)
            if name in hidden:
                first[name] = 0.95 * first[name] + 0.05 * g
                update = orthogonalised(0.05 * g + 0.95 * first[name], TRAIN.muon_damping)
                expected[name] = expected[name] * decay - 0.01 * 0.2 * np.sqrt(max(g.shape)) * update
            else:
                first[name] = TRAIN.beta1 * first[name] + (1 - TRAIN.beta1) * g
                second[name] = TRAIN.beta2 * second[name] + (1 - TRAIN.beta2) * g**2
                mean, square = first[name] / (1 - TRAIN.beta1**step), second[name] / (1 - TRAIN.beta2**step)
                expected[name] = expected[name] * decay - 0.01 * mean / (np.sqrt(square) + TRAIN.eps)
    for name, parameter in stage.parameters.items():
        np.testing.assert_allclose(parameter.detach().numpy(), expected[name], atol=5e-6, err_msg=name)
    moments = muon.moments()
    assert moments.step == 5
    for name, value in stage.layout.split(moments.exp_avg).items():
        np.testing.assert_allclose(value, first[name], rtol=1e-4, atol=1e-8, err_msg=name)
    for name, value in stage.layout.split(moments.exp_avg_sq).items():
        assert value.any() == (name not in hidden), name


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (24, 8)])
@pytest.mark.parametrize("damping", [0.1, 0.5])
def test_an_orthogonal_update_is_damped_where_the_matrix_has_little(shape: tuple[int, int], damping: float) -> None:
    """Its size does not matter, and nothing stays nothing."""
    matrix = np.random.default_rng(2).normal(size=shape)
    found = orthogonal(torch.from_numpy(1e-3 * matrix).float(), damping=damping)
    np.testing.assert_allclose(found.numpy(), orthogonalised(matrix, damping), atol=1e-5)
    assert not orthogonal(torch.zeros(shape), damping=damping).any()


@pytest.mark.parametrize("damping", [0.1, 0.5])
def test_a_matrix_that_has_as_much_of_every_direction_becomes_orthogonal(damping: float) -> None:
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(8, 8)))[0]
    np.testing.assert_allclose(orthogonal(torch.from_numpy(3 * turn).float(), damping=damping), turn, atol=1e-6)


def test_rounding_errors_of_a_matrix_of_low_rank_stay_small() -> None:
    """At most sqrt(smaller side) (1 + 1 / damping) times as large, here 72; undamped they would become whole steps."""
    chance = np.random.default_rng(2)
    low = np.outer(chance.normal(size=64), chance.normal(size=64))
    apart = 1e-4 * np.linalg.norm(low) / 64 * chance.normal(size=(64, 64))
    steps = [orthogonal(torch.from_numpy(each).float(), damping=0.125) for each in (low, low + apart)]
    assert 1e-3 < float(torch.linalg.vector_norm(steps[1] - steps[0])) < 72 * 1.1e-4


def test_an_update_of_muon_is_as_large_as_one_of_adamw() -> None:
    """So the run's learning rate serves both: 0.2 per element and learning rate (a square matrix's, of full rank)."""
    stage = Stage(tiny_run(stages=1), 0)
    name = "model.layers.0.self_attn.o_proj.weight"
    matrix = stage.parameters[name]
    before = matrix.detach().clone()
    matrix.grad = torch.from_numpy(np.random.default_rng(2).normal(size=matrix.shape)).float()
    train = msgspec.structs.replace(TRAIN, weight_decay=0.0)
    Muon(train, stage.layout, stage.parameters).step(0.01)
    assert float((matrix.detach() - before).square().mean().sqrt()) == pytest.approx(0.002, rel=0.2)


def test_the_run_chooses_its_optimizer() -> None:
    stage = Stage(tiny_run(), 0)
    chosen = [
        make_optimizer(msgspec.structs.replace(TRAIN, optimizer=name), stage.layout, stage.parameters)
        for name in ("adamw", "muon")
    ]
    assert [type(optimizer) for optimizer in chosen] == [AdamW, Muon]


def test_a_second_moment_that_muon_does_not_have_is_not_kept() -> None:
    """A state that claims one is another state: it is compared with zero."""
    stage = Stage(tiny_run(), 0)
    muon = Muon(TRAIN, stage.layout, stage.parameters)
    ones = np.ones(stage.layout.num_parameters, dtype=np.float32)
    muon.load(Moments(exp_avg=ones, exp_avg_sq=ones, step=3))
    moments = muon.moments()
    assert moments.exp_avg.all() and moments.step == 3
    for name, value in stage.layout.split(moments.exp_avg_sq).items():
        assert value.any() == (not name.startswith(BLOCKS) or value.ndim < 2), name


@both
def test_the_step_repeats_bit_for_bit(kind: type[AdamW] | type[Muon]) -> None:
    states = []
    for _ in range(2):
        stage = worked_stage()
        optimizer = kind(TRAIN, stage.layout, stage.parameters)
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


@both
def test_a_gradient_that_is_not_finite_changes_nothing(kind: type[AdamW] | type[Muon]) -> None:
    stage = worked_stage()
    next(iter(stage.parameters.values())).grad[0, 0] = math.inf
    optimizer = kind(TRAIN, stage.layout, stage.parameters)
    before = stage.parameters_flat().tobytes()
    with pytest.raises(InputError, match="expected a finite gradient norm, found inf"):
        inner_step(stage.parameters, optimizer, lr=0.01, max_grad_norm=1.0)
    assert stage.parameters_flat().tobytes() == before
    assert optimizer.moments().step == 0


@both
def test_a_step_without_any_gradient_only_decays(kind: type[AdamW] | type[Muon]) -> None:
    """A lane whose microbatches were all dropped still steps: the receipt chain has no holes."""
    stage = Stage(tiny_run(), 0)
    before = stage.parameters_flat()
    norm = inner_step(stage.parameters, kind(TRAIN, stage.layout, stage.parameters), lr=0.01, max_grad_norm=1.0)
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
