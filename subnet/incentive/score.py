"""The books: what every hotkey committed, what of it is refuted, pending, payable or never payable, and its score.

Integers, a pure function of the ledger's state, the time and whose eyes it is seen with; so
committed == refuted + pending + payable + unpaid holds exactly, and anyone can recompute a row. The score is the
payable work of the window. Scores follow hotkeys; uids, weights and money are `subnet.incentive.weights`' affair.

A segment is
  refuted   when a fail of it is upheld, it was built on a failed state (tainted), or such a fail voided the score
            that it was part of;
  pending   until its audit window closes, for all alike, whoever passed it;
  payable   after that, less the work that no upstream neighbour acknowledged (unpaid).
A segment that nobody audited is paid: a fault of the validator costs the miner nothing. So honest validators differ
only while a fail is being rechecked; who has not replayed it yet holds back what it would void.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subnet.config import RunConfig
from subnet.ledger.state import RunState, Segment
from subnet.ledger.window import in_window


@dataclass(frozen=True, kw_only=True)
class Book:
    """One hotkey's work in all, and its score: the payable work of the window."""

    hotkey: str
    committed: int = 0
    refuted: int = 0
    pending: int = 0
    payable: int = 0
    unpaid: int = 0
    score: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where one segment's work stands: its four parts add up to the segment's work."""

    segment: Segment
    refuted: int = 0
    pending: int = 0
    payable: int = 0
    unpaid: int = 0


def books(state: RunState, *, now_ms: int, own: str | None) -> dict[str, Book]:
    """The book of every hotkey with a segment, by hotkey.

    own: the validator through whose eyes the ledger is read: it acts on an upheld fail once its own replay failed too,
    and holds back what that would void until it has replayed it. None reads the ledger alone: upheld fails count as
    they are.
    """
    return {
        hotkey: _book(hotkey, entries, state) for hotkey, entries in entries_of(state, now_ms=now_ms, own=own).items()
    }


def entries_of(state: RunState, *, now_ms: int, own: str | None) -> dict[str, list[Entry]]:
    """Where every segment stands, by hotkey, in ledger order."""
    chains: dict[str, list[Segment]] = {}
    for segment in state.segments.values():
        chains.setdefault(segment.hotkey, []).append(segment)
    return {hotkey: _entries(chain, state, now_ms=now_ms, own=own) for hotkey, chain in chains.items()}


def _entries(chain: Sequence[Segment], state: RunState, *, now_ms: int, own: str | None) -> list[Entry]:
    run = state.config
    void = _refuted_by((failed for failed in chain if _stands(failed, own)), chain, run)
    held = _refuted_by((failed for failed in chain if _awaits(failed, state, own)), chain, run)
    entries: list[Entry] = []
    for segment in chain:
        earned = segment.work - segment.unpaid
        if segment.tainted or segment.id in void:
            entries.append(Entry(segment=segment, refuted=segment.work))
        elif segment.id not in held and _is_decided(segment, run, now_ms=now_ms, own=own):
            entries.append(Entry(segment=segment, payable=earned, unpaid=segment.unpaid))
        else:
            entries.append(Entry(segment=segment, pending=earned, unpaid=segment.unpaid))
    return entries


def _is_decided(segment: Segment, run: RunConfig, *, now_ms: int, own: str | None) -> bool:
    """Whether the segment is paid by now. A validator never pays what failed its own replay, nor what others upheld
    and its own replay did not pass."""
    mine = segment.verdicts.get(own) if own is not None else None
    judged = mine.verdict if mine is not None else "void"
    if judged == "fail" or (judged == "void" and segment.upheld_event is not None):
        return False
    return now_ms - segment.time_ms >= run.pay.audit_window_s * 1000


def _stands(segment: Segment, own: str | None) -> bool:
    """Whether this reader acts on a fail of the segment."""
    if segment.upheld_event is None:
        return False
    mine = segment.verdicts.get(own) if own is not None else None
    return own is None or (mine is not None and mine.verdict == "fail")


def _awaits(segment: Segment, state: RunState, own: str | None) -> bool:
    """Whether this reader has an upheld fail still to recheck. Once it could not (void), it pays what came before."""
    if own is None or segment.upheld_event is None or own in segment.verdicts:
        return False
    return state.config.allow_same_identity or state.coldkey(own) != state.coldkey(segment.hotkey)


def _refuted_by(fails: Iterable[Segment], chain: Sequence[Segment], run: RunConfig) -> set[str]:
    """The segments of one hotkey that these upheld fails refute: of each the failed segment itself, and the whole
    window that was open when it was upheld."""
    refuted: set[str] = set()
    for failed in fails:
        before = [segment for segment in chain if segment.event < (failed.upheld_event or 0)]
        refuted.add(failed.id)
        refuted.update(segment.id for segment in in_window(before, run))
    return refuted


def _book(hotkey: str, entries: Sequence[Entry], state: RunState) -> Book:
    open_ids = {s.id for s in in_window((entry.segment for entry in entries), state.config, round=state.round)}
    return Book(
        hotkey=hotkey,
        committed=sum(entry.segment.work for entry in entries),
        refuted=sum(entry.refuted for entry in entries),
        pending=sum(entry.pending for entry in entries),
        payable=sum(entry.payable for entry in entries),
        unpaid=sum(entry.unpaid for entry in entries),
        score=sum(entry.payable for entry in entries if entry.segment.id in open_ids),
    )
