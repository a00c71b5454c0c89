"""Laws of the watch over a log: honest logs have no fault; whatever the honest door would have refused is one."""

from dataclasses import replace as made_with

import pytest
from msgspec.structs import replace

from subnet.errors import LedgerError
from subnet.ledger.events import Event, Revealed, Said, make_event
from subnet.ledger.state import RunState, state_digest
from subnet.scheduler.watch import Watch, fold_watched
from subnet.wire.messages import Message, Plan, Receipt, Signed, make_signed, read_signed
from template.fake.keys import FakeVerifier
from tests.ledger.chaos import SEEDS, shaken
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config
from tests.ledger.test_canary import revealed
from tests.nodes.test_orchestrator_routes import in_phase


def watched(events: list[Event]) -> tuple[RunState, list[str]]:
    """The state of a log, and what its reader finds wrong with it."""
    return fold_watched(events, FakeVerifier(hotkey("validator-0")))


def slipped_in(sim: Simulation, *messages: Signed) -> list[Event]:
    """The log with messages that never came through the door."""
    events = list(sim.events)
    for signed in messages:
        last = events[-1]
        events.append(make_event(Said(signed=signed), n=last.n + 1, previous=last.digest, time_ms=last.time_ms))
    return events


def logged(sim: Simulation, kind: str, name: str) -> Signed:
    """The last message of this kind that somebody said."""
    said = [event.body.signed for event in sim.events if isinstance(event.body, Said)]
    return [each for each in said if (each.kind, each.hotkey) == (kind, hotkey(name))][-1]


def meaning(state: RunState) -> RunState:
    """The state less what every event moves: its place in the log."""
    return made_with(state, count=0, root="", time_ms=0, said={})


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_honest_log_has_no_fault(seed: int) -> None:
    """Whatever miners do, however late, and whatever the orchestrator's clock and chain said meanwhile."""
    state, found = watched(shaken(seed).events)
    assert found == [] and state.count > 100


def busy() -> Simulation:
    """Ann has rolled a step back, left, come back, and has a step since her last root; she was judged once."""
    sim = Simulation(run=run_config(rounds=1, steps=12))
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.say("ann", sim.rollback_receipt("ann"))
    while not sim.segments("ann"):
        sim.do_step()
    sim.judge("ann", "pass", validators=["validator-0"])
    sim.say("validator-0", sim.seen("validator-0"))
    while not sim.state.pending.get(hotkey("ann")):
        sim.do_step()
    return sim


@pytest.mark.parametrize(
    ("kind", "name"),
    [("join", "ann"), ("receipt", "ann"), ("verdict", "validator-0"), ("seen", "validator-0"), ("plan", "owner")],
)
def test_a_message_that_is_logged_twice_is_a_fault_and_changes_nothing(kind: str, name: str) -> None:
    """An old join would undo her state, and her next segment would be judged from another start than hers."""
    sim = busy()
    before = state_digest(meaning(sim.state))
    state, found = watched(slipped_in(sim, logged(sim, kind, name)))
    (fault,) = found
    assert f"a {kind} of {hotkey(name)} is logged again" in fault
    assert state_digest(meaning(state)) == before


def test_an_old_rollback_drops_no_step() -> None:
    """It is genuine, and it was logged before: the orchestrator could have it drop what she did since."""
    sim = busy()
    said = [event.body.signed for event in sim.events if isinstance(event.body, Said)]
    (rollback,) = [s for s in said if s.kind == "receipt" and read_signed(s, Receipt).kind == "rollback"]
    state, (fault,) = watched(slipped_in(sim, rollback))
    assert "is logged again" in fault and state.pending[hotkey("ann")] == sim.state.pending[hotkey("ann")] != []


def by(name: str, message: Message) -> Signed:
    return make_signed(message, signer(name))


def test_a_genuine_message_out_of_its_place_is_a_fault() -> None:
    """Held back and logged when it suits, or never admissible: what the door refuses, its log may not have."""
    sim = busy()
    late = sim.rollback_receipt("ann", previous=sim.segments("ann")[0].receipts[0])
    other = next(name for name in ("ben", "cem", "dov") if sim.lane_of(name))
    segment = sim.segments("ann")[0]
    lane = sim.step_receipt(other)
    again = sim.verdict("validator-0", segment, "fail", draw=sim.some_draw())
    unsigned = tuple(replace(each, output_ack=each.output_ack and "00" * 64) for each in lane.work)
    unsigned = tuple(replace(each, gradient_ack=each.gradient_ack and "00" * 64) for each in unsigned)
    for author, message, sentence in (
        ("ann", late, "expected the receipt after"),
        (other, replace(lane, replica_steps=40), "count each once"),
        (other, replace(lane, work=unsigned), "expected the neighbour's signature"),
        ("validator-0", again, "one verdict of a validator"),
        ("validator-1", sim.verdict("validator-1", segment, "fail"), "expected a draw, or a foreign fail"),
        ("ann", sim.verdict("ann", segment, "fail", draw=sim.some_draw()), "expected a hotkey with a validator permit"),
        ("validator-1", sim.seen("validator-1", root="0" * 64), "expected a head of this ledger"),
        ("validator-0", sim.seen("validator-0", count=1, root=sim.events[0].digest), "expected heads in order"),
        ("eve", sim.of(type(sim.seen("ann")), **_seen(sim, "eve")), "expected a hotkey registered"),
    ):
        state, found = watched(slipped_in(sim, by(author, message)))
        assert len(found) == 1 and sentence in found[0], (sentence, found)
        if isinstance(message, Receipt) and message is late:
            assert state.pending[hotkey("ann")] == sim.state.pending[hotkey("ann")] != []


def _seen(sim: Simulation, name: str) -> dict[str, object]:
    return {"validator": hotkey(name), "root": sim.state.root, "count": sim.state.count, "block": sim.block}


def test_when_a_message_was_said_is_no_fault() -> None:
    """The orchestrator's clock and its chain are not in the log: nobody is blamed by them."""
    sim = busy()
    old = sim.of(type(sim.seen("ann")), **(_seen(sim, "validator-0") | {"block": sim.block + 1000}))
    _, found = watched(slipped_in(sim, by("validator-0", old)))
    assert found == []
    sim.now_ms -= 10**9
    _, found = watched(slipped_in(sim, by("validator-1", sim.verdict("validator-1", sim.segments("ann")[0], "void",
                                                                      draw=sim.some_draw()))))  # fmt: skip
    assert found == []


def test_a_canary_without_its_hotkeys_consent_ends_the_reading() -> None:
    """Ann is honest; the orchestrator committed to her and signs in her place. Her pay would be gone."""
    sim = Simulation()
    honest = revealed()
    lie = replace(honest, consent=make_signed(sim.seen("ann"), signer("owner")).signature)
    for body, refused in ((lie, True), (honest, False)):
        watch = Watch(FakeVerifier(""))
        event = make_event(body, n=sim.state.count, previous=sim.state.root, time_ms=sim.now_ms)
        assert isinstance(event.body, Revealed)
        if refused:
            with pytest.raises(LedgerError, match=f"expected the consent of {hotkey('ann')}"):
                watch.faults(sim.state, event)
        else:
            assert watch.faults(sim.state, event) == []


def test_a_message_of_no_known_kind_ends_the_reading() -> None:
    """The digest's kind decides what its bytes mean; nothing is guessed."""
    sim = busy()
    strange = replace(logged(sim, "seen", "validator-0"), kind="other")
    with pytest.raises(LedgerError, match="known kind"):
        watched(slipped_in(sim, strange))
    position = by("owner", sim.of(_kind("position"), digest="0" * 64, event=1))
    with pytest.raises(LedgerError, match="expected a message of a run"):
        watched(slipped_in(sim, position))


def _kind(name: str) -> type[Message]:
    from subnet.wire.messages import KINDS

    return KINDS[name]


def test_a_plan_without_a_stage_ends_the_reading_in_one_sentence() -> None:
    """No rule for receipts expects one: whoever follows must not end in a traceback."""
    sim = in_phase("train")
    name = next(each for each in sim.members() if sim.lane_of(each) and sim.state.members[hotkey(each)].stage == 1)
    plan = read_signed(logged(sim, "plan", "owner"), Plan)
    short = make_signed(replace(plan, path=plan.path[:1], lane=7), signer("owner"))
    mine = make_signed(replace(sim.step_receipt(name), lane=7, plan=short.digest), signer(name))
    with pytest.raises(LedgerError, match="the log is contradictory"):
        watched(slipped_in(sim, short, mine))


def test_an_event_that_names_no_digest_before_it_is_of_another_log() -> None:
    sim = busy()
    torn = [*sim.events[:-1], replace(sim.events[-1], previous="none")]
    with pytest.raises(LedgerError, match="of another"):
        watched(torn)
