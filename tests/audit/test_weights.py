"""Weights: what the optimizer divided by, so that the errors that it enlarged are small again."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subnet.audit.distance import delta_distance, distance, share
from subnet.audit.weights import ByRow, Divisors, Roots, weights_by_row, weights_of
from subnet.stage.optim import inverse_root, orthogonal

DAMPING = 0.5


def test_divisors_are_the_harmonic_mean_of_what_adamw_divides_by():
    """Bias correction included; without a second moment every element has eps, and the same weight."""
    found = Divisors(2, beta2=0.9, eps=1e-3)
    for step, second in ((1, (0.1, 0.0)), (2, (0.19, 0.0))):
        values = np.array(second, np.float32)
        found.add(((slice(n, n + 1), values[n : n + 1]) for n in range(2)), step)
    assert found.mean() == pytest.approx([1.001, 1e-3], rel=1e-5)
    assert weights_of(np.full(3, 1e-8, np.float32), dtype="float32").tolist() == [1.0, 1.0, 1.0]


def matrix(seed: int, rows: int, columns: int, rank: int) -> np.ndarray:
    """Of this rank, but for rounding."""
    chance = np.random.default_rng(seed)
    made = chance.normal(size=(rows, rank)) @ chance.normal(size=(rank, columns))
    return made.astype(np.float32)


def rooted(momentum: np.ndarray) -> np.ndarray:
    return inverse_root(torch.from_numpy(momentum), damping=DAMPING)


def weights(momentum: np.ndarray) -> ByRow:
    roots = Roots()
    roots.add([("matrix", rooted(momentum))])
    return weights_by_row(roots.mean()["matrix"])


def moved(claimed: np.ndarray, recomputed: np.ndarray, by: ByRow, part: slice) -> float:
    """The distance of a piece of a matrix that moved from zero."""
    left, right = claimed.ravel(), recomputed.ravel()
    floor = share(by.weigh(right.astype(np.float64), slice(0, right.size)))
    return delta_distance(
        left[part],
        right[part],
        np.zeros_like(right[part]),
        weigh=lambda values: by.weigh(values, part),
        floor=floor,
        steps=1,
    )


@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (6, 15), (15, 6)])
def test_roots_are_what_muon_multiplies_a_matrix_by(rows: int, columns: int):
    """M (M'M + d^2)^(-1/2), in units of M's norm: the direction of the step that the optimizer takes."""
    momentum = matrix(1, rows, columns, 4)
    root = rooted(momentum)
    step = orthogonal(torch.from_numpy(momentum), damping=DAMPING).numpy()
    made = momentum / np.linalg.norm(momentum) @ root
    np.testing.assert_allclose(made * np.sqrt(1 + DAMPING**2), step, atol=1e-5)
    np.testing.assert_allclose(weights(momentum).columns @ root, np.eye(columns), atol=1e-4)


def test_roots_add_up_over_a_segments_steps():
    """An error is multiplied by the root of its own step: weights are the inverse of the mean of the inverses."""
    first, second = matrix(1, 6, 4, 2), matrix(2, 6, 4, 2)
    roots = Roots()
    for momentum in (first, second):
        roots.add([("matrix", rooted(momentum))])
    expected = (rooted(first) + rooted(second)) / 2
    np.testing.assert_allclose(roots.mean()["matrix"], expected, rtol=1e-6)


@given(st.integers(0, 1 << 20), st.sampled_from([(32, 32), (24, 48), (48, 24)]), st.integers(1, 24))
def test_rounding_of_a_momentum_of_low_rank_is_not_blown_up(seed, shape, rank):
    """Noise of a hundredth makes steps that are a hundredth apart or about so, whatever the rank."""
    momentum = matrix(seed, *shape, rank)
    noise = matrix(seed + 1, *shape, min(shape))
    other = momentum + np.float32(0.01 * np.linalg.norm(momentum) / np.linalg.norm(noise)) * noise
    steps = [orthogonal(torch.from_numpy(each), damping=DAMPING).numpy() for each in (other, momentum)]
    assert moved(*steps, weights(momentum), slice(0, momentum.size)) < 0.025


def test_without_weights_the_same_noise_would_hide_a_deviation():
    momentum, noise = matrix(3, 32, 32, 1), matrix(4, 32, 32, 32)
    other = momentum + np.float32(0.01 * np.linalg.norm(momentum) / np.linalg.norm(noise)) * noise
    steps = [orthogonal(torch.from_numpy(each), damping=DAMPING).numpy() for each in (other, momentum)]
    assert distance(*steps) > 0.09


@given(st.integers(0, 1 << 20), st.sampled_from([(32, 32), (24, 48), (48, 24)]), st.integers(1, 24))
def test_a_deviation_of_a_step_counts_as_much_as_it_is(seed, shape, rank):
    """One that is too long, exactly. Noise on it counts as the weights of what the matrix has and has not: at full rank
    three quarters or so, at rank one a sixth, for honest noise in the other directions shows in the step as much."""
    momentum = matrix(seed, *shape, rank)
    step = orthogonal(torch.from_numpy(momentum), damping=DAMPING).numpy()
    noise = matrix(seed + 1, *shape, min(shape))
    noise *= np.float32(0.05 * np.linalg.norm(step) / np.linalg.norm(noise))
    whole = slice(0, step.size)
    assert moved(step * np.float32(1.05), step, weights(momentum), whole) == pytest.approx(0.05, rel=1e-3)
    assert moved(step + noise, step, weights(momentum), whole) > 0.05 * min(0.5, math.sqrt(rank) / 8)


def test_a_piece_may_begin_and_end_within_a_row():
    """What it lacks counts as zero, so its rows are weighed as far as they go."""
    by = weights(matrix(5, 6, 4, 2))
    values, part = np.arange(1.0, 12.0), slice(3, 14)
    rows = np.zeros(16)
    rows[part] = values
    assert by.weigh(values, part) == pytest.approx((rows.reshape(4, 4) @ by.columns).ravel())
