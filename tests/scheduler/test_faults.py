"""Laws of the orchestrator's faults: an honest log has none; an entry that the functions do not give is one."""

import pytest
from msgspec.structs import replace

from subnet.canonical import digest_of
from subnet.ledger.events import Body, ClosedSet, Event, Manifest, Said, StepEnd, make_event
from subnet.ledger.fold import apply, begin, fold
from subnet.scheduler.faults import orchestrator_faults
from subnet.wire.messages import Message, Plan, make_signed
from tests.ledger.chaos import SEEDS, shaken
from tests.ledger.log import SimulatedLog, hotkey, signer
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config


def faults_of(events: list[Event]) -> list[str]:
    state, found = begin(events[0]), []
    for event in events[1:]:
        found += orchestrator_faults(state, event)
        apply(state, event)
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_honest_log_has_no_fault(seed: int) -> None:
    """Whatever miners do."""
    assert faults_of(shaken(seed).events) == []


def test_a_plan_that_the_wiring_does_not_give_is_a_fault() -> None:
    """Neighbours swapped, or data chosen: the signed plan is the proof."""

    class Crooked(Simulation):
        def append(self, entries: "list[Body | Message]") -> None:
            SimulatedLog.append(self, [self.bent(entry) for entry in entries])

        def bent(self, entry: Body | Message) -> Body | Message:
            if isinstance(entry, Plan) and entry.lane == 0:
                return replace(entry, microbatches=entry.microbatches[::-1])
            return entry

    sim = Crooked(run=run_config())
    sim.start("ann", "ben")
    sim.do_step()
    assert any("found another plan for lane 0" in fault for fault in faults_of(sim.events))


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        (StepEnd, {"done": (), "partial": (0,)}, "splits its microbatches otherwise"),
        (StepEnd, {"missing": (hotkey("ann"),)}, "names others than those without a receipt"),
        (ClosedSet, {"contributions": "heavier"}, "is not what its closes give"),
        (Manifest, {"stages": "other"}, "other than the published one"),
    ],
)
def test_an_entry_that_does_not_follow_from_the_log_is_a_fault(kind: type, changes: dict, sentence: str) -> None:
    sim = Simulation(run=run_config(rounds=1))
    sim.start("ann", "ben", "cem", "dov")
    sim.do_round()
    number = next(n for n, event in reversed(list(enumerate(sim.events))) if isinstance(event.body, kind))
    state = begin(sim.events[0])
    for event in sim.events[1:number]:
        apply(state, event)
    honest = sim.events[number]
    assert orchestrator_faults(state, honest) == []
    body = honest.body
    if changes.get("contributions") == "heavier":
        first, *others = body.contributions
        changes = {"contributions": (replace(first, tokens=first.tokens + 1), *others)}
    if changes.get("stages") == "other":
        changes = {"stages": (replace(body.stages[0], root="e" * 64), *body.stages[1:])}
    bent = make_event(replace(body, **changes), n=honest.n, previous=honest.previous, time_ms=honest.time_ms)
    (fault,) = orchestrator_faults(state, bent)
    assert sentence in fault and digest_of(bent) != digest_of(honest)


def test_a_message_under_anothers_name_is_a_fault() -> None:
    """The orchestrator, or whoever it favours, cannot say in its own name what a miner did."""
    sim = Simulation(run=run_config())
    sim.start("ann", "ben")
    state = fold(sim.events)
    receipt = sim.step_receipt("ann")
    for author, faults in (("ann", 0), ("ben", 1), ("owner", 1)):
        said = Said(signed=make_signed(receipt, signer(author)))
        event = make_event(said, n=state.count, previous=state.root, time_ms=sim.now_ms)
        found = orchestrator_faults(state, event)
        assert len(found) == faults and all(f"a receipt of {hotkey('ann')} is signed by" in each for each in found)
