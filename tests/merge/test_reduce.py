"""Laws of the reduction: the mean for equals, bit-equal however it is cut, and no pull by norm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.errors import InputError
from subnet.merge.reduce import clip_factors, reduce_stage


def flat(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def some(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def test_equal_weights_give_the_mean():
    contributions = [some(seed, 1000) for seed in range(5)]
    mean = np.mean(np.stack(contributions).astype(np.float64), axis=0)
    assert np.abs(reduce_stage(contributions, [7] * 5, [1.0] * 5) - mean).max() < 1e-6


def test_weights_are_shares_of_their_sum():
    assert reduce_stage([flat(1.0), flat(5.0)], [3, 1], [1.0, 1.0]).tolist() == [2.0]


def test_a_factor_scales_one_contribution_and_leaves_the_others_weight():
    assert reduce_stage([flat(4.0), flat(8.0)], [1, 1], [1.0, 0.5]).tolist() == [4.0]


def test_one_contribution_is_kept_bit_for_bit():
    x = some(1, 1000)
    assert reduce_stage([x], [12345], [1.0]).tobytes() == x.tobytes()


def test_the_bits_are_pinned():
    """Any machine must give these bytes: 0.1, 0.7 and -0.3 round differently when fused or reordered."""
    contributions = [flat(0.1, 1e-8, 3.0), flat(0.7, 1e8, -1.0), flat(-0.3, 1.0, 1e-3)]
    assert (
        reduce_stage(contributions, [1024, 768, 1000], [1.0, 0.625, 0.3]).tobytes().hex() == "558fff3d152a834b7eb06d3f"
    )


@given(
    size=st.integers(1, 3 * (1 << 16)),
    cuts=st.lists(st.integers(0, 3 * (1 << 16)), max_size=5),
    weights=st.lists(st.integers(1, 10**6), min_size=1, max_size=4),
)
def test_any_cut_into_shards_gives_the_same_bits(size: int, cuts: list[int], weights: list[int]):
    contributions = [some(seed, size) for seed in range(len(weights))]
    factors = [1.0 / (1 + place) for place in range(len(weights))]
    whole = reduce_stage(contributions, weights, factors)
    edges = sorted({0, size, *(cut for cut in cuts if cut < size)})
    shards = [
        reduce_stage([values[first:last] for values in contributions], weights, factors)
        for first, last in zip(edges, edges[1:], strict=False)
    ]
    assert np.concatenate(shards).tobytes() == whole.tobytes()


def test_the_order_is_the_callers():
    """Float32 addition is not associative, so the closed set's order is part of the result."""
    contributions = [flat(1e8), flat(1.0), flat(-1e8)]
    weights, factors = [1, 1, 1], [1.0, 1.0, 1.0]
    assert reduce_stage(contributions, weights, factors) != reduce_stage(
        contributions[::-2] + [flat(1.0)], weights, factors
    )


def test_the_arguments_stay_as_they_are():
    contributions = [flat(1.0, 2.0), flat(3.0, 4.0)]
    reduce_stage(contributions, [1, 1], [1.0, 1.0])
    assert [values.tolist() for values in contributions] == [[1.0, 2.0], [3.0, 4.0]]


def test_norms_above_the_median_are_clipped_to_it():
    assert clip_factors([1.0, 2.0, 8.0]) == (1.0, 1.0, 0.25)


def test_of_two_norms_the_lower_counts():
    assert clip_factors([1.0, 4.0]) == (1.0, 0.25)


def test_the_median_is_of_the_weight_so_that_many_small_ones_do_not_move_it():
    """Three names with a token each say that the norm is 100; the norm of those who trained is 2."""
    assert clip_factors([1.0, 2.0, 3.0, 100.0, 100.0, 100.0], [50, 50, 50, 1, 1, 1]) == (
        1.0, 1.0, 2 / 3, 0.02, 0.02, 0.02,
    )  # fmt: skip
    assert clip_factors([1.0, 4.0], [1, 3]) == (1.0, 1.0)
    assert clip_factors([1.0, 4.0], [3, 1]) == (1.0, 0.25)
    assert clip_factors([0.0, 4.0], [9, 1]) == (1.0, 1.0)


@given(norms=st.lists(st.floats(0, 1e30), min_size=1, max_size=9), weight=st.integers(1, 10**9))
def test_equal_weights_are_none(norms: list[float], weight: int):
    assert clip_factors(norms, [weight] * len(norms)) == clip_factors(norms)


def test_a_contribution_of_zeros_does_not_silence_the_others():
    assert clip_factors([0.0, 3.0]) == (1.0, 1.0)
    assert clip_factors([0.0, 0.0]) == (1.0, 1.0)
    assert clip_factors([]) == ()


@given(norms=st.lists(st.floats(0, 1e30), min_size=1, max_size=9))
def test_no_clipped_norm_exceeds_the_median(norms: list[float]):
    factors = clip_factors(norms)
    moved = sorted(value for value in norms if value > 0)
    limit = moved[(len(moved) - 1) // 2] if moved else 0.0
    assert all(factor * value <= limit * (1 + 1e-15) for factor, value in zip(factors, norms, strict=True))


@pytest.mark.parametrize("norms", [[1.0, float("nan")], [float("inf")], [-1.0]])
def test_a_norm_that_is_none_is_refused(norms: list[float]):
    with pytest.raises(InputError, match="expected finite norms of at least 0"):
        clip_factors(norms)


@pytest.mark.parametrize(
    ("contributions", "weights", "factors", "sentence"),
    [
        ([], [], [], "expected contributions of one size, found the sizes"),
        ([flat(1.0), flat(1.0, 2.0)], [1, 1], [1.0, 1.0], r"found the sizes \[1, 2\]"),
        ([flat(1.0)], [1, 1], [1.0], "expected a weight and a factor for each of 1 contributions, found 2 and 1"),
        ([flat(1.0)], [0], [1.0], r"expected weights of at least 1 .* found \[0\]"),
        ([flat(1.0)], [1], [1.5], r"factors from 0 to 1, found \[1\] and \[1.5\]"),
        ([flat(1.0)], [1], [float("nan")], "factors from 0 to 1"),
        ([flat(float("nan"))], [1], [1.0], "expected a finite reduction"),
        ([flat(float("inf")), flat(1.0)], [1, 1], [1.0, 1.0], "expected a finite reduction"),
    ],
)
def test_what_cannot_be_reduced_is_refused(
    contributions: list[np.ndarray], weights: list[int], factors: list[float], sentence: str
):
    with pytest.raises(InputError, match=sentence):
        reduce_stage(contributions, weights, factors)
