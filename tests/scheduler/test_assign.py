"""Laws of the assignment: newcomers go where they are missing, nobody picks its stage, no stage stays empty."""

from subnet.ledger.events import Assign
from subnet.scheduler.assign import assign
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

NAMES = ("ann", "ben", "cem", "dov", "eva", "fay")


def joined(*names: str, stages: int = 2) -> Simulation:
    """A run that these have joined and in which nobody has a stage."""
    sim = Simulation(run=run_config(stages=stages))
    for name in names:
        sim.seat(name)
        sim.join(name)
    return sim


def alive(sim: Simulation) -> frozenset[str]:
    return frozenset(map(hotkey, sim.alive))


def test_newcomers_fill_the_stages_evenly() -> None:
    for stages in (1, 2, 3):
        sim = joined(*NAMES, stages=stages)
        orders = assign(sim.state, alive=alive(sim))
        counts = [sum(order.stage == stage for order in orders) for stage in range(stages)]
        assert counts == [6 // stages] * stages
        assert {order.round for order in orders} == {0}


def test_the_assignment_does_not_depend_on_who_came_first() -> None:
    """The order is a hash of run and hotkey, so that nobody can wait for the stage it wants."""
    given = [assign(sim.state, alive=alive(sim)) for sim in (joined(*NAMES), joined(*reversed(NAMES)))]
    assert given[0] == given[1]


def test_the_same_state_gives_the_same_assignment() -> None:
    sim = joined(*NAMES)
    assert assign(sim.state, alive=alive(sim)) == assign(sim.state, alive=alive(sim))


def test_who_does_not_answer_gets_no_stage() -> None:
    sim = joined("ann", "ben", "cem")
    sim.alive.discard("ben")
    assert hotkey("ben") not in {order.hotkey for order in assign(sim.state, alive=alive(sim))}


def test_a_miner_in_quarantine_gets_no_stage_and_fills_none() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    sim.judge("ann")
    stage = sim.state.members[hotkey("ann")].stage
    sim.seat("eva")
    sim.join("eva")
    (order,) = assign(sim.state, alive=alive(sim))
    assert order == Assign(hotkey=hotkey("eva"), stage=stage or 0, round=1)


def test_a_stage_without_replicas_takes_the_fastest_of_the_richest() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    by_stage: dict[int | None, list[str]] = {0: [], 1: []}
    for name in ("ann", "ben", "cem", "dov"):
        by_stage[sim.state.members[hotkey(name)].stage].append(name)
    slow, fast = by_stage[1]
    sim.state.members[hotkey(slow)].step_ms, sim.state.members[hotkey(fast)].step_ms = 900.0, 100.0
    sim.alive -= set(by_stage[0])
    assert assign(sim.state, alive=alive(sim)) == [Assign(hotkey=hotkey(fast), stage=0, round=1)]


def test_the_only_replica_of_a_stage_is_never_moved_away() -> None:
    sim = Simulation()
    sim.start("ann", "ben")
    sim.alive.discard("ann")
    assert assign(sim.state, alive=alive(sim)) == []
