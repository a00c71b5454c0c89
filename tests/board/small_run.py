"""The ledger of a small invented run, event by event: two stages, two replicas each, two validators, one cheater.

Nothing is computed: digests are invented. What the fold makes of it is real.
"""

from typing import Any

from subnet.canonical import canonical, digest
from subnet.config import AuditConfig, DataConfig, LaneConfig, OuterConfig, PayConfig, RunConfig, TrainConfig
from subnet.edges.presets import build_model
from subnet.ledger.events import (
    GENESIS,
    Assign,
    Begin,
    Body,
    Commitment,
    Done,
    Event,
    Manifest,
    Roster,
    RosterEntry,
    RoundBegin,
    Said,
    StagePublic,
    StepEnd,
    make_event,
)
from subnet.ledger.fold import fold
from subnet.ledger.state import RunState
from subnet.wire.messages import (
    WIRE_VERSION,
    Checkpoint,
    Free,
    Join,
    Message,
    Plan,
    Receipt,
    Seen,
    Verdict,
    Wiring,
    Work,
    make_signed,
)
from template.fake.keys import FakeSigner

T0_MS = 1_790_000_000_000
STEP_MS = 1_000
STEPS = 4
NAMES = ("owner", "validator-0", "validator-1", "miner-0", "miner-1", "miner-2", "miner-3")
MINERS = NAMES[3:]
CHEATER = "miner-3"


def hotkey(name: str) -> str:
    """The hotkey of a name of this run."""
    return FakeSigner(name).hotkey


def run_config() -> RunConfig:
    """Two stages, segments of two steps, one round."""
    return RunConfig(
        version=1,
        name="small",
        seed=1,
        stages=2,
        model=build_model("nano"),
        data=DataConfig(
            source="stdlib",
            location="",
            revision="",
            tokenizer="bytes",
            corpus_digest="0" * 64,
            sequence_tokens=16,
            heldout_every=20,
            heldout_microbatches=2,
        ),
        train=TrainConfig(
            microbatch_sequences=2,
            microbatches_per_step=1,
            steps_per_round=STEPS,
            segment_steps=2,
            rounds=2,
            lr=1e-3,
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=0.1,
            warmup_steps=2,
            max_grad_norm=1.0,
            dtype="float32",
            attention="sdpa",
        ),
        outer=OuterConfig(lr=0.7, momentum=0.9),
        lanes=LaneConfig(deadline_s=20.0, codec="none", norm_band_low=1e-8, norm_band_high=1e4),
        audit=AuditConfig(
            rate_frac=1 / 3,
            draw_every_blocks=1,
            draw_delay_blocks=2,
            tolerance_activation=1e-4,
            tolerance_gradient=1e-4,
            tolerance_loss=1e-4,
            tolerance_delta=1e-3,
            tolerance_moment=1e-3,
            outbound_frac=0.25,
            chunk_frac=0.25,
            grace_s=5.0,
        ),
        pay=PayConfig(
            window_segments=64,
            audit_window_s=10.0,
            burn_frac=0.0,
            stage_price_milli=(1000, 1000),
            quarantine_rounds=1000,
        ),
        allow_same_identity=False,
    )


class Log:
    """The events so far; `say` and `state` append one."""

    def __init__(self) -> None:
        self.run = run_config()
        self.events: list[Event] = []
        self.heads: dict[str, str] = {}
        self.time_ms = T0_MS

    def state_that(self, body: Body) -> str:
        """Append a statement of the orchestrator; the new root."""
        previous = self.events[-1].digest if self.events else GENESIS
        event = make_event(body, n=len(self.events), previous=previous, time_ms=self.time_ms)
        self.events.append(event)
        return event.digest

    def say(self, message: type[Message], name: str, /, **values: Any) -> str:
        """Append a signed message of that neuron; the message's digest."""
        signed = make_signed(message(version=WIRE_VERSION, run_id=self.run.run_id, **values), FakeSigner(name))
        self.state_that(Said(signed=signed))
        return signed.digest

    def begin(self) -> None:
        """Configuration, roster, members, the first manifest."""
        self.state_that(Begin(config=canonical(self.run).decode(), orchestrator=hotkey("owner"), netuid=1))
        entries = tuple(
            RosterEntry(
                uid=uid,
                hotkey=hotkey(name),
                coldkey=hotkey(f"{name}/coldkey"),
                stake_rao=10**12 * name.startswith("validator"),
                permit=name.startswith("validator"),
            )
            for uid, name in enumerate(NAMES)
        )
        self.state_that(Roster(block=1, block_hash="0x" + "1" * 64, entries=entries))
        for number, name in enumerate(MINERS):
            key = hotkey(name)
            address = f"10.0.0.{number}:1"
            self.say(Join, name, hotkey=key, address=address, memory_bytes=1, root="", time_ms=self.time_ms)
            self.state_that(Assign(hotkey=key, stage=number % 2, round=0))
        stages = tuple(StagePublic(root=digest(f"stage {stage}".encode()), state_bytes=8) for stage in range(2))
        self.state_that(Manifest(round=0, stages=stages, dissenting=()))

    def step(self, number: int) -> None:
        """Two lanes, one microbatch each; every second step ends a segment."""
        free = tuple(
            tuple(
                Free(hotkey=hotkey(name), coldkey=hotkey(f"{name}/coldkey"), speed_class=0, waited_steps=0)
                for name in MINERS[stage::2]
            )
            for stage in range(2)
        )
        wiring = self.say(
            *(Wiring, "owner"),
            round=0,
            step=number,
            block=5 + number,
            block_hash="0x" + "2" * 64,
            free=free,
            first_microbatch=2 * number,
            requeued=(),
        )
        for lane in range(2):
            path = MINERS[2 * lane : 2 * lane + 2]
            plan = self.say(
                *(Plan, "owner"),
                round=0,
                step=number,
                global_step=number,
                lane=lane,
                path=tuple(map(hotkey, path)),
                microbatches=(2 * number + lane,),
                wiring=wiring,
                deadline_ms=self.time_ms + 20_000,
            )
            self.time_ms += STEP_MS // 2
            for stage, name in enumerate(path):
                self._receipt(name, number, lane=lane, stage=stage, plan=plan)
        self.state_that(StepEnd(round=0, step=number, done=(2 * number,), partial=(), requeued=(), missing=()))

    def _receipt(self, name: str, step: int, *, lane: int, stage: int, plan: str) -> None:
        ends = step % 2 == 1
        last = stage == 1
        work = Work(
            index=2 * step + lane,
            input=digest(b"in"),
            output="" if last else digest(b"out"),
            output_ack="" if last else "aa",
            gradient_in="" if last else digest(b"gradient"),
            gradient_out=digest(b"gradient") if last else "",
            gradient_ack="aa" if last else "",
            loss=32 * (5.0 - step) if last else None,
        )
        self.heads[name] = self.say(
            *(Receipt, name),
            kind="step",
            hotkey=hotkey(name),
            round=0,
            step=step,
            stage=stage,
            lane=lane,
            plan=plan,
            previous=self.heads.get(name, ""),
            work=(work,),
            gradient_norm=1.0,
            replica_steps=step + 1,
            state_root=digest(f"{name} {step}".encode()) if ends else "",
            state_bytes=64 if ends else 0,
            contribution="",
            contribution_norm=None,
            tokens=0,
            time_ms=self.time_ms,
        )

    def judge(self, validator: str, segment: str, name: str, verdict: str, reason: str) -> None:
        """A validator's verdict on the segment of this id."""
        self.say(
            *(Verdict, validator),
            validator=hotkey(validator),
            segment=segment,
            hotkey=hotkey(name),
            stage=MINERS.index(name) % 2,
            round=0,
            verdict=verdict,
            reason=reason,
            distance=0.19 if verdict == "fail" else 1e-6,
            tolerance=1e-4,
            checks=(),
            evidence=(),
            draw=None,
            time_ms=self.time_ms,
        )

    def segments(self, name: str) -> list[str]:
        """Ids of the miner's segments so far."""
        return [segment.id for segment in self.fold().segments.values() if segment.hotkey == hotkey(name)]

    def fold(self) -> RunState:
        """The state after all events."""
        return fold(self.events)


def small_run() -> Log:
    """One whole round: the cheater's first segment is refuted by both validators, an honest one passes, one is void."""
    log = Log()
    log.begin()
    log.state_that(RoundBegin(round=0, block=5))
    for number in range(STEPS):
        log.step(number)
    for validator in ("validator-0", "validator-1"):
        log.judge(validator, log.segments(CHEATER)[0], CHEATER, "fail", "activation")
    log.judge("validator-0", log.segments("miner-0")[0], "miner-0", "pass", "within")
    log.judge("validator-1", log.segments("miner-1")[0], "miner-1", "void", "unavailable")
    seen = log.events[-1]
    log.say(Seen, "validator-0", validator=hotkey("validator-0"), root=seen.digest, count=len(log.events), block=20)
    for round, loss in ((0, 5.5), (1, 2.5)):
        files = (("model.safetensors", digest(f"{round}".encode())),)
        log.say(Checkpoint, "owner", round=round, heldout_loss=loss, files=files, time_ms=log.time_ms)
    root = log.events[-1].digest
    log.state_that(Commitment(round=0, root=root, count=len(log.events), block=21, extrinsic_index=1))
    log.time_ms += 60_000
    log.state_that(Done(rounds=1))
    return log
