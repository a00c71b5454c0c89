"""The benchmark of merging: its figures can fail, are judged only at full length, and count bytes as they are."""

from dataclasses import replace

import pytest

from scripts.bench.merge_training import (
    COMPARED,
    CROWD,
    NAMED,
    OTHERS,
    SEEDS,
    TUNED,
    Travelling,
    against_liars,
    against_synchronous,
    bytes_figure,
    measured,
    named,
    settings,
)
from subnet.sim.merging import LIES
from tests.sim.test_stacked import SHAPE, corpus

PLAIN = Travelling()


def losses(**changes: float) -> dict[str, float]:
    """Of every training 2.0, but for those named, with _ for spaces."""
    every = dict.fromkeys(settings(TUNED, CROWD, SEEDS, PLAIN), 2.0)
    return every | {name.replace("__", " "): loss for name, loss in changes.items()}


def test_diloco_is_judged_by_its_worst_seed():
    for worst, holds in ((2.09, True), (2.11, False)):
        (judged, *others) = against_synchronous(TUNED, losses(diloco__1=worst), PLAIN, seeds=SEEDS, judged=True)
        assert judged.holds is holds and judged.value == pytest.approx(100 * (worst / 2 - 1))
        assert [figure.holds for figure in others] == [None] * len(OTHERS)


def test_a_lie_that_costs_too_much_fails_its_figure_alone():
    figures = against_liars(CROWD, losses(noise__trimmed_mean=2.2), judged=True)
    assert [figure.name for figure in figures if figure.holds is False] == ["noise_loss_above_clean_trimmed_mean"]
    assert sum(figure.holds is True for figure in figures) == len(LIES) - 1
    assert len({figure.name for figure in figures}) == len(LIES) + len(COMPARED)


def test_a_quick_run_is_not_judged():
    figures = against_synchronous(TUNED, losses(), PLAIN, seeds=SEEDS, judged=False)
    figures += against_liars(CROWD, losses(), judged=False)
    assert {figure.holds for figure in figures} == {None}


def test_what_is_compared_differs_in_nothing_else():
    made = settings(TUNED, CROWD, SEEDS, PLAIN)
    one, four = made["synchronous 1"], made["diloco 1"]
    assert one.replicas * one.batch * one.total_steps == four.replicas * four.batch * four.total_steps
    assert replace(one, replicas=4, batch=four.batch, outer="diloco") == four
    lied_to = made[named(NAMED, "noise")]
    assert replace(lied_to, rule=CROWD.rule, lie="", liars=0) == made["clean"] == CROWD


def test_trainings_in_several_processes_come_to_what_each_comes_to_alone():
    short = {"rounds": 1, "steps": 3, "batch": 2, "shape": SHAPE, "heldout": 5}
    wanted = {f"{seed}": replace(TUNED, **short, seed=seed) for seed in range(2)}
    together = measured(wanted, corpus())
    assert together == {name: measured({name: setting}, corpus())[name] for name, setting in wanted.items()}
    assert together["0"] != together["1"]


def test_bytes_are_those_of_one_up_and_all_down_against_a_ring_in_every_step():
    """Of four replicas a ring moves 96 bits per parameter and step for each; a quarter of a bit moves 1.25 a round."""
    sparse, plain = (
        bytes_figure(Travelling(name="sparse", bits=0.25), replicas=4),
        bytes_figure(Travelling(), replicas=4),
    )
    assert (sparse.value, sparse.holds) == (pytest.approx(100 * 96 / 1.25), True)
    assert (plain.value, plain.holds) == (60.0, None)
    assert bytes_figure(Travelling(name="sparse", bits=16.0), replicas=4).holds is False
