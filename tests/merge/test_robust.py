"""Laws of the robust reductions: equal to their definitions, deaf to a minority, and the same bits however computed."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.config import REDUCTIONS, ReduceConfig
from subnet.errors import InputError
from subnet.merge.closed import Offer, close_set
from subnet.merge.reduce import reduce_stage
from subnet.merge.robust import centred_clipping, clip_shares, moved, reduce_by, squared_distances, trimmed_mean

ROWS = st.integers(1, 6).flatmap(
    lambda size: st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=size, max_size=size), min_size=1, max_size=7
    )
)


def flat(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def some(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def ones(contributions: Sequence[np.ndarray]) -> list[float]:
    return [1.0] * len(contributions)


def rules() -> list[ReduceConfig]:
    return [ReduceConfig(mode=mode) for mode in REDUCTIONS]


def trimmed_by_definition(column: Sequence[float], weights: Sequence[int], trim_frac: float) -> float:
    """Every contribution as often as its weight, sorted, the ends cut off, the mean of the rest in fractions."""
    heads = sorted(value for value, weight in zip(column, weights, strict=True) for _ in range(weight))
    cut = min(math.ceil(trim_frac * len(heads)), (len(heads) - 1) // 2)
    rest = [Fraction(value) for value in heads[cut : len(heads) - cut]]
    return float(sum(rest) / len(rest))


@given(rows=ROWS, trim_frac=st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.49]), draw=st.data())
def test_the_trimmed_mean_is_its_definition(rows: list[list[float]], trim_frac: float, draw: st.DataObject):
    weights = draw.draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows)))
    found = trimmed_mean([flat(*row) for row in rows], weights, ones(rows), trim_frac=trim_frac)
    expected = [trimmed_by_definition(column, weights, trim_frac) for column in zip(*rows, strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(honest=st.lists(st.floats(-1, 1, width=32), min_size=7, max_size=7), draw=st.data())
def test_three_liars_of_ten_cannot_move_an_element_past_the_honest_ones(honest: list[float], draw: st.DataObject):
    lies = draw.draw(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
    everybody = draw.draw(st.permutations([*honest, *lies]))
    found = trimmed_mean([flat(value) for value in everybody], [64] * 10, [1.0] * 10, trim_frac=0.3)
    assert min(honest) <= found[0] <= max(honest)


@pytest.mark.parametrize("tokens", [1, 7, 100, 29_696])
def test_a_liar_with_exactly_the_trimmed_share_has_no_token_left(tokens: int):
    """0.29 of 100 is less than 29 in floats; one token of weight would do with a value like this."""
    found = trimmed_mean([flat(1.0), flat(3e38)], [71 * tokens, 29 * tokens], [1.0, 1.0], trim_frac=0.29)
    assert found.tolist() == [1.0]


def test_a_contribution_in_many_pieces_is_trimmed_like_one():
    """A liar with 40 % of the weight under one name or under four: more heads cut away no more of the others."""
    honest, lie = [flat(1.0), flat(2.0), flat(3.0)], flat(1e6)
    whole = trimmed_mean([*honest, lie], [20, 20, 20, 40], [1.0] * 4, trim_frac=0.3)
    pieces = trimmed_mean([*honest, *[lie] * 4], [20, 20, 20, 10, 10, 10, 10], [1.0] * 7, trim_frac=0.3)
    assert whole.tolist() == pieces.tolist()


def clipped_by_definition(
    contributions: Sequence[np.ndarray], weights: Sequence[int], centre: np.ndarray, iterations: int
) -> np.ndarray:
    """The update of arXiv 2012.10333 in float64, the radius the lower weighted median of the distances."""
    x, v = np.stack(contributions).astype(np.float64), centre.astype(np.float64)
    shares = np.array(weights) / sum(weights)
    for _ in range(iterations):
        distance = np.linalg.norm(x - v, axis=1)
        order = np.argsort(distance)
        radius = distance[order][np.searchsorted(np.cumsum(shares[order]), 0.5 - 1e-12)]
        v = v + (shares * np.minimum(1, radius / distance)) @ (x - v)
    return v


@pytest.mark.parametrize("iterations", [1, 3])
def test_centred_clipping_is_its_definition(iterations: int):
    contributions, weights = [some(seed, 500) * (1 + seed) for seed in range(7)], [3, 1, 4, 1, 5, 9, 2]
    centre = some(99, 500)
    found = centred_clipping(contributions, weights, [1.0] * 7, centre=centre, iterations=iterations)
    assert np.abs(found - clipped_by_definition(contributions, weights, centre, iterations)).max() < 1e-5


def test_no_outlier_pulls_the_centre_farther_than_a_median_contribution():
    honest = [flat(1.0, 0.0), flat(0.0, 1.0), flat(1.0, 1.0)]
    centre = flat(0.0, 0.0)
    far = [centred_clipping([*honest, lie], [1] * 4, [1.0] * 4, centre=centre, iterations=1) for lie in
           (flat(1e3, 0.0), flat(1e30, 0.0))]  # fmt: skip
    assert far[0].tolist() == pytest.approx(far[1].tolist())
    assert np.linalg.norm(far[1]) < 1.0


def test_a_closed_set_of_one_is_kept_by_every_mode_once_it_moved():
    """One replica, and the rounds before came to nothing: its contribution is what comes out."""
    x = some(1, 1000)
    for rule in rules():
        assert np.abs(reduce_by(rule, [x], [77], [1.0], np.zeros(1000, dtype=np.float32)) - x).max() < 1e-6, rule


def test_the_mode_is_the_rule_s():
    contributions = [flat(0.0), flat(1.0), flat(9.0)]
    weights = [64] * 3
    found = [reduce_by(rule, contributions, weights, [1.0] * 3, flat(0.0))[0] for rule in rules()]
    assert found[0] == reduce_stage(contributions, weights, [1.0] * 3)[0]
    assert found[1] == trimmed_mean(contributions, weights, [1.0] * 3, trim_frac=0.3)[0]
    assert found[2] == centred_clipping(contributions, weights, [1.0] * 3, centre=flat(0.0), iterations=3)[0]
    assert len(set(found)) == 3


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.mode)
def test_the_closed_set_s_factors_clip_in_every_mode(rule: ReduceConfig):
    clipped = reduce_by(rule, [flat(4.0), flat(8.0)], [1, 1], [1.0, 0.5], flat(0.0))
    assert clipped.tolist() == [4.0]


PINNED = {
    "mean": "22e6123e01606a4bef74673f",
    "trimmed_mean": "55f0ee3de5244c3eed6ac93e",
    "centred_clipping": "9b56463dc02a453fad75b03f",
}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.mode)
def test_the_bits_are_pinned(rule: ReduceConfig):
    """Any machine must give these bytes: the values round differently when fused, reordered or summed in float32."""
    contributions = [flat(0.1, 1e-8, 3.0), flat(0.7, 1e8, -1.0), flat(-0.3, 1.0, 1e-3), flat(0.3, -1e-3, 0.7)]
    found = reduce_by(rule, contributions, [1024, 768, 1000, 333], [1.0, 0.625, 0.3, 1.0], flat(0.1, 1e-3, -0.2))
    assert found.tobytes().hex() == PINNED[rule.mode]


@given(
    size=st.integers(1, 3 * (1 << 16)),
    cuts=st.lists(st.integers(0, 3 * (1 << 16)), max_size=3),
    weights=st.lists(st.integers(1, 10**6), min_size=1, max_size=4),
    mode=st.sampled_from(REDUCTIONS),
)
def test_shard_by_shard_gives_the_bytes_of_the_whole(size: int, cuts: list[int], weights: list[int], mode: str):
    """At any cut. Shards of centred clipping publish their distances between its steps, and add up everybody's."""
    contributions, centre = [some(seed, size) for seed in range(len(weights))], some(9, size) / 2
    factors = [1.0 / (1 + place) for place in range(len(weights))]
    rule = ReduceConfig(mode=mode)
    whole = reduce_by(rule, contributions, weights, factors, centre)
    edges = sorted({0, size, *(cut for cut in cuts if cut < size)})
    spans = [slice(first, last) for first, last in zip(edges, edges[1:], strict=False)]
    parts = [[values[span] for values in contributions] for span in spans]
    if mode != "centred_clipping":
        shards = [
            reduce_by(rule, part, weights, factors, centre[span]) for part, span in zip(parts, spans, strict=True)
        ]
    else:
        shards = [centre[span] for span in spans]
        for _ in range(rule.clip_iterations):
            told = [squared_distances(part, factors, at) for part, at in zip(parts, shards, strict=True)]
            shares = clip_shares(weights, [sum(of) for of in zip(*told, strict=True)])
            shards = [moved(part, factors, at, shares) for part, at in zip(parts, shards, strict=True)]
    assert np.concatenate(shards).tobytes() == whole.tobytes()


@given(arrival=st.permutations(range(5)), mode=st.sampled_from(REDUCTIONS))
def test_the_order_of_arrival_moves_no_bit(arrival: list[int], mode: str):
    """Whoever commits first and whoever is read first: the closed set's order is the order of the sum."""
    values = {f"{name:064x}": some(name, 300) * np.float32(10.0**name) for name in range(5)}
    names = sorted(values)

    def merged(order: Sequence[int]) -> bytes:
        offers = [
            Offer(hotkey=names[place], digest=names[place], tokens=100 + place, norm=1.0 + place, position=position)
            for position, place in enumerate(order)
        ]
        closed = close_set(offers, last_position=9, readable=set(names))
        tokens, factors = [share.tokens for share in closed], [share.factor for share in closed]
        parts = [values[share.digest] for share in closed]
        return reduce_by(ReduceConfig(mode=mode), parts, tokens, factors, np.zeros(300, dtype=np.float32)).tobytes()

    assert merged(arrival) == merged(range(5))


class Decoder:
    """A contribution that is decoded span by span, and never twice out of order within a pass."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values
        self.longest = 0

    @property
    def size(self) -> int:
        return int(self._values.size)

    def __getitem__(self, span: slice, /) -> np.ndarray:
        assert span.start % (1 << 16) == 0
        self.longest = max(self.longest, span.stop - span.start)
        return self._values[span].copy()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.mode)
def test_whatever_gives_spans_is_reduced_like_an_array_and_never_read_whole(rule: ReduceConfig):
    arrays = [some(seed, 150_000) for seed in range(3)]
    decoders = [Decoder(values) for values in arrays]
    centre = np.zeros(150_000, dtype=np.float32)
    found = reduce_by(rule, decoders, [1, 2, 3], [1.0] * 3, centre)
    assert found.tobytes() == reduce_by(rule, arrays, [1, 2, 3], [1.0] * 3, centre).tobytes()
    assert {decoder.longest for decoder in decoders} == {1 << 16}


class Unread:
    """A contribution that must not be read."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __getitem__(self, span: slice, /) -> np.ndarray:
        raise AssertionError("it is refused before it is read")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.mode)
def test_what_does_not_fit_is_refused_before_anything_is_read_or_allocated(rule: ReduceConfig):
    """The size that is claimed is more than any machine has."""
    huge = Unread(1 << 60)
    centre = flat(0.0)
    for parts, weights, factors, sentence in (
        ([Unread(3), huge], [1, 1], [1.0, 1.0], "expected contributions of one size"),
        ([huge, huge], [1], [1.0, 1.0], "expected a weight and a factor for each of 2"),
        ([huge], [0], [1.0], "expected weights of at least 1"),
        ([huge], [1], [math.nan], "factors from 0 to 1"),
        ([], [], [], "expected contributions of one size"),
    ):
        with pytest.raises(InputError, match=sentence):
            reduce_by(rule, parts, weights, factors, centre)


def test_a_centre_of_another_size_is_refused():
    with pytest.raises(InputError, match="expected a centre of 2 values, found 3"):
        centred_clipping([flat(1.0, 2.0)], [1], [1.0], centre=flat(1.0, 2.0, 3.0), iterations=1)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.mode)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(rule: ReduceConfig, value: float):
    """Also where trimming would have cut it away."""
    parts = [flat(1.0, 0.0), flat(2.0, value), flat(3.0, 0.0), flat(3.0, 0.0)]
    with pytest.raises(InputError, match="expected (a finite reduction|finite values), found"):
        reduce_by(rule, parts, [1] * 4, [1.0] * 4, flat(0.0, 0.0))


def test_differences_that_overflow_are_refused():
    largest = float(np.finfo(np.float32).max)
    with pytest.raises(InputError, match="expected finite values"):
        centred_clipping([flat(largest)], [1], [1.0], centre=flat(-largest), iterations=1)
