"""What the log means: the state of a run, as plain data. `subnet.ledger.fold` alone changes it.

Every node folds the same events and so holds the same state: the orchestrator to plan, validators to draw and pay,
the board to show. Nothing here reads a clock, and nothing is kept that the log does not say.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from subnet.canonical import digest_of
from subnet.config import RunConfig
from subnet.ledger.events import ClosedSet, Commitment, Contributed, Manifest, RosterEntry
from subnet.wire.messages import Checkpoint, Merged, Plan, Receipt, Seen, Verdict, Wiring

MOST_VOIDS = 3  # of one validator on one segment, and as many of `withheld`
WITHHELD = "withheld"
NEIGHBOUR_MISSING = "neighbour-missing"


@dataclass(kw_only=True)
class Member:
    """A miner of the run. `stage` is None until assigned; `from_round` is the first round it trains in."""

    hotkey: str
    coldkey: str
    address: str
    stage: int | None = None
    from_round: int = 0
    active: bool = True
    barred_until_round: int = 0  # quarantined below this round
    head: str = ""  # digest of its last receipt
    state_root: str = ""  # its last committed state
    state_bytes: int = 0
    root_steps: int = 0  # the replica's step counter in that state
    opened_round: int = -1  # the last round of which it has a segment
    waited_steps: int = 0
    missed_steps: int = 0
    step_ms: float = 0.0  # measured time of a step, exponentially averaged
    tainted: bool = False  # built on a segment of which a fail is upheld, until a fresh start
    silent_rounds: list[int] = field(default_factory=list)  # rounds that it trained in and did not answer at their end


@dataclass(kw_only=True)
class Segment:
    """The steps between two committed states of a miner: the unit of replay, judgement and pay.

    id: digest of the receipt that ends it. receipts: its steps (and the close that ends a round), oldest first.
    start_root: the state its previous segment ended in ("" for a first one or a fresh start: zero moments);
    opens_round: it starts from the round's public parameters. work: what its microbatches are worth, in FLOPs.
    """

    id: str
    hotkey: str
    stage: int
    round: int
    start_root: str
    start_bytes: int
    end_root: str
    end_bytes: int
    opens_round: bool
    receipts: tuple[str, ...]
    plans: tuple[str, ...]
    work: int
    unpaid: int  # committed, never payable: gradients that nobody acknowledged; all of it where it is forfeited
    event: int  # position of its last receipt in the ledger
    time_ms: int
    tainted: bool = False
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # by validator hotkey, the latest of each
    voids: dict[str, tuple[int, int]] = field(default_factory=dict)  # by validator: `void`, of these `withheld`
    upheld_event: int | None = None  # the ledger event by which a fail of it was upheld
    forfeit: str = ""  # why its round is not paid, a word of `subnet.ledger.closed`; empty when it is
    forfeit_event: int | None = None  # the ledger event by which that came
    unacknowledged: int = 0  # what of `unpaid` stood when the segment ended


@dataclass(kw_only=True)
class StepState:
    """The step in progress: its wiring, plans by lane, and the receipts that came."""

    wiring: Wiring
    wiring_digest: str
    begun_ms: int
    plans: dict[int, Plan] = field(default_factory=dict)
    plan_digests: dict[int, str] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)

    def members(self) -> Iterator[str]:
        """Hotkeys that are in one of the step's lanes."""
        for plan in self.plans.values():
            yield from plan.path


@dataclass(frozen=True, kw_only=True)
class HopDispute:
    """One hop whose ends state different frames: `sender` says that it sent `stated`, `receiver` that it got `got`.

    Whose lie it is, the sender's signed line shows, which the receiver keeps (`subnet.audit.case`).
    """

    round: int
    step: int
    microbatch: int
    kind: str
    sender: str
    receiver: str
    stated: str
    got: str
    event: int


@dataclass(kw_only=True)
class RoundStats:
    """What a round did, for people and for pay: filled as it goes, never changed by a later round."""

    round: int
    begun_ms: int = 0
    ended_ms: int = 0
    steps: int = 0
    tokens: int = 0
    loss_sum: float = 0.0
    loss_tokens: int = 0
    bytes_activations: int = 0
    bytes_sync: int = 0


@dataclass(kw_only=True)
class RunState:
    """The fold of the ledger up to `count` events, the last with digest `root`.

    phase: "waiting" (for members or the first manifest), "train", "close" (states and contributions come in),
    "merge" (replicas reduce), "done".
    """

    config: RunConfig
    orchestrator: str
    netuid: int
    count: int = 0
    root: str = ""
    time_ms: int = 0
    phase: str = "waiting"
    round: int = 0
    step: int = 0  # number of the next step of this round
    global_step: int = 0  # steps since the run began
    next_microbatch: int = 0
    requeued: tuple[int, ...] = ()
    close_deadline_ms: int = 0
    roster: dict[str, RosterEntry] = field(default_factory=dict)
    roster_block: int = 0
    rosters: list[tuple[int, dict[str, RosterEntry]]] = field(default_factory=list)  # event and roster, oldest first
    members: dict[str, Member] = field(default_factory=dict)
    current: StepState | None = None
    plans: dict[str, Plan] = field(default_factory=dict)  # by digest
    receipts: dict[str, Receipt] = field(default_factory=dict)  # by digest
    of_plan: dict[str, list[str]] = field(default_factory=dict)  # digest of a plan -> those of the steps that follow it
    pending: dict[str, list[str]] = field(default_factory=dict)  # receipts of a hotkey since its last root
    microbatch_by: dict[tuple[int, int], str] = field(default_factory=dict)  # (stage, index) -> who did its backward
    segments: dict[str, Segment] = field(default_factory=dict)  # by id, in ledger order
    chains: dict[str, list[str]] = field(default_factory=dict)  # hotkey -> ids of its segments, in ledger order
    voided: dict[str, int] = field(default_factory=dict)  # hotkey -> event of its last upheld fail
    manifests: dict[int, Manifest] = field(default_factory=dict)
    closes: dict[int, dict[str, Receipt]] = field(default_factory=dict)  # round -> hotkey -> close receipt
    closed: dict[tuple[int, int], ClosedSet] = field(default_factory=dict)  # (round, stage)
    merged: dict[tuple[int, int], dict[str, Merged]] = field(default_factory=dict)  # (next round, stage) -> hotkey
    dissents: dict[tuple[int, int], list[str]] = field(default_factory=dict)  # as `merged`: who merged otherwise
    contributions: dict[str, Contributed] = field(default_factory=dict)  # by digest
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    fails: dict[str, list[str]] = field(default_factory=dict)  # validator -> the segments that it failed, oldest first
    seen: dict[str, list[Seen]] = field(default_factory=dict)  # by validator, in ledger order
    rounds: dict[int, RoundStats] = field(default_factory=dict)
    commitments: list[Commitment] = field(default_factory=list)
    planted: dict[str, int] = field(default_factory=dict)  # commitments to canaries -> event
    canaries: dict[str, Any] = field(default_factory=dict)  # revealed: hotkey -> `subnet.ledger.canary.Canary`
    disputes: list[HopDispute] = field(default_factory=list)  # in ledger order, by the receipt that opened them
    said: dict[str, int] = field(default_factory=dict)  # digest of each message -> event
    partial: list[int] = field(default_factory=list)  # microbatches that counted on some stages only

    def roster_at(self, count: int | None = None) -> dict[str, RosterEntry]:
        """The roster as the first `count` events state it (the first one where they state none yet), or the latest."""
        if count is None or not self.rosters:
            return self.roster
        earlier = (roster for event, roster in reversed(self.rosters) if event < count)
        return next(earlier, self.rosters[0][1])

    def validators(self, count: int | None = None) -> dict[str, int]:
        """Stake in rao of every neuron with a validator permit, by the roster of the first `count` events.

        The orchestrator's own hotkey never judges, whatever its stake.
        """
        permitted = (entry for entry in self.roster_at(count).values() if entry.permit)
        return {entry.hotkey: entry.stake_rao for entry in permitted if entry.hotkey != self.orchestrator}

    def coldkey(self, hotkey: str, count: int | None = None) -> str:
        """The coldkey behind a hotkey, or the hotkey itself when the roster does not know it."""
        entry = self.roster_at(count).get(hotkey)
        return entry.coldkey if entry else hotkey

    def disputing(self, since_round: int) -> set[str]:
        """Hotkeys at either end of a hop in dispute, since a round: one of the two lies, their audits show which."""
        recent = (each for each in self.disputes if each.round >= since_round)
        return {hotkey for each in recent for hotkey in (each.sender, each.receiver)}

    def upheld(self, segment: Segment) -> bool:
        """Whether a fail of this segment stands."""
        return segment.upheld_event is not None

    def stands(self, segment: Segment) -> bool:
        """Whether the fails given so far would uphold: two validators of different coldkeys, or the only one.

        A validator of the miner's own coldkey may not judge it, and so is not waited for.
        """
        accusers = {self.coldkey(v.validator) for v in segment.verdicts.values() if v.verdict == "fail"}
        identities = {self.coldkey(hotkey) for hotkey in self.validators()}
        if not self.config.allow_same_identity:
            identities.discard(self.coldkey(segment.hotkey))
        return bool(accusers) and (len(accusers) >= 2 or len(identities) < 2)

    def accused(self, hotkey: str) -> bool:
        """Whether some segment of the hotkey has a fail that nobody has rechecked yet: neither upheld nor contradicted
        by a pass, so that one validator's word steers no longer than until the next one has looked."""
        said = (
            {verdict.verdict for verdict in self.segments[name].verdicts.values()}
            for name in self.chains.get(hotkey, ())
            if not self.upheld(self.segments[name])
        )
        return any("fail" in verdicts and "pass" not in verdicts for verdicts in said)


def may_void(segment: Segment, validator: str, reason: str) -> bool:
    """Whether the validator may say one more `void` of a segment: a few, so that nobody fills the ledger with them.

    Of those that call others to look (`withheld`) there are as many of their own: the others do not use them up.
    """
    voids, withheld = segment.voids.get(validator, (0, 0))
    return (withheld if reason == WITHHELD else voids - withheld) < MOST_VOIDS


def is_accusation(verdict: Verdict) -> bool:
    """Whether others are to look too: a fail, or evidence that the miner or a neighbour did not show its author."""
    return verdict.verdict == "fail" or (verdict.verdict == "void" and verdict.reason in (WITHHELD, NEIGHBOUR_MISSING))


def state_digest(state: RunState) -> str:
    """blake3 over the whole state, for `the_state_is_the_log`."""
    facts = {part.name: getattr(state, part.name) for part in fields(state)}
    return digest_of({name: _text_keys(value) if isinstance(value, dict) else value for name, value in facts.items()})


def _text_keys(table: dict[Any, Any]) -> dict[str, Any]:
    """The table with keys that JSON has."""
    return {str(key): value for key, value in table.items()}
