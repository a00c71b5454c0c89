"""A contribution counts once: for who committed it first in a round, and in no later round again."""

import pytest

from subnet.incentive.score import books
from subnet.ledger.closed import UNCLOSED
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config


@pytest.mark.parametrize("copied", ["another's of this round", "another's of the round before", "its own again"])
def test_a_contribution_that_was_there_before_is_not_merged_and_its_round_not_paid(copied: str) -> None:
    sim = Simulation(run=run_config())
    sim.start("ann", "ben", "cem", "dov")
    sim.do_round()
    stage = sim.state.members[hotkey("ann")].stage or 0
    peer = next(n for n in ("ben", "cem", "dov") if sim.state.members[hotkey(n)].stage == stage)
    while sim.state.phase == "train":
        sim.do_step()
    sim.do_close(silent=("ann",))
    number = sim.state.round - 1 if copied != "another's of this round" else sim.state.round
    author = "ann" if copied == "its own again" else peer
    taken = sim.state.closes[number][hotkey(author)].contribution
    sim.say("ann", sim.close_receipt("ann", contribution=taken))
    sim.decide()
    assert [entry.hotkey for entry in sim.state.closed[1, stage].contributions] == [hotkey(peer)]
    assert {s.forfeit for s in sim.segments("ann") if s.round == 1} == {UNCLOSED}
    paid = books(sim.state, now_ms=sim.now_ms + 10**7, own=None)[hotkey("ann")].payable
    assert paid == sum(s.work for s in sim.segments("ann") if s.round == 0) > 0
