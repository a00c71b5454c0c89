"""Distances: a deviation is as large as it is wherever it sits, and rounding is none."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.audit.distance import (
    CHUNK_ELEMENTS,
    MAX_DISTANCE,
    delta_distance,
    distance,
    loss_distance,
    norm,
    sequence_distance,
    share,
)
from subnet.audit.weights import ByElement, weights_of

sizes = st.integers(1, 300)
seeds = st.integers(0, 1 << 30)


def drawn(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@given(seeds, sizes, st.floats(-0.5, 0.5))
def test_a_deviation_of_a_whole_tensor_is_as_large_on_all_of_it(seed, size, by):
    """The floor of a tensor that fits into a chunk is its own norm, so it hides nothing."""
    values = drawn(seed, size).astype(np.float64)
    assert distance(values * (1 + by), values, floor=share(values)) == pytest.approx(abs(by), abs=1e-12)


@given(seeds, st.integers(2, 200))
def test_no_fragment_looks_further_off_than_its_part_of_the_tensor(seed, size):
    """However the chunk's edge cuts, a fragment's distance is at most the deviation over the tensor's own norm."""
    values = drawn(seed, size).astype(np.float64)
    other = values + 1e-3 * drawn(seed + 1, size)
    cut = 1 + seed % (size - 1)
    for part in (slice(None, cut), slice(cut, None)):
        apart = distance(other[part], values[part], floor=share(values))
        assert apart <= norm(other[part] - values[part]) / norm(values) * (1 + 1e-9)


def test_a_piece_of_a_large_tensor_is_judged_on_the_scale_of_a_chunk():
    values = np.ones(9 * CHUNK_ELEMENTS)
    assert share(values) == pytest.approx(math.sqrt(CHUNK_ELEMENTS))
    piece = values[:CHUNK_ELEMENTS]
    assert distance(piece * 1.01, piece, floor=share(values)) == pytest.approx(0.01)


@given(seeds, st.integers(1, 6), st.floats(0.001, 0.5))
def test_one_corrupted_sequence_counts_like_a_corrupted_microbatch(seed, sequences, by):
    """Where all sequences have about the same size, among any number of honest ones."""
    values = drawn(seed, sequences * 64).reshape(sequences, 8, 8)
    other = values.copy()
    other[seed % sequences] *= np.float32(1 + by)
    assert sequence_distance(other, values) == pytest.approx(by, rel=0.35)


def test_frames_of_another_shape_have_the_largest_distance():
    assert sequence_distance(np.ones((1, 2, 2), np.float32), np.ones((2, 1, 2), np.float32)) == MAX_DISTANCE


def test_a_small_loss_is_judged_on_the_scale_of_its_logits():
    """The rounding of a nearly learned loss is not a lie; one percent of a usual loss is."""
    guess = 32 * math.log(256)
    assert loss_distance(1.0 + guess * 1e-9, 1.0, tokens=32, vocabulary=256) == pytest.approx(1e-9)
    assert loss_distance(guess * 1.01, guess, tokens=32, vocabulary=256) == pytest.approx(0.01)
    assert loss_distance(math.nan, guess, tokens=32, vocabulary=256) == MAX_DISTANCE


def moved(claimed: np.ndarray, recomputed: np.ndarray, start: np.ndarray, weights: np.ndarray, steps: int = 1) -> float:
    floor = share(weights * (recomputed.astype(np.float64) - start))
    weigh = partial(ByElement(weights=weights).weigh, part=slice(0, weights.size))
    return delta_distance(claimed, recomputed, start, weigh=weigh, floor=floor, steps=steps)


@given(seeds, sizes, st.integers(1, 4))
def test_one_last_place_a_step_is_no_difference(seed, size, steps):
    """Whatever the step was: float32 keeps no more of a parameter."""
    start = 1 + drawn(seed, size) / 8
    end = start + 1e-6 * drawn(seed + 1, size)
    other = end.copy()
    for _ in range(steps):
        other = np.nextafter(other, np.float32(np.inf))
    assert moved(other, end, start, np.ones(size), steps=steps) <= 0.0
    assert moved(end, end, start, np.ones(size), steps=steps) == 0.0


@given(seeds, sizes, st.floats(0.01, 0.5))
def test_a_movement_that_is_too_long_is_as_far_as_it_is_too_long(seed, size, by):
    """In every mixture of divisors: weights act on both sides."""
    start = drawn(seed, size) / 64
    movement = 0.01 * np.sign(drawn(seed + 1, size) + np.float32(1e-9))
    weights = weights_of(np.abs(drawn(seed + 2, size)) + np.float32(1e-6), dtype="float32")
    end, other = (start + np.float32(scale) * movement for scale in (1.0, 1.0 + by))
    assert moved(other, end, start, weights) == pytest.approx(by, rel=1e-2, abs=1e-4)


def test_rows_that_were_never_trained_may_not_be_moved():
    """Their divisor is eps alone; they count little, but a step of the usual length is seen at once."""
    divisors = np.full(256, 1e-3, np.float32)
    divisors[128:] = 1e-8
    weights = weights_of(divisors, dtype="float32")
    start = np.zeros(256, np.float32)
    end = start.copy()
    end[:128] = 1e-3
    other = end.copy()
    other[128:] = 1e-3
    assert moved(other, end, start, weights) > 1e-4


def test_noise_on_a_gradient_near_zero_is_not_blown_up():
    """An element whose gradient is a ten thousandth of the others' may differ by a tenth of a step."""
    divisors = np.full(64, 1e-2, np.float32)
    divisors[0] = 1e-6
    start, end = np.zeros(64, np.float32), np.full(64, 1e-3, np.float32)
    other = end.copy()
    other[0] *= np.float32(1.1)
    blown = distance(other, end)
    assert blown == pytest.approx(0.1 / 8, rel=1e-3)
    assert moved(other, end, start, weights_of(divisors, dtype="float32")) < blown / 1000


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_parameters_that_are_not_finite_never_pass(wrong):
    end = np.ones(4, np.float32)
    other = end.copy()
    other[1] = wrong
    assert moved(other, end, np.zeros(4, np.float32), np.ones(4)) == MAX_DISTANCE
