"""A validator: countersigns heads, draws, fetches, replays, judges, scores, and sets weights. Trusts nobody's word.

Four loops over one follower: one keeps the ledger up to date, one draws, countersigns and sets weights, one audits what
is due, and one merges again where a merge is disputed.
A failure of its own makes a verdict void, never a fail. It keeps nothing that the ledger and the chain do not have, so
a restarted validator resumes its open audits.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from subnet.audit.draw import OWED_ROUNDS, done_until, draw, draw_points, point_of, seed_of
from subnet.audit.evidence import Evidence, Needed, joined, needed
from subnet.audit.judge import Begun, Judgement, as_refused, conclude, examine, make_verdict
from subnet.audit.pathway import suspects
from subnet.audit.pinned import to_pin
from subnet.audit.replayed import Replayed
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.errors import MessageError, SubnetError, UnreachableError
from subnet.incentive.owed import is_open
from subnet.incentive.score import books
from subnet.incentive.weights import to_weights
from subnet.ledger.accusing import hiders, refusal_seen_by_two
from subnet.ledger.state import NEIGHBOUR_MISSING, RunState, is_accusation, may_void
from subnet.nodes.checking_merges import MergeChecks
from subnet.nodes.client import RunClient
from subnet.nodes.clock import now_ms
from subnet.nodes.dues import Due, Dues, first_of
from subnet.nodes.evidence import NetworkSource, gather, grace_s, network_source, rebuild_s
from subnet.nodes.follower import Follower
from subnet.nodes.hidden import Hidden
from subnet.nodes.readiness import Readiness
from subnet.nodes.weighing import Weighing
from subnet.wire.messages import WIRE_VERSION, Draw, Seen
from template.chain import Chain
from template.errors import ChainError, PeerRefused, TransportError
from template.values import ChainView

T = TypeVar("T")

log = logging.getLogger("strata.validator")

POLL_S = 2.0
CHAIN_PAUSE_S = 1.0
RUN_PAUSE_S = 3.0  # after an answer that is none of the orchestrator's
COUNTERSIGN_S = 5.0  # an orchestrator that is away for longer must not hold up the weights
IDLE_S = 0.5
NO_PERMIT = "permit=no: nothing is drawn and no weights are set; stake more on this hotkey and wait for the next epoch"
OWN_FAULTS = (SubnetError, ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What one try to audit a segment came to, what that rests on, and the source of what was asked for last."""

    judgement: Judgement
    evidence: Evidence
    source: NetworkSource
    replayed: Replayed | None = None


class Validator:
    """One validator hotkey on one run."""

    def __init__(self, chain: Chain, client: RunClient, run: RunConfig, *, corpus: Corpus) -> None:
        self.chain = chain
        self.client = client
        self.run = run
        self.corpus = corpus
        self.follower = Follower(client, run)
        self.dues = Dues()
        self.drawn_block = -1
        self.suspects: frozenset[str] = frozenset()  # by lanes' losses and disputes: an order of work, no more
        self.suspects_step = -1  # the global step they were estimated at
        self.permitted: bool | None = None
        self.seen_event = -1  # where the last head that we countersigned stands
        self.view: ChainView | None = None
        self.merges = MergeChecks(client, run)
        self.hidden = Hidden()
        self.weighing = Weighing(chain, self.scores)
        self.readiness = Readiness()
        self.progress_s = time.time()
        self._pinning: set[asyncio.Task[None]] = set()
        self._thread = ThreadPoolExecutor(1, "compute")

    @property
    def hotkey(self) -> str:
        """The validator's hotkey."""
        return self.client.signer.hotkey

    @property
    def state(self) -> RunState:
        """The ledger as far as it is known here."""
        return self.follower.state

    async def work(self) -> None:
        """Follow, audit and set weights until cancelled."""
        await self._catch_up()
        verdicts = sum(self.hotkey in segment.verdicts for segment in self.state.segments.values())
        log.info("resumed events=%d own_verdicts=%d: scores follow from the ledger", self.state.count, verdicts)
        self.view = await self.chain.view()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._watch_chain())
            tasks.create_task(self._audit_all())
            tasks.create_task(self.merges.work(lambda: self.state))

    async def _follow(self) -> None:
        while True:
            await self._catch_up(wait_s=POLL_S)

    async def _catch_up(self, *, wait_s: float = 0.0) -> None:
        """Fetch what is new in the ledger. An orchestrator that is away, or another server in its place, is waited
        for: what has been judged and scored so far goes on the chain meanwhile. LedgerError, which is proof, is raised.
        """
        while True:
            try:
                await self.follower.catch_up(wait_s=wait_s)
                break
            except (UnreachableError, MessageError, PeerRefused) as error:
                log.warning("waiting for=orchestrator reason=%r", str(error))
                await asyncio.sleep(RUN_PAUSE_S)
        self.readiness.went_well("an answer of the orchestrator")

    async def _watch_chain(self) -> None:
        """At every finalised block: draw where a draw is due, countersign the head, set weights where it is time.

        In this order: a draw needs every head that we countersigned, and the last block's is in the ledger here by now,
        while this block's takes a moment. The other way round, a log that never rests is never drawn from.
        """
        while True:
            try:
                assert self.view is not None
                await self.chain.wait_for_block(self.view.block + 1)
                self.view = await self.chain.view()
                self.readiness.went_well("a finalised block of the chain")
                await self._draw(self.view.block)
                await self._countersign(self.view.block)
                await self.weighing.look(self.view)
            except ChainError as error:
                log.warning("chain=waiting reason=%r", str(error))
                await asyncio.sleep(CHAIN_PAUSE_S)

    async def _countersign(self, block: int) -> None:
        """Say which head this validator has seen at this block, when there is something new under it."""
        head, earlier = self.follower.head, self.state.seen.get(self.hotkey)
        if head is None or (earlier and not self._judgeable(earlier[-1].count)) or not self._permitted():
            return
        seen = Seen(
            version=WIRE_VERSION,
            run_id=self.run.run_id,
            validator=self.hotkey,
            root=head.root,
            count=head.count,
            block=block,
        )
        try:
            self.seen_event = await self.client.say(seen, patience_s=COUNTERSIGN_S)
        except PeerRefused as refused:
            log.warning("seen refused=%r", str(refused))
        except (UnreachableError, MessageError) as error:
            log.info("seen=later reason=%r", str(error))  # the next block's says as much

    def _permitted(self) -> bool:
        """Whether the ledger's roster gives us a permit; says so when that changes."""
        permitted = self.hotkey in self.state.validators()
        if permitted != self.permitted:
            self.permitted = permitted
            log.info("permit=yes: segments are drawn and weights are set" if permitted else NO_PERMIT)
        return permitted

    def _judgeable(self, since: int) -> bool:
        """Whether a segment ended since event `since`."""
        return any(segment.event >= since for segment in self.state.segments.values())

    async def _draw(self, upto_block: int) -> None:
        """Do every draw up to this block that is not done yet; a missed one is done later with its block's hash."""
        if self.state.count <= self.seen_event:
            return  # a draw needs every head that we countersigned; the ledger here does not show the last one yet
        seen = self.state.seen.get(self.hotkey, [])
        if self.drawn_block < 0:
            self.drawn_block = done_until(self.state, self.hotkey)
        for point in draw_points(self.run.audit, seen, upto_block, after_block=self.drawn_block):
            block_hash = await self.chain.block_hash(point.block)
            where, segments = draw(self.state, self.hotkey, point.block, block_hash)
            for segment in segments:
                self._put(segment, where)
            self.drawn_block = point.block

    def _put(self, segment: str, where: Draw | None) -> None:
        own = self.state.segments[segment].verdicts.get(self.hotkey)
        if own is not None and own.verdict != "void":
            self.dues.judged.add(segment)
        self.dues.put(segment, where)

    def _put_foreign(self) -> None:
        """Recheck, by one's own replay, what others failed or were not shown, drawn here or not, while its evidence is
        owed: rechecks come first, and those of a long run's old fails would leave no time for what is drawn. And who
        did not show what it received from another has an audit of its own."""
        at_ms, segments = now_ms(), self.state.segments.values()
        called = {name for segment in segments for name in hiders(self.state, segment)}
        for segment in segments:
            foreign = any(is_accusation(said) for who, said in segment.verdicts.items() if who != self.hotkey)
            foreign = foreign or segment.id in called
            mine = self.state.coldkey(self.hotkey) == self.state.coldkey(segment.hotkey)
            rests = not foreign or mine or segment.id in self.dues.judged or segment.id in self.dues.waiting
            if not rests and is_open(segment, self.state, now_ms=at_ms):
                own = segment.verdicts.get(self.hotkey)
                self._put(segment.id, own.draw if own else None)

    async def _audit_all(self) -> None:
        while True:
            self._put_foreign()
            ready = self.dues.ready(time.monotonic())
            if not ready:
                await asyncio.sleep(IDLE_S)
                continue
            await self._audit(first_of(ready, is_accused=self._accused, event_of=self._event))
            self.progress_s = time.time()

    def _accused(self, segment: str) -> bool:
        """Whether its author comes first: somebody's fail stands against it, a neighbour states another frame than it
        does, or its lanes lose more than others'."""
        hotkey = self.state.segments[segment].hotkey
        if self.suspects_step != self.state.global_step:
            self.suspects_step, self.suspects = self.state.global_step, frozenset(suspects(self.state))
            self.suspects |= self.state.disputing(self.state.round - OWED_ROUNDS + 1)
        return self.state.accused(hotkey) or hotkey in self.suspects

    def _event(self, segment: str) -> int:
        return self.state.segments[segment].event

    async def _audit(self, due: Due) -> None:
        """Fetch, replay, judge, and say so. What is withheld is asked for again until the grace is over."""
        state, segment = self.state, self.state.segments[due.segment]
        need = needed(state, segment, seed=seed_of(state, segment, due.draw, self.hotkey))
        tried = await self._tried(due, need)
        judgement = tried.judgement
        clock_s, withheld = time.monotonic(), judgement.reason == "withheld"
        if judgement.verdict == "void":
            put_off_s = rebuild_s(state, segment.hotkey) if tried.source.put_off(segment.hotkey) else 0.0
            waits_s = grace_s(need, self.run, rebuild_s=put_off_s)
            if not self.dues.tried(due, clock_s, withheld=withheld, grace_s=waits_s):
                return
            witnessed = tried.source.witnessed(segment.hotkey) and refusal_seen_by_two(state, segment, self.hotkey)
            if withheld and witnessed and segment.round > state.round - OWED_ROUNDS:
                judgement = as_refused(judgement)
        self.dues.done(due, clock_s, judged=judgement.verdict != "void")
        if judgement.reason == NEIGHBOUR_MISSING:
            self.hidden.missed(due.segment, judgement.evidence)
        elif judgement.verdict != "void":
            self.hidden.settled(due.segment)
        if judgement.verdict == "void" and not may_void(segment, self.hotkey, judgement.reason):
            log.info("segment=%s void again: said often enough, and looked at again", due.segment[:12])
            return
        pinned = to_pin(need, tried.evidence, tried.replayed) if judgement.verdict == "fail" else {}
        if pinned:
            judgement = replace(judgement, evidence=(*judgement.evidence, list(pinned)[-1]))
        if await self._say(need, due.draw, judgement) and pinned:
            task = asyncio.create_task(self._pin(pinned))
            self._pinning.add(task)
            task.add_done_callback(self._pinning.discard)

    async def _tried(self, due: Due, need: Needed) -> Tried:
        """One try. What an earlier one got is kept, and a replay not repeated: only what is missing is asked for."""
        source, state, begun = network_source(self.client, self.state, need), self.state, due.begun
        if not isinstance(begun, Begun):
            had = begun if isinstance(begun, Evidence) else Evidence()
            evidence = joined(had, await gather(source, self.run, need, have=had))
            for shown in self.hidden.look_at(evidence):
                self.dues.look_again(shown)
            begin = partial(examine, need, evidence, self.run, corpus=self.corpus, verifier=self.client.verifier)
            found = await self._judge(begin)
            if isinstance(found, Judgement):
                self.dues.keep(due, evidence)
                return Tried(judgement=found, evidence=evidence, source=source)
            begun, source = found, network_source(self.client, state, need)
        wanted = begun.wanted(need)
        begun = begun.with_more(need, self.hidden.of(wanted))
        more = await gather(source, self.run, need, have=begun.evidence, wanted=wanted)
        begun = begun.with_more(need, more)
        self.dues.keep(due, begun)
        judgement = await self._judge(partial(conclude, need, begun, self.run, wanted=wanted))
        return Tried(judgement=judgement, evidence=begun.evidence, source=source, replayed=begun.replayed)

    async def _pin(self, pinned: dict[str, bytes]) -> None:
        """Put the evidence of a fail where everybody can read it, and repeat the verdict."""
        for name, data in pinned.items():
            try:
                await self.client.put(name, data)
            except (TransportError, SubnetError) as error:
                log.warning("evidence=%s not pinned reason=%r", name[:12], str(error))

    async def _judge(self, judge: Callable[[], T]) -> T | Judgement:
        """Judge in the compute thread. Whatever fails here is this validator's fault, and no judgement of the miner."""
        try:
            judgement: T = await self._compute(judge)
        except OWN_FAULTS as error:
            log.error("audit failed reason=%r", str(error))
            return Judgement(verdict="void", reason="validator-fault", details=(str(error),))
        return judgement

    async def _say(self, need: Needed, where: Draw | None, judgement: Judgement) -> bool:
        """Have the verdict logged; whether it was."""
        verdict = make_verdict(
            need,
            judgement,
            run_id=self.run.run_id,
            validator=self.hotkey,
            draw=where,
            time_ms=now_ms(),
        )
        for detail in judgement.details:
            log.info("segment=%s detail=%r", verdict.segment[:12], detail)
        log.info(
            "segment=%s hotkey=%s verdict=%s reason=%s distance=%.3g tolerance=%.3g",
            verdict.segment[:12], verdict.hotkey, verdict.verdict, verdict.reason, verdict.distance, verdict.tolerance,
        )  # fmt: skip
        while True:
            try:
                await self.client.say(verdict)
                self.readiness.said()
                return True
            except PeerRefused as refused:
                log.warning("verdict refused=%r", str(refused))
                self.readiness.said(str(refused))
                return False
            except (UnreachableError, MessageError) as error:
                log.warning("verdict waiting for=orchestrator reason=%r", str(error))
                await asyncio.sleep(RUN_PAUSE_S)

    def scores(self, view: ChainView | None = None) -> dict[int, float]:
        """The weights that this validator would set for a view, from the ledger and its own replays."""
        seen = view or self.view
        assert seen is not None
        return to_weights(books(self.state, now_ms=now_ms(), own=self.hotkey), seen, self.run)

    @property
    def weights(self) -> dict[int, float]:
        """The weights that were set last."""
        return self.weighing.weights

    def settled(self) -> bool:
        """Whether all that can be judged is judged here, no work is pending, and the weights on the chain say so."""
        state, seen = self.state, self.state.seen.get(self.hotkey)
        if state.phase != "done" or not seen or self._judgeable(seen[-1].count):
            return False
        last = max((segment.event for segment in state.segments.values()), default=-1)
        point = point_of(self.run.audit, seen, last)
        drawn = point is None or point.block <= self.drawn_block
        untried = any(self.hotkey not in state.segments[due].verdicts for due in self.dues.waiting)
        ledger = books(state, now_ms=now_ms(), own=self.hotkey)
        pending = any(book.pending for book in ledger.values())
        untried = untried or bool(self.merges.due(state))
        return drawn and not untried and not pending and self.weights == self.scores()

    def health(self) -> dict[str, object]:
        """Facts about this process for its health page."""
        return {
            "role": "validator",
            "hotkey": self.hotkey,
            "run_id": self.run.run_id,
            "block": self.view.block if self.view else None,
            "due": len(self.dues.waiting),
            "orchestrator_faults": len(self.follower.orchestrator_faults),
            "settled": self.view is not None and self.settled(),
            "block_age_s": round(self.view.age_s(time.time()), 1) if self.view else None,
            **self.weighing.health(),
            "progress_age_s": round(time.time() - self.progress_s, 1),
        }

    async def _compute(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
