"""The audit's figures by simulation, at reduced counts."""

import numpy as np
import pytest

from subnet.sim.figures import (
    EQUAL_TEN,
    Network,
    audit_share,
    distance,
    first_fail_quantile,
    first_fails,
    long_honest_rate,
    sybil_gain,
    weights_distances,
)
from tests.sim.small import short_run

MINERS = tuple(f"miner-{number}" for number in range(6))
THREE = {"validator-a": 2, "validator-b": 1, "validator-c": 1}


def test_theory_says_458_segments():
    assert first_fail_quantile(0.99, rate=0.05, cheated=0.2) == pytest.approx(458.2, abs=0.1)


def test_the_first_fail_comes_as_soon_as_theory_says():
    """Mean of 120 histories at one in 25 by one validator: 25 with standard error 2.2; 4.9 errors, one in a million."""
    found = first_fails(0.2, cheated=0.2, caught=[True], stakes={"one": 1}, histories=120)
    assert abs(found.mean() - 25) < 4.9 * 2.24
    half = first_fails(0.2, cheated=0.2, caught=[True, False], stakes={"one": 1}, histories=120)
    assert abs(half.mean() - 50) < 4.9 * 4.53


def test_ten_validators_that_draw_alike_find_it_a_little_later_than_one():
    """Two that draw the same segment find it once."""
    found = first_fails(0.5, cheated=1.0, caught=[True], stakes=EQUAL_TEN, histories=200)
    assert abs(found.mean() - 1 / (1 - 0.95**10)) < 4.9 * 2.0 / np.sqrt(200)


def test_audits_cost_p_of_the_long_honest_and_more_of_newcomers():
    run = short_run(0.2, window=512)
    assert long_honest_rate(run) == 0.2
    assert audit_share(run, segments=3) == 1.0
    assert audit_share(run, segments=5, audit_cost=2.0) == pytest.approx(2 * (3 + 2 / 3 + 1 / 2) / 5)
    assert 0.2 < audit_share(run, segments=2000) < 0.21


def test_the_network_draws_as_much_as_is_expected():
    """24 segments of six fresh miners: 4.9 deviations of a sum of draws."""
    network = Network(run=short_run(), miners=MINERS, stakes=THREE)
    for _ in range(24):
        network.step()
    expected = 6 * 24 * audit_share(network.run, segments=24)
    assert abs(network.draws - expected) < 4.9 * expected**0.5


@pytest.mark.parametrize("bad", ["", "miner-0"])
def test_two_honest_validators_have_the_same_weights(bad):
    """At every tick from the first on, with a cheater among the miners too."""
    network = Network(run=short_run(), miners=MINERS, stakes=THREE, bad=bad, segment_s=2.5)
    found = weights_distances(network, ticks=16)
    assert len(found) > 8 and max(found) == 0
    assert bool(network.state.voided) == bool(bad)


def test_the_distance_is_an_l1():
    assert distance({0: 0.5, 1: 0.5}, {1: 0.25, 2: 0.75}) == 1.5


@pytest.mark.parametrize("hotkeys", [2, 3, 7, 10])
def test_splitting_a_machine_gains_nothing(hotkeys):
    for rounds in (1, 3, 9):
        assert abs(sybil_gain(short_run(), hotkeys, rounds=rounds)) <= 0.01
