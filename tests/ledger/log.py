"""A log that grows by the real tick, through the real door, in virtual time; no node and no torch."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from subnet.canonical import canonical, digest
from subnet.config import RunConfig
from subnet.errors import RefusedError
from subnet.ledger.admit import Door, admit
from subnet.ledger.events import (
    GENESIS,
    Begin,
    Body,
    Event,
    Roster,
    RosterEntry,
    Said,
    make_event,
)
from subnet.ledger.fold import apply, fold
from subnet.ledger.state import RunState, state_digest
from subnet.scheduler.tick import Outside, tick
from subnet.wire.messages import (
    WIRE_VERSION,
    Message,
    make_signed,
)
from template.fake.keys import FakeSigner, FakeVerifier
from tests.ledger.small import run_config

T0_MS = 1_790_000_000_000
STAKE_RAO = 10**12


@cache
def signer(name: str) -> FakeSigner:
    """The keys of a name."""
    return FakeSigner(name)


def hotkey(name: str) -> str:
    """The hotkey of a name."""
    return signer(name).hotkey


@dataclass(kw_only=True)
class SimulatedLog:
    """One run's log and state, its orchestrator and its door, who is seated and alive, what the store holds."""

    run: RunConfig = field(default_factory=run_config)
    validators: tuple[str, ...] = ("validator-0", "validator-1")
    events: list[Event] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)  # how many events there were after each append
    alive: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    seats: dict[str, str] = field(default_factory=dict)  # name -> name of its coldkey
    names: dict[str, str] = field(default_factory=dict)  # hotkey -> name, of everybody who ever had a seat
    now_ms: int = T0_MS
    block: int = 1
    state: RunState = field(init=False)

    def __post_init__(self) -> None:
        begin = Begin(config=canonical(self.run).decode(), orchestrator=hotkey("owner"), netuid=1)
        first = make_event(begin, n=0, previous=GENESIS, time_ms=self.now_ms)
        self.events.append(first)
        self.state = fold([first])
        self.seats = {name: f"{name}/coldkey" for name in ("owner", *self.validators)}
        self.log_roster()

    # What the orchestrator does

    def append(self, entries: Iterable[Body | Message]) -> None:
        """Log entries in one piece, messages signed by the orchestrator."""
        for entry in entries:
            body = Said(signed=make_signed(entry, signer("owner"))) if isinstance(entry, Message) else entry
            self._log(body)
        self.commits.append(len(self.events))

    def _log(self, body: Body) -> None:
        event = make_event(body, n=self.state.count, previous=self.state.root, time_ms=self.now_ms)
        self.events.append(event)
        apply(self.state, event)

    def log_roster(self) -> None:
        """Log who is registered now."""
        self.names |= {hotkey(name): name for name in self.seats}
        entries = tuple(
            RosterEntry(
                uid=uid,
                hotkey=hotkey(name),
                coldkey=hotkey(cold),
                stake_rao=STAKE_RAO if name in self.validators else 0,
                permit=name in self.validators,
            )
            for uid, (name, cold) in enumerate(self.seats.items())
        )
        self.append([Roster(block=self.block, block_hash=self.block_hash, entries=entries)])

    @property
    def block_hash(self) -> str:
        """The hash of the latest block."""
        return "0x" + digest(f"block {self.block}".encode())

    def outside(self) -> Outside:
        """What the orchestrator sees besides its ledger."""
        return Outside(
            now_ms=self.now_ms,
            block=self.block,
            block_hash=self.block_hash,
            alive=frozenset(hotkey(name) for name in self.alive),
            stored=frozenset(self.stored),
            enough=True,
        )

    def decide(self) -> int:
        """Let the orchestrator decide until it has nothing more to say; how many times it spoke."""
        spoken = 0
        while orders := tick(self.state, self.outside()):
            self.append(orders)
            spoken += 1
            assert spoken < 1000, f"the orchestrator repeats itself: {orders}"
        return spoken

    def restart(self) -> None:
        """Forget everything but the log. `the_state_is_the_log`: nothing is lost."""
        before = state_digest(self.state)
        self.state = fold(self.events)
        assert state_digest(self.state) == before

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, a block for each second."""
        self.now_ms += milliseconds
        self.block += max(1, milliseconds // 1000)

    # What others say

    def door(self) -> Door:
        """The orchestrator's door now."""
        return Door(
            now_ms=self.now_ms,
            block=self.block,
            root_at=lambda count: self.events[count - 1].digest if count else GENESIS,
            verifier=FakeVerifier(hotkey("owner")),
        )

    def say(self, name: str, message: Message) -> str:
        """Have a message admitted and logged; its digest. Raises RefusedError with nothing changed."""
        signed = make_signed(message, signer(name))
        try:
            admit(self.state, signed, self.door())
        except RefusedError:
            assert state_digest(self.state) == state_digest(fold(self.events)), "a refusal changed the state"
            raise
        self._log(Said(signed=signed))
        self.commits.append(len(self.events))
        return signed.digest

    def of(self, kind: type[Message], /, **values: Any) -> Any:
        """A message of this run."""
        return kind(version=WIRE_VERSION, run_id=self.run.run_id, **values)

    def seat(self, name: str, *, coldkey: str = "") -> None:
        """Register a hotkey, under a coldkey of its own unless one is named."""
        self.seats[name] = coldkey or f"{name}/coldkey"
        self.log_roster()

    def unseat(self, name: str) -> None:
        """Take a registration away."""
        del self.seats[name]
        self.log_roster()
