"""Each outer step against a reference written here: torch's own optimizers, plain means, the papers' equations."""

import numpy as np
import pytest
import torch

from subnet.config import OuterConfig
from subnet.errors import InputError
from subnet.merge.contribution import make_contribution, read_contribution
from subnet.merge.outer import OUTER_STEPS, Merged, Slow, averaging, diloco, lately, noloco, outer_step, streaming
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


def test_averaging_is_the_mean_of_where_the_replicas_ended():
    """50 rounds of three replicas of different weight, against the weighted mean of their ends."""
    parameters, momentum = np.ones(SIZE, dtype=np.float32), np.zeros(SIZE, dtype=np.float32)
    reference, weights = torch.ones(SIZE), torch.tensor([3.0, 1.0, 4.0])
    outer = OuterConfig(kind="averaging", lr=1.0, momentum=0.0)
    for number in range(ROUNDS):
        ends = [inner(parameters, replica, number) for replica in range(3)]
        reference_ends = torch.stack([torch.from_numpy(inner(reference.numpy(), each, number)) for each in range(3)])
        reference = (weights[:, None] * reference_ends).sum(dim=0) / weights.sum()
        gradient = reduce_stage([parameters - end for end in ends], [3, 1, 4], [1.0] * 3)
        parameters, momentum = outer_step(parameters, momentum, gradient, outer)
        assert np.abs(parameters - reference.numpy()).max() < 1e-6, f"round {number}"
        assert momentum.tobytes() == gradient.tobytes() == lately(momentum, outer).tobytes()
    assert np.abs(parameters - 1).max() > 0.1


def test_averaging_is_diloco_without_momentum_to_the_last_bit():
    slow = Slow(parameters=normal(1), momentum=normal(2))
    found = averaging(slow, Merged(gradient=normal(3)), lr=1.0, momentum=0.0)
    same = diloco(slow, Merged(gradient=normal(3)), lr=1.0, momentum=0.0)
    assert found.parameters.tobytes() == same.parameters.tobytes()
    assert found.momentum.tobytes() == same.momentum.tobytes()


def normal(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


def test_streaming_is_an_optimizer_of_its_own_for_each_fragment():
    """50 merges of three fragments in turn, against three of torch's Nesterov SGD that know nothing of each other."""
    spans = [(slice(0, 10), slice(40, 50)), (slice(10, 40),), (slice(50, SIZE),)]
    slow = Slow(parameters=np.ones(SIZE, dtype=np.float32), momentum=np.zeros(SIZE, dtype=np.float32))
    references = [torch.ones(sum(span.stop - span.start for span in of), requires_grad=True) for of in spans]
    optimizers = [torch.optim.SGD([each], lr=0.7, momentum=0.9, nesterov=True) for each in references]
    for number in range(ROUNDS):
        place = number % 3
        gradient = (0.1 * normal(number))[: references[place].numel()]
        references[place].grad = torch.from_numpy(gradient.copy())
        optimizers[place].step()
        slow = streaming(slow, Merged(gradient=gradient, spans=spans[place]), lr=0.7, momentum=0.9)
        for of, reference in zip(spans, references, strict=True):
            found = np.concatenate([slow.parameters[span] for span in of])
            assert np.abs(found - reference.detach().numpy()).max() < 1e-6, f"merge {number}"
    assert np.abs(slow.parameters - 1).max() > 0.1


def test_one_fragment_of_everything_is_diloco():
    slow, gradient = Slow(parameters=normal(1), momentum=normal(2)), normal(3)
    found = streaming(slow, Merged(gradient=gradient, spans=[slice(0, SIZE)]), lr=0.7, momentum=0.9)
    same = diloco(slow, Merged(gradient=gradient), lr=0.7, momentum=0.9)
    assert found.parameters.tobytes() == same.parameters.tobytes()
    assert found.momentum.tobytes() == same.momentum.tobytes()


def test_noloco_among_those_who_start_alike_is_momentum():
    """50 rounds against torch's SGD with plain momentum: without anything to pull, nothing else is left."""
    slow = Slow(parameters=np.ones(SIZE, dtype=np.float32), momentum=np.zeros(SIZE, dtype=np.float32))
    reference = torch.ones(SIZE, requires_grad=True)
    optimizer = torch.optim.SGD([reference], lr=0.7, momentum=0.5)
    for number in range(ROUNDS):
        gradient = 0.1 * normal(number)
        reference.grad = torch.from_numpy(gradient)
        optimizer.step()
        slow = noloco(slow, Merged(gradient=gradient, parameters=slow.parameters), lr=0.7, momentum=0.5)
        assert np.abs(slow.parameters - reference.detach().numpy()).max() < 1e-6, f"round {number}"


def test_noloco_is_its_equation_for_pairs_of_four():
    """In float64, for four replicas that are paired anew every round: momentum, the pair's mean, the pull."""
    phi = np.stack([normal(seed) for seed in range(4)]).astype(np.float64)
    delta = np.zeros_like(phi)
    slows = [Slow(parameters=normal(seed), momentum=np.zeros(SIZE, dtype=np.float32)) for seed in range(4)]
    for number in range(20):
        moves = np.stack([0.1 * normal(100 + 4 * number + each) for each in range(4)])
        before, pairing = phi.copy(), [(0, 1), (2, 3)] if number % 2 else [(0, 3), (1, 2)]
        after = {}
        for pair in pairing:
            group = [slows[each] for each in pair]
            merged = Merged(
                gradient=reduce_stage([moves[each] for each in pair], [1, 1], [1.0, 1.0]),
                parameters=reduce_stage([slow.parameters for slow in group], [1, 1], [1.0, 1.0]),
            )
            for each in pair:
                after[each] = noloco(slows[each], merged, lr=0.7, momentum=0.5, pull=0.8)
                mean, centre = moves[list(pair)].mean(axis=0), before[list(pair)].mean(axis=0)
                delta[each] = 0.5 * delta[each] - 0.7 * mean - 0.8 * (before[each] - centre)
                phi[each] = before[each] + delta[each]
        slows = [after[each] for each in range(4)]
        assert max(np.abs(slow.parameters - row).max() for slow, row in zip(slows, phi, strict=True)) < 1e-5


def test_noloco_brings_two_that_lie_apart_together_and_leaves_their_mean():
    slows = [Slow(parameters=normal(seed), momentum=np.zeros(SIZE, dtype=np.float32)) for seed in range(2)]
    mean = (slows[0].parameters + slows[1].parameters) / 2
    for _ in range(30):
        between = reduce_stage([slow.parameters for slow in slows], [1, 1], [1.0, 1.0])
        merged = Merged(gradient=np.zeros(SIZE, dtype=np.float32), parameters=between)
        slows = [noloco(slow, merged, lr=0.7, momentum=0.5) for slow in slows]
    assert np.abs(slows[0].parameters - slows[1].parameters).max() < 1e-3
    assert np.abs(slows[0].parameters - mean).max() < 1e-3


@pytest.mark.parametrize("name", OUTER_STEPS)
def test_every_step_leaves_its_arguments_as_they_are_and_refuses_what_is_not_finite(name: str):
    slow = Slow(parameters=normal(1), momentum=normal(2))
    merged = Merged(gradient=normal(3), spans=[slice(0, SIZE)], parameters=normal(4))
    arrays = [slow.parameters, slow.momentum, merged.gradient, merged.parameters]
    before = [values.tobytes() for values in arrays if values is not None]
    after = OUTER_STEPS[name](slow, merged, lr=0.7, momentum=0.9)
    assert [values.tobytes() for values in arrays if values is not None] == before
    assert not any(np.shares_memory(mine, theirs) for mine in (after.parameters, after.momentum) for theirs in arrays)
    infinite = Merged(gradient=np.full(SIZE, np.inf, dtype=np.float32), spans=[slice(0, SIZE)], parameters=normal(4))
    with pytest.raises(InputError, match="expected a finite outer step"):
        OUTER_STEPS[name](slow, infinite, lr=0.7, momentum=0.9)


STEP_BITS = {
    "averaging": "a4707d3f9999193fc2d1fa370ad7233c333333bf95bfd633",
    "diloco": "97905f3fbc30293f21eb0d385c8f423ef528dcbe9809d0b6",
    "streaming": "97905f3fbc30293f21eb0d385c8f423ef528dcbe9809d0b6",
    "noloco": "1058893f1d85eb3ef09a73360281953d285c0f3f2435ddb7",
}


@pytest.mark.parametrize("name", OUTER_STEPS)
def test_the_bits_of_every_step_are_pinned(name: str):
    """The values round differently when a multiply and an add are fused."""
    slow = Slow(
        parameters=np.array([1.0, -0.1, 3e-5], dtype=np.float32), momentum=np.array([0.2, 0.3, -7e-6], dtype=np.float32)
    )
    gradient, mean = (np.array(values, dtype=np.float32) for values in ([0.01, -0.7, 1e-7], [0.9, -0.3, 1e-5]))
    after = OUTER_STEPS[name](
        slow, Merged(gradient=gradient, spans=[slice(0, 3)], parameters=mean), lr=0.7, momentum=0.9
    )
    assert after.parameters.tobytes().hex() + after.momentum.tobytes().hex() == STEP_BITS[name]


def test_what_the_last_rounds_came_to_is_their_mean():
    """A run that merged the same for long remembers just that, with any momentum."""
    for outer in (OuterConfig(lr=0.7, momentum=0.9), OuterConfig(lr=1.0, momentum=0.0)):
        parameters, momentum, gradient = normal(0), np.zeros(SIZE, dtype=np.float32), normal(1)
        for _ in range(200):
            parameters, momentum = outer_step(parameters, momentum, gradient, outer)
        assert np.abs(lately(momentum, outer) - gradient).max() < 1e-5


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
