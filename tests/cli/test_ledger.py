"""Laws of `strata ledger`: a log is what it was, or the first event that is not is named."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from subnet.canonical import canonical
from subnet.cli.ledger import look_up, read_ledger, verify_events
from subnet.cli.main import run
from subnet.edges.ledger import SqlLedger
from subnet.errors import ConfigError, LedgerError
from subnet.ledger.canary import commitment_of
from subnet.ledger.events import (
    GENESIS,
    Begin,
    Commitment,
    Event,
    Planted,
    Revealed,
    Roster,
    RosterEntry,
    Said,
    check_chain,
    make_event,
)
from subnet.ledger.record import Record, make_record
from subnet.wire.messages import WIRE_VERSION, Join, make_signed
from template.fake.chain import FakeChain, FakeNetwork
from template.fake.keys import FakeVerifier
from template.sdk import HotkeySigner, create_wallet
from template.values import Record as ChainRecord
from tests.board.small_run import hotkey, small_run

VERIFIER = FakeVerifier(hotkey("reader"))


def rechained(events: list[Event]) -> list[Event]:
    """The same bodies as a log with a sound hash chain: what a forger would make."""
    made: list[Event] = []
    for event in events:
        previous = made[-1].digest if made else "0" * 64
        made.append(make_event(event.body, n=len(made), previous=previous, time_ms=event.time_ms))
    return made


def database(path: Path, events: list[Event]) -> Path:
    ledger = SqlLedger(f"sqlite:///{path}")
    ledger.copy(events)
    ledger.close()
    return path


def test_a_sound_log_is_verified_with_its_counts():
    log = small_run()
    facts = verify_events(log.events, VERIFIER)
    assert any("another plan" in fault for fault in facts.pop("orchestrator_faults")), "this log's plans are invented"
    said = sum(isinstance(event.body, Said) for event in log.events)
    assert facts == {
        "run_id": log.run.run_id,
        "events": len(log.events),
        "root": log.events[-1].digest,
        "signatures": said,
        "commitments": 1,
    }


def test_a_changed_event_breaks_the_chain_behind_it():
    events = small_run().events
    events[3] = msgspec.structs.replace(events[3], time_ms=events[3].time_ms + 1)
    with pytest.raises(LedgerError, match="expected event 4 after"):
        verify_events(events, VERIFIER)


def test_a_forged_message_is_found_by_its_signature():
    events = small_run().events
    index = next(n for n, event in enumerate(events) if isinstance(event.body, Said))
    signed = msgspec.structs.replace(events[index].body.signed, signature="00" * 32)
    events[index] = msgspec.structs.replace(events[index], body=Said(signed=signed))
    with pytest.raises(LedgerError, match=rf"event {index}: expected a join signed by"):
        verify_events(rechained(events), VERIFIER)


def test_a_genuine_message_that_is_logged_again_is_told():
    log = small_run()
    join = next(event.body for event in log.events if isinstance(event.body, Said))
    log.state_that(join)
    assert (
        f"a join of {join.signed.hotkey} is logged again"
        in verify_events(log.events, VERIFIER)["orchestrator_faults"][-1]
    )


def test_a_canary_that_did_not_agree_ends_the_check():
    log = small_run()
    canary = Revealed(hotkey=hotkey("miner-0"), cheat="stale", strength=1.0, salt="5a" * 32, consent="ab" * 64)
    log.state_that(Planted(commitment=commitment_of(canary.hotkey, "stale", 1.0, salt=canary.salt)))
    log.state_that(canary)
    with pytest.raises(LedgerError, match=f"expected the consent of {canary.hotkey}"):
        verify_events(log.events, VERIFIER)


def test_a_log_rewritten_under_a_committed_root_is_found():
    log = small_run()
    events = [event for event in log.events if "heldout_loss" not in canonical(event).decode()]
    with pytest.raises(LedgerError, match="the log was changed since"):
        verify_events(rechained(events), VERIFIER)


class ChainWithOneRecord(FakeChain):
    """A chain on which one record was committed, or none."""

    def __init__(self, record: ChainRecord | None) -> None:
        super().__init__(FakeNetwork(owner="owner"), "somebody", "somebody/coldkey")
        self.record = record

    async def commit_at(self, block: int, extrinsic_index: int) -> ChainRecord | None:
        return self.record if (block, extrinsic_index) == (21, 1) else None


def on_chain(log, **changes) -> ChainRecord:
    (commitment,) = [event.body for event in log.events if isinstance(event.body, Commitment)]
    values = {"run_id": log.run.run_id, "round": 0, "root": commitment.root, "count": commitment.count} | changes
    data = make_record(Record(**values))
    return ChainRecord(hotkey=hotkey("owner"), data=data, block=21, extrinsic_index=1)


def test_commitments_are_looked_up_on_the_chain():
    log = small_run()
    assert asyncio.run(look_up(ChainWithOneRecord(on_chain(log)), log.events, hotkey("owner"))) == 1
    for record in (None, on_chain(log, root="77" * 32), on_chain(log, count=3)):
        with pytest.raises(LedgerError, match="the log and the chain disagree"):
            asyncio.run(look_up(ChainWithOneRecord(record), log.events, hotkey("owner")))
    with pytest.raises(LedgerError, match="no record of the orchestrator"):
        asyncio.run(look_up(ChainWithOneRecord(on_chain(log)), log.events, hotkey("somebody else")))


def test_a_database_and_its_export_hold_the_same_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    events = small_run().events
    path = database(tmp_path / "ledger.sqlite", events)
    before = path.read_bytes()
    target = tmp_path / "deep" / "copy.jsonl"
    assert run(["ledger", "export", str(path), str(target)]) == 0
    assert f"{len(events)} events with root {events[-1].digest}" in capsys.readouterr().out
    assert read_ledger(str(target)) == read_ledger(str(path)) == events
    assert path.read_bytes() == before
    assert check_chain(read_ledger(str(target))) == events[-1].digest
    assert [entry.name for entry in target.parent.iterdir()] == ["copy.jsonl"]


@pytest.mark.parametrize("content", [b"", b"hello\n", b"SQLite format 3\0" + b"\1" * 4096, b'{"n": 0}\n'])
def test_what_is_no_ledger_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="expected a"):
        read_ledger(str(path))


def test_another_database_is_refused_and_left_as_it_was(tmp_path: Path):
    import sqlite3

    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE things (name TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="found another database"):
        read_ledger(str(path))
    assert path.read_bytes() == before


def test_a_damaged_line_is_named(tmp_path: Path):
    lines = [canonical(event) for event in small_run().events]
    lines[5] = lines[5][:-2]
    path = tmp_path / "copy.jsonl"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(LedgerError, match="expected an event in line 6"):
        read_ledger(str(path))


def test_faults_of_the_command_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "copy.jsonl"
    path.write_bytes(b"".join(canonical(event) + b"\n" for event in small_run().events))
    cases = [
        (["verify", "/nowhere"], 2, "there is no such file"),
        (["verify", str(tmp_path)], 2, "that is a folder"),
        (["export", "http://127.0.0.1:9", "x"], 75, "check that it runs"),
        (["verify", str(path)], 1, "event 2: expected a join signed by"),
    ]
    for words, code, said in cases:
        assert run(["ledger", *words]) == code, words
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_an_export_is_plain_json_lines(tmp_path: Path):
    path = tmp_path / "copy.jsonl"
    source = database(tmp_path / "ledger.sqlite", small_run().events)
    assert run(["ledger", "export", str(source), str(path)]) == 0
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == list(range(len(small_run().events)))


def log_by_real_keys(folder: Path, *, author: str) -> list[Event]:
    """A log whose signatures hold: a miner's join, signed by itself or by somebody who speaks in its name."""
    keys = {name: HotkeySigner(create_wallet(name, "default", folder)) for name in ("owner", "ann", "ben")}
    run_config = small_run().run
    ann = keys["ann"].hotkey
    join = Join(
        version=WIRE_VERSION, run_id=run_config.run_id, hotkey=ann, address="", memory_bytes=1, root="", time_ms=1
    )
    bodies = [
        Begin(config=canonical(run_config).decode(), orchestrator=keys["owner"].hotkey, netuid=1),
        Roster(
            block=1,
            block_hash="0x" + "1" * 64,
            entries=(RosterEntry(uid=0, hotkey=ann, coldkey=ann, stake_rao=0, permit=False),),
        ),
        Said(signed=make_signed(join, keys[author])),
    ]
    events: list[Event] = []
    for body in bodies:
        previous = events[-1].digest if events else GENESIS
        events.append(make_event(body, n=len(events), previous=previous, time_ms=1_790_000_000_000))
    return events


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize(("author", "code"), [("ann", 0), ("ben", 1)])
def test_a_log_that_proves_a_fault_of_its_orchestrator_does_not_verify(
    author: str, code: int, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = database(tmp_path / "ledger.sqlite", log_by_real_keys(tmp_path / "wallets", author=author))
    assert run(["ledger", "verify", str(source), *words]) == code
    shown = capsys.readouterr()
    fault = "a join of 5"
    if words:
        assert [fault in each for each in json.loads(shown.out)["orchestrator_faults"]] == [True] * code
    else:
        assert ("the orchestrator's fault, by its own signed log: event 2: a join of 5" in shown.out) == bool(code)
    said = "error: expected a log with nothing that the rules do not give, found 1 fault of its orchestrator; keep a"
    assert shown.err.startswith(said) if code else shown.err == ""
    assert shown.err.count("\n") == code
