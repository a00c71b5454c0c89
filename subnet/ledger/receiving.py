"""The rules for receipts: what a miner may state about a step, a round's end, a rollback or a fresh start. Pure."""

import math
from collections.abc import Callable

from subnet.errors import RefusedError
from subnet.ledger.state import Member, RunState
from subnet.model.cost import spans, state_bytes
from subnet.wire.delivery import inbound
from subnet.wire.messages import Delivery, Plan, Receipt, Work

DIGEST_CHARS = 64
_HEX = frozenset("0123456789abcdef")

Acknowledged = Callable[[Delivery, str], bool]


def admit_receipt(state: RunState, receipt: Receipt, *, acknowledged: Acknowledged) -> None:
    """Raise RefusedError unless the receipt is its author's next one and says only what was planned."""
    member = state.members.get(receipt.hotkey)
    if member is None or member.stage is None or not member.active:
        raise RefusedError(f"expected a receipt of a member with a stage, found {receipt.hotkey}; join the run first")
    if receipt.stage != member.stage or receipt.round != state.round:
        raise RefusedError(
            f"expected a receipt for stage {member.stage} in round {state.round}, found stage {receipt.stage} "
            f"in round {receipt.round}; follow the plan"
        )
    if receipt.previous != member.head:
        raise RefusedError(
            f"expected the receipt after {member.head[:12] or 'none'}, found {receipt.previous[:12] or 'none'}; "
            "send them in order"
        )
    if member.from_round > state.round and receipt.kind != "rollback":
        raise RefusedError(
            f"expected a receipt from round {member.from_round} on, found one of round {receipt.round}; a stage is "
            "entered at the begin of a round"
        )
    _well_formed(state, receipt)
    if receipt.kind == "step":
        _step(state, receipt, member, acknowledged)
    elif receipt.kind == "close":
        _close(state, receipt, member)
    elif receipt.kind == "rollback":
        _rollback(receipt, member)
    elif receipt.kind == "fresh":
        _fresh(state, receipt, member)
    else:
        raise RefusedError(f"expected a step, close, rollback or fresh, found {receipt.kind!r}; use one of these")
    expected_steps = member.root_steps + len(state.pending.get(receipt.hotkey, [])) + (receipt.kind == "step")
    expected_steps = 0 if receipt.kind == "fresh" else expected_steps
    if receipt.kind != "rollback" and receipt.replica_steps != expected_steps:
        raise RefusedError(
            f"expected the replica's step {expected_steps}, found {receipt.replica_steps}; count each once"
        )


def _well_formed(state: RunState, receipt: Receipt) -> None:
    """Digests are digests, and a state has the size that its stage gives it: both become requests for evidence."""
    digests = [receipt.state_root, receipt.contribution, receipt.deliveries]
    digests += [d for work in receipt.work for d in (work.input, work.output, work.gradient_in, work.gradient_out)]
    for name in digests:
        if name and (len(name) != DIGEST_CHARS or not _HEX.issuperset(name)):
            raise RefusedError(f"expected digests of 64 lower-case hex digits, found {name[:70]!r}; send digests")
    size = state_bytes(state.config, spans(state.config)[receipt.stage])
    if receipt.kind != "rollback" and receipt.state_bytes != (size if receipt.state_root else 0):
        raise RefusedError(
            f"expected a state of {size} bytes where a root is given, found {receipt.state_bytes}; send its length"
        )


def _step(state: RunState, receipt: Receipt, member: Member, acknowledged: Acknowledged) -> None:
    current = state.current
    if state.phase != "train" or current is None or receipt.step != current.wiring.step:
        raise RefusedError(
            f"expected a receipt for step {state.step}, found step {receipt.step}, which is over; roll back"
        )
    if receipt.plan != current.plan_digests.get(receipt.lane):
        raise RefusedError(f"expected a plan of step {receipt.step}, found {receipt.plan[:12]}; follow the signed plan")
    plan = current.plans[receipt.lane]
    if plan.path[receipt.stage] != receipt.hotkey or receipt.hotkey in current.receipts:
        raise RefusedError(
            f"expected one receipt of each member of lane {receipt.lane}, found {receipt.hotkey}; send it once"
        )
    order = [index for index in plan.microbatches if index in {work.index for work in receipt.work}]
    if not receipt.work or [work.index for work in receipt.work] != order:
        raise RefusedError(
            "expected microbatches of the plan, in its order, each once; found others; list what was done"
        )
    if bool(receipt.deliveries) != bool(inbound(receipt)):
        raise RefusedError(
            "expected the digest of the signed deliveries where frames came in, and none elsewhere; name what you keep"
        )
    if any((receipt.stage, work.index) in state.microbatch_by for work in receipt.work):
        raise RefusedError("expected microbatches that nobody's receipt has yet, found a second backward; drop them")
    norm = receipt.gradient_norm
    if norm is None or not (math.isfinite(norm) and norm >= 0):
        raise RefusedError("expected a finite gradient norm, found none; drop the microbatch that spoils it")
    ends = len(state.pending.get(receipt.hotkey, [])) + 1 >= state.config.train.segment_steps
    if ends != bool(receipt.state_root):
        raise RefusedError(
            f"expected a state root after every {state.config.train.segment_steps} steps; commit it then"
        )
    for work in receipt.work:
        _microbatch(state, receipt, plan, work, acknowledged)


def _microbatch(state: RunState, receipt: Receipt, plan: Plan, work: Work, acknowledged: Acknowledged) -> None:
    last, first = receipt.stage == state.config.stages - 1, receipt.stage == 0
    if last == (work.loss is None) or (work.loss is not None and not (math.isfinite(work.loss) and work.loss >= 0)):
        raise RefusedError("expected a finite loss from the last stage and none from others; report what was computed")
    if (
        not work.input
        or last != (not work.output)
        or last != (not work.gradient_in)
        or first != (not work.gradient_out)
    ):
        raise RefusedError(
            f"expected the digests of every frame of microbatch {work.index}, found a gap; list them all"
        )
    for digest, ack, kind, receiver in (
        (work.output, work.output_ack, "activation", receipt.stage + 1),
        (work.gradient_out, work.gradient_ack, "gradient", receipt.stage - 1),
    ):
        if ack and not (
            digest
            and acknowledged(delivery(receipt, work.index, kind, receiver=plan.path[receiver], digest=digest), ack)
        ):
            raise RefusedError(f"expected the neighbour's signature on the {kind} it got, found another; send its own")


def delivery(receipt: Receipt, microbatch: int, kind: str, *, receiver: str, digest: str) -> Delivery:
    """The delivery that a neighbour acknowledged, as its receipt tells it."""
    return Delivery(
        version=receipt.version,
        run_id=receipt.run_id,
        sender=receipt.hotkey,
        receiver=receiver,
        round=receipt.round,
        step=receipt.step,
        microbatch=microbatch,
        kind=kind,
        digest=digest,
    )


def _close(state: RunState, receipt: Receipt, member: Member) -> None:
    if state.phase != "close" or receipt.hotkey in state.closes.get(receipt.round, {}):
        raise RefusedError(
            f"expected a close while round {state.round} closes, and one; found another; wait for the round"
        )
    if member.opened_round != receipt.round and not state.pending.get(receipt.hotkey):
        raise RefusedError(
            f"expected a close of a replica that stepped in round {receipt.round}, found none of its receipts; "
            "wait for the next round"
        )
    trained = tokens_trained(state, receipt.hotkey)
    if receipt.tokens != trained:
        raise RefusedError(
            f"expected a close over {trained} tokens, found {receipt.tokens}; count what the receipts say"
        )
    if receipt.work or not receipt.state_root or bool(receipt.contribution) != (trained > 0):
        raise RefusedError("expected a close with a state root, and a contribution where it trained; found another")
    norm = receipt.contribution_norm
    if receipt.contribution and (norm is None or not (math.isfinite(norm) and norm >= 0)):
        raise RefusedError("expected a finite contribution norm, found none; contribute only finite updates")


def tokens_trained(state: RunState, hotkey: str) -> int:
    """Tokens in this round's receipts of a replica that are not voided, i.e. its weight in the merge."""
    parts = list(state.pending.get(hotkey, []))
    for segment in (state.segments[name] for name in reversed(state.chains.get(hotkey, []))):
        if segment.round != state.round:
            break
        parts.extend(segment.receipts)
    microbatches = sum(len(state.receipts[part].work) for part in parts)
    return microbatches * state.config.microbatch_tokens


def _rollback(receipt: Receipt, member: Member) -> None:
    if receipt.work or receipt.contribution or receipt.state_root != member.state_root:
        raise RefusedError(
            f"expected a rollback to the last committed state {member.state_root[:12] or 'none'}, found "
            f"{receipt.state_root[:12] or 'none'}; never roll back across a root"
        )


def _fresh(state: RunState, receipt: Receipt, member: Member) -> None:
    """Starting again from zeros is for a round's begin: it gives up the moments, and with them what tainted them."""
    if receipt.work or receipt.contribution or receipt.state_root:
        raise RefusedError("expected a fresh start without work, contribution and state, found another; state nothing")
    if member.opened_round == receipt.round or state.pending.get(receipt.hotkey):
        raise RefusedError(
            f"expected a fresh start before the first step of round {receipt.round}, found some; wait for the next"
        )
    if not member.state_root:
        raise RefusedError(
            f"expected a fresh start of a replica with a committed state, found none of {receipt.hotkey}; it is fresh"
        )
