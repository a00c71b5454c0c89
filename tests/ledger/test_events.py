"""Laws of the log: its bytes are pinned, each event follows one other, and a change anywhere is seen."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.canonical import canonical, digest, parse
from subnet.errors import LedgerError, MessageError
from subnet.ledger.events import (
    GENESIS,
    Assign,
    Begin,
    Body,
    ClosedSet,
    Commitment,
    Contributed,
    Done,
    Event,
    Left,
    Manifest,
    Planted,
    Revealed,
    Roster,
    RosterEntry,
    RoundBegin,
    RoundClose,
    Said,
    StagePublic,
    StepEnd,
    check_chain,
    make_event,
)
from subnet.wire.messages import make_signed
from template.fake.keys import FakeSigner
from tests.wire.golden import MINER, OTHER, TIME_MS, messages, named

VECTORS = Path(__file__).parent / "vectors" / "events.json"


def bodies() -> list[Body]:
    """One body of every kind."""
    return [
        Begin(config='{"name":"golden"}', orchestrator=OTHER, netuid=1),
        Roster(
            block=33,
            block_hash="0x" + named("block"),
            entries=(RosterEntry(uid=0, hotkey=MINER, coldkey=OTHER, stake_rao=10**12, permit=True),),
        ),
        Said(signed=make_signed(messages()["leave"], FakeSigner("miner"))),
        Assign(hotkey=MINER, stage=1, round=0),
        Manifest(round=0, stages=(StagePublic(root=named("public"), state_bytes=82_304),), dissenting=(MINER,)),
        RoundBegin(round=0, block=34),
        StepEnd(round=0, step=0, done=(0, 1), partial=(2,), requeued=(3,), missing=(MINER,), late=(MINER,)),
        RoundClose(round=0, deadline_ms=TIME_MS + 60_000),
        ClosedSet(
            round=0,
            stage=1,
            contributions=(Contributed(hotkey=MINER, digest=named("contribution"), tokens=4096, factor=0.5),),
            silent=(OTHER,),
        ),
        Left(hotkey=MINER, reason="deregistered"),
        Commitment(round=0, root=named("root"), count=9, block=40, extrinsic_index=2),
        Planted(commitment=named("canary")),
        Revealed(hotkey=MINER, cheat="stale", strength=1.0, salt="00", consent="ab" * 64),
        Done(rounds=1),
    ]


def log() -> list[Event]:
    """The bodies as a log."""
    events: list[Event] = []
    for n, body in enumerate(bodies()):
        previous = events[-1].digest if events else GENESIS
        events.append(make_event(body, n=n, previous=previous, time_ms=TIME_MS + n))
    return events


def golden() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(VECTORS.read_text(encoding="utf-8"))
    return rows


def test_the_bytes_are_the_golden_ones() -> None:
    """Every kind of event, in one log. Whoever changes a vector changes WIRE_VERSION with it."""
    assert [canonical(event).decode() for event in log()] == [row["event"] for row in golden()]
    assert [event.digest for event in log()] == [row["digest"] for row in golden()]
    assert [digest(row["event"].encode()) for row in golden()] == [row["digest"] for row in golden()]


def test_every_kind_of_body_has_a_vector() -> None:
    assert {type(body) for body in bodies()} == set(Body.__args__)  # type: ignore[attr-defined]


def test_golden_events_are_read_back() -> None:
    assert [parse(row["event"].encode(), Event) for row in golden()] == log()


def test_the_chain_of_a_log_is_its_last_digest() -> None:
    events = log()
    assert check_chain(events) == events[-1].digest
    assert check_chain([]) == GENESIS
    assert check_chain(events[5:], n=5, previous=events[4].digest) == events[-1].digest


@given(at=st.integers(0, 11), what=st.sampled_from(["drop", "twice", "swap", "number", "time", "body", "previous"]))
def test_a_log_that_was_cut_or_changed_is_no_chain(at: int, what: str) -> None:
    """Wherever it is touched: dropped, doubled, turned or rewritten. (The last event has nothing after it that would
    show a change; the head's digest does.)"""
    events, honest = log(), log()[-1].digest
    event = events[at]
    after = events[(at + 1) % len(events)]
    changed = {
        "drop": [*events[:at], *events[at + 1 :]],
        "twice": [*events[: at + 1], *events[at:]],
        "swap": [*events[:at], after, event, *events[at + 2 :]],
        "number": [*events[:at], msgspec.structs.replace(event, n=event.n + 1), *events[at + 1 :]],
        "time": [*events[:at], msgspec.structs.replace(event, time_ms=0), *events[at + 1 :]],
        "body": [*events[:at], msgspec.structs.replace(event, body=Done(rounds=99)), *events[at + 1 :]],
        "previous": [*events[:at], msgspec.structs.replace(event, previous="f" * 64), *events[at + 1 :]],
    }[what]
    try:
        found = check_chain(changed)
    except LedgerError as error:
        assert "the log was cut or changed, fetch it again from event 0" in str(error)
    else:
        assert found != honest


def test_an_event_of_an_unknown_kind_or_with_more_in_it_is_refused() -> None:
    row = json.loads(golden()[-1]["event"])
    for changed in ({**row, "body": {"type": "wish"}}, {**row, "more": 1}, {**row, "body": {**row["body"], "x": 1}}):
        with pytest.raises(MessageError, match="expected a Event"):
            parse(canonical(changed), Event)
