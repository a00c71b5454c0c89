"""Laws of the data: a pure function of run and index; each training sequence once a pass; held out stays held out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.data.pack import (
    Corpus,
    heldout_microbatch,
    heldout_sequences,
    microbatch,
    permute,
    split,
    training_sequences,
)
from subnet.errors import CorpusError
from tests.data.small import small_corpus, small_run


@given(size=st.integers(1, 200), key=st.binary(min_size=32, max_size=32))
def test_a_permutation_reaches_every_position_once(size: int, key: bytes):
    assert sorted(permute(position, size, key) for position in range(size)) == list(range(size))


def test_a_permutation_depends_on_its_key():
    orders = {tuple(permute(position, 50, bytes([key]) * 32) for position in range(50)) for key in range(20)}
    assert len(orders) == 20


def test_a_permutation_of_a_billion_positions_needs_no_table():
    places = {permute(position, 10**9, b"k" * 32) for position in range(1000)}
    assert len(places) == 1000
    assert max(places) < 10**9


def test_labels_are_the_tokens_that_follow():
    run, corpus = small_run(), small_corpus()
    tokens, labels = microbatch(run, corpus, 3)
    assert tokens.shape == labels.shape == (2, 8)
    assert tokens.dtype == labels.dtype == np.int64
    for row, sequence in enumerate(training_sequences(run, corpus, 3)):
        expected = corpus.tokens[sequence * 8 : sequence * 8 + 9]
        assert (tokens[row] == expected[:-1]).all()
        assert (labels[row] == expected[1:]).all()


def test_a_microbatch_is_the_same_whenever_it_is_asked_for():
    run, corpus = small_run(), small_corpus()
    forwards = [microbatch(run, corpus, index)[0] for index in range(60)]
    backwards = [microbatch(run, corpus, index)[0] for index in reversed(range(60))]
    assert all((one == other).all() for one, other in zip(forwards, reversed(backwards), strict=True))


def test_the_order_is_pinned():
    """Two versions of this code must give one run the same data: change this only together with the domain's number."""
    assert [training_sequences(small_run(), small_corpus(), index) for index in range(4)] == [
        [121, 55],
        [61, 92],
        [23, 12],
        [38, 108],
    ]
    assert heldout_sequences(small_run(), small_corpus(), 0) == [114, 119]


@given(heldout_every=st.integers(2, 9), num_tokens=st.integers(120, 500), passes=st.integers(1, 3))
def test_every_pass_takes_every_training_sequence_once_and_never_a_held_out_one(
    heldout_every: int, num_tokens: int, passes: int
):
    run, corpus = small_run(heldout_every=heldout_every, sequences=1), small_corpus(num_tokens)
    num_sequences = (num_tokens - 1) // 8
    training = [number for number in range(num_sequences) if number % heldout_every != heldout_every - 1]
    for number in range(passes):
        indices = range(number * len(training), (number + 1) * len(training))
        assert sorted(training_sequences(run, corpus, index)[0] for index in indices) == training


@given(heldout_every=st.integers(2, 9), num_tokens=st.integers(120, 500))
def test_held_out_microbatches_hold_each_held_out_sequence_once_and_nothing_else(heldout_every: int, num_tokens: int):
    run, corpus = small_run(heldout_every=heldout_every, sequences=1), small_corpus(num_tokens)
    heldout = [number for number in range((num_tokens - 1) // 8) if number % heldout_every == heldout_every - 1]
    found = [heldout_sequences(run, corpus, index)[0] for index in range(split(run.data, corpus).num_heldout)]
    assert sorted(found) == heldout
    with pytest.raises(CorpusError, match="expected a held-out microbatch below"):
        heldout_microbatch(run, corpus, len(found))


def test_each_pass_and_each_seed_has_an_order_of_its_own():
    corpus = small_corpus()
    num_training = split(small_run().data, corpus).num_training
    run = small_run(sequences=num_training)
    orders = [training_sequences(run, corpus, 0), training_sequences(run, corpus, 1)]
    orders.append(training_sequences(small_run(seed=1, sequences=num_training), corpus, 0))
    assert len({tuple(order) for order in orders}) == 3


def test_microbatches_that_lie_across_two_passes_leave_no_gap():
    """12 training sequences in microbatches of 5: after 12 microbatches each was taken exactly 5 times."""
    run, corpus = small_run(sequences=5), small_corpus(8 * 15 + 1)
    taken = [number for index in range(12) for number in training_sequences(run, corpus, index)]
    assert sorted(taken) == sorted(5 * [number for number in range(15) if number % 5 != 4])


def test_another_corpus_is_refused_with_the_remedy():
    other = small_corpus(digest="ab" * 32)
    with pytest.raises(CorpusError, match="expected the corpus c0c0.*found abab.*copy the run's text files to books"):
        microbatch(small_run(), other, 0)
    with pytest.raises(CorpusError, match="found abab"):
        heldout_microbatch(small_run(), other, 0)


def test_a_corpus_without_a_held_out_sequence_is_refused():
    short = Corpus(tokens=np.zeros(40, dtype=np.uint8), digest="c0" * 32, vocabulary=256)
    with pytest.raises(CorpusError, match="expected at least 41 tokens .* found 40; give more text"):
        microbatch(small_run(), short, 0)
