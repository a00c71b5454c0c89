"""A miner: follows its orders, trains its stage in lanes, commits its states, merges with its peers.

Two loops: one keeps asking for orders (which also says that the miner lives), one follows them in order. What a step
does is in `subnet.nodes.lane`, what is committed in `subnet.nodes.custody`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from subnet.canonical import digest, digest_of
from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.blobs import BlobStore
from subnet.edges.partial import Partial
from subnet.errors import MessageError, UnreachableError
from subnet.ledger.events import Assign, ClosedSet, Done, Event, Manifest, RoundBegin, RoundClose, Said
from subnet.nodes.client import Brief, RunClient
from subnet.nodes.clock import now_ms
from subnet.nodes.closing import Closing
from subnet.nodes.custody import Custody, holds, own_initial, remembered
from subnet.nodes.inbox import Inbox
from subnet.nodes.lane import MARGIN_FRAC, LaneStep
from subnet.nodes.reach import Peer, Reach
from subnet.nodes.readiness import Readiness
from subnet.nodes.rebuilding import Rebuilding
from subnet.nodes.retention import Retention
from subnet.nodes.told import Told
from subnet.wire.delivery import Key, acknowledgement, deliver_target, delivery_of
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import (
    WIRE_VERSION,
    Join,
    Leave,
    Plan,
    Receipt,
    Signed,
    Verdict,
    check_signed,
)
from template.auth import Signer, Verifier
from template.errors import BadResponse, PeerRefused, TransportError

log = logging.getLogger("strata.miner")

POLL_S = 4.0


@dataclass(kw_only=True)
class Miner:
    """One hotkey at work on one run."""

    run: RunConfig
    corpus: Corpus
    client: RunClient
    blobs: BlobStore
    folder: Path
    address: str  # empty when nobody can connect to it
    cheat: Cheat
    recompute: bool = False  # spare memory; see `Stage`
    keep_states: int | None = None  # keep so many states and make others again; None: keep all that are owed
    custody: Custody | None = None
    round: int = 0
    phase: str = "starting"
    from_round: int = 0
    manifests: dict[int, Manifest] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)  # who else has our stage's public states
    validators: tuple[str, ...] = ()  # who may have states made again in their own turn
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    worked_s: float = field(default_factory=time.time)
    told: Told = field(default_factory=Told)
    inbox: Inbox = field(init=False)
    readiness: Readiness = field(default_factory=Readiness)
    reach: Reach = field(init=False)
    retention: Retention = field(init=False)
    rebuilding: Rebuilding = field(init=False)
    closing: Closing = field(init=False)
    tainted: bool = False  # a fail of an earlier segment is upheld: what we build on its state is not paid
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "compute"))

    def __post_init__(self) -> None:
        self.inbox = Inbox(run=self.run)
        self.reach = Reach(self.client)
        self.closing = Closing(self)
        self.retention = Retention(blobs=self.blobs, run=self.run, folder=self.folder)
        self.rebuilding = Rebuilding(self.run, self.corpus, self.retention, newest=self.keep_states)

    @property
    def signer(self) -> Signer:
        """The hotkey that signs for this miner."""
        return self.client.signer

    @property
    def verifier(self) -> Verifier:
        """Checks the signatures of others."""
        return self.client.verifier

    async def work(self) -> None:
        """Join and follow orders until told to stop; then leave."""
        brief = await self._join()
        self.peers.update(brief.peers)
        self.holders, self.validators = brief.holders, brief.validators
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in brief.events:
            queue.put_nowait(event)
        poll = asyncio.create_task(self._poll(brief.following, queue))
        follow = asyncio.create_task(self._follow_all(queue))
        stop: asyncio.Task[Any] = asyncio.create_task(self.stopping.wait())
        try:
            done, _ = await asyncio.wait({poll, follow, stop}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (poll, follow, stop):
                task.cancel()
            await asyncio.gather(poll, follow, stop, return_exceptions=True)
        await self._leave()

    async def _join(self) -> Brief:
        join = Join(
            **self.names(), hotkey=self.signer.hotkey, address=self.address, memory_bytes=0,
            root=await self._last_root(), time_ms=now_ms(),
        )  # fmt: skip
        await self.client.say(join)
        brief = await self.client.brief()
        if brief.stage is not None:
            self._take_stage(brief.stage, brief.from_round)
            assert self.custody is not None
            self.custody.root, self.custody.root_steps = brief.root, brief.root_steps
            self.custody.opened_round, self.custody.head = brief.opened_round, brief.head
            self.custody.root_tokens, self.tainted = brief.round_tokens, brief.tainted
        for number in brief.failed_rounds:
            self.retention.pin(number)
        log.info(
            "joined address=%s stage=%s round=%d phase=%s root=%s",
            self.address, brief.stage, brief.round, brief.phase, brief.root[:12],
        )  # fmt: skip
        return brief

    async def _last_root(self) -> str:
        """The last committed state that we still hold: what the log says of us, else our own note. The log comes first,
        because an earlier process may have ended between the log's answer and its note."""
        try:
            logged = (await self.client.brief()).root
        except PeerRefused:  # no member yet, or none any more
            logged = ""
        return logged if logged and holds(self.blobs, logged) else remembered(self.folder, self.run, self.blobs)

    async def _leave(self) -> None:
        with contextlib.suppress(UnreachableError):  # then it notices by itself
            await self.client.say(Leave(**self.names(), hotkey=self.signer.hotkey, time_ms=now_ms()), patience_s=2.0)

    def close(self) -> None:
        """Let the compute thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.rebuilding.close()

    async def _poll(self, following: int, queue: "asyncio.Queue[Event]") -> None:
        while True:
            orders = await self.client.orders(following, wait_s=POLL_S)
            self.readiness.went_well("an answer of the orchestrator")
            self.peers.update(orders.peers)
            self.holders = orders.holders or self.holders
            self.tainted, self.validators = orders.tainted, orders.validators
            for event in orders.events:
                queue.put_nowait(event)
            following = orders.following

    async def _follow_all(self, queue: "asyncio.Queue[Event]") -> None:
        while True:
            await self.follow((await queue.get()).body)
            self.worked_s = time.time()

    async def follow(self, body: object) -> None:
        """Do what one order says."""
        match body:
            case Assign(stage=stage, round=from_round):
                self._take_stage(stage, from_round)
            case Manifest():
                self.manifests[body.round] = body
            case RoundBegin(round=number):
                await self._begin_round(number)
            case Said(signed=signed) if signed.kind == "verdict":
                self._judged(check_signed(signed, Verdict, self.verifier))
            case Said(signed=signed):
                await self._step(check_signed(signed, Plan, self.verifier), signed)
            case RoundClose(round=number):
                self.phase = "close"
                await self.closing.close(number)
            case ClosedSet():
                self.phase = "merge"
                await self.closing.merge(body)
            case Done():
                self.phase = "done"

    def _take_stage(self, stage: int, from_round: int) -> None:
        head, start = self.custody.head if self.custody else "", self.cheat.start
        self.custody = Custody(
            run=self.run, stage=stage, blobs=self.blobs, folder=self.folder, start=start, recompute=self.recompute,
            head=head,
        )  # fmt: skip
        self.rebuilding.forget_steps()
        self.from_round = from_round
        log.info("stage=%d from_round=%d", stage, from_round)

    async def _begin_round(self, number: int) -> None:
        """Load the round's public state, and start from it or, after a restart inside the round, from the last root."""
        self.round, self.phase = number, "train"
        if self.custody is None or number < self.from_round:
            return
        self.retention.forget(number, needed=self.custody.root)
        self.rebuilding.forget(number)
        await self.load_public(number)
        if self.tainted and self.custody.root and self.custody.opened_round != number:
            await self.unless_refused(self._start_afresh(self.custody), "fresh")
        await self.compute(self.custody.restore, number)

    async def _start_afresh(self, custody: Custody) -> None:
        """Give up the moments of a state that an upheld fail taints: what is built on it would not be paid."""
        await self.say_receipt(replace(self.blank("fresh"), replica_steps=0))
        custody.start_afresh()
        self.tainted = False
        log.warning("round=%d starting afresh: a segment before the last state failed its audit", self.round)

    async def load_public(self, number: int) -> None:
        """The public state of a round: computed here where that gives the manifest's root, else downloaded."""
        assert self.custody is not None
        public = self.manifests[number].stages[self.custody.stage]
        data = self.blobs.get(public.root) if self.blobs.has(public.root) else b""
        if not data and number == 0:
            own = await self.compute(own_initial, self.run, self.custody.stage)
            data = own if merkle_root(own) == public.root else b""
        if not data:
            partial = Partial(self.folder / "partial", public.root)
            data = await self.client.state(public.root, public.state_bytes, others=self.holders, partial=partial)
            self.retention.keep(number, public.root, data)
            partial.drop()
        self.retention.keep(number, public.root, data)
        self.custody.take_public(number, data)

    async def _step(self, plan: Plan, signed: Signed) -> None:
        """One step of one lane, and its receipt; when that comes too late, back to the last committed state."""
        custody, left_s = self.custody, plan.deadline_ms / 1000 - time.time()
        wanted = signed.hotkey == self.client.orchestrator and plan.round == self.round
        if custody is None or not wanted or left_s <= 0 or plan.round not in custody.publics:
            return
        until_s = asyncio.get_running_loop().time() + left_s * (1 - MARGIN_FRAC)
        self.inbox.open(plan, custody.stage)
        self.rebuilding.plans[signed.digest] = plan
        step = LaneStep(
            run=self.run,
            plan=plan,
            stage=custody.stage,
            replica=custody.replica,
            corpus=self.corpus,
            inbox=self.inbox,
            cheat=self.cheat,
            deliver=self._deliver,
            compute=self.compute,
            until_s=until_s,
        )
        work, gradient_norm = await step.train()
        if not work:
            log.warning("round=%d step=%d nothing done", plan.round, plan.step)
            return
        custody.steps += 1
        root, state_bytes = "", 0
        if custody.uncommitted_steps >= self.run.train.segment_steps:
            root, state_bytes = await self.compute(custody.commit)
        receipt = replace(
            self.blank("step"), step=plan.step, lane=plan.lane, plan=signed.digest, work=work,
            gradient_norm=gradient_norm, state_root=root, state_bytes=state_bytes,
        )  # fmt: skip
        try:
            await self.say_receipt(self._with_deliveries(receipt))
        except PeerRefused as refused:
            log.warning("round=%d step=%d receipt refused=%r", plan.round, plan.step, str(refused))
            self.readiness.said(str(refused))
            await self._roll_back()

    def _with_deliveries(self, receipt: Receipt) -> Receipt:
        """The receipt with the digest of its senders' signed lines, which are kept as evidence."""
        lines = self.inbox.lines(receipt)
        if lines:
            self.keep(digest(lines), lines)
        return replace(receipt, deliveries=digest(lines) if lines else "")

    async def _roll_back(self) -> None:
        """Void what was done since the last committed state, and return to it."""
        assert self.custody is not None
        await self.compute(self.custody.restore, self.round)
        receipt = replace(self.blank("rollback"), state_root=self.custody.root)
        try:
            await self.say_receipt(receipt)
        except PeerRefused as refused:
            log.warning("round=%d rollback refused=%r", self.round, str(refused))

    async def unless_refused(self, saying: Awaitable[Any], what: str) -> None:
        """Say something that may be too late, or said already by the process before this one; then go on."""
        try:
            await saying
        except PeerRefused as refused:
            log.warning("round=%d %s refused=%r", self.round, what, str(refused))

    def blank(self, kind: str) -> Receipt:
        """A receipt of this kind that states nothing yet, next in our chain."""
        assert self.custody is not None
        return Receipt(
            **self.names(),
            kind=kind,
            hotkey=self.signer.hotkey,
            round=self.round,
            step=0,
            stage=self.custody.stage,
            lane=0,
            plan="",
            previous=self.custody.head,
            work=(),
            gradient_norm=None,
            replica_steps=self.custody.steps,
            state_root="",
            state_bytes=0,
            contribution="",
            contribution_norm=None,
            tokens=0,
            time_ms=now_ms(),
        )

    async def say_receipt(self, receipt: Receipt) -> None:
        """Have a receipt logged; only then it is part of our chain."""
        assert self.custody is not None
        receipt = self.cheat.send(lambda same: same, self.cheat.receipt(lambda same: same, receipt))
        event = await self.client.say(receipt)
        if receipt.kind == "step":
            self.readiness.said()
        log.info(
            "receipt=%s round=%d step=%d microbatches=%d event=%d",
            receipt.kind, receipt.round, receipt.step, len(receipt.work), event,
        )  # fmt: skip
        self.custody.head = digest_of(receipt)
        self.custody.round_tokens += self.run.microbatch_tokens * len(receipt.work)
        self.rebuilding.said(receipt, self.custody, self.manifests.get(receipt.round))
        if receipt.state_root and receipt.kind != "rollback":
            self.custody.committed(receipt.round, receipt.state_root)
            self.retention.owe(receipt.round, receipt.state_root)
            self.rebuilding.thin()

    async def _deliver(self, receiver: str, key: Key, frame: bytes, name: str) -> str:
        """Send a frame to a neighbour; its signature over the delivery, or the relay's for a gradient it denies us."""
        target, failed = deliver_target(self.run.run_id, key, name, len(frame)), ""
        said = delivery_of(self.run.run_id, key, name, sender=self.signer.hotkey, receiver=receiver)
        peer, signers = Peer(hotkey=receiver, address=self.peers[receiver]), (receiver, self.client.orchestrator)
        for way in (self.reach.deliver, self.reach.deliver_by_letter)[: 1 + (key[3] == "gradient")]:
            try:
                return acknowledgement((await way(peer, target, frame)).body, said, signers, self.verifier)
            except (TransportError, MessageError) as error:
                failed = str(error)
        raise BadResponse(failed)

    async def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in the one thread that computes."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def keep(self, name: str, data: bytes) -> None:
        """Keep a blob of this round as evidence."""
        self.retention.keep(self.round, name, data)

    def _judged(self, verdict: Verdict) -> None:
        """Say what a validator found, and keep the evidence of a fail for others to check."""
        self.told.take(verdict)
        if verdict.verdict == "fail":
            self.retention.pin(verdict.round)

    def names(self) -> dict[str, Any]:
        return {"version": WIRE_VERSION, "run_id": self.run.run_id}

    def health(self) -> dict[str, object]:
        """Facts about this process for its health page."""
        return {
            "role": "miner",
            "hotkey": self.signer.hotkey,
            "run_id": self.run.run_id,
            "stage": self.custody.stage if self.custody else None,
            "round": self.round,
            "phase": self.phase,
            "progress_age_s": round(time.time() - self.worked_s, 1),
            **self.told.health(),
        }
