"""The orchestrator: keeps the ledger, and does what `tick` decides. It trains nothing and never imports torch.

Its state is the fold of its ledger. Whoever waits for news is woken after every append. What it says to one miner or
to everybody is in `subnet.nodes.orchestrator_routes`.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from subnet.audit.draw import check_draw, point_of
from subnet.canonical import canonical
from subnet.config import RunConfig
from subnet.edges.blobs import BlobStore
from subnet.edges.ledger import SqlLedger
from subnet.errors import ConfigError, LedgerError, RefusedError
from subnet.ledger.admit import Door, admit
from subnet.ledger.events import Begin, Body, Commitment, Event, Revealed, Roster, RosterEntry, Said
from subnet.ledger.fold import apply
from subnet.ledger.record import Record, make_record
from subnet.ledger.state import RunState
from subnet.nodes.canaries import due_events
from subnet.nodes.clock import now_ms
from subnet.nodes.readiness import Readiness
from subnet.nodes.retention import keep_pruning
from subnet.scheduler.faults import fold_checked, orchestrator_faults
from subnet.scheduler.tick import Outside, tick, waits_for
from subnet.wire.messages import (
    KINDS,
    WIRE_VERSION,
    Head,
    Message,
    Signed,
    Verdict,
    check_signed,
    make_signed,
    read_signed,
)
from template.auth import Signer, Verifier
from template.chain import Chain
from template.errors import ChainError
from template.values import ChainView, PendingWeights

log = logging.getLogger("strata.orchestrator")

ALIVE_S = 12.0  # a miner that has not asked for this long is not planned for
LOOK_S = 0.25  # the longest pause between two looks at what is to be decided
CHAIN_PAUSE_S = 1.0
WEIGHTS_EVERY_BLOCKS = 5


@dataclass(frozen=True, kw_only=True)
class Start:
    """When the first round may begin: this many miners have joined, or this long was waited since the first."""

    num_miners: int
    patience_s: float


class Orchestrator:
    """One run on one subnet."""

    def __init__(
        self, chain: Chain, ledger: SqlLedger, *, store: BlobStore, signer: Signer, verifier: Verifier, start: Start
    ) -> None:
        self.chain = chain
        self.ledger = ledger
        self.store = store
        self.signer = signer
        self.verifier = verifier
        self.start = start
        self.view: ChainView | None = None
        self.weights: dict[int, dict[int, float]] = {}  # on the chain, per validator, for the board
        self.pending_weights: tuple[PendingWeights, ...] = ()  # committed, and not revealed yet
        self.events: list[Event] = []
        self.faults: list[str] = []  # that the log proves against us: shown, as everybody can find them
        self.readiness = Readiness()
        self.alive_s = ALIVE_S
        self.polled: dict[str, float] = {}  # hotkey -> when it last asked, by the monotonic clock
        self.canaries: tuple[Revealed, ...] = ()  # known to nobody else until they are revealed
        self._waiting = ""  # what the run stands still for, as it was said last
        self._news = asyncio.Event()
        self._first_join_s: float | None = None
        self._state: RunState | None = None

    @property
    def state(self) -> RunState:
        """The fold of the ledger."""
        assert self._state is not None, "open() comes first"
        return self._state

    async def open(self, run: RunConfig) -> None:
        """Begin a new ledger, or go on from the one that is there. Raises ConfigError when that is another run's."""
        if self.ledger.count == 0:
            config = canonical(run).decode()
            begin = Begin(config=config, orchestrator=self.signer.hotkey, netuid=self.chain.netuid)
            self.ledger.append([begin], time_ms=now_ms())
        self.events = self.ledger.events()
        self._state, self.faults = fold_checked(self.events)
        if self.state.config.run_id != run.run_id or self.state.orchestrator != self.signer.hotkey:
            raise ConfigError(
                f"expected a ledger of run {run.run_id[:12]} by {self.signer.hotkey}, found run "
                f"{self.state.config.run_id[:12]} by {self.state.orchestrator}; use another --data-dir"
            )
        if self.state.root != self.ledger.root:
            raise LedgerError(
                f"expected the ledger's last digest {self.ledger.root[:12]}, found {self.state.root[:12]} of its last "
                "event; the database was changed, restore it from a copy"
            )
        clock = time.monotonic()  # after a restart everybody has the usual time to ask again
        self.polled = {member.hotkey: clock for member in self.state.members.values() if member.active}
        await self.look_at_chain()
        await self._commit_round()  # before anybody is told where we are: the record names the run that they join

    async def run(self) -> None:
        """Decide and watch the chain until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._decide())
            tasks.create_task(self._watch_chain())
            tasks.create_task(keep_pruning(self.store, lambda: self.state))

    async def _decide(self) -> None:
        while True:
            outside = self.outside()
            orders: Sequence[Body | Message] = due_events(self.state, self.canaries) or tick(self.state, outside)
            self.readiness.went_well("a turn of its own work")
            if orders:
                self.append(orders)
                await asyncio.sleep(0)
            else:
                self._say_waiting(waits_for(self.state, outside))
                await self.news(LOOK_S)

    def _say_waiting(self, reason: str) -> None:
        """Say once what the run stands still for."""
        if reason and reason != self._waiting:
            log.warning("round=%d waiting for=%r", self.state.round, reason)
        self._waiting = reason

    def outside(self) -> Outside:
        """What `tick` needs besides the ledger."""
        assert self.view is not None
        clock = time.monotonic()
        alive = frozenset(hotkey for hotkey, at in self.polled.items() if clock - at < self.alive_s)
        committed = {r.contribution for r in self.state.closes.get(self.state.round, {}).values() if r.contribution}
        return Outside(
            now_ms=now_ms(),
            block=self.view.block,
            block_hash=self.view.block_hash,
            alive=alive,
            stored=frozenset(name for name in committed if self.store.has(name)),
            enough=self._enough(clock, len(alive & self.state.members.keys())),
        )

    def _enough(self, clock_s: float, num_alive: int) -> bool:
        if self.state.members and self._first_join_s is None:
            self._first_join_s = clock_s
        waited_s = clock_s - self._first_join_s if self._first_join_s is not None else 0.0
        return num_alive >= self.start.num_miners or waited_s > self.start.patience_s

    def append(self, entries: Sequence[Body | Message | Signed]) -> list[Event]:
        """Log entries (messages are signed first), fold them, and wake everybody who waits."""
        bodies = [Said(signed=_signed(e, self.signer)) if isinstance(e, Message | Signed) else e for e in entries]
        events = self.ledger.append(bodies, time_ms=now_ms())
        for event in events:
            self.faults += orchestrator_faults(self.state, event)
            apply(self.state, event)
            log.info("event=%d kind=%s", event.n, _kind(event.body))
        self.events.extend(events)
        news, self._news = self._news, asyncio.Event()
        news.set()
        return events

    async def news(self, wait_s: float) -> None:
        """Return after the next append, or after `wait_s`."""
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            return

    async def check_drawn(self, signed: Signed) -> None:
        """Raise RefusedError unless a verdict's segment was drawn as the rules say; the hashes come from the chain."""
        verdict = read_signed(signed, Verdict)
        segment = self.state.segments.get(verdict.segment)
        if segment is None or verdict.draw is None:
            return  # the door itself refuses what is then missing
        first = point_of(self.state.config.audit, self.state.seen.get(verdict.validator, []), segment.event)
        blocks = {verdict.draw.block, first.block} if first else {verdict.draw.block}
        hashes = {block: await self.chain.block_hash(block) for block in blocks}
        check_draw(self.state, verdict, lambda block: hashes[block])

    def log_message(self, signed: Signed) -> int:
        """Admit a signed message and log it; the number of its event. The same message again gives the same number.

        Raises RefusedError or MessageError, and logs nothing, when it may not be appended.
        """
        known = self.ledger.position(signed.digest)
        if known is not None:
            return known
        if signed.kind not in KINDS:
            raise RefusedError(f"expected a message of a known kind, found {signed.kind!r}; check the sender's version")
        check_signed(signed, KINDS[signed.kind], self.verifier)
        assert self.view is not None
        door = Door(now_ms=now_ms(), block=self.view.block, root_at=self.ledger.root_at, verifier=self.verifier)
        admit(self.state, signed, door)
        return self.append([signed])[0].n

    def head(self) -> Signed:
        """The signed head of the ledger as it is now."""
        head = Head(
            version=WIRE_VERSION,
            run_id=self.state.config.run_id,
            root=self.state.root,
            count=self.state.count,
            time_ms=now_ms(),
        )
        return make_signed(head, self.signer)

    async def _watch_chain(self) -> None:
        """Follow the chain: roster, block hashes for wirings, and the record of each round."""
        while True:
            try:
                assert self.view is not None
                await self.chain.wait_for_block(self.view.block + 1)
                await self.look_at_chain()
                self.readiness.went_well("a finalised block of the chain")
                await self._commit_round()
                if self.view.block % WEIGHTS_EVERY_BLOCKS == 0:
                    self.weights = await self.chain.weights()
                    self.pending_weights = await self.chain.pending_weights(everybody=True)
                    await self._keep_record()
            except ChainError as error:
                log.warning("chain=waiting reason=%r", str(error))
                await asyncio.sleep(CHAIN_PAUSE_S)

    async def look_at_chain(self) -> None:
        """Read the chain at its latest finalised block; log the roster when it changed."""
        self.view = await self.chain.view()
        entries = tuple(
            RosterEntry(
                uid=neuron.uid,
                hotkey=neuron.hotkey,
                coldkey=neuron.coldkey,
                stake_rao=neuron.stake_rao,
                permit=neuron.validator_permit,
            )
            for neuron in self.view.neurons
        )
        if _identities(entries) != _identities(tuple(self.state.roster.values())):
            self.append([Roster(block=self.view.block, block_hash=self.view.block_hash, entries=entries)])

    async def _commit_round(self) -> None:
        """Commit the ledger's root on the chain at the run's begin and once per manifest, and log where that stands."""
        if len({each.count for each in self.state.commitments}) > len(self.state.manifests):
            return
        await self._commit(self.state.round, self.state.root, self.state.count)

    async def _keep_record(self) -> None:
        """Commit the latest record again when a reorganisation dropped it: the chain has none then, or the one before.

        Another run's record under this hotkey is left alone: two orchestrators would replace each other's for ever.
        """
        known = [self._record(each.round, each.root, each.count) for each in self.state.commitments]
        found = await self.chain.read_commit(self.chain.hotkey)
        if known and (found is None or (found.data in known[:-1] and found.data != known[-1])):
            last = self.state.commitments[-1]
            log.warning("record=lost round=%d block=%d; committed again", last.round, last.block)
            await self._commit(last.round, last.root, last.count)

    async def _commit(self, round_number: int, root: str, count: int) -> None:
        done = await self.chain.commit(self._record(round_number, root, count))
        place = done if done.block is not None else await self.chain.read_commit(self.chain.hotkey)
        block, index = (place.block, place.extrinsic_index) if place is not None else (None, None)
        self.append(
            [Commitment(round=round_number, root=root, count=count, block=block or 0, extrinsic_index=index or 0)]
        )

    def _record(self, round_number: int, root: str, count: int) -> bytes:
        return make_record(Record(run_id=self.state.config.run_id, round=round_number, root=root, count=count))


def _signed(entry: Message | Signed, signer: Signer) -> Signed:
    return entry if isinstance(entry, Signed) else make_signed(entry, signer)


def _identities(entries: tuple[RosterEntry, ...]) -> set[tuple[int, str, str, bool]]:
    """What makes a new roster worth logging; stake alone moves every block."""
    return {(entry.uid, entry.hotkey, entry.coldkey, entry.permit) for entry in entries}


def _kind(body: Body) -> str:
    return body.signed.kind if isinstance(body, Said) else type(body).__name__.lower()
