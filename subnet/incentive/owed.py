"""Which bytes are still owed to somebody: to who trains on, to who audits, to who checks a fail. Pure.

The rule has two readings. A store that follows the ledger asks which of its names nobody needs (`unneeded`); a miner,
which does not, remembers in which rounds each of its blobs was evidence (`is_owed`). Knows nothing of files.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from subnet.audit.draw import OWED_ROUNDS
from subnet.config import RunConfig
from subnet.ledger.state import RunState, Segment
from subnet.ledger.window import window_rounds

KEPT_S = 600.0  # nothing younger is deleted: short rounds must not outrun an audit, nor what is about to be logged


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A blob of a miner: the first and the last round in which it is evidence, and when it came (unix seconds)."""

    first_round: int
    last_round: int
    time_s: float


def kept_s(run: RunConfig) -> float:
    """How old evidence becomes at least: until its segment is paid or judged, however short the rounds are."""
    return max(KEPT_S, run.pay.audit_window_s + run.audit.grace_s)


def pinned_until(run: RunConfig, failed_round: int) -> int:
    """The last round in which a fail of a segment of `failed_round` can still cost pay: its evidence stays so long."""
    return failed_round + window_rounds(run) - 1


def is_owed(kept: Kept, run: RunConfig, *, round: int, now_s: float, pins: Mapping[int, int]) -> bool:
    """Whether a miner's blob may still be asked for in `round`.

    pins: for each round of which a segment was failed, the last round in which its evidence stays.
    """
    if kept.last_round > round - OWED_ROUNDS or now_s - kept.time_s < kept_s(run):
        return True
    return any(kept.first_round <= failed <= kept.last_round and round <= until for failed, until in pins.items())


def is_open(segment: Segment, state: RunState, *, now_ms: int) -> bool:
    """Whether a segment may still be drawn, is not paid yet, or was failed and is still in the window of its pay."""
    run = state.config
    if segment.round > state.round - OWED_ROUNDS or now_ms - segment.time_ms < 1000 * kept_s(run):
        return True
    return is_failed(segment) and state.round <= pinned_until(run, segment.round)


def is_failed(segment: Segment) -> bool:
    """Whether some validator has failed it, upheld or not."""
    return any(verdict.verdict == "fail" for verdict in segment.verdicts.values())


def failed_rounds(state: RunState, hotkey: str) -> tuple[int, ...]:
    """The rounds of a hotkey's failed segments whose evidence has to stay."""
    mine = (s for s in state.segments.values() if s.hotkey == hotkey and is_failed(s))
    return tuple(sorted({s.round for s in mine if state.round <= pinned_until(state.config, s.round)}))


def unneeded(names: Iterable[str], state: RunState, *, now_ms: int) -> set[str]:
    """Those of the names in the run's store, or the publisher's, that nobody needs any more.

    Needed are public states and contributions of the rounds around the present one and of every open segment, and its
    evidence where somebody has put that there (an accuser, or a miner that left); the newest public state; and each one
    that no checkpoint was made of yet. What is not in the ledger yet has no name here: its age has to protect it.
    """
    left = set(names) - owed_by_rounds(state, now_ms=now_ms)
    for segment in state.segments.values():
        if left and is_open(segment, state, now_ms=now_ms):
            left.difference_update(evidence_of(segment, state))
    return left


def owed_by_rounds(state: RunState, *, now_ms: int) -> set[str]:
    """The public states and contributions that are needed."""
    rounds = {state.round - 1, state.round, state.round + 1, max(state.manifests, default=0)}
    rounds |= {segment.round for segment in state.segments.values() if is_open(segment, state, now_ms=now_ms)}
    unpublished = {number for number in state.manifests if number not in state.checkpoints}
    return {*_publics(state, rounds | unpublished), *_contributions(state, rounds)}


def evidence_of(segment: Segment, state: RunState) -> Iterator[str]:
    """The digests and roots that a segment commits to: its states, every frame, and its senders' signed lines."""
    yield from (segment.start_root, segment.end_root)
    for receipt in (state.receipts[part] for part in segment.receipts):
        yield receipt.deliveries
        for work in receipt.work:
            yield from (work.input, work.output, work.gradient_in, work.gradient_out)
    yield from (name for verdict in segment.verdicts.values() for name in verdict.evidence)


def _publics(state: RunState, rounds: Iterable[int]) -> Iterable[str]:
    for number in rounds:
        if number in state.manifests:
            yield from (public.root for public in state.manifests[number].stages)
        for stage in range(state.config.stages):
            yield from (merged.root for merged in state.merged.get((number, stage), {}).values())


def _contributions(state: RunState, rounds: Iterable[int]) -> Iterable[str]:
    for number in rounds:
        yield from (close.contribution for close in state.closes.get(number, {}).values() if close.contribution)
