"""A lane in memory: one miner per stage trains a run, and each of its segments comes out as an audit would see it.

Miners work in 1F1B order through the hooks of a cheat, on replicas that the caller makes, so that calibration can set
the conditions under which they compute and a benchmark can plant cheats. There are no keys, no ledger and no network:
the receipts are real, and `Unsigned` takes their signatures for good. Knows nothing of distances and verdicts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from subnet.audit.case import Case, disputes_among
from subnet.audit.chunks import CutChunks
from subnet.audit.evidence import Evidence, Needed, leading_of, needed_of
from subnet.audit.tensors import frame_header, make_frame, read_frame, tokens_digest
from subnet.canonical import canonical, digest
from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.data.pack import Corpus, microbatch
from subnet.errors import ConfigError
from subnet.merge.contribution import make_contribution, norm, read_contribution
from subnet.merge.outer import outer_step
from subnet.stage.layout import Flat, PublicState, public_to_bytes
from subnet.stage.pipeline import Action, one_forward_one_backward
from subnet.stage.state import Replica
from subnet.wire.delivery import LINE_BYTES, inbound
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import WIRE_VERSION, Plan, Receipt, Work
from template.auth import Caller
from template.errors import BadSignature
from template.values import Hotkey

Hop = tuple[int, int, int, str, int]  # round, step, microbatch, kind, the stage that receives
MakeReplica = Callable[[RunConfig, int], Replica]


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """One segment with everything that its audit can need: chunks of the end state are cut when they are asked for."""

    need: Needed
    evidence: Evidence


@dataclass(kw_only=True)
class _Miner:
    """One replica, its cheat, and what it has received, stated and committed to."""

    stage: int
    replica: Replica
    cheat: Cheat
    public: PublicState
    public_root: str = ""
    received: dict[str, bytes] = field(default_factory=dict)  # this and what follows: since the last root
    deliveries: dict[str, bytes] = field(default_factory=dict)  # the signed lines of its receipts, by digest
    receipts: list[Receipt] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    root: str = ""  # where the segment starts
    start: bytes = b""
    state: bytes = b""  # as last committed
    head: str = ""
    steps: int = 0
    tokens: int = 0  # of the round
    tokens_before: int = 0  # of the round, in earlier segments
    opens: bool = True

    @property
    def hotkey(self) -> str:
        return f"miner-{self.stage}"

    def turn(self) -> None:
        """Begin the next segment where this one ended."""
        self.root, self.start, self.opens = self.receipts[-1].state_root, self.state, False
        self.tokens_before = self.tokens
        self.received, self.deliveries, self.receipts, self.ids = {}, {}, [], []


@dataclass(kw_only=True)
class _Sent:
    """One microbatch of one stage as it goes into a receipt."""

    input: str = ""
    output: str = ""
    gradient_in: str = ""
    gradient_out: str = ""
    loss: float | None = None


class Rehearsal:
    """A run of one lane. `round` trains the next round and yields its segments stage by stage as they end."""

    def __init__(
        self,
        run: RunConfig,
        corpus: Corpus,
        *,
        make: MakeReplica = Replica,
        cheats: Mapping[int, Cheat] | None = None,
        seed: bytes = bytes(32),
    ) -> None:
        """cheats: by stage; the others are honest. seed: of the draw among frames and chunks."""
        self.run, self.corpus, self.seed = run, corpus, seed
        self.number, self.global_step, self.next_microbatch = 0, 0, 0
        self.publics: dict[str, bytes] = {}
        self.plans: dict[str, Plan] = {}
        self.delivered: dict[Hop, str] = {}  # of this step: the digest of what the receiver got
        self.miners = [
            _miner(make(run, stage), stage, (cheats or {}).get(stage, Cheat(0.0))) for stage in range(run.stages)
        ]

    def segments(self, rounds: int) -> Iterator[Rehearsed]:
        """The segments of the next rounds."""
        for _ in range(rounds):
            yield from self.round()

    def round(self) -> Iterator[Rehearsed]:
        """Train one round and take the outer step with the lane's own contributions."""
        for miner in self.miners:
            data = public_to_bytes(miner.replica.layout, miner.public)
            miner.public_root = merkle_root(data)
            self.publics[miner.public_root] = data
            moments = miner.replica.optimizer.moments() if self.number else None
            miner.cheat.start(miner.replica.start, miner.public.parameters, moments)
            miner.tokens, miner.tokens_before, miner.opens = 0, 0, True
        for step in range(self.run.train.steps_per_round):
            ends = (step + 1) % self.run.train.segment_steps == 0 and step + 1 < self.run.train.steps_per_round
            self._step(step, ends=ends)
            if ends:
                yield from self._ended()
        for miner in self.miners:
            self._close(miner)
        yield from self._ended()
        self.number += 1

    def _step(self, step: int, *, ends: bool) -> None:
        """Every stage works through its 1F1B order; whoever has its input goes on."""
        size = self.run.train.microbatches_per_step
        plan = Plan(
            version=WIRE_VERSION,
            run_id=self.run.run_id,
            round=self.number,
            step=step,
            global_step=self.global_step,
            lane=0,
            path=tuple(miner.hotkey for miner in self.miners),
            microbatches=tuple(range(self.next_microbatch, self.next_microbatch + size)),
            wiring="",
            deadline_ms=0,
        )
        queues = [one_forward_one_backward(miner.stage, self.run.stages, size) for miner in self.miners]
        sent = [{index: _Sent() for index in plan.microbatches} for _ in self.miners]
        self.delivered = {}
        while any(queues):
            moved = False
            for miner, queue in zip(self.miners, queues, strict=True):
                if queue and self._try(miner, queue[0], plan, sent):
                    queue.pop(0)
                    moved = True
            if not moved:
                raise ConfigError("expected every stage to send its tensors, found a lane that waits; use other cheats")
        for miner in self.miners:
            self._finish(miner, plan, sent[miner.stage], ends=ends)
        self.global_step += 1
        self.next_microbatch += size

    def _try(self, miner: _Miner, action: Action, plan: Plan, sent: list[dict[int, _Sent]]) -> bool:
        index = plan.microbatches[action.position]
        done = self._forward if action.kind == "F" else self._backward
        return done(miner, index, plan, sent)

    def _forward(self, miner: _Miner, index: int, plan: Plan, sent: list[dict[int, _Sent]]) -> bool:
        record, stage = sent[miner.stage][index], miner.replica.stage
        tokens, labels = (torch.from_numpy(part) for part in microbatch(self.run, self.corpus, index))
        inputs = tokens
        came = self.delivered.get(_key(plan, index, "activation", to=miner.stage), "")
        record.input = tokens_digest(tokens.numpy()) if miner.stage == 0 else came
        if not record.input:
            return False
        if miner.stage > 0:
            inputs = self._take(miner, plan, index, "activation", record.input)
        if stage.span.head:
            record.loss = float(miner.cheat.loss(stage.loss, index, inputs, labels))
        else:
            output = miner.cheat.forward(stage.forward, index, inputs)
            record.output = self._give(miner, miner.stage + 1, plan, index, "activation", output)
        return True

    def _backward(self, miner: _Miner, index: int, plan: Plan, sent: list[dict[int, _Sent]]) -> bool:
        record, stage, gradient = sent[miner.stage][index], miner.replica.stage, None
        if not stage.span.head:
            record.gradient_in = self.delivered.get(_key(plan, index, "gradient", to=miner.stage), "")
            if not record.gradient_in:
                return False
            gradient = self._take(miner, plan, index, "gradient", record.gradient_in)
        planned = len(plan.microbatches) * self.run.microbatch_tokens
        result = miner.cheat.backward(stage.backward, index, gradient, planned)
        if result is not None:
            record.gradient_out = self._give(miner, miner.stage - 1, plan, index, "gradient", result)
        return True

    def _give(self, miner: _Miner, to: int, plan: Plan, index: int, kind: str, values: torch.Tensor) -> str:
        """Deliver a tensor; the digest of what the receipt will name, whatever the neighbour got."""
        frame = make_frame(self._header(plan, index, kind), values.numpy())
        data = miner.cheat.deliver(lambda same: same, frame)
        if data is not None:
            self.miners[to].received[digest(data)] = data
            self.delivered[_key(plan, index, kind, to=to)] = digest(data)
        return digest(frame)

    def _take(self, miner: _Miner, plan: Plan, index: int, kind: str, name: str) -> torch.Tensor:
        return torch.from_numpy(read_frame(self._header(plan, index, kind), miner.received[name]))

    def _header(self, plan: Plan, index: int, kind: str) -> Any:
        return frame_header(self.run, round=plan.round, step=plan.step, microbatch=index, kind=kind)

    def _finish(self, miner: _Miner, plan: Plan, sent: dict[int, _Sent], *, ends: bool) -> None:
        gradient_norm = miner.cheat.optimizer_step(miner.replica.step, plan.global_step)
        miner.steps += 1
        miner.tokens += len(sent) * self.run.microbatch_tokens
        work = tuple(_work(index, record) for index, record in sent.items())
        root = self._commit(miner) if ends else ""
        self._state(
            miner, plan, kind="step", step=plan.step, work=work, gradient_norm=float(gradient_norm), state_root=root
        )

    def _close(self, miner: _Miner) -> None:
        """Commit the state and the contribution, and take the outer step with it alone."""
        start, end = miner.public.parameters, miner.replica.stage.parameters_flat()
        data = miner.cheat.contribution(make_contribution, start, end)
        values = read_contribution(data, end.size)
        self._state(
            miner,
            None,
            kind="close",
            step=self.run.train.steps_per_round,
            state_root=self._commit(miner),
            contribution=digest(data),
            contribution_norm=norm(values),
            tokens=miner.tokens,
        )
        parameters, momentum = outer_step(start, miner.public.outer_momentum, values, self.run.outer)
        miner.public = PublicState(parameters=parameters, outer_momentum=momentum)

    def _commit(self, miner: _Miner) -> str:
        miner.state = miner.replica.commit()
        return merkle_root(miner.state)

    def _state(self, miner: _Miner, plan: Plan | None, **stated: Any) -> None:
        """Append a receipt; what is not stated is empty."""
        empty: dict[str, Any] = {"work": (), "gradient_norm": None, "state_root": "", "contribution": ""}
        empty |= {"contribution_norm": None, "tokens": 0}
        receipt = Receipt(
            version=WIRE_VERSION,
            run_id=self.run.run_id,
            hotkey=miner.hotkey,
            round=self.number,
            stage=miner.stage,
            lane=0,
            plan=digest(canonical(plan)) if plan else "",
            previous=miner.head,
            replica_steps=miner.steps,
            state_bytes=miner.replica.layout.state_bytes if stated["state_root"] else 0,
            time_ms=0,
            **(empty | stated),
        )
        lines = bytes(LINE_BYTES * len(inbound(receipt)))
        miner.deliveries[digest(lines)] = lines
        receipt = replace(receipt, deliveries=digest(lines) if lines else "")
        receipt = miner.cheat.send(lambda draft: draft, miner.cheat.receipt(lambda draft: draft, receipt))
        miner.head = digest(canonical(receipt))
        miner.receipts.append(receipt)
        miner.ids.append(miner.head)
        if plan is not None:
            self.plans[receipt.plan] = plan

    def _ended(self) -> list[Rehearsed]:
        """The segments that just ended; the miners go on from there."""
        found = [self._segment(miner) for miner in self.miners]
        for miner in self.miners:
            miner.turn()
        return found

    def _segment(self, miner: _Miner) -> Rehearsed:
        layout, last = miner.replica.layout, miner.receipts[-1]
        others = [receipt for other in self.miners for receipt in other.receipts]
        case = Case(
            id=miner.ids[-1],
            hotkey=miner.hotkey,
            stage=miner.stage,
            round=self.number,
            opens_round=miner.opens,
            start_root=miner.root,
            start_bytes=layout.state_bytes if miner.root else 0,
            end_root=last.state_root,
            end_bytes=last.state_bytes,
            public_root=miner.public_root,
            public_bytes=layout.public_bytes,
            ids=tuple(miner.ids),
            receipts=tuple(miner.receipts),
            plans={receipt.plan: self.plans[receipt.plan] for receipt in miner.receipts if receipt.plan},
            disputes=disputes_among(tuple(miner.receipts), others),
            tokens_before=miner.tokens_before,
        )
        need = needed_of(case, self.run, seed=self.seed)
        frames = {name: miner.received[name] for name in need.inbound if name in miner.received}
        for frame in need.outbound:
            held = self.miners[int(frame.receiver.removeprefix("miner-"))].received
            frames |= {frame.digest: held[frame.digest]} if frame.digest in held else {}
        shown = {name: lines for other in self.miners for name, lines in other.deliveries.items()}
        chunks, public = CutChunks(miner.state), self.publics.get(need.public_root)
        evidence = Evidence(
            public=leading_of(public, need.parameter_bytes) if public is not None else None,
            start=miner.start if need.start_root else None,
            frames=frames,
            deliveries={lines.name: shown[lines.name] for lines in need.deliveries},
            leaves=chunks.leaves if need.order else None,
            chunks=chunks,
        )
        return Rehearsed(need=need, evidence=evidence)


def _miner(replica: Replica, stage: int, cheat: Cheat) -> _Miner:
    still: Flat = np.zeros(replica.layout.num_parameters, dtype=np.float32)
    public = PublicState(parameters=replica.stage.parameters_flat(), outer_momentum=still)
    return _Miner(stage=stage, replica=replica, cheat=cheat, public=public)


def _work(index: int, sent: _Sent) -> Work:
    return Work(
        index=index,
        input=sent.input,
        output=sent.output,
        output_ack="ack" if sent.output else "",
        gradient_in=sent.gradient_in,
        gradient_out=sent.gradient_out,
        gradient_ack="ack" if sent.gradient_out else "",
        loss=sent.loss,
    )


def _key(plan: Plan, index: int, kind: str, *, to: int) -> Hop:
    return plan.round, plan.step, index, kind, to


class Unsigned:
    """Takes every signature of a rehearsal for good: nobody signs there."""

    def verify(self, data: bytes, signature: bytes, hotkey: Hotkey) -> bool:
        """Whatever it is."""
        return True

    def verify_request(self, method: str, target: str, headers: Mapping[str, str]) -> Caller:
        """There are no requests in a rehearsal."""
        raise BadSignature("expected no request in a rehearsal, found one; send it to a node")
