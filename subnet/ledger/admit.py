"""The door of the ledger: which signed messages may be appended, given the state so far. Pure; changes nothing.

Whatever passes here is evidence, so the fold may trust it. Each refusal says what was expected, found and to do.
The caller has checked the author's signature over the message; acknowledgements inside a receipt are checked here.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from subnet.canonical import canonical
from subnet.errors import RefusedError
from subnet.ledger.accusing import is_called
from subnet.ledger.closed import is_replica
from subnet.ledger.receiving import admit_receipt
from subnet.ledger.state import MOST_VOIDS, RunState, Segment, is_accusation, may_void
from subnet.wire.messages import (
    KINDS,
    Checkpoint,
    Delivery,
    Join,
    Leave,
    Merged,
    Message,
    Receipt,
    Seen,
    Signed,
    Verdict,
    check_signature,
    read_signed,
)
from template.auth import Verifier

MAX_AGE_MS = 600_000  # of a message that is sent again after an outage
MAX_AHEAD_MS = 5_000
SEEN_SLACK_BLOCKS = 3
SEEN_BEHIND_BLOCKS = 1
ADDRESS_CHARS = 64
REASON_CHARS = 32
MOST_CHECKS = 32
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9.-]{1,57}):([0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True, kw_only=True)
class Door:
    """What the door knows besides the state: the time, the finalised block, past roots, how to check signatures.

    Time and block are None where a log is read again: nothing in it is refused for when it was said.
    """

    now_ms: int | None
    block: int | None
    root_at: Callable[[int], str]  # root over the first n events
    verifier: Verifier


def admit(state: RunState, signed: Signed, door: Door) -> Message:
    """The message, if it may be appended now. Raises RefusedError otherwise, MessageError when it is malformed."""
    kind = KINDS.get(signed.kind)
    rule = _RULES.get(signed.kind)
    if kind is None or rule is None:
        raise RefusedError(f"expected one of {', '.join(_RULES)}, found {signed.kind!r}; send what the route takes")
    message = read_signed(signed, kind)
    if message.run_id != state.config.run_id:
        raise RefusedError(
            f"expected a {signed.kind} of run {state.config.run_id[:12]}, found {message.run_id[:12]}; join this run"
        )
    if signed.hotkey not in state.roster and signed.hotkey != state.orchestrator:
        raise RefusedError(f"expected a hotkey registered on subnet {state.netuid}, found {signed.hotkey}; register it")
    if door.now_ms is not None:
        _timely(message, door.now_ms)
    rule(state, signed, message, door)
    return message


def is_admitted(kind: str) -> bool:
    """Whether messages of this kind come through the door; the others are the orchestrator's own orders."""
    return kind in _RULES


def _timely(message: Message, now_ms: int) -> None:
    time_ms = getattr(message, "time_ms", now_ms)
    if not now_ms - MAX_AGE_MS <= time_ms <= now_ms + MAX_AHEAD_MS:
        raise RefusedError(
            f"expected a time within {MAX_AGE_MS // 1000} s before now, found {(time_ms - now_ms) / 1000:+.1f} s; "
            "set the clock"
        )


def _author(signed: Signed, claimed: str) -> None:
    if signed.hotkey != claimed:
        raise RefusedError(
            f"expected a message signed by its author {claimed}, found {signed.hotkey}; sign it yourself"
        )


def _join(state: RunState, signed: Signed, message: Join, door: Door) -> None:
    _author(signed, message.hotkey)
    if message.hotkey == state.orchestrator:
        raise RefusedError("expected a miner, found the orchestrator's own hotkey; use another hotkey to mine")
    found = _ADDRESS.fullmatch(message.address[: ADDRESS_CHARS + 1])
    if message.address and (found is None or not 0 < int(found.group(2)) <= 65535):
        raise RefusedError(
            f"expected an address as host:port, or none, found {message.address[:ADDRESS_CHARS]!r}; announce a real one"
        )
    if message.root and not _is_digest(message.root):
        raise RefusedError(
            "expected the root of a committed state, or none, found another text; send what is committed"
        )
    if message.memory_bytes < 0:
        raise RefusedError(f"expected a memory size, found {message.memory_bytes}; send the bytes available")


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)


def _leave(state: RunState, signed: Signed, message: Leave, door: Door) -> None:
    _author(signed, message.hotkey)
    if message.hotkey not in state.members:
        raise RefusedError(
            f"expected a member to leave, found {message.hotkey}, who never joined; nothing is to be done"
        )


def _receipt(state: RunState, signed: Signed, message: Receipt, door: Door) -> None:
    _author(signed, message.hotkey)
    admit_receipt(state, message, acknowledged=lambda delivery, ack: _acknowledged(state, delivery, ack, door))


def _acknowledged(state: RunState, delivery: Delivery, signature: str, door: Door) -> bool:
    """By the receiver or, where it does not, by the relay in its place (`subnet.nodes.standing_in`)."""
    body, verifier = canonical(delivery), door.verifier
    signers = (delivery.receiver, state.orchestrator)
    return any(check_signature(Delivery, body, signature, hotkey=who, verifier=verifier) for who in signers)


def _merged(state: RunState, signed: Signed, message: Merged, door: Door) -> None:
    _author(signed, message.hotkey)
    if not 0 <= message.stage < state.config.stages:
        raise RefusedError(f"expected a stage below {state.config.stages}, found {message.stage}; check the assignment")
    owner = message.hotkey == state.orchestrator
    first = owner and message.round == 0
    if not first and (message.round - 1, message.stage) not in state.closed:
        raise RefusedError(
            f"expected a merge of a closed set, found round {message.round} stage {message.stage} without; wait for it"
        )
    if not owner:
        checks = message.hotkey in state.validators() and (message.round, message.stage) in state.dissents
        if not checks and not is_replica(state, message.hotkey, message.round, message.stage):
            raise RefusedError(
                f"expected a replica of stage {message.stage}, or a validator where replicas disagree with the "
                f"manifest, found {message.hotkey}; merge your own stage"
            )
    if message.hotkey in state.merged.get((message.round, message.stage), {}):
        raise RefusedError(f"expected one merge report for round {message.round}, found a second; send it once")


def _permit(state: RunState, hotkey: str) -> None:
    if hotkey not in state.validators():
        raise RefusedError(
            f"expected a hotkey with a validator permit, found {hotkey} without; stake more and wait a tempo"
        )


def _seen(state: RunState, signed: Signed, message: Seen, door: Door) -> None:
    _author(signed, message.validator)
    _permit(state, message.validator)
    if not 0 < message.count <= state.count or door.root_at(message.count) != message.root:
        raise RefusedError(
            f"expected a head of this ledger, found {message.count} events under {message.root[:12]}; refetch"
        )
    # A head dated back to before a block whose hash is known could choose its draw: less slack than the draw's delay.
    behind = min(SEEN_BEHIND_BLOCKS, state.config.audit.draw_delay_blocks - 1)
    if door.block is not None and not door.block - behind <= message.block <= door.block + SEEN_SLACK_BLOCKS:
        raise RefusedError(
            f"expected a head seen at about block {door.block}, found block {message.block}; sign a new one"
        )
    earlier = state.seen.get(message.validator)
    if earlier and (message.block <= earlier[-1].block or message.count < earlier[-1].count):
        raise RefusedError(
            f"expected heads in order, one a block, found block {message.block} after {earlier[-1].block}; sign a new "
            "one at the next block"
        )


def _verdict(state: RunState, signed: Signed, message: Verdict, door: Door) -> None:
    _author(signed, message.validator)
    _permit(state, message.validator)
    segment = state.segments.get(message.segment)
    if segment is None or (segment.hotkey, segment.stage, segment.round) != (
        message.hotkey,
        message.stage,
        message.round,
    ):
        raise RefusedError(
            f"expected a verdict on a segment of this ledger, found {message.segment[:12]}; refetch the ledger"
        )
    if message.verdict not in ("pass", "fail", "void"):
        raise RefusedError(f"expected the verdict pass, fail or void, found {message.verdict!r}; use one of these")
    names = [message.reason, *(check.name for check in message.checks)]
    small = len(message.checks) <= MOST_CHECKS and len(message.evidence) <= most_evidence(state, segment)
    if not (small and all(map(_is_digest, message.evidence)) and all(_NAME.fullmatch(name) for name in names)):
        raise RefusedError("expected short lower-case words and the digests that were compared, found others; trim it")
    numbers = [message.distance, message.tolerance, *(n for c in message.checks for n in (c.distance, c.tolerance))]
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise RefusedError("expected finite distances, found others; clamp them to the largest finite number")
    same = state.coldkey(message.validator) == state.coldkey(segment.hotkey)
    if same and not state.config.allow_same_identity:
        raise RefusedError(
            "expected a validator of another coldkey than the miner's, found the same; leave it to others"
        )
    earlier = segment.verdicts.get(message.validator)
    if earlier and earlier.verdict != "void":
        raise RefusedError(
            f"expected one verdict of a validator per segment, found a second after {earlier.verdict}; stop"
        )
    if message.verdict == "void" and not may_void(segment, message.validator, message.reason):
        raise RefusedError(
            f"expected at most {MOST_VOIDS} times void of a segment, found one more; say when there is a judgement"
        )
    foreign = any(is_accusation(v) for v in segment.verdicts.values() if v.validator != message.validator)
    if message.draw is None and not foreign and not is_called(state, segment):
        raise RefusedError("expected a draw, or a foreign fail to recheck, found neither; judge only what was drawn")


def most_evidence(state: RunState, segment: Segment) -> int:
    """How many digests a verdict on a segment may name: its states and a pack of chunks, and of each step the frames
    that it sent with the deliveries of its own and of both neighbours."""
    receipts = (state.receipts[part] for part in segment.receipts)
    return 4 + sum(3 + 2 * len(receipt.work) for receipt in receipts)


def _checkpoint(state: RunState, signed: Signed, message: Checkpoint, door: Door) -> None:
    if signed.hotkey != state.orchestrator:
        raise RefusedError(
            f"expected the run's publisher, found {signed.hotkey}; only the orchestrator's key publishes"
        )
    if message.round not in state.manifests or message.round in state.checkpoints:
        raise RefusedError(f"expected a round that is merged and unpublished, found {message.round}; publish each once")
    if not math.isfinite(message.heldout_loss):
        raise RefusedError("expected a finite held-out loss, found another; evaluate it again")


_RULES: dict[str, Callable[..., None]] = {
    "join": _join,
    "leave": _leave,
    "receipt": _receipt,
    "merged": _merged,
    "seen": _seen,
    "verdict": _verdict,
    "checkpoint": _checkpoint,
}
