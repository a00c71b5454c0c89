"""The ledger on a database: SQLite in a file, or PostgreSQL when the operator gives a URL; the same code for both.

Appends are one transaction each and durable when they return. Events are kept as their canonical text, with the digest
of the signed message they carry, so that a message sent twice is found. Knows nothing of what events mean.
"""

from collections.abc import Sequence

import sqlalchemy as sql
from sqlalchemy import event as sql_event
from sqlalchemy.engine import Engine

from subnet.canonical import canonical, parse
from subnet.errors import LedgerError, StoreError
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
    """A database by URL, for instance sqlite:////data/ledger.db or postgresql+psycopg://host/name."""
    engine = sql.create_engine(url)
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
        try:
            _TABLES.create_all(self._engine)
            with self._engine.connect() as connection:
                last = connection.execute(
                    sql.select(_EVENTS.c.n, _EVENTS.c.digest).order_by(_EVENTS.c.n.desc()).limit(1)
                ).first()
        except sql.exc.SQLAlchemyError as error:
            raise StoreError(f"expected a ledger database at {url}, found: {error}; check path and rights") from error
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
        rows: list[dict[str, object]] = [
            {"n": event.n, "digest": digest, "message": _message(event), "data": canonical(event).decode()}
            for event, digest in zip(events, [*(later.previous for later in events[1:]), root], strict=True)
        ]
        self._write(rows)
        self._count, self._root = n, root
        return events

    def copy(self, events: Sequence[Event]) -> None:
        """Append events of another copy of this log. Raises LedgerError unless they continue it."""
        rows: list[dict[str, object]] = []
        n, root = self._count, self._root
        for event in events:
            if event.n != n or event.previous != root:
                raise LedgerError(f"expected event {n} of this log, found event {event.n} of another; start a new copy")
            n, root = n + 1, event.digest
            rows.append({"n": event.n, "digest": root, "message": _message(event), "data": canonical(event).decode()})
        self._write(rows)
        self._count, self._root = n, root

    def _write(self, rows: list[dict[str, object]]) -> None:
        if not rows:
            return
        try:
            with self._engine.begin() as connection:
                connection.execute(_EVENTS.insert(), rows)
        except sql.exc.SQLAlchemyError as error:
            raise StoreError(f"expected to append {len(rows)} events, found: {error}; free the disk") from error

    def events(self, first: int = 0, *, limit: int | None = None) -> list[Event]:
        """Events from number `first` on, at most `limit` of them."""
        query = sql.select(_EVENTS.c.data).where(_EVENTS.c.n >= first).order_by(_EVENTS.c.n)
        if limit is not None:
            query = query.limit(limit)
        with self._engine.connect() as connection:
            return [parse(row.data.encode(), Event) for row in connection.execute(query)]

    def root_at(self, count: int) -> str:
        """The root over the first `count` events. Raises LedgerError when there are fewer."""
        if count == 0:
            return GENESIS
        with self._engine.connect() as connection:
            row = connection.execute(sql.select(_EVENTS.c.digest).where(_EVENTS.c.n == count - 1)).first()
        if row is None:
            raise LedgerError(f"expected {count} events, found {self._count}; wait for the log or fetch it again")
        return str(row.digest)

    def position(self, message: str) -> int | None:
        """The event that carries the signed message of this digest, or None."""
        with self._engine.connect() as connection:
            row = connection.execute(sql.select(_EVENTS.c.n).where(_EVENTS.c.message == message).limit(1)).first()
        return None if row is None else int(row.n)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def _message(event: Event) -> str | None:
    return event.body.signed.digest if isinstance(event.body, Said) else None
