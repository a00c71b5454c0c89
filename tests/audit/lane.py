"""A run in memory: one miner per stage in one lane, their frames and states, and the ledger that tells of them.

Miners work in 1F1B order, as real ones do, through the hooks of a cheat; the ledger is folded from real events. There
are no keys: a delivery is signed as `template.fake` would for a hotkey of this name, and other signatures are made up,
because the fold does not check them.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import torch

from subnet.audit.case import Lines
from subnet.audit.chunks import CutChunks
from subnet.audit.draw import draw_seed
from subnet.audit.evidence import Evidence, Needed, leading_of, needed
from subnet.audit.judge import Judgement, audit
from subnet.audit.tensors import frame_bytes, frame_header, make_frame, read_frame, tokens_digest
from subnet.canonical import canonical, digest
from subnet.cheats.base import Cheat
from subnet.config import ModelConfig, RunConfig
from subnet.data.pack import Corpus, microbatch
from subnet.ledger.events import (
    GENESIS,
    Assign,
    Begin,
    Manifest,
    Roster,
    RosterEntry,
    RoundBegin,
    RoundClose,
    Said,
    StagePublic,
    StepEnd,
    make_event,
)
from subnet.ledger.fold import apply, begin
from subnet.ledger.state import RunState, Segment
from subnet.merge.contribution import make_contribution, norm, read_contribution
from subnet.merge.outer import outer_step
from subnet.stage.layout import PublicState, public_to_bytes
from subnet.stage.pipeline import Action, one_forward_one_backward
from subnet.stage.state import Replica
from subnet.wire.delivery import Key, deliver_target, inbound, make_line
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import WIRE_VERSION, Free, Join, Message, Plan, Receipt, Signed, Wiring, Work
from template.auth import request_bytes
from template.fake.keys import FakeVerifier, fake_signature
from tests.model.tiny import tiny_model, tiny_run

VALIDATORS = ("validator-a", "validator-b")
CORPUS_DIGEST = "c0" * 32
VERIFIER = FakeVerifier("validator-a")
NONCE = 7
SEED = draw_seed("run", "root", "hash", VALIDATORS[0])


def corpus() -> Corpus:
    """Tokens in no order."""
    tokens = np.random.default_rng(3).integers(0, 256, size=6001).astype(np.uint8)
    return Corpus(tokens=tokens, digest=CORPUS_DIGEST, vocabulary=256)


def lane_run(
    stages: int, *, model: ModelConfig | None = None, codec: str = "none", attention: str = "sdpa", steps: int = 4
) -> RunConfig:
    """Segments of 2 steps; `steps` of them in a round."""
    run = tiny_run(model or tiny_model(), stages=stages, attention=attention)
    return msgspec.structs.replace(
        run,
        data=msgspec.structs.replace(run.data, corpus_digest=CORPUS_DIGEST),
        train=msgspec.structs.replace(run.train, segment_steps=2, steps_per_round=steps),
        lanes=msgspec.structs.replace(run.lanes, codec=codec),
        allow_same_identity=False,
    )


class Miner:
    """One replica with its cheat, and what its blob server holds."""

    def __init__(self, run: RunConfig, stage: int, cheat: Cheat) -> None:
        self.hotkey, self.stage, self.cheat = f"miner-{stage}", stage, cheat
        self.replica = Replica(run, stage)
        self.received: dict[str, bytes] = {}
        self.lines: dict[Key, bytes] = {}  # what its senders signed
        self.deliveries: dict[str, bytes] = {}
        self.states: dict[str, bytes] = {}
        self.contribution = b""
        self.head, self.steps, self.since_root = "", 0, 0
        self.momentum = np.zeros(self.replica.layout.num_parameters, dtype=np.float32)
        self.public = PublicState(parameters=self.replica.stage.parameters_flat(), outer_momentum=self.momentum)
        self.tokens = 0


class Lane:
    """The run: miners, ledger, and the store of public states."""

    def __init__(
        self,
        run: RunConfig,
        cheats: Mapping[int, Cheat] | None = None,
        *,
        alter: Mapping[int, Callable[[bytes], bytes]] | None = None,
        stated_bytes: Mapping[int, int] | None = None,
        drop: int | None = None,
    ) -> None:
        """alter: by stage, what becomes of a state before it is committed. stated_bytes: by stage, how many more bytes
        its receipts state. drop: the position of the microbatch that every step loses."""
        self.run, self.corpus = run, corpus()
        self.alter, self.stated_bytes, self.drop = alter or {}, stated_bytes or {}, drop
        self.miners = [Miner(run, stage, (cheats or {}).get(stage, Cheat(0.0))) for stage in range(run.stages)]
        self.public: dict[str, bytes] = {}
        self.index = itertools.count()
        self.state: RunState = begin(
            make_event(
                Begin(config=canonical(run).decode(), orchestrator="orchestrator", netuid=1),
                n=0,
                previous=GENESIS,
                time_ms=0,
            )
        )
        self._enlist()

    def _enlist(self) -> None:
        names = [*(miner.hotkey for miner in self.miners), *VALIDATORS]
        entries = tuple(
            RosterEntry(uid=uid, hotkey=name, coldkey=f"cold-{name}", stake_rao=1, permit=name in VALIDATORS)
            for uid, name in enumerate(names)
        )
        self.log(Roster(block=1, block_hash="00", entries=entries))
        for miner in self.miners:
            self.say(
                miner.hotkey,
                Join(
                    version=WIRE_VERSION,
                    run_id=self.run.run_id,
                    hotkey=miner.hotkey,
                    address="",
                    memory_bytes=1,
                    root="",
                    time_ms=0,
                ),
            )
            self.log(Assign(hotkey=miner.hotkey, stage=miner.stage, round=0))

    def log(self, body: object) -> None:
        """Append an event."""
        state = self.state
        apply(state, make_event(body, n=state.count, previous=state.root, time_ms=1000 * state.count))

    def say(self, hotkey: str, message: Message) -> str:
        """Append a message; its digest."""
        signed = Signed(
            kind=type(message).__name__.lower(), hotkey=hotkey, body=canonical(message).decode(), signature="00"
        )
        self.log(Said(signed=signed))
        return signed.digest

    def round(self, number: int, *, close: bool = True) -> None:
        """Publish the stages, train a round's steps, and close it."""
        stages = []
        for miner in self.miners:
            data = public_to_bytes(miner.replica.layout, miner.public)
            root = merkle_root(data)
            self.public[root] = data
            stages.append(StagePublic(root=root, state_bytes=len(data)))
            if number > 0:
                miner.replica.start(miner.public.parameters, miner.replica.optimizer.moments())
            miner.tokens = 0
        self.log(Manifest(round=number, stages=tuple(stages), dissenting=()))
        self.log(RoundBegin(round=number, block=10))
        for step in range(self.run.train.steps_per_round):
            self.step(number, step)
        if close:
            self.log(RoundClose(round=number, deadline_ms=10**12))
            for miner in self.miners:
                self.close(miner, number)

    def plan(self, number: int, step: int) -> tuple[Plan, str]:
        """Order the next step of the only lane."""
        state, size = self.state, self.run.train.microbatches_per_step
        free = tuple(
            (Free(hotkey=miner.hotkey, coldkey=f"cold-{miner.hotkey}", speed_class=0, waited_steps=0),)
            for miner in self.miners
        )
        wiring = self.say(
            "orchestrator",
            Wiring(
                version=WIRE_VERSION,
                run_id=self.run.run_id,
                round=number,
                step=step,
                block=10,
                block_hash="00",
                free=free,
                first_microbatch=state.next_microbatch,
                requeued=(),
            ),
        )
        plan = Plan(
            version=WIRE_VERSION,
            run_id=self.run.run_id,
            round=number,
            step=step,
            global_step=state.global_step,
            lane=0,
            path=tuple(miner.hotkey for miner in self.miners),
            microbatches=tuple(range(state.next_microbatch, state.next_microbatch + size)),
            wiring=wiring,
            deadline_ms=10**12,
        )
        return plan, self.say("orchestrator", plan)

    def step(self, number: int, step: int) -> None:
        """Every stage works through its 1F1B order; whoever has its input goes on."""
        plan, plan_digest = self.plan(number, step)
        queues = [
            one_forward_one_backward(miner.stage, self.run.stages, len(plan.microbatches)) for miner in self.miners
        ]
        kept = [index for position, index in enumerate(plan.microbatches) if position != self.drop]
        queues = [[action for action in queue if action.position != self.drop] for queue in queues]
        done: list[dict[int, dict[str, object]]] = [{index: {} for index in kept} for _ in self.miners]
        while any(queues):
            for miner, queue in zip(self.miners, queues, strict=True):
                if queue and self._try(miner, queue[0], plan, done):
                    queue.pop(0)
        for miner in self.miners:
            self._finish(miner, plan, plan_digest, done[miner.stage])
        self.log(StepEnd(round=number, step=step, done=tuple(kept), partial=(), requeued=(), missing=()))

    def _try(self, miner: Miner, action: Action, plan: Plan, done: list[dict[int, dict[str, object]]]) -> bool:
        index, stage, last = plan.microbatches[action.position], miner.replica.stage, miner.stage == self.run.stages - 1
        record = done[miner.stage][index]
        if action.kind == "F":
            tokens, labels = (torch.from_numpy(part) for part in microbatch(self.run, self.corpus, index))
            if miner.stage == 0:
                inputs, record["input"] = tokens, tokens_digest(tokens.numpy())
            else:
                sent = done[miner.stage - 1][index].get("output")
                if sent is None:
                    return False
                inputs, record["input"] = self._take(miner, plan, index, "activation", str(sent)), sent
            if last:
                record["loss"] = miner.cheat.loss(stage.loss, index, inputs, labels)
            else:
                out = miner.cheat.forward(stage.forward, index, inputs)
                record["output"] = self._give(miner, miner.stage + 1, plan, index, "activation", out)
            return True
        gradient = None
        if not last:
            sent = done[miner.stage + 1][index].get("gradient_out")
            if sent is None:
                return False
            gradient, record["gradient_in"] = self._take(miner, plan, index, "gradient", str(sent)), sent
        planned = len(plan.microbatches) * self.run.train.microbatch_sequences * self.run.data.sequence_tokens
        result = miner.cheat.backward(stage.backward, index, gradient, planned)
        if result is not None:
            record["gradient_out"] = self._give(miner, miner.stage - 1, plan, index, "gradient", result)
        return True

    def _give(self, miner: Miner, to: int, plan: Plan, index: int, kind: str, values: torch.Tensor) -> str:
        header = frame_header(self.run, round=plan.round, step=plan.step, microbatch=index, kind=kind)
        data = make_frame(header, values.numpy())
        self.deliver(miner, self.miners[to], (plan.round, plan.step, index, kind), data)
        return digest(data)

    def deliver(self, sender: Miner, receiver: Miner, key: Key, data: bytes) -> None:
        """Give a neighbour a frame, under the sender's signature."""
        receiver.received[digest(data)] = data
        receiver.lines[key] = signed_line(self.run, key, digest(data), sender=sender.hotkey, receiver=receiver.hotkey)

    def _take(self, miner: Miner, plan: Plan, index: int, kind: str, name: str) -> torch.Tensor:
        header = frame_header(self.run, round=plan.round, step=plan.step, microbatch=index, kind=kind)
        return torch.from_numpy(read_frame(header, miner.received[name]))

    def _finish(self, miner: Miner, plan: Plan, plan_digest: str, done: dict[int, dict[str, object]]) -> None:
        gradient_norm = miner.cheat.optimizer_step(miner.replica.step, plan.global_step)
        miner.steps += 1
        miner.since_root += 1
        miner.tokens += len(done) * self.run.train.microbatch_sequences * self.run.data.sequence_tokens
        root = ""
        if miner.since_root == self.run.train.segment_steps:
            root, miner.since_root = self._commit(miner), 0
        work = tuple(_work(index, record) for index, record in done.items())
        receipt = _receipt(
            miner,
            self.run,
            kind="step",
            round=plan.round,
            step=plan.step,
            plan=plan_digest,
            work=work,
            gradient_norm=gradient_norm,
            state_root=root,
        )
        lines = b"".join(miner.lines[key] for key, _ in inbound(receipt))
        miner.deliveries[digest(lines)] = lines
        self._sign(miner, msgspec.structs.replace(receipt, deliveries=digest(lines) if lines else ""))

    def _commit(self, miner: Miner) -> str:
        data = self.alter.get(miner.stage, bytes)(miner.replica.commit())
        root = merkle_root(data)
        miner.states[root] = data
        return root

    def _sign(self, miner: Miner, receipt: Receipt) -> None:
        stated = receipt.state_bytes + self.stated_bytes.get(miner.stage, 0)
        receipt = msgspec.structs.replace(receipt, state_bytes=stated if receipt.state_root else 0)
        signed = miner.cheat.receipt(lambda draft: draft, receipt)
        miner.head = self.say(miner.hotkey, signed)

    def close(self, miner: Miner, number: int) -> None:
        """Commit the state and the contribution, and take the outer step with it alone."""
        root, miner.since_root = self._commit(miner), 0
        end = miner.replica.stage.parameters_flat()
        start = miner.public.parameters
        data = miner.contribution = miner.cheat.contribution(make_contribution, start, end)
        values = read_contribution(data, end.size)
        receipt = _receipt(
            miner,
            self.run,
            kind="close",
            round=number,
            step=self.run.train.steps_per_round,
            state_root=root,
            contribution=digest(data),
            contribution_norm=norm(values),
            tokens=miner.tokens,
        )
        self._sign(miner, receipt)
        parameters, momentum = outer_step(start, miner.public.outer_momentum, values, self.run.outer)
        miner.public = PublicState(parameters=parameters, outer_momentum=momentum)

    def segments(self, stage: int) -> list[Segment]:
        """The segments of a stage's miner, oldest first."""
        return [segment for segment in self.state.segments.values() if segment.stage == stage]

    def evidence(self, need: Needed) -> Evidence:
        """Everything that is needed and that whoever owes it has."""
        owner = next(miner for miner in self.miners if miner.hotkey == need.case.hotkey)
        frames = {name: owner.received[name] for name in need.inbound if name in owner.received}
        for frame in need.outbound:
            receiver = next(miner for miner in self.miners if miner.hotkey == frame.receiver)
            if frame.digest in receiver.received:
                frames[frame.digest] = receiver.received[frame.digest]
        chunks, public = CutChunks(owner.states[need.end_root]), self.public.get(need.public_root)
        return Evidence(
            public=leading_of(public, need.parameter_bytes) if public is not None else None,
            start=owner.states.get(need.start_root),
            frames=frames,
            deliveries={lines.name: self.shown(lines) for lines in need.deliveries},
            leaves=chunks.leaves if need.order else None,
            chunks=chunks,
        )

    def shown(self, lines: Lines) -> bytes:
        """The signed deliveries that a miner shows."""
        return next(miner.deliveries[lines.name] for miner in self.miners if miner.hotkey == lines.holder)

    def judge(self, segment: Segment, *, seed: bytes = SEED) -> Judgement:
        """Audit a segment with all the evidence there is."""
        need = needed(self.state, segment, seed=seed)
        return audit(need, self.evidence(need), self.run, corpus=self.corpus, verifier=VERIFIER, refused=False)

    def judgements(self, stage: int) -> list[Judgement]:
        """Audit every segment of a stage."""
        return [self.judge(segment) for segment in self.segments(stage)]


def signed_line(run: RunConfig, key: Key, name: str, *, sender: str, receiver: str) -> bytes:
    """What the sender signs when it delivers a frame of this digest."""
    target = deliver_target(run.run_id, key, name, frame_bytes(run))
    signed = request_bytes("POST", target, nonce_ns=NONCE, sender=sender, receiver=receiver)
    return make_line(NONCE, fake_signature(sender, signed).hex())


def _work(index: int, record: Mapping[str, object]) -> Work:
    names = {key: str(record.get(key, "")) for key in ("input", "output", "gradient_in", "gradient_out")}
    loss = record.get("loss")
    return Work(
        index=index,
        output_ack="ack" if names["output"] else "",
        gradient_ack="ack" if names["gradient_out"] else "",
        loss=float(loss) if isinstance(loss, float) else None,
        **names,
    )


def _receipt(miner: Miner, run: RunConfig, **stated: object) -> Receipt:
    """A receipt with everything that is not stated left empty."""
    empty: dict[str, object] = dict(
        lane=0,
        plan="",
        work=(),
        gradient_norm=None,
        state_root="",
        contribution="",
        contribution_norm=None,
        tokens=0,
    )
    filled = empty | stated
    return Receipt(
        version=WIRE_VERSION,
        run_id=run.run_id,
        hotkey=miner.hotkey,
        stage=miner.stage,
        previous=miner.head,
        replica_steps=miner.steps,
        state_bytes=miner.replica.layout.state_bytes if filled["state_root"] else 0,
        time_ms=0,
        **filled,  # type: ignore[arg-type]
    )


def reasons(judgements: Sequence[Judgement]) -> list[str]:
    """The reason words in order."""
    return [judgement.reason for judgement in judgements]
