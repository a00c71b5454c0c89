"""The ledger on a database: SQLite in a file, or PostgreSQL when the operator gives a URL; the same code for both.

Appends are one transaction each and durable when they return. Events are kept as their canonical text, with the digest
of the signed message they carry, so that a message sent twice is found. Knows nothing of what events mean.
"""

import contextlib
from collections.abc import Iterator, Sequence

import sqlalchemy as sql
from sqlalchemy import event as sql_event
from sqlalchemy.engine import Connection, Engine

from subnet.canonical import canonical, digest, parse
from subnet.errors import ConfigError, LedgerError, StoreError
from subnet.ledger.events import GENESIS, Body, Event, Said, make_event

_TABLES = sql.MetaData()
_EVENTS = sql.Table(
    "events",
    _TABLES,
    sql.Column("n", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("digest", sql.String(64), nullable=False),
    sql.Column("message", sql.String(64), nullable=True, index=True),
    sql.Column("data", sql.Text, nullable=False),
)


def open_engine(url: str) -> Engine:
    """A database by URL, for instance sqlite:////data/ledger.db or postgresql+psycopg://host/name.

    Raises ConfigError for a URL that is none, and where the database's driver is not installed.
    """
    try:
        engine = sql.create_engine(url)
    except sql.exc.ArgumentError as error:
        raise ConfigError(f"expected a database URL such as sqlite:////data/ledger.db; {error}; correct it") from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"expected the database's driver; {error}; pip install strata-subnet[postgres]") from error
    if engine.dialect.name == "sqlite":
        sql_event.listen(engine, "connect", _durable)
    return engine


def _durable(connection: object, record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


class SqlLedger:
    """An append-only log of events. One writer; any number of readers of the same database."""

    def __init__(self, url: str) -> None:
        """Open or create the log. Raises StoreError when the database cannot be opened."""
        self._engine = open_engine(url)
        shown = self._engine.url.render_as_string(hide_password=True)
        with _faults(f"expected a ledger database at {shown}", "check path and rights"):
            _TABLES.create_all(self._engine)
            with self._engine.connect() as connection:
                last = connection.execute(
                    sql.select(_EVENTS.c.n, _EVENTS.c.digest).order_by(_EVENTS.c.n.desc()).limit(1)
                ).first()
        self._count: int = last.n + 1 if last else 0
        self._root: str = last.digest if last else GENESIS

    @property
    def count(self) -> int:
        """How many events there are."""
        return self._count

    @property
    def root(self) -> str:
        """The digest of the last event."""
        return self._root

    def append(self, bodies: Sequence[Body], *, time_ms: int) -> list[Event]:
        """Append events in one transaction. Raises StoreError, with nothing appended, when it cannot be written."""
        events, n, root = [], self._count, self._root
        for body in bodies:
            event = make_event(body, n=n, previous=root, time_ms=time_ms)
            events.append(event)
            n, root = n + 1, event.digest
        self._write([_row(event) for event in events])
        self._count, self._root = n, root
        return events

    def copy(self, events: Sequence[Event]) -> None:
        """Append events of another copy of this log. Raises LedgerError unless they continue it."""
        n, root = self._count, self._root
        for event in events:
            if event.n != n or event.previous != root:
                raise LedgerError(f"expected event {n} of this log, found event {event.n} of another; start a new copy")
            n, root = n + 1, event.digest
        self._write([_row(event) for event in events])
        self._count, self._root = n, root

    def _write(self, rows: list[dict[str, object]]) -> None:
        if not rows:
            return
        with (
            _faults(f"expected to append {len(rows)} events", "free the disk, and let one process write"),
            self._engine.begin() as connection,
        ):
            connection.execute(_EVENTS.insert(), rows)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _faults("expected to read the ledger", "check the database"), self._engine.connect() as connection:
            yield connection

    def events(self, first: int = 0, *, limit: int | None = None) -> list[Event]:
        """Events from number `first` on, at most `limit` of them."""
        query = sql.select(_EVENTS.c.data).where(_EVENTS.c.n >= first).order_by(_EVENTS.c.n)
        if limit is not None:
            query = query.limit(limit)
        with self._reading() as connection:
            return [parse(row.data.encode(), Event) for row in connection.execute(query)]

    def root_at(self, count: int) -> str:
        """The root over the first `count` events. Raises LedgerError when there are fewer."""
        if count == 0:
            return GENESIS
        with self._reading() as connection:
            row = connection.execute(sql.select(_EVENTS.c.digest).where(_EVENTS.c.n == count - 1)).first()
        if row is None:
            raise LedgerError(f"expected {count} events, found {self._count}; wait for the log or fetch it again")
        return str(row.digest)

    def position(self, message: str) -> int | None:
        """The event that carries the signed message of this digest, or None."""
        with self._reading() as connection:
            row = connection.execute(sql.select(_EVENTS.c.n).where(_EVENTS.c.message == message).limit(1)).first()
        return None if row is None else int(row.n)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def _row(event: Event) -> dict[str, object]:
    message = event.body.signed.digest if isinstance(event.body, Said) else None
    data = canonical(event)
    return {"n": event.n, "digest": digest(data), "message": message, "data": data.decode()}


@contextlib.contextmanager
def _faults(expected: str, remedy: str) -> Iterator[None]:
    """Turn every error of the database into one sentence of ours, without its statement and values."""
    try:
        yield
    except sql.exc.DBAPIError as error:
        found = " ".join(str(error.orig).split())
        raise StoreError(f"{expected}, found: {found}; {remedy}") from error
    except sql.exc.SQLAlchemyError as error:
        found = " ".join(str(error).split())
        raise StoreError(f"{expected}, found: {found}; {remedy}") from error
