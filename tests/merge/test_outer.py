"""The outer step is DiLoCo's: against torch's own Nesterov SGD, and against training without any outer step."""

import numpy as np
import pytest
import torch

from subnet.config import OuterConfig
from subnet.errors import InputError
from subnet.merge.contribution import make_contribution, read_contribution
from subnet.merge.outer import outer_step
from subnet.merge.reduce import reduce_stage

SIZE, ROUNDS = 64, 50


def inner(parameters: np.ndarray, replica: int, round_number: int) -> np.ndarray:
    """Four plain steps of one replica down a bowl of its own; near its floor Adam would turn rounding into steps."""
    generator = torch.Generator().manual_seed(1000 * replica + round_number)
    target = torch.randn(SIZE, generator=generator)
    weights = torch.from_numpy(parameters.copy()).requires_grad_()
    optimizer = torch.optim.SGD([weights], lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        (weights - target).square().sum().backward()
        optimizer.step()
    return weights.detach().numpy()


def merged_round(start: np.ndarray, momentum: np.ndarray, ends: list[np.ndarray], outer: OuterConfig):
    contributions = [read_contribution(make_contribution(start, end), SIZE) for end in ends]
    gradient = reduce_stage(contributions, [1] * len(ends), [1.0] * len(ends))
    return outer_step(start, momentum, gradient, outer)


def test_the_outer_step_is_diloco():
    """50 rounds of three replicas equal a written-out reference, torch's Nesterov SGD on the mean, to 1e-6."""
    parameters, momentum = np.ones(SIZE, dtype=np.float32), np.zeros(SIZE, dtype=np.float32)
    reference = torch.ones(SIZE, requires_grad=True)
    optimizer = torch.optim.SGD([reference], lr=0.7, momentum=0.9, nesterov=True)
    for number in range(ROUNDS):
        ends = [inner(parameters, replica, number) for replica in range(3)]
        reference_ends = [torch.from_numpy(inner(reference.detach().numpy(), replica, number)) for replica in range(3)]
        reference.grad = reference.detach() - torch.stack(reference_ends).mean(dim=0)
        optimizer.step()
        parameters, momentum = merged_round(parameters, momentum, ends, OuterConfig(lr=0.7, momentum=0.9))
        assert np.abs(parameters - reference.detach().numpy()).max() < 1e-6, f"round {number}"
    assert np.abs(parameters - 1).max() > 0.1


def test_with_one_replica_and_a_plain_outer_step_there_is_only_the_inner_optimizer():
    """Outer lr 1 and momentum 0: start - (start - end) is end, but for one rounding."""
    outer = OuterConfig(lr=1.0, momentum=0.0)
    merged, momentum = np.ones(SIZE, dtype=np.float32), np.zeros(SIZE, dtype=np.float32)
    alone = merged
    for number in range(ROUNDS):
        alone = inner(alone, 0, number)
        merged, momentum = merged_round(merged, momentum, [inner(merged, 0, number)], outer)
        assert np.abs(merged - alone).max() < 1e-6, f"round {number}"


def test_the_bits_are_pinned_and_the_arguments_stay_as_they_are():
    parameters = np.array([1.0, -0.1, 3e-5], dtype=np.float32)
    momentum = np.array([0.2, 0.3, -7e-6], dtype=np.float32)
    gradient = np.array([0.01, -0.7, 1e-7], dtype=np.float32)
    before = [values.tobytes() for values in (parameters, momentum, gradient)]
    after = outer_step(parameters, momentum, gradient, OuterConfig(lr=0.7, momentum=0.9))
    assert [values.tobytes().hex() for values in after] == ["97905f3fbc30293f21eb0d38", "5c8f423ef528dcbe9809d0b6"]
    assert [values.tobytes() for values in (parameters, momentum, gradient)] == before


def test_a_result_that_is_not_finite_is_refused():
    one = np.zeros(1, dtype=np.float32)
    with pytest.raises(InputError, match="expected a finite outer step"):
        outer_step(one, one, np.array([3e38], dtype=np.float32), OuterConfig(lr=9.0, momentum=0.9))
