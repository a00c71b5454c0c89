"""Laws of the assignment: newcomers go where they are missing, nobody picks its stage, no stage stays empty."""

from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.ledger.events import Assign
from subnet.scheduler.assign import assign, moves, ready, usable
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
    assert assign(sim.state, alive=alive(sim)) == [], "in the middle of a round nobody loses what it did"
    assert moves(sim.state, alive=alive(sim), start=1) == [Assign(hotkey=hotkey(fast), stage=0, round=1)]


def test_the_only_replica_of_a_stage_is_never_moved_away() -> None:
    sim = Simulation()
    sim.start("ann", "ben")
    sim.alive.discard("ann")
    assert assign(sim.state, alive=alive(sim)) == []
    assert moves(sim.state, alive=alive(sim), start=1) == []


def seated(counts: tuple[int, ...]) -> Simulation:
    """A run in progress with so many replicas on each stage."""
    sim = Simulation(run=run_config(stages=len(counts)))
    names = [f"miner-{number}" for number in range(sum(counts))]
    sim.start(*names)
    stages = [stage for stage, count in enumerate(counts) for _ in range(count)]
    for number, (name, stage) in enumerate(zip(names, stages, strict=True)):
        member = sim.state.members[hotkey(name)]
        member.stage, member.step_ms = stage, 100.0 + number
    return sim


def replicas(sim: Simulation) -> list[int]:
    stages = [sim.state.members[hotkey(name)].stage for name in sim.members()]
    return [stages.count(stage) for stage in range(sim.run.stages)]


@given(counts=st.lists(st.integers(0, 5), min_size=2, max_size=4).filter(lambda counts: sum(counts) >= len(counts)))
@settings(max_examples=25)
def test_moves_even_out_what_is_thin_and_then_rest(counts: list[int]) -> None:
    """No stage is at zero while another has two (one gets one a round); once no gap is two, nothing moves any more."""
    sim = seated(tuple(counts))
    for _ in range(sum(counts)):
        before = replicas(sim)
        orders = moves(sim.state, alive=alive(sim), start=1)
        assert len({order.stage for order in orders}) == len(orders), "one a stage and round"
        sim.append(orders)
        after = replicas(sim)
        assert min(after) >= min(before) and max(after) <= max(before)
        if not orders:
            break
    assert max(replicas(sim)) - min(replicas(sim)) < 2


def test_a_stage_thinned_by_a_quarantine_is_filled_at_the_next_round() -> None:
    """Three and three; two of one stage are refuted: one comes over, once; when they are back, one evens it out."""
    sim = seated((3, 3))
    for name in ("miner-0", "miner-1"):
        sim.state.members[hotkey(name)].barred_until_round = 2
    (order,) = moves(sim.state, alive=alive(sim), start=1)
    assert order == Assign(hotkey=hotkey("miner-3"), stage=0, round=1)
    sim.append([order])
    assert moves(sim.state, alive=alive(sim), start=1) == []
    assert replicas(sim) == [4, 2]
    assert [o.stage for o in moves(sim.state, alive=alive(sim), start=2)] == [1]


def test_who_is_back_from_quarantine_by_then_is_counted() -> None:
    sim = seated((2, 3))
    sim.state.members[hotkey("miner-0")].barred_until_round = 1
    assert moves(sim.state, alive=alive(sim), start=1) == []


def test_an_accused_replica_is_moved_last() -> None:
    sim = Simulation(run=run_config(segment_steps=1))
    sim.start(*NAMES)
    sim.do_step()
    by_stage = [[n for n in NAMES if sim.state.members[hotkey(n)].stage == stage] for stage in (0, 1)]
    accused = by_stage[1][0]
    sim.state.members[hotkey(accused)].step_ms = 1.0
    sim.alive -= set(by_stage[0][1:])
    (before,) = moves(sim.state, alive=alive(sim), start=1)
    sim.judge(accused, validators=sim.validators[:1])
    (after,) = moves(sim.state, alive=alive(sim), start=1)
    assert before.hotkey == hotkey(accused) != after.hotkey


def test_a_replica_on_a_tainted_state_is_not_planned_for_until_it_starts_afresh() -> None:
    sim = seated((1, 1))
    member = sim.state.members[hotkey("miner-0")]
    assert usable(sim.state, member, alive=alive(sim))
    member.tainted = True
    assert not usable(sim.state, member, alive=alive(sim))
    assert ready(member, alive=alive(sim), start=1)
