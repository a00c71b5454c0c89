"""The books: what every hotkey committed, what of it is refuted, pending, payable or never payable, and its score.

Integers, a pure function of the ledger's state, the time and whose eyes it is seen with; so
committed == refuted + pending + payable + unpaid holds exactly, and anyone can recompute a row. The score is the
payable work of the window. Scores follow hotkeys; uids, weights and money are `subnet.incentive.weights`' affair.

A segment is
  refuted   when a fail of it is upheld, it was built on a failed state (tainted), or such a fail voided the score
            that it was part of;
  pending   until its audit window closes or, for a validator, until its own replay passed;
  payable   after that, less the work that no upstream neighbour acknowledged (unpaid).
A segment that nobody audited is paid: a fault of the validator costs the miner nothing.
"""

from collections.abc import Sequence
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
    and pays a segment early that its own replay passed. None reads the ledger alone: upheld fails count as they are,
    and nobody's pass is taken for it.
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
    void = voided(chain, state.config, own=own)
    return [
        Entry(segment=segment, refuted=segment.work)
        if segment.tainted or segment.id in void
        else _open(segment, state.config, now_ms=now_ms, own=own)
        for segment in chain
    ]


def _open(segment: Segment, run: RunConfig, *, now_ms: int, own: str | None) -> Entry:
    """A segment that is not refuted."""
    earned = segment.work - segment.unpaid
    if _is_decided(segment, run, now_ms=now_ms, own=own):
        return Entry(segment=segment, payable=earned, unpaid=segment.unpaid)
    return Entry(segment=segment, pending=earned, unpaid=segment.unpaid)


def _is_decided(segment: Segment, run: RunConfig, *, now_ms: int, own: str | None) -> bool:
    """Whether the segment is paid by now. A validator does not pay what failed its own replay, nor, before it has
    replayed that itself, what others upheld."""
    mine = segment.verdicts.get(own) if own is not None else None
    if mine is not None and mine.verdict != "void":
        return mine.verdict == "pass"
    if segment.upheld_event is not None:
        return False
    return now_ms - segment.time_ms >= run.pay.audit_window_s * 1000


def _stands(segment: Segment, own: str | None) -> bool:
    """Whether this reader acts on a fail of the segment."""
    if segment.upheld_event is None:
        return False
    mine = segment.verdicts.get(own) if own is not None else None
    return own is None or (mine is not None and mine.verdict == "fail")


def voided(chain: Sequence[Segment], run: RunConfig, *, own: str | None) -> set[str]:
    """The segments of one hotkey that upheld fails refute: each the whole window that was open when it was upheld,
    and everything in it up to the failed segment itself."""
    void: set[str] = set()
    for failed in chain:
        if failed.upheld_event is None or not _stands(failed, own):
            continue
        before = [segment for segment in chain if segment.event < failed.upheld_event]
        void.add(failed.id)
        void.update(segment.id for segment in in_window(before, run))
    return void


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
