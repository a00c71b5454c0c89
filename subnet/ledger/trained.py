"""What receipts add up to: segments, who did which microbatch, a round's tokens and bytes, and what a fail undoes.

Part of the fold (see `subnet.ledger.fold`); nothing else calls it.
"""

from collections.abc import Iterator

from subnet.ledger.events import ClosedSet, Event
from subnet.ledger.state import HopDispute, Member, RunState, Segment, StepState
from subnet.model.cost import activation_bytes, parameters, spans, work_per_token
from subnet.wire.messages import Receipt

STEP_TIME_SMOOTHING = 0.7  # weight of the past in the measured time of a step


def take_receipt(state: RunState, receipt: Receipt, digest: str, event: Event) -> None:
    """Chain the receipt to its author's, count its microbatches once, and end a segment where it commits a state."""
    member = state.members[receipt.hotkey]
    member.head = digest
    state.receipts[digest] = receipt
    if receipt.kind == "rollback":
        state.pending.pop(receipt.hotkey, None)
        return
    if receipt.kind == "fresh":
        member.state_root, member.state_bytes, member.root_steps, member.tainted = "", 0, 0, False
        return
    if receipt.kind == "step":
        state.of_plan.setdefault(receipt.plan, []).append(digest)
        _count_step(state, receipt, event)
        state.pending.setdefault(receipt.hotkey, []).append(digest)
    else:
        state.closes[receipt.round][receipt.hotkey] = receipt
    if receipt.state_root:
        _end_segment(state, member, receipt, digest, event)


def _count_step(state: RunState, receipt: Receipt, event: Event) -> None:
    member, run = state.members[receipt.hotkey], state.config
    for work in receipt.work:
        state.microbatch_by[receipt.stage, work.index] = receipt.hotkey
    stats = state.rounds[receipt.round]
    tokens = state.config.microbatch_tokens * len(receipt.work)
    if receipt.stage == run.stages - 1:
        stats.tokens += tokens
        stats.loss_sum += sum(work.loss for work in receipt.work if work.loss is not None)
        stats.loss_tokens += tokens
    sent = sum(bool(work.output) + bool(work.gradient_out) for work in receipt.work)
    stats.bytes_activations += sent * activation_bytes(run)
    current = state.current
    if current and (current.wiring.round, current.wiring.step) == (receipt.round, receipt.step):
        current.receipts[receipt.hotkey] = receipt
        _join_hops(state, current, receipt, event.n)
        took = event.time_ms - current.begun_ms
        past = member.step_ms or took
        member.step_ms = STEP_TIME_SMOOTHING * past + (1 - STEP_TIME_SMOOTHING) * took
        member.missed_steps = 0


def _join_hops(state: RunState, current: StepState, receipt: Receipt, event: int) -> None:
    """Both ends of a hop, once the later one's receipt is there: two digests that differ open a dispute at once."""
    path = current.plans[receipt.lane].path
    for stage in range(max(receipt.stage - 1, 0), min(receipt.stage + 1, len(path) - 1)):  # the hops to it and from it
        lower, upper = (current.receipts.get(hotkey) for hotkey in path[stage : stage + 2])
        if lower is not None and upper is not None:
            state.disputes.extend(_differing(lower, upper, event))


def _differing(lower: Receipt, upper: Receipt, event: int) -> Iterator[HopDispute]:
    """The frames between two neighbouring stages on which their receipts of one step differ."""
    theirs = {work.index: work for work in upper.work}
    for work in lower.work:
        other = theirs.get(work.index)
        if other is None:
            continue
        for kind, sender, receiver, stated, got in (
            ("activation", lower, upper, work.output, other.input),
            ("gradient", upper, lower, other.gradient_out, work.gradient_in),
        ):
            if stated != got:
                yield HopDispute(
                    round=lower.round,
                    step=lower.step,
                    microbatch=work.index,
                    kind=kind,
                    sender=sender.hotkey,
                    receiver=receiver.hotkey,
                    stated=stated,
                    got=got,
                    event=event,
                )


def _end_segment(state: RunState, member: Member, receipt: Receipt, digest: str, event: Event) -> None:
    chain = tuple(state.pending.pop(receipt.hotkey, []))
    if receipt.kind == "close":
        chain += (digest,)
    worked = [receipt_work(state, state.receipts[part]) for part in chain]
    opens = member.opened_round != receipt.round
    state.segments[digest] = Segment(
        id=digest,
        hotkey=receipt.hotkey,
        stage=receipt.stage,
        round=receipt.round,
        start_root=member.state_root,
        start_bytes=member.state_bytes if member.state_root else 0,
        end_root=receipt.state_root,
        end_bytes=receipt.state_bytes,
        opens_round=opens,
        receipts=chain,
        plans=tuple(state.receipts[part].plan for part in chain),
        work=sum(work for work, _ in worked),
        unpaid=sum(unpaid for _, unpaid in worked),
        unacknowledged=sum(unpaid for _, unpaid in worked),
        event=event.n,
        time_ms=event.time_ms,
        tainted=member.tainted,
    )
    state.chains.setdefault(receipt.hotkey, []).append(digest)
    member.state_root, member.state_bytes = receipt.state_root, receipt.state_bytes
    member.root_steps, member.opened_round = receipt.replica_steps, receipt.round


def receipt_work(state: RunState, receipt: Receipt) -> tuple[int, int]:
    """Work of a receipt's microbatches in FLOPs times the stage's price in thousandths: (all, never payable).

    A microbatch whose outbound gradient nobody acknowledged is committed but never payable; a first stage has none.
    """
    run = state.config
    price = run.pay.stage_price_milli[receipt.stage]
    each = state.config.microbatch_tokens * work_per_token(run, spans(run)[receipt.stage]) * price
    unacknowledged = sum(1 for work in receipt.work if receipt.stage > 0 and not work.gradient_ack)
    return each * len(receipt.work), each * unacknowledged


def count_sync(state: RunState, closed: ClosedSet) -> None:
    """Bytes of the stage's merge: each contribution up once, all of them down to every replica."""
    size = parameters(state.config, spans(state.config)[closed.stage]) * 4
    n = len(closed.contributions)
    state.rounds[closed.round].bytes_sync += size * n * (1 + n)


def refute(state: RunState, segment: Segment, event: int) -> None:
    """An upheld fail: void the author's score, bar it from plans, taint what it built on the failed state."""
    member = state.members[segment.hotkey]
    state.voided[segment.hotkey] = event
    member.barred_until_round = state.round + state.config.pay.quarantine_rounds
    unbroken = True
    for later in state.segments.values():
        if later.hotkey == segment.hotkey and later.event > segment.event:
            unbroken = unbroken and bool(later.start_root)
            later.tainted = later.tainted or unbroken
    member.tainted = member.tainted or (unbroken and bool(member.state_root))
