"""How long a node keeps blobs. A miner's evidence by round, written down so that a restart changes nothing; a store's
content by what the ledger still needs.

The rule itself is `subnet.incentive.owed`. The note of a miner says only why a blob is kept: what lies in the folder
and not in the note (left by a process that died, or by an older version) is taken in as evidence of the present round.
Knows nothing of what the bytes are.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from subnet.config import RunConfig
from subnet.edges.blobs import BlobStore
from subnet.errors import EvidenceError, StoreError
from subnet.incentive.owed import KEPT_S, Kept, is_owed, pinned_until, unneeded
from subnet.ledger.state import RunState

log = logging.getLogger("strata.retention")

NOTE = "kept.txt"
KEPT, PINNED = "kept", "pinned"
PRUNE_EVERY_S = 60.0


@dataclass(kw_only=True)
class Retention:
    """A miner's blobs that are evidence, with the rounds of each, and the rounds whose evidence a fail pins."""

    blobs: BlobStore
    run: RunConfig
    folder: Path
    clock: Callable[[], float] = time.time
    kept: dict[str, Kept] = field(init=False)
    pins: dict[int, int] = field(init=False)  # round of a failed segment -> the last round in which its evidence stays

    def __post_init__(self) -> None:
        self.kept, self.pins = {}, {}
        for words in _lines(self.folder / NOTE):
            self._take(words)

    def keep(self, round_number: int, name: str, data: bytes) -> None:
        """Keep a blob as evidence of a round."""
        self.blobs.put_named(name, data)
        self.owe(round_number, name)

    def owe(self, round_number: int, name: str) -> None:
        """Note a stored blob as evidence of a round; it may be evidence of an earlier one already."""
        time_s = self.clock()
        self._widen(name, round_number, time_s)
        self._note(f"{KEPT} {round_number} {time_s:.0f} {name}\n")

    def pin(self, failed_round: int) -> None:
        """Keep all evidence of a round of which a validator failed a segment, until the window of its pay closes."""
        until = pinned_until(self.run, failed_round)
        if self.pins.get(failed_round) != until:
            self.pins[failed_round] = until
            self._note(f"{PINNED} {failed_round} {until}\n")

    def forget(self, round_number: int, *, needed: str) -> None:
        """At the begin of a round, delete what nobody may ask for any more.

        needed: the state that the round starts from, by which it is evidence of this round too.
        """
        now_s = self.clock()
        for name in self.blobs.digests():
            if name not in self.kept:
                self._widen(name, round_number, self.blobs.kept_since_s(name))
        if needed:
            self._widen(needed, round_number, now_s)
        owed = {
            name: entry
            for name, entry in self.kept.items()
            if is_owed(entry, self.run, round=round_number, now_s=now_s, pins=self.pins)
        }
        for name in self.kept.keys() - owed.keys():
            self.blobs.delete(name)
        if len(owed) < len(self.kept):
            log.info("round=%d deleted=%d kept=%d", round_number, len(self.kept) - len(owed), len(owed))
        self.kept = owed
        self.pins = {failed: until for failed, until in self.pins.items() if until >= round_number}
        self._rewrite()

    def _widen(self, name: str, round_number: int, time_s: float) -> None:
        known = self.kept.get(name)
        first = min(known.first_round, round_number) if known else round_number
        last = max(known.last_round, round_number) if known else round_number
        self.kept[name] = Kept(first_round=first, last_round=last, time_s=time_s)

    def _take(self, words: list[str]) -> None:
        """One line of the note; a line that was cut off or is of another version says nothing."""
        try:
            match words:
                case [word, number, time_s, name] if word == KEPT and self.blobs.has(name):
                    self._widen(name, int(number), float(time_s))
                case [word, number, until] if word == PINNED:
                    self.pins[int(number)] = int(until)
        except (ValueError, EvidenceError):
            return

    def _note(self, line: str) -> None:
        with _faults(self.folder / NOTE), (self.folder / NOTE).open("a", encoding="ascii") as file:
            file.write(line)

    def _rewrite(self) -> None:
        lines = [f"{PINNED} {failed} {until}\n" for failed, until in sorted(self.pins.items())]
        for name, entry in self.kept.items():
            for number in dict.fromkeys((entry.first_round, entry.last_round)):
                lines.append(f"{KEPT} {number} {entry.time_s:.0f} {name}\n")
        write_note(self.folder / NOTE, "".join(lines))


def prune(store: BlobStore, state: RunState, *, now_s: float) -> int:
    """Delete from a store what the ledger needs no more and is not young; how many blobs that were."""
    old = unneeded(store.digests(), state, now_ms=int(1000 * now_s))
    old = {name for name in old if now_s - store.kept_since_s(name) >= KEPT_S}
    for name in old:
        store.delete(name)
    if old:
        log.info("store deleted=%d round=%d", len(old), state.round)
    return len(old)


async def keep_pruning(store: BlobStore, state: Callable[[], RunState]) -> None:
    """Prune at once, for what an earlier process left, and then from time to time, until cancelled."""
    while True:
        try:
            prune(store, state(), now_s=time.time())
        except StoreError as error:
            log.warning("store not pruned reason=%r", str(error))
        await asyncio.sleep(PRUNE_EVERY_S)


def write_note(path: Path, text: str) -> None:
    """Write a small file so that it has the old content or all of the new one, also after a power cut."""
    beside = path.with_suffix(".new")
    with _faults(path):
        with beside.open("w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)


def _lines(path: Path) -> Iterator[list[str]]:
    """The words of each line of a note; nothing where there is none."""
    with _faults(path):
        text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
    yield from (line.split(" ") for line in text.splitlines())


@contextlib.contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"expected to read and write {path}, found: {error.strerror}; free the disk or choose another --data-dir"
        ) from error
