"""Laws of the stored log: an append is whole and durable or not at all, and it is the same log after a restart.

The same tests run on PostgreSQL where STRATA_TEST_POSTGRES_URL names an empty database for them.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.canonical import canonical
from subnet.edges.ledger import SqlLedger
from subnet.errors import ConfigError, LedgerError, MessageError, StoreError
from subnet.ledger.events import GENESIS, Assign, Body, Done, RoundBegin, Said, check_chain, make_event
from subnet.ledger.fold import fold
from subnet.ledger.state import state_digest
from subnet.wire.messages import make_signed
from template.fake.keys import FakeSigner
from tests.ledger.simulation import Simulation
from tests.wire.golden import messages

POSTGRES_URL = os.environ.get("STRATA_TEST_POSTGRES_URL", "")
BODIES: list[Body] = [Assign(hotkey="a", stage=0, round=0), RoundBegin(round=0, block=1), Done(rounds=1)]


def clear(url: str) -> None:
    """Empty the database of a test before it."""
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sql.text("DROP TABLE IF EXISTS events"))
    engine.dispose()


@pytest.fixture(params=["sqlite", *(["postgresql"] if POSTGRES_URL else [])])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    clear(POSTGRES_URL)
    return POSTGRES_URL


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    ledger = SqlLedger(url)
    yield ledger
    ledger.close()


def damage(url: str, statement: str) -> None:
    """Change the database behind the ledger's back."""
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sql.text(statement))
    engine.dispose()


def test_a_new_log_is_empty(ledger: SqlLedger) -> None:
    assert (ledger.count, ledger.root, ledger.events(), ledger.root_at(0)) == (0, GENESIS, [], GENESIS)


def test_what_is_appended_is_there_in_order_and_chained(ledger: SqlLedger) -> None:
    events = ledger.append(BODIES, time_ms=5)
    assert [event.body for event in events] == BODIES and {event.time_ms for event in events} == {5}
    assert ledger.events() == events
    assert check_chain(events) == ledger.root == events[-1].digest
    more = ledger.append([Done(rounds=2)], time_ms=6)
    assert ledger.events(2, limit=2) == [events[2], more[0]]
    assert ledger.events(4) == [] and ledger.append([], time_ms=7) == []
    assert ledger.count == 4


def test_a_reopened_log_goes_on_where_it_stood(url: str) -> None:
    """Closed or not: what `append` returned is on disk for every other reader."""
    first = SqlLedger(url)
    events = first.append(BODIES, time_ms=5)
    second = SqlLedger(url)
    assert (second.count, second.root, second.events()) == (3, first.root, events)
    more = second.append([Done(rounds=9)], time_ms=6)
    assert more[0].n == 3 and more[0].previous == events[-1].digest
    assert check_chain(second.events()) == second.root
    first.close()
    second.close()


def test_the_root_at_any_count_is_the_digest_of_the_event_before_it(ledger: SqlLedger) -> None:
    events = ledger.append(BODIES, time_ms=5)
    assert [ledger.root_at(count) for count in range(4)] == [GENESIS, *(event.digest for event in events)]
    with pytest.raises(LedgerError, match="expected 4 events, found 3; wait for the log or fetch it again"):
        ledger.root_at(4)


def test_the_position_of_a_message_is_the_event_that_carries_it(ledger: SqlLedger) -> None:
    signed = make_signed(messages()["leave"], FakeSigner("miner"))
    ledger.append([*BODIES, Said(signed=signed), Done(rounds=1)], time_ms=5)
    assert ledger.position(signed.digest) == 3
    assert ledger.position("0" * 64) is None


def test_an_append_is_whole_or_not_at_all(url: str) -> None:
    """A second writer has taken the number of the third event: none of the batch is there, and nothing moved."""
    ledger, other = SqlLedger(url), SqlLedger(url)
    other.append([Done(rounds=1)], time_ms=1)
    with pytest.raises(
        StoreError, match="expected to append 3 events, found: [^\\n]{,200}; free the disk, and let one"
    ):
        ledger.append(BODIES, time_ms=2)
    assert (ledger.count, ledger.root) == (0, GENESIS)
    assert [event.body for event in other.events()] == [Done(rounds=1)]
    ledger.close()
    other.close()


def test_a_batch_that_fails_in_its_middle_leaves_nothing(ledger: SqlLedger, url: str) -> None:
    ledger.append(BODIES[:1], time_ms=1)
    ahead = make_event(Done(rounds=7), n=2, previous="f" * 64, time_ms=1)
    data = canonical(ahead).decode().replace("'", "''").replace(":", "\\:")
    damage(url, f"INSERT INTO events (n, digest, message, data) VALUES (2, '{'e' * 64}', NULL, '{data}')")
    with pytest.raises(StoreError, match="expected to append 3 events"):
        ledger.append(BODIES, time_ms=2)
    assert [event.n for event in ledger.events()] == [0, 2]
    assert (ledger.count, ledger.root) == (1, ledger.root_at(1))


def test_a_copy_takes_the_events_of_its_own_log_only(ledger: SqlLedger, tmp_path: Path) -> None:
    events = ledger.append(BODIES, time_ms=5)
    copy = SqlLedger(f"sqlite:///{tmp_path}/copy.sqlite")
    copy.copy(events[:2])
    for others in (events[:1], [events[2], events[2]], [make_event(events[2].body, n=2, previous="f" * 64, time_ms=5)]):
        with pytest.raises(
            LedgerError, match="expected event [23] of this log, found event [02] of another; start a new"
        ):
            copy.copy(others)
    assert copy.events() == events[:2]
    copy.copy(events[2:])
    assert (copy.count, copy.root, copy.events()) == (3, ledger.root, events)
    signed = make_signed(messages()["leave"], FakeSigner("miner"))
    copy.copy([make_event(Said(signed=signed), n=3, previous=copy.root, time_ms=6)])
    assert copy.position(signed.digest) == 3
    copy.close()


def test_a_row_that_was_changed_breaks_the_chain(ledger: SqlLedger, url: str) -> None:
    """Whoever edits the database is found by anyone who reads the log."""
    ledger.append(BODIES, time_ms=5)
    damage(url, """UPDATE events SET data = replace(data, '"block"\\:1', '"block"\\:2') WHERE n = 1""")
    with pytest.raises(LedgerError, match="expected event 2 after .*; the log was cut or changed"):
        check_chain(ledger.events())


def test_a_row_that_is_gone_breaks_the_chain(ledger: SqlLedger, url: str) -> None:
    ledger.append(BODIES, time_ms=5)
    damage(url, "DELETE FROM events WHERE n = 1")
    with pytest.raises(LedgerError, match="expected event 1 after .*, found event 2"):
        check_chain(ledger.events())


def test_a_row_that_is_no_event_is_refused(ledger: SqlLedger, url: str) -> None:
    ledger.append(BODIES, time_ms=5)
    damage(url, "UPDATE events SET data = 'garbage' WHERE n = 1")
    with pytest.raises(MessageError, match="expected a Event"):
        ledger.events()


def test_a_changed_last_row_is_seen_by_the_root_that_was_kept_beside_it(ledger: SqlLedger, url: str) -> None:
    ledger.append(BODIES, time_ms=5)
    damage(url, """UPDATE events SET data = replace(data, '"rounds"\\:1', '"rounds"\\:2') WHERE n = 2""")
    assert check_chain(ledger.events()) != ledger.root


@pytest.mark.parametrize(
    "place", ["sqlite:////nowhere/at/all/ledger.sqlite", "sqlite:////proc/ledger.sqlite"], ids=["no folder", "no right"]
)
def test_a_database_that_cannot_be_opened_is_one_sentence(place: str) -> None:
    with pytest.raises(StoreError, match="expected a ledger database at sqlite:.*, found: .*; check path and rights"):
        SqlLedger(place)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="expected a ledger database at sqlite:.*, found: .*not a database"):
        SqlLedger(f"sqlite:///{tmp_path}/ledger.sqlite")


def test_a_url_that_is_none_is_the_user_s_mistake() -> None:
    with pytest.raises(ConfigError, match="expected a database URL such as sqlite:////data/ledger.db; .*; correct it"):
        SqlLedger("ledger.sqlite")


def test_a_server_that_is_not_there_is_one_sentence_without_the_password() -> None:
    """Where the driver is not installed, that is said, with the command that installs it."""
    with pytest.raises((StoreError, ConfigError), match="expected (a|the database)") as caught:
        SqlLedger("postgresql+psycopg://strata:secret@127.0.0.1:9/ledger")
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
    assert "check path and rights" in str(caught.value) or "strata-subnet[postgres]" in str(caught.value)


def test_a_log_that_cannot_be_read_any_more_is_one_sentence(url: str) -> None:
    ledger = SqlLedger(url)
    damage(url, "DROP TABLE events")
    for read in (ledger.events, lambda: ledger.root_at(1), lambda: ledger.position("0" * 64)):
        with pytest.raises(StoreError, match="expected to read the ledger, found: [^\\n]*; check the database"):
            read()
    ledger.close()


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    """Files may not grow past a limit of the system: the append fails whole, and what was there stays readable."""
    ledger = SqlLedger(f"sqlite:///{tmp_path}/ledger.sqlite")
    events = ledger.append(BODIES, time_ms=5)
    large: list[Body] = [Assign(hotkey="x" * 2000, stage=0, round=0)] * 100
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (128 * 1024, hard))
    try:
        with pytest.raises(StoreError, match="expected to append 100 events, found: .*; free the disk"):
            ledger.append(large, time_ms=6)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (ledger.events(), ledger.count) == (events, 3)
    more = ledger.append([Done(rounds=2)], time_ms=7)
    assert check_chain(ledger.events()) == more[0].digest
    ledger.close()


@settings(max_examples=5)
@given(cuts=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_the_state_is_the_log_on_disk(cuts: list[int]) -> None:
    """Copied in any pieces, the stored events fold to the state that the orchestrator had."""
    sim = Simulation()
    sim.start("ann", "ben")
    sim.do_round()
    ledger = SqlLedger("sqlite://")
    events = list(sim.events)
    for cut in cuts:
        ledger.copy(events[:cut])
        events = events[cut:]
    ledger.copy(events)
    assert state_digest(fold(ledger.events())) == state_digest(sim.state)
    assert ledger.root == sim.state.root
    ledger.close()
