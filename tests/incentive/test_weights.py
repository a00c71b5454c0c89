"""Weights from scores: a share, whatever the uids, whoever asks for more."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.config import RunConfig
from subnet.incentive.score import Book
from subnet.incentive.weights import to_weights
from tests.audit.histories import audit_run
from tests.incentive.views import view_of

HOTKEYS = ("owner", "a", "b", "c", "d", "e")
scores = st.dictionaries(st.sampled_from((*HOTKEYS, "gone")), st.integers(0, 10**24), max_size=7)
burns = st.floats(0, 0.9)
orders = st.permutations(HOTKEYS)


def ledger(points: dict[str, int]) -> dict[str, Book]:
    return {hotkey: Book(hotkey=hotkey, score=score) for hotkey, score in points.items()}


def burning(burn_frac: float) -> RunConfig:
    return audit_run(burn_frac=burn_frac)


@given(scores, burns, orders)
def test_weights_are_finite_positive_and_sum_to_one(points, burn, order):
    """Or there are none, when nobody who is registered has a score."""
    weights = to_weights(ledger(points), view_of(order), burning(burn))
    if any(score for hotkey, score in points.items() if hotkey != "gone"):
        assert math.fsum(weights.values()) == pytest.approx(1.0, abs=1e-12)
        assert all(math.isfinite(weight) and weight > 0 for weight in weights.values())
    else:
        assert weights == {}


@given(scores, burns, orders)
def test_renumbering_uids_changes_nothing(points, burn, order):
    """The same hotkeys under other uids have the same weights."""
    first, second = view_of(HOTKEYS), view_of(order)
    named = [
        {view.neurons[uid].hotkey: weight for uid, weight in to_weights(ledger(points), view, burning(burn)).items()}
        for view in (first, second)
    ]
    assert named[0] == named[1]


@given(scores, burns, st.integers(0, 10**24), st.integers(0, 10**24))
def test_splitting_a_score_over_two_hotkeys_gains_nothing(points, burn, left, right):
    """Two identities that share a score have together the weight of one that has it all."""
    rest = {hotkey: score for hotkey, score in points.items() if hotkey not in ("a", "b")}
    view = view_of(HOTKEYS)
    split = to_weights(ledger({**rest, "a": left, "b": right}), view, burning(burn))
    whole = to_weights(ledger({**rest, "a": left + right, "b": 0}), view, burning(burn))
    assert split.get(1, 0.0) + split.get(2, 0.0) == pytest.approx(whole.get(1, 0.0), rel=1e-12)


@given(scores, burns)
def test_weights_are_in_proportion_to_scores(points, burn):
    """To the last representable digit, up to integers that no float holds."""
    rest = {hotkey: score for hotkey, score in points.items() if hotkey not in ("owner", "gone") and score}
    weights = to_weights(ledger(rest), view_of(HOTKEYS), burning(burn))
    for uid, hotkey in enumerate(HOTKEYS):
        if hotkey in rest:
            assert weights[uid] == pytest.approx((1 - burn) * (rest[hotkey] / sum(rest.values())), rel=1e-12)


def test_the_burn_share_goes_to_the_owners_uid():
    view = view_of(("a", "owner", "b"))
    assert to_weights(ledger({"a": 3, "b": 1}), view, burning(0.2)) == pytest.approx({0: 0.6, 1: 0.2, 2: 0.2})


def test_without_an_owner_nothing_is_burned():
    view = view_of(("a", "b"))
    assert to_weights(ledger({"a": 3, "b": 1}), view, burning(0.2)) == {0: 0.75, 1: 0.25}


def test_an_unregistered_hotkey_has_no_weight_and_takes_none_from_others():
    assert to_weights(ledger({"a": 1, "gone": 99}), view_of(("a", "b")), burning(0.0)) == {0: 1.0}


def test_a_replaced_uid_inherits_nothing():
    """The newcomer under uid 1 has no weight from the work of the hotkey that sat there."""
    books = ledger({"a": 1, "b": 1})
    assert to_weights(books, view_of(("a", "b")), burning(0.0)) == {0: 0.5, 1: 0.5}
    assert to_weights(books, view_of(("a", "newcomer")), burning(0.0)) == {0: 1.0}


def test_without_any_score_nothing_is_submitted():
    assert to_weights(ledger({"a": 0}), view_of(("owner", "a")), burning(0.5)) == {}
    assert to_weights({}, view_of(("owner", "a")), burning(0.5)) == {}
