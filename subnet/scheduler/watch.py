"""Reading a log as one who does not trust its writer: every signature, and everything that the door would have refused.

What was forged, or takes a miner's pay without its consent, raises LedgerError: such a log is not gone on with. What
the orchestrator could not honestly have logged is its fault, a sentence each: entries that the public functions do not
give (`subnet.scheduler.faults`), and messages that break the rules of its own door (`subnet.ledger.admit`), genuine as
they are: one that is in the log already, a receipt that is not its author's next. Only what the log itself says is
judged. What depends on the orchestrator's clock or on its view of the chain is not: honest logs have no fault. Pure.
"""

from collections.abc import Sequence

from subnet.errors import LedgerError, MessageError, RefusedError
from subnet.ledger.admit import Door, admit, is_admitted
from subnet.ledger.canary import check_consent
from subnet.ledger.events import GENESIS, Event, Revealed, Said
from subnet.ledger.fold import apply, begin
from subnet.ledger.state import RunState
from subnet.scheduler.faults import orchestrator_faults
from subnet.wire.messages import KINDS, Signed, check_signed
from template.auth import Verifier


class Watch:
    """Goes along with one log from its first event on: it remembers past roots, which validators countersign."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._roots: list[bytes] = []  # the root over the first n events
        self._door = Door(now_ms=None, block=None, root_at=self._root_at, verifier=verifier)

    def _root_at(self, count: int) -> str:
        return self._roots[count].hex() if 0 <= count < len(self._roots) else ""

    def faults(self, state: RunState | None, event: Event) -> list[str]:
        """What is wrong with the next event; `state` is the fold of all before it (None before the first).

        Raises LedgerError for a message, or a canary's consent, with another signature, and for an entry of which
        nobody can say whether it is right, because what it speaks of is not there.
        """
        self._roots.append(bytes.fromhex(GENESIS if state is None else state.root))
        if isinstance(event.body, Said):
            self._check_signature(event.n, event.body.signed)
        if state is None:
            return []
        if isinstance(event.body, Revealed):
            check_consent(state, event.body, self._verifier)
        try:
            found = orchestrator_faults(state, event)
            if isinstance(event.body, Said) and not found:
                found = self._refused(state, event.n, event.body.signed)
        except LookupError as error:
            raise LedgerError(
                f"expected what event {event.n} speaks of, found none ({error}); the log is contradictory"
            ) from error
        return found

    def _check_signature(self, number: int, signed: Signed) -> None:
        """Nobody's word is taken from the orchestrator: a forged receipt would be judged as its miner's."""
        kind = KINDS.get(signed.kind)
        if kind is None:
            raise LedgerError(f"expected a message of a known kind at event {number}, found {signed.kind!r}; update")
        try:
            check_signed(signed, kind, self._verifier)
        except MessageError as error:
            raise LedgerError(f"event {number}: {error}; keep the log as proof against the orchestrator") from error

    def _refused(self, state: RunState, number: int, signed: Signed) -> list[str]:
        """Why an honest orchestrator would not have logged this message, if it would not."""
        earlier = state.said.get(signed.digest)
        if earlier is not None:
            return [f"event {number}: a {signed.kind} of {signed.hotkey} is logged again, after event {earlier}"]
        if not is_admitted(signed.kind):
            return []  # its own wirings and plans: `orchestrator_faults` has looked at them
        try:
            admit(state, signed, self._door)
        except RefusedError as error:
            return [f"event {number}: a {signed.kind} of {signed.hotkey} was logged that the rules refuse: {error}"]
        return []


def fold_watched(events: Sequence[Event], verifier: Verifier) -> tuple[RunState, list[str]]:
    """The fold of a log, and what its orchestrator could not honestly have logged, a sentence each.

    Raises LedgerError at the first message, or canary's consent, that its author did not sign.
    """
    watch = Watch(verifier)
    faults, state = watch.faults(None, events[0]), begin(events[0])
    for event in events[1:]:
        faults += watch.faults(state, event)
        apply(state, event)
    return state, faults
