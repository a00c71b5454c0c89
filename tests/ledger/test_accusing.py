"""Accusations: what became of a fail, under its author's name; one word against another is no more than that."""

import pytest

from subnet.audit.draw import check_draw
from subnet.errors import RefusedError
from subnet.incentive.score import books
from subnet.ledger.accusing import accusations, hiders, is_called, outcome, records, refusal_seen_by_two
from subnet.ledger.state import Segment
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation

V0, V1, V2, V3 = (f"validator-{number}" for number in range(4))


def simulation(*validators: str) -> Simulation:
    sim = Simulation(validators=validators)
    sim.start("ann", "ben")
    sim.do_step()
    sim.do_step()
    return sim


def say(sim: Simulation, **verdicts: str) -> Segment:
    """Each validator's verdict on ann's last segment."""
    segment = sim.segments("ann")[-1]
    for number, (name, verdict) in enumerate(verdicts.items()):
        word, _, reason = verdict.partition(":")
        draw = sim.some_draw() if number == 0 else None
        changes = {"reason": reason} if reason else {}
        sim.say(name.replace("_", "-"), sim.verdict(name.replace("_", "-"), segment, word, draw=draw, **changes))
    return segment


OUTCOMES = [
    ({"validator_0": "fail"}, "open"),
    ({"validator_0": "fail", "validator_1": "void"}, "open"),
    ({"validator_0": "fail", "validator_1": "pass"}, "disputed"),
    ({"validator_0": "fail", "validator_1": "pass", "validator_2": "pass"}, "false"),
    ({"validator_0": "fail", "validator_1": "fail"}, "upheld"),
    ({"validator_0": "fail", "validator_1": "pass", "validator_2": "fail"}, "upheld"),
]


@pytest.mark.parametrize(("verdicts", "expected"), OUTCOMES, ids=[f"{len(v)}-{o}" for v, o in OUTCOMES])
def test_what_becomes_of_a_fail(verdicts: dict[str, str], expected: str) -> None:
    """Two identities that replayed it to pass are needed to call a fail false; two fails to uphold it."""
    sim = simulation(V0, V1, V2)
    segment = say(sim, **verdicts)
    assert outcome(sim.state, segment) == expected
    assert {each.outcome for each in accusations(sim.state)} == {expected}
    assert (segment.upheld_event is not None) == (expected == "upheld")


def test_a_false_accusation_is_counted_under_its_author_s_name_and_costs_the_miner_nothing() -> None:
    sim = simulation(V0, V1, V2)
    before = books(sim.state, now_ms=sim.now_ms + 10**9, own=None)
    say(sim, validator_0="fail", validator_1="pass", validator_2="pass")
    record = records(sim.state)
    assert (record[hotkey(V0)].failed, record[hotkey(V0)].false) == (1, 1)
    assert (record[hotkey(V1)].passed, record[hotkey(V1)].false, record[hotkey(V1)].missed) == (1, 0, 0)
    assert [(each.validator, each.hotkey) for each in accusations(sim.state)] == [(hotkey(V0), hotkey("ann"))]
    assert books(sim.state, now_ms=sim.now_ms + 10**9, own=None) == before


def test_who_passes_what_is_upheld_as_a_fail_is_on_record() -> None:
    sim = simulation(V0, V1, V2)
    say(sim, validator_0="fail", validator_1="pass", validator_2="fail")
    assert (records(sim.state)[hotkey(V1)].missed, records(sim.state)[hotkey(V0)].upheld) == (1, 1)


def test_hotkeys_of_one_coldkey_are_one_voice() -> None:
    """Two passes of one owner do not make the fail of another false."""
    sim = simulation(V0, V1, V2)
    sim.seat(V2, coldkey=f"{V1}/coldkey")
    segment = say(sim, validator_0="fail", validator_1="pass", validator_2="pass")
    assert outcome(sim.state, segment) == "disputed"


def test_a_segment_that_one_validator_was_not_shown_may_be_rechecked_by_all() -> None:
    """`withheld` calls for a second witness although nobody else drew the segment."""
    sim = simulation(V0, V1)
    segment = say(sim, validator_0="void:withheld", validator_1="pass")
    assert segment.verdicts[hotkey(V1)].draw is None


@pytest.mark.parametrize(
    ("verdicts", "seen"),
    [
        ({}, False),
        ({"validator_0": "void:withheld"}, False),
        ({"validator_1": "void:withheld"}, True),
        ({"validator_1": "void:validator-fault"}, False),
    ],
)
def test_a_refusal_needs_a_second_witness_of_another_coldkey(verdicts: dict[str, str], seen: bool) -> None:
    sim = simulation(V0, V1)
    segment = say(sim, **verdicts)
    assert refusal_seen_by_two(sim.state, segment, hotkey(V0)) is seen


def test_a_second_hotkey_of_the_same_coldkey_is_no_second_witness() -> None:
    sim = simulation(V0, V1, V2)
    sim.seat(V1, coldkey=f"{V0}/coldkey")
    segment = say(sim, validator_1="void:withheld")
    assert not refusal_seen_by_two(sim.state, segment, hotkey(V0))
    assert refusal_seen_by_two(sim.state, segment, hotkey(V2))


def test_the_only_validator_is_witness_enough() -> None:
    sim = simulation(V0)
    assert refusal_seen_by_two(sim.state, sim.segments("ann")[-1], hotkey(V0))


def test_who_received_what_was_not_shown_may_be_looked_at_without_a_draw() -> None:
    """It is that neighbour's own evidence; nobody else is looked at, nor before it was missed."""
    sim = simulation(V0, V1)
    ann, ben = sim.segments("ann")[-1], sim.segments("ben")[-1]
    sender, receiver = (ann, ben) if ann.stage == 0 else (ben, ann)
    undrawn = sim.verdict(V1, receiver, "pass")
    with pytest.raises(RefusedError, match="judge only what was drawn"):
        sim.say(V1, undrawn)
    with pytest.raises(RefusedError, match="ignore this undrawn verdict"):
        check_draw(sim.state, undrawn, lambda block: "")
    names = tuple(work.output for part in sender.receipts for work in sim.state.receipts[part].work)
    missed = {"reason": "neighbour-missing", "draw": sim.some_draw()}
    sim.say(V0, sim.verdict(V0, sender, "void", evidence=("ab" * 32,), **missed))
    assert hiders(sim.state, sender) == () and not is_called(sim.state, receiver)
    sim.pass_time(1000)
    sim.say(V0, sim.verdict(V0, sender, "void", evidence=names[-1:], **missed))
    assert hiders(sim.state, sender) == (receiver.id,)
    assert [is_called(sim.state, each) for each in (sender, receiver)] == [False, True]
    sim.say(V1, undrawn)
    check_draw(sim.state, undrawn, lambda block: "")
    sim.say(V1, sim.verdict(V1, sender, "pass"))
    others = [segment for segment in sim.state.segments.values() if segment not in (sender, receiver)]
    assert not any(is_called(sim.state, each) for each in others)
