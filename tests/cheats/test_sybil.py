"""One machine under several hotkeys earns what one does: its work is honest, counts once, and newcomers are audited."""

import pytest

from subnet.audit.draw import rate
from subnet.cheats.registry import make_cheat
from subnet.incentive.score import books
from subnet.sim.segment import cheat_segment, judged
from tests.audit.lane import lane_run
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

LATER_MS = 10_000_000


def payable(names: tuple[str, ...]) -> dict[str, int]:
    """What each of these miners is paid for in the end, after an honest round."""
    sim = Simulation(run=run_config())
    sim.start(*names)
    sim.do_round()
    accounts = books(sim.state, now_ms=sim.now_ms + LATER_MS, own=None)
    return {name: accounts[hotkey(name)].payable for name in names}


@pytest.mark.parametrize("sybils", [2, 4])
def test_many_hotkeys_are_paid_for_what_they_compute_and_nothing_for_being_many(sybils: int) -> None:
    """Each is paid per microbatch that it worked on: twice the hotkeys, with half the work each, is the same pay."""
    few, many = payable(("ann", "ben")), payable(tuple(f"sybil-{number}" for number in range(2 * sybils)))
    steps = run_config().train.steps_per_round
    assert sum(few.values()) % steps == 0 and len(set(few.values())) <= 2
    each = sum(few.values())  # of a lane
    assert sum(many.values()) == sybils * each, "a lane is paid for its own microbatches, whoever is behind it"


def test_a_fresh_hotkey_is_audited_whatever_it_does() -> None:
    """Who has nothing to lose yet is drawn with certainty by all validators together: to hit and run does not pay."""
    sim = Simulation(run=run_config())
    sim.start("ann", "ben", "cem", "dov")
    while sim.state.phase == "train" and not sim.segments("ann"):
        sim.do_step()
    assert rate(sim.state, sim.segments("ann")[0], count=sim.state.count) == 1.0


@pytest.mark.flow
def test_a_slow_share_of_a_machine_is_honest_work() -> None:
    assert judged(lane_run(2), *cheat_segment(lane_run(2), 1, make_cheat("sybil"), seed=1)).verdict == "pass"
