"""One message of every kind with fixed values: what the golden vectors and docs/wire.md are made of."""

import json
from pathlib import Path
from typing import Any

from subnet.canonical import digest
from subnet.wire.messages import (
    WIRE_VERSION,
    Check,
    Checkpoint,
    Consent,
    Delivery,
    Draw,
    Free,
    Head,
    Join,
    Leave,
    Merged,
    Message,
    Plan,
    Position,
    Receipt,
    Seen,
    Verdict,
    Wiring,
    Work,
)
from template.fake.keys import fake_address

VECTORS = Path(__file__).parent / "vectors"
RUN_ID = bytes(range(32)).hex()
MINER, OTHER, VALIDATOR = (fake_address(name) for name in ("miner", "other", "validator"))
TIME_MS = 1_790_000_000_000


def named(text: str) -> str:
    """A digest that stands for something."""
    return digest(text.encode())


def messages() -> dict[str, Message]:
    """Every kind, by its signing domain."""
    free = Free(hotkey=MINER, coldkey=fake_address("miner/coldkey"), speed_class=3, waited_steps=-1)
    wiring = Wiring(
        **names(),
        round=1,
        step=2,
        block=34,
        block_hash="0x" + named("block"),
        free=((free,), ()),
        first_microbatch=40,
        requeued=(7, 9),
    )
    work = Work(
        index=40,
        input=named("input"),
        output="",
        output_ack="",
        gradient_in="",
        gradient_out=named("gradient"),
        gradient_ack="ab" * 64,
        loss=177.25,
    )
    receipt: dict[str, Any] = {
        "hotkey": MINER,
        "round": 1,
        "step": 2,
        "stage": 1,
        "lane": 0,
        "plan": named("plan"),
        "previous": named("previous"),
        "work": (work,),
        "deliveries": named("deliveries"),
        "gradient_norm": 0.1,
        "replica_steps": 27,
        "state_root": named("state"),
        "state_bytes": 123_464,
        "contribution": "",
        "contribution_norm": None,
        "tokens": 0,
        "time_ms": TIME_MS,
    }
    said: list[Message] = [
        Join(**names(), hotkey=MINER, address="203.0.113.7:8091", memory_bytes=1 << 34, root="", time_ms=TIME_MS),
        Leave(**names(), hotkey=MINER, time_ms=TIME_MS),
        wiring,
        Plan(
            **names(),
            round=1,
            step=2,
            global_step=26,
            lane=0,
            path=(OTHER, MINER),
            microbatches=(7, 9, 40, 41),
            wiring=named("wiring"),
            deadline_ms=TIME_MS + 20_000,
        ),
        Delivery(
            **names(),
            sender=OTHER,
            receiver=MINER,
            round=1,
            step=2,
            microbatch=40,
            kind="activation",
            digest=named("frame"),
        ),
        Receipt(**names(), kind="step", **receipt),
        Merged(**names(), hotkey=MINER, round=2, stage=1, root=named("public"), state_bytes=82_304, time_ms=TIME_MS),
        Seen(**names(), validator=VALIDATOR, root=named("head"), count=120, block=36),
        Verdict(
            **names(),
            validator=VALIDATOR,
            segment=named("segment"),
            hotkey=MINER,
            stage=1,
            round=1,
            verdict="fail",
            reason="activation",
            distance=0.19,
            tolerance=0.0001,
            checks=(Check(name="activation", distance=0.19, tolerance=0.0001),),
            evidence=(named("frame"),),
            draw=Draw(block=40, block_hash="0x" + named("drawn"), root=named("head"), count=120),
            time_ms=TIME_MS,
        ),
        Checkpoint(
            **names(),
            round=2,
            heldout_loss=2.5,
            files=(("model-00001-of-00002.safetensors", named("shard")),),
            time_ms=TIME_MS,
        ),
        Consent(**names(), commitment=named("canary")),
        Position(**names(), digest=named("message"), event=121),
        Head(**names(), root=named("head"), count=122, time_ms=TIME_MS),
    ]
    return {type(message).__name__.lower(): message for message in said}


def names() -> dict[str, Any]:
    """What every message begins with."""
    return {"version": WIRE_VERSION, "run_id": RUN_ID}


def vectors() -> dict[str, dict[str, str]]:
    """The pinned bytes by kind: body, signing, digest."""
    read: dict[str, dict[str, str]] = json.loads((VECTORS / "messages.json").read_text(encoding="utf-8"))
    return read
