"""The ledger's events and their hash chain. Knows nothing of where they are stored or what they mean together.

An event's body is a signed message (its author is accountable for it) or a statement of the orchestrator, which
signs every head. The digest of event n covers event n - 1's, so a head is a commitment to the whole log.
"""

from collections.abc import Iterable

import msgspec

from subnet.canonical import digest_of
from subnet.errors import LedgerError
from subnet.wire.messages import Signed

GENESIS = "0" * 64


class Begin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="begin"):
    """Event 0: the run's canonical configuration and who orchestrates it."""

    config: str
    orchestrator: str
    netuid: int
    corpus_note: str = ""


class RosterEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A neuron of the subnet as the chain states it at the roster's block; stake in rao."""

    uid: int
    hotkey: str
    coldkey: str
    stake_rao: int
    permit: bool


class Roster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="roster"):
    """Who is registered, at a block."""

    block: int
    block_hash: str
    entries: tuple[RosterEntry, ...]


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="said"):
    """A signed message of a miner, validator, publisher or of the orchestrator itself (plans, wirings)."""

    signed: Signed


class Assign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="assign"):
    """A miner holds a stage from the first step of `round` on."""

    hotkey: str
    stage: int
    round: int


class StagePublic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public state (parameters and outer momentum) of one stage: its Merkle root and length."""

    root: str
    state_bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="manifest"):
    """The public states in which a round starts. `dissenting`: replicas that merged to another root."""

    round: int
    stages: tuple[StagePublic, ...]
    dissenting: tuple[str, ...]


class RoundBegin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="round"):
    """Training of a round starts."""

    round: int
    block: int


class StepEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="step_end"):
    """A step is over. done: backward on every stage; partial: on some; requeued: on none, planned again.
    missing: members of its lanes that gave no receipt in time; late: those of them that kept the others waiting."""

    round: int
    step: int
    done: tuple[int, ...]
    partial: tuple[int, ...]
    requeued: tuple[int, ...]
    missing: tuple[str, ...]
    late: tuple[str, ...] = ()


class RoundClose(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="close"):
    """The round's steps are over: every replica commits its state and contribution."""

    round: int
    deadline_ms: int


class Contributed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One contribution of a closed set: weight in tokens, clip factor in [0, 1]."""

    hotkey: str
    digest: str
    tokens: int
    factor: float


class ClosedSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="closed"):
    """The contributions of one stage, in the order in which they are reduced (by digest).
    silent: replicas that trained, are not in the set, and did not answer when it closed."""

    round: int
    stage: int
    contributions: tuple[Contributed, ...]
    silent: tuple[str, ...] = ()


class Left(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="left"):
    """A miner lost its registration; it may register and join again."""

    hotkey: str
    reason: str


class Commitment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="commitment"):
    """The orchestrator's record on the chain: a root over `count` events, and where it stands."""

    round: int
    root: str
    count: int
    block: int
    extrinsic_index: int


class Planted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="planted"):
    """The owner commits to a canary (`subnet.ledger.canary`) without saying who it is."""

    commitment: str


class Revealed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="revealed"):
    """Who a canary was, and how it cheated. consent: its own signature (hex) over the commitment, as a `Consent` of
    this run; without it anybody could be called one."""

    hotkey: str
    cheat: str
    strength: float
    salt: str
    consent: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="done"):
    """Training is over; what is not judged yet may still be judged."""

    rounds: int


Body = (
    Begin
    | Roster
    | Said
    | Assign
    | Manifest
    | RoundBegin
    | StepEnd
    | RoundClose
    | ClosedSet
    | Left
    | Commitment
    | Planted
    | Revealed
    | Done
)


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the log: its number, the orchestrator's time, the digest of the entry before it."""

    n: int
    time_ms: int
    previous: str
    body: Body

    @property
    def digest(self) -> str:
        """blake3 of the canonical bytes; the head after this event."""
        return digest_of(self)


def make_event(body: Body, *, n: int, previous: str, time_ms: int) -> Event:
    """The next event of a log whose last digest is `previous`."""
    return Event(n=n, time_ms=time_ms, previous=previous, body=body)


def check_chain(events: Iterable[Event], *, n: int = 0, previous: str = GENESIS) -> str:
    """Check that the events continue a log of `n` events that ends in `previous`; the new head's digest.

    Raises LedgerError at the first event that does not follow.
    """
    for event in events:
        if event.n != n or event.previous != previous:
            raise LedgerError(
                f"expected event {n} after {previous[:12]}, found event {event.n} after {event.previous[:12]}; "
                "the log was cut or changed, fetch it again from event 0"
            )
        n, previous = n + 1, event.digest
    return previous
