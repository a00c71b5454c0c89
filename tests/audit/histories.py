"""Ledger states built by hand, for tests that need segments, verdicts and validators but no training."""

import msgspec

from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.ledger.events import RosterEntry
from subnet.ledger.state import Member, RunState, Segment
from subnet.wire.messages import WIRE_VERSION, Draw, Seen, Verdict
from tests.data.small import small_run

STAKES = {"validator-a": 3, "validator-b": 1}


def audit_run(*, rate: float = 0.5, every: int = 4, delay: int = 2, **pay: object) -> RunConfig:
    """A run of one stage whose identities must differ."""
    run = small_run()
    return msgspec.structs.replace(
        run,
        audit=msgspec.structs.replace(run.audit, rate_frac=rate, draw_every_blocks=every, draw_delay_blocks=delay),
        pay=msgspec.structs.replace(run.pay, **pay),
        allow_same_identity=False,
    )


def history(run: RunConfig, miners: tuple[str, ...] = ("miner",), stakes: dict[str, int] | None = None) -> RunState:
    """A state with these miners and validators, each under a coldkey of its own."""
    stakes = STAKES if stakes is None else stakes
    state = RunState(config=run, orchestrator="orchestrator", netuid=1)
    for uid, name in enumerate((*miners, *stakes)):
        state.roster[name] = RosterEntry(
            uid=uid, hotkey=name, coldkey=f"cold-{name}", stake_rao=stakes.get(name, 0), permit=name in stakes
        )
    for name in miners:
        state.members[name] = Member(hotkey=name, coldkey=f"cold-{name}", address="", stage=0)
    return state


def add_segment(state: RunState, hotkey: str = "miner", *, event: int | None = None, **fields: object) -> Segment:
    """Append a segment that ends at this event (the state's next one by default)."""
    event = state.count if event is None else event
    name = digest(f"segment {hotkey} {event}".encode())
    plain: dict[str, object] = dict(
        stage=0,
        round=0,
        start_root="",
        start_bytes=0,
        end_root="ee" * 32,
        end_bytes=8,
        opens_round=True,
        receipts=(name,),
        plans=("",),
        work=100,
        unpaid=0,
        time_ms=1000 * event,
    )
    plain |= fields
    plain.setdefault("unacknowledged", plain["unpaid"])
    segment = Segment(id=name, hotkey=hotkey, event=event, **plain)  # type: ignore[arg-type]
    state.segments[name] = segment
    state.chains.setdefault(hotkey, []).append(name)
    state.count = max(state.count, event + 1)
    return segment


def see(state: RunState, validator: str, *, block: int, count: int) -> None:
    """The validator countersigns a head."""
    root = digest(f"head {count}".encode())
    state.seen.setdefault(validator, []).append(
        Seen(version=WIRE_VERSION, run_id=state.config.run_id, validator=validator, root=root, count=count, block=block)
    )


def block_hash(block: int) -> str:
    """The hash of a block of an invented chain."""
    return digest(f"block {block}".encode())


def judged(
    state: RunState,
    segment: Segment,
    validator: str,
    verdict: str,
    *,
    draw: Draw | None = None,
    event: int | None = None,
) -> Verdict:
    """A verdict, taken into the state as the fold would."""
    made = Verdict(
        version=WIRE_VERSION,
        run_id=state.config.run_id,
        validator=validator,
        segment=segment.id,
        hotkey=segment.hotkey,
        stage=segment.stage,
        round=segment.round,
        verdict=verdict,
        reason="ok" if verdict == "pass" else "activation",
        distance=0.0,
        tolerance=0.0,
        checks=(),
        evidence=(),
        draw=draw,
        time_ms=segment.time_ms,
    )
    segment.verdicts[validator] = made
    event = state.count if event is None else event
    state.count = max(state.count, event + 1)
    if segment.upheld_event is None and state.stands(segment):
        segment.upheld_event = event
        state.voided[segment.hotkey] = event
    return made
