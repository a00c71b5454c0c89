"""Laws of fragments and pairs: everything once, evenly in time, by lot; and what mixing is."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.merge.outer_apart import due, fragments, gather, mixed, pairs
from subnet.stage.layout import StateLayout
from tests.ledger.small import run_config


def named(blocks: int) -> dict[str, slice]:
    """The tensors of a whole model of so many blocks: two numbers before, three in each block, one behind."""
    names = ["model.embed_tokens.weight"] * 2
    names += [f"model.layers.{block}.part.weight" for block in range(blocks) for _ in range(3)]
    names += ["model.norm.weight"]
    return {f"{name}{place}": slice(place, place + 1) for place, name in enumerate(names)}


def test_blocks_go_to_the_fragments_in_turn():
    parts = fragments(named(5), 2)
    first, second = ([place for span in part for place in range(span.start, span.stop)] for part in parts)
    assert first == [0, 1, 2, 3, 4, 8, 9, 10, 14, 15, 16]
    assert second == [5, 6, 7, 11, 12, 13, 17]


@given(blocks=st.integers(1, 9), count=st.integers(1, 9))
def test_every_parameter_is_in_one_fragment(blocks: int, count: int):
    slices = named(blocks)
    covered = Counter(place for part in fragments(slices, count) for span in part for place in range(span.stop)[span])
    assert covered == Counter(range(len(slices)))


def test_the_fragments_of_a_stage_of_the_model_are_all_of_it():
    layout = StateLayout(run_config(), 0)
    values = np.arange(layout.num_parameters, dtype=np.float32)
    parts = [gather(values, spans) for spans in fragments(layout.slices, 2)]
    assert sorted(np.concatenate(parts).tolist()) == values.tolist()


@given(count=st.integers(1, 8), more=st.integers(0, 30))
def test_each_fragment_is_due_once_in_so_many_steps(count: int, more: int):
    every = count + more
    steps = range(every, 4 * every)
    times = [(step, place) for step in steps if (place := due(step, every=every, count=count)) is not None]
    assert Counter(place for _, place in times) == dict.fromkeys(range(count), 3)
    gaps = [later - earlier for (earlier, _), (later, _) in zip(times, times[1:], strict=False)]
    assert max(gaps, default=every) - min(gaps, default=every) <= 1


def test_nothing_is_due_before_the_first_step():
    assert due(0, every=10, count=2) is None
    assert [due(step, every=10, count=2) for step in (4, 5, 6, 10, 15)] == [None, 1, None, 0, 1]


def test_mixing_is_between_the_two():
    local, merged = np.array([1.0, -2.0], dtype=np.float32), np.array([3.0, 2.0], dtype=np.float32)
    assert mixed(local, merged, kept_frac=0.5).tolist() == [2.0, 0.0]
    assert mixed(local, merged, kept_frac=1.0).tolist() == local.tolist()
    assert mixed(local, merged, kept_frac=0.0).tolist() == merged.tolist()


NAMES = st.lists(st.text(max_size=5), unique=True, max_size=9)


@given(names=NAMES, seed=st.text(max_size=5), draw=st.data())
def test_everybody_is_in_one_pair_and_the_order_of_names_moves_none(names: list[str], seed: str, draw: st.DataObject):
    found = pairs(names, seed)
    assert Counter(name for pair in found for name in pair) == Counter(names)
    assert [len(pair) for pair in found[:-1]] == [2] * (len(found) - 1)
    assert pairs(draw.draw(st.permutations(names)), seed) == found


def test_over_many_rounds_everybody_meets_everybody_about_as_often():
    """Each of the 15 pairs of six names is in one of 5 pairings; 300 of 1,500 rounds +-80: five standard deviations."""
    names = [f"replica {place}" for place in range(6)]
    met = Counter(frozenset(pair) for number in range(1500) for pair in pairs(names, f"round {number}"))
    assert len(met) == 15
    assert all(times == pytest.approx(300, abs=80) for times in met.values())
