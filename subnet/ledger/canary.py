"""Canaries: segments that are known to be bad, planted by the owner to measure the validators.

A canary is an ordinary hotkey of the owner's that cheats. The ledger first has a commitment to who it is and what it
does, so that nobody can call a segment a canary afterwards, and the reveal has the canary's own signature over that, so
that nobody's work is forfeited without its consent. It is revealed when a round's steps are over and before its
contributions are reduced. From then on it is out of lanes and merges and all its work is forfeited: a canary is never
paid, and its update is never merged. What each validator said of its segments until then is its record. Part of the
fold (`subnet.ledger.fold`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from subnet.canonical import canonical, digest_of
from subnet.errors import LedgerError
from subnet.ledger.closed import forfeit
from subnet.ledger.events import Event, Planted, Revealed
from subnet.ledger.state import RunState, Segment
from subnet.wire.messages import WIRE_VERSION, Consent, check_signature
from template.auth import Verifier

CANARY = "canary"
FOREVER = 1 << 31


@dataclass(kw_only=True)
class Measured:
    """What one validator said of the planted segments: those that it drew, failed, and passed."""

    drawn: int = 0
    caught: int = 0
    missed: int = 0


@dataclass(kw_only=True)
class Canary:
    """A revealed canary, and how the validators did."""

    hotkey: str
    cheat: str
    strength: float
    planted_event: int
    revealed_event: int
    segments: int = 0
    by_validator: dict[str, Measured] = field(default_factory=dict)


def commitment_of(hotkey: str, cheat: str, strength: float, *, salt: str) -> str:
    """What is committed to: nobody can tell who it is without the salt, and nobody can change it afterwards."""
    return digest_of({"cheat": cheat, "hotkey": hotkey, "salt": salt, "strength": strength, "type": "canary"})


def consent_of(run_id: str, body: Revealed) -> Consent:
    """What a canary signs before it is planted: in this run, and as what."""
    commitment = commitment_of(body.hotkey, body.cheat, body.strength, salt=body.salt)
    return Consent(version=WIRE_VERSION, run_id=run_id, commitment=commitment)


def check_consent(state: RunState, body: Revealed, verifier: Verifier) -> None:
    """Raises LedgerError unless the hotkey itself signed that it is this canary: that is proof against the
    orchestrator, whose word alone would take anybody's pay. Checked where the keys are, as other signatures."""
    said = canonical(consent_of(state.config.run_id, body))
    if not check_signature(Consent, said, body.consent, hotkey=body.hotkey, verifier=verifier):
        raise LedgerError(
            f"expected the consent of {body.hotkey} to be called a canary, found another signature; the orchestrator "
            "calls a miner's work bad that is not its own"
        )


def plant(state: RunState, body: Planted, event: Event) -> None:
    """Note the commitment."""
    state.planted.setdefault(body.commitment, event.n)


def reveal(state: RunState, body: Revealed, event: Event) -> None:
    """Measure the validators, forfeit the canary's work, and take it out of the run.

    Raises LedgerError for a canary that nobody committed to, or that shows no consent (whose it is, is checked where
    the keys are: `check_consent`): that is proof against the orchestrator.
    """
    commitment = commitment_of(body.hotkey, body.cheat, body.strength, salt=body.salt)
    planted = state.planted.get(commitment)
    if planted is None or body.hotkey in state.canaries:
        raise LedgerError(
            f"expected a canary that was committed to before, found {body.hotkey} at event {event.n} without; the "
            "orchestrator calls work bad after the fact"
        )
    if not body.consent:
        raise LedgerError(
            f"expected the consent of {body.hotkey} to be called a canary, found none at event {event.n}; the "
            "orchestrator calls a miner's work bad that is not its own"
        )
    canary = Canary(
        hotkey=body.hotkey,
        cheat=body.cheat,
        strength=body.strength,
        planted_event=planted,
        revealed_event=event.n,
    )
    for segment in _bad(state, canary):
        canary.segments += 1
        for validator, said in segment.verdicts.items():
            measured = canary.by_validator.setdefault(validator, Measured())
            measured.drawn += said.draw is not None
            measured.caught += said.verdict == "fail"
            measured.missed += said.verdict == "pass"
    state.canaries[body.hotkey] = canary
    for number in {state.segments[name].round for name in state.chains.get(body.hotkey, ())}:
        forfeit(state, body.hotkey, number, CANARY)
    if body.hotkey in state.members:
        state.members[body.hotkey].barred_until_round = FOREVER


def _bad(state: RunState, canary: Canary) -> Iterator[Segment]:
    """The segments that count: of training, after the commitment; what follows an upheld fail is not drawn."""
    for segment in (state.segments[name] for name in state.chains.get(canary.hotkey, ())):
        if segment.work and segment.event > canary.planted_event and not segment.tainted:
            yield segment


def measured_of(state: RunState, validator: str) -> Measured:
    """One validator's record over all revealed canaries."""
    records = [canary.by_validator.get(validator, Measured()) for canary in state.canaries.values()]
    return Measured(
        drawn=sum(each.drawn for each in records),
        caught=sum(each.caught for each in records),
        missed=sum(each.missed for each in records),
    )
