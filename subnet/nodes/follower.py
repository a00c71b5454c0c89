"""A copy of the ledger that keeps up: fetch, check the chain and the signed head, fold. For whoever is not its writer.

Checks that the orchestrator only ever appends, and only what its authors signed: a page that does not continue what is
here, or holds a message with another signature, raises LedgerError, which is proof against the orchestrator together
with the signed heads. What it could not honestly have logged is noted as its fault. Knows nothing of what its owner
does with the state.
"""

import logging

from subnet.config import RunConfig
from subnet.errors import LedgerError
from subnet.ledger.events import Event
from subnet.ledger.fold import apply, begin
from subnet.ledger.state import RunState
from subnet.nodes.client import RunClient
from subnet.scheduler.watch import Watch
from subnet.wire.messages import Head

log = logging.getLogger("strata.follower")


class Follower:
    """The fold of the orchestrator's ledger, as far as it was fetched."""

    def __init__(self, client: RunClient, run: RunConfig) -> None:
        self._client = client
        self._run = run
        self._watch = Watch(client.verifier)
        self._state: RunState | None = None
        self.orchestrator_faults: list[str] = []  # entries that an honest one does not make
        self.head: Head | None = None  # the last signed head that covers all of the state

    @property
    def state(self) -> RunState:
        """The state; `catch_up` comes first."""
        assert self._state is not None, "catch_up() comes first"
        return self._state

    async def catch_up(self, *, wait_s: float = 0.0) -> tuple[Event, ...]:
        """Fetch and fold what is new, waiting up to `wait_s` for something; the new events."""
        news: list[Event] = []
        while True:
            first = self._state.count if self._state else 0
            head, events = await self._client.ledger(first, wait_s=0.0 if news else wait_s)
            for event in events:
                self._take(event)
            news.extend(events)
            if self._state is None:
                raise LedgerError("expected a ledger with the run's configuration, found an empty one; try again later")
            if self._state.count >= head.count:
                break
            if not events:
                raise LedgerError(f"expected events up to {head.count}, found {self._state.count}; the log was cut")
        if self._state.count == head.count:
            if self._state.root != head.root:
                raise LedgerError(
                    f"expected the root {head.root[:12]} that the orchestrator signed, found {self._state.root[:12]}; "
                    "keep both as proof against it"
                )
            self.head = head
        return tuple(news)

    def _take(self, event: Event) -> None:
        for fault in self._watch.faults(self._state, event):
            log.error("orchestrator fault=%r; the signed log is the proof", fault)
            self.orchestrator_faults.append(fault)
        if self._state is not None:
            apply(self._state, event)
            return
        self._state = begin(event)
        if self._state.config.run_id != self._run.run_id:
            raise LedgerError(
                f"expected the ledger of run {self._run.run_id[:12]}, found run {self._state.config.run_id[:12]}; "
                "check the orchestrator's address"
            )
