"""What cheating earns: the fast simulation, the exact one and the best response agree, and all say that it loses."""

import numpy as np
import pytest

from subnet.sim.economics import Economy, Strategy, best_response, hazards, simulate, stakes_of
from subnet.sim.histories import History, lost_to_liars
from subnet.sim.payments import Payments
from subnet.sim.strategies import HONEST, catalogue
from tests.sim.small import short_run

SETTING = Economy(run=short_run(), shares=(0.5, 0.5), others=15, rounds=12, latency_segments=2, burn=0.8)
IDLE = Strategy(name="idle", about="", cheated=0.3)


def outcome(setting: Economy, strategy: Strategy, histories: int = 2000):
    payments = Payments(setting.run, others=setting.others, hotkeys=strategy.hotkeys)
    return simulate(setting, strategy, payments, rng=np.random.default_rng(7), histories=histories)


def test_a_steady_replica_earns_one_per_segment_and_all_of_it_is_paid_in_the_end():
    payments = Payments(SETTING.run, others=1_000_000)
    curve = payments.curve(40)
    assert curve[-1] == pytest.approx(40, rel=1e-4)
    assert curve[8] - curve[7] == pytest.approx(4, rel=1e-4)
    assert payments.total(40) == pytest.approx(40, rel=1e-4)
    assert payments.paid(40, np.array([0, 1, 99])).tolist() == [0.0, curve[0], curve[-1]]


def test_honest_work_gains_and_loses_nothing():
    found = outcome(SETTING, HONEST, 10)
    assert (found.gain, found.error, found.caught) == pytest.approx((0, 0, 0), abs=1e-9)
    played = History(SETTING, HONEST, seed="honest")
    assert played.play() == pytest.approx(found.profit, abs=1e-9)
    assert played.fails == 0


@pytest.mark.parametrize(
    "strategy",
    [IDLE, Strategy(name="run", about="", leaves_after=2), Strategy(name="weak", about="", detection=0.5, fresh=False)],
    ids=lambda each: each.name,
)
def test_the_fast_simulation_agrees_with_the_exact_one(strategy):
    """15 histories by the product's own draw, verdicts, books and weights: within 4.9 standard errors, which two right
    simulations exceed for one seed in a million."""
    profits = np.array([History(SETTING, strategy, seed=f"{number}").play() for number in range(15)])
    fast = outcome(SETTING, strategy)
    deviation = fast.error * np.sqrt(2000)  # of one history
    assert abs(profits.mean() - fast.profit) < 4.9 * deviation / np.sqrt(15)


def test_what_is_at_stake_grows_to_the_window_and_no_further():
    assert stakes_of(SETTING, 1, 24).tolist() == [*range(16), 12, 13, 14, 15, 12, 13, 14, 15]
    assert stakes_of(SETTING, 4, 6).tolist() == [0, 1, 2, 3, 3, 3]


def test_the_first_segments_of_a_hotkey_are_drawn_with_the_designs_rate():
    fails, _ = hazards(SETTING, Strategy(name="all", about=""))
    assert fails[:4] == pytest.approx([0.75, 0.75, 0.75, 1 - (2 / 3) ** 2])


def test_cheating_less_costs_less_and_still_loses():
    found = [outcome(SETTING, Strategy(name="", about="", cheated=part)) for part in (0.3, 0.1, 0.02)]
    assert all(each.upper < 0 for each in found)
    assert found[0].gain < found[1].gain < found[2].gain


def test_without_audits_cheating_would_pay():
    """The guard of the guard: were nobody to look, the simulation would say so."""
    blind = Economy(run=SETTING.run, shares=(), others=15, rounds=12)
    assert outcome(blind, IDLE, 10).gain == pytest.approx(0.3 * 48, rel=1e-6)
    assert best_response(blind) > 40


def test_no_plan_of_cheating_gains_where_honest_work_keeps_something():
    for hotkeys in (1, 2):
        setting = Economy(run=short_run(window=64), shares=(0.5, 0.5), cost=0.8, rounds=48, latency_segments=2)
        assert best_response(setting, hotkeys=hotkeys) == pytest.approx(0.0, abs=1e-9)


def test_every_named_strategy_is_tried_once_and_says_what_it_does():
    names = [strategy.name for strategy in catalogue()]
    assert len(names) == len(set(names)) > 20
    assert all(strategy.about for strategy in catalogue())


def test_a_liar_takes_no_more_than_its_part_of_the_stake():
    stakes = {f"validator {number}": 10 for number in range(5)}
    assert lost_to_liars(SETTING.run, stakes, liars=0, miners=8) == 0
    assert lost_to_liars(SETTING.run, stakes, liars=1, miners=8) == pytest.approx(0.2, abs=0.001)
