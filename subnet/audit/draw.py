"""The draw: which segments a validator audits, from a seed that exists only after their receipts are in the ledger.

At every block B divisible by `draw_every_blocks` a validator uses the last ledger head that it had countersigned by
block B - draw_delay_blocks. The seed covers that head, the hash of B and the validator, so it was unknown when the
receipts under the head were written, and every validator has its own. Each segment is considered at exactly one draw
of each validator: the first whose head covers it. Together the validators draw a segment with its rate; each has the
part of it that its stake is of all who may judge this miner.

`draw` and `check_draw` are twins over the same functions: from the ledger and block hashes anyone can repeat a draw.
Knows nothing of how evidence is fetched or judged. A validator whose own verdict on a drawn segment is void draws it
again; that needs no luck, but a first draw that anyone can check.

The rate is a hotkey's own: max(p, min(1, 2 w / forfeitable)), w what the segment pays and forfeitable what its author
had to lose when it committed it. Both are read from the ledger under the draw's head, so they are the same whenever
the draw is repeated: newcomers are audited always, long-honest miners at p.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import blake3

from subnet.audit.forfeitable import forfeitable, pay_of
from subnet.canonical import digest_of
from subnet.config import AuditConfig
from subnet.errors import RefusedError
from subnet.ledger.accusing import is_called
from subnet.ledger.events import GENESIS
from subnet.ledger.state import RunState, Segment, is_accusation
from subnet.wire.messages import Draw, Seen, Verdict

DOMAIN = b"strata/draw/1"
LOT_BYTES = 8
OWED_ROUNDS = 2  # a miner keeps evidence for so many rounds; what is no longer owed is not drawn again


@dataclass(frozen=True, kw_only=True)
class Point:
    """One draw of one validator: at `block`, under `root`, of the segments whose last event is in [start, count)."""

    block: int
    root: str
    start: int
    count: int


def _head(seen: Sequence[Seen], last_block: int) -> Seen | None:
    """The last head countersigned by `last_block`; they are in order, and many in a long run."""
    position = bisect_right(seen, last_block, key=lambda item: item.block)
    return seen[position - 1] if position else None


def draw_point(config: AuditConfig, seen: Sequence[Seen], block: int) -> Point:
    """What is drawn from at this draw block; `seen` are the validator's countersigned heads in ledger order."""
    now = _head(seen, block - config.draw_delay_blocks)
    before = _head(seen, block - config.draw_delay_blocks - config.draw_every_blocks)
    return Point(
        block=block,
        root=now.root if now else GENESIS,
        start=before.count if before else 0,
        count=now.count if now else 0,
    )


def _first_block(config: AuditConfig, seen_block: int) -> int:
    """The first draw block whose delay has passed since `seen_block`."""
    return -(-(seen_block + config.draw_delay_blocks) // config.draw_every_blocks) * config.draw_every_blocks


def draw_points(config: AuditConfig, seen: Sequence[Seen], upto_block: int, *, after_block: int = -1) -> list[Point]:
    """Every draw of a validator after a block and up to another, that one included; their windows follow each other
    without gaps."""
    if not seen:
        return []
    every = config.draw_every_blocks
    first_block = max(_first_block(config, seen[0].block), (after_block // every + 1) * every)
    blocks = range(first_block, upto_block + 1, every)
    return [draw_point(config, seen, block) for block in blocks]


def point_of(config: AuditConfig, seen: Sequence[Seen], event: int) -> Point | None:
    """The one draw at which a segment that ends in this event is considered; None when no head covers it yet."""
    position = bisect_right(seen, event, key=lambda item: item.count)
    return draw_point(config, seen, _first_block(config, seen[position].block)) if position < len(seen) else None


def done_until(state: RunState, validator: str) -> int:
    """The block up to which a validator that starts again has nothing left to draw: all before the first draw that
    considered a segment whose evidence is still owed and that it has not judged. -1 when nothing was drawn yet.

    So whatever it drew and did not finish is drawn again, and nothing older; it keeps no note of its own.
    """
    seen, unfinished, considered = state.seen.get(validator, []), [], []
    for segment in reversed(state.segments.values()):
        if segment.round <= state.round - OWED_ROUNDS:
            break
        point, own = point_of(state.config.audit, seen, segment.event), segment.verdicts.get(validator)
        if point is not None:
            considered.append(point.block)
            if own is None or own.verdict == "void":
                unfinished.append(point.block)
    return min(unfinished) - 1 if unfinished else max(considered, default=-1)


def draw_seed(run_id: str, root: str, block_hash: str, validator: str) -> bytes:
    """The seed of one validator's draw at the block of this hash, under this ledger head."""
    hasher = blake3.blake3(DOMAIN)
    for part in (run_id, root, block_hash.removeprefix("0x"), validator):
        hasher.update(b"\n" + part.encode())
    return hasher.digest()


def lot(seed: bytes, *parts: str | int) -> int:
    """A uniform integer below 2^64 for this name under this seed."""
    name = "\n".join(str(part) for part in parts)
    return int.from_bytes(blake3.blake3(seed + name.encode()).digest(length=LOT_BYTES), "big")


def is_drawn(seed: bytes, segment_id: str, probability: float) -> bool:
    """Whether the segment's lot under this seed falls below the probability."""
    return lot(seed, segment_id) < int(min(1.0, max(0.0, probability)) * 2.0 ** (8 * LOT_BYTES))


def rate_of(least: float, pay: int, stake: int) -> float:
    """max(p, min(1, 2 w / forfeitable)); 1 for who has nothing to lose. `least`: p."""
    return 1.0 if stake <= 2 * pay else max(least, 2 * pay / stake)


def rate(state: RunState, segment: Segment, *, count: int) -> float:
    """The chance that the segment is drawn by all validators together, under a head of `count` events."""
    stake = forfeitable(state, segment, count=count)
    return rate_of(state.config.audit.rate_frac, pay_of(segment, count=count), stake)


def judges(state: RunState, hotkey: str, count: int | None = None) -> dict[str, int]:
    """Stake of the validators that may judge this hotkey: nobody judges its own coldkey, unless the run allows it.

    count: by the roster under a head of so many events, so that a draw can be repeated after stakes have changed.
    """
    validators = state.validators(count)
    if state.config.allow_same_identity:
        return validators
    own = state.coldkey(hotkey, count)
    return {validator: stake for validator, stake in validators.items() if state.coldkey(validator, count) != own}


def share(state: RunState, validator: str, hotkey: str = "", *, count: int | None = None) -> float:
    """The validator's part of the stake of all that may judge `hotkey` (of all validators, when none is named)."""
    stakes = judges(state, hotkey, count) if hotkey else state.validators(count)
    if validator not in stakes:
        return 0.0
    total = sum(stakes.values())
    return stakes[validator] / total if total else 1 / len(stakes)


def chance(state: RunState, validator: str, segment: Segment, *, count: int) -> float:
    """The chance that this validator draws the segment, under a head of `count` events."""
    return rate(state, segment, count=count) * share(state, validator, segment.hotkey, count=count)


def _again(segment: Segment, validator: str) -> bool:
    own = segment.verdicts.get(validator)
    return own is not None and own.verdict == "void" and own.draw is not None


def _recent(state: RunState, start: int) -> list[Segment]:
    """The segments that end in event `start` or later or whose evidence is still owed, oldest first; no others are
    looked at, however long the run is."""
    found: list[Segment] = []
    for segment in reversed(state.segments.values()):
        if segment.event < start and segment.round <= state.round - OWED_ROUNDS:
            break
        found.append(segment)
    return found[::-1]


def draw(state: RunState, validator: str, block: int, block_hash: str) -> tuple[Draw, tuple[str, ...]]:
    """The draw at this block, and the ids of the segments to audit, oldest first.

    `state` must hold every head that the validator countersigned by block - draw_delay_blocks. Tainted segments are
    unpaid as they are and not drawn.
    """
    config = state.config.audit
    assert block % config.draw_every_blocks == 0, f"block {block} is no draw block"
    point = draw_point(config, state.seen.get(validator, []), block)
    seed = draw_seed(state.config.run_id, point.root, block_hash, validator)
    shares: dict[str, float] = {}  # by hotkey, of the validator: the same for all its segments
    drawn: list[str] = []
    for segment in _recent(state, point.start):
        if segment.tainted or segment.event >= point.count:
            continue
        if segment.event < point.start:
            if segment.round > state.round - OWED_ROUNDS and _again(segment, validator):
                drawn.append(segment.id)
            continue
        if segment.hotkey not in shares:
            shares[segment.hotkey] = share(state, validator, segment.hotkey, count=point.count)
        if is_drawn(seed, segment.id, rate(state, segment, count=point.count) * shares[segment.hotkey]):
            drawn.append(segment.id)
    return Draw(block=block, block_hash=block_hash, root=point.root, count=point.count), tuple(drawn)


def check_draw(state: RunState, verdict: Verdict, block_hash_of: Callable[[int], str]) -> None:
    """Raises RefusedError unless the verdict's segment was drawn as the rules say, or rechecks a foreign fail."""
    segment, config = state.segments[verdict.segment], state.config.audit
    # By the roster under the draw's head, or that a recheck was logged under: permits change, what was right stays so.
    count = state.said.get(digest_of(verdict)) if verdict.draw is None else verdict.draw.count
    if verdict.validator not in judges(state, segment.hotkey, count):
        raise RefusedError(
            f"expected a judge with a permit and another coldkey than {segment.hotkey}'s, found {verdict.validator}; "
            "ignore this verdict"
        )
    if verdict.draw is None:
        _check_recheck(state, segment, verdict)
        return
    seen, claimed = state.seen.get(verdict.validator, []), verdict.draw
    point = draw_point(config, seen, claimed.block)
    expected = Draw(block=point.block, block_hash=block_hash_of(point.block), root=point.root, count=point.count)
    if claimed != expected or claimed.block % config.draw_every_blocks:
        raise RefusedError(
            f"expected the draw of block {claimed.block} from {expected.count} events under {expected.root[:12]}, "
            f"found {claimed.count} under {claimed.root[:12]}; ignore this verdict"
        )
    first = point_of(config, seen, segment.event)
    if first is None or first.block > claimed.block:
        raise RefusedError(
            f"expected a segment that ends before event {claimed.count}, found event {segment.event}; "
            "ignore this verdict: the draw came before the commit"
        )
    seed = draw_seed(state.config.run_id, first.root, block_hash_of(first.block), verdict.validator)
    if not is_drawn(seed, segment.id, chance(state, verdict.validator, segment, count=first.count)):
        raise RefusedError(
            f"expected a segment drawn at block {first.block}, found {segment.id[:12]}, which was not; "
            "ignore this verdict"
        )


def _check_recheck(state: RunState, segment: Segment, verdict: Verdict) -> None:
    foreign = any(is_accusation(v) for v in segment.verdicts.values() if v.validator != verdict.validator)
    if not foreign and not is_called(state, segment):
        raise RefusedError(
            f"expected a foreign fail of {segment.id[:12]} to recheck, found none; ignore this undrawn verdict"
        )


def seed_of(state: RunState, segment: Segment, draw_of: Draw | None, validator: str) -> bytes:
    """The seed that also chooses which tensors and chunks are compared.

    Of a drawn segment the draw's own; of a recheck (`draw_of` None) that of the first accuser's draw, so that the
    second validator looks where the first one looked.
    """
    if draw_of is None:
        accusers = (v for v in segment.verdicts.values() if is_accusation(v) and v.draw is not None)
        accuser = next(accusers, None)
        draw_of, validator = (accuser.draw, accuser.validator) if accuser else (None, validator)
    root, block_hash = (draw_of.root, draw_of.block_hash) if draw_of else (GENESIS, "")
    return draw_seed(state.config.run_id, root, block_hash, validator)
