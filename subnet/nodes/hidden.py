"""Frames that a neighbour did not show at its sender's audit: they are recognised when it shows them at its own.

Whoever hides what it received has a choice of two: at an audit of its own it shows these frames too, and then their
sender is judged by them, or it withholds its evidence. Of so many frames only that are missing at once; no bytes are
kept but theirs. Knows nothing of fetching, judging or saying.
"""

from collections.abc import Iterable

from subnet.audit.evidence import Evidence, Wanted

MOST_FRAMES = 64


class Hidden:
    """What one validator looks out for."""

    def __init__(self) -> None:
        self._missed: dict[str, str] = {}  # by digest: the sender's segment
        self._found: dict[str, bytes] = {}

    def missed(self, segment: str, names: Iterable[str]) -> None:
        """The audit of a segment ended for want of these frames; the oldest are forgotten when there are too many."""
        self._missed |= dict.fromkeys(names, segment)
        for name in list(self._missed)[:-MOST_FRAMES]:
            del self._missed[name]
            self._found.pop(name, None)

    def look_at(self, evidence: Evidence) -> set[str]:
        """Keep what was missing and is among this evidence; the segments that can be judged by it."""
        found = {name: data for name, data in evidence.frames.items() if name in self._missed and data}
        new = {self._missed[name] for name in found.keys() - self._found.keys()}
        self._found |= found
        return new

    def of(self, wanted: Wanted) -> Evidence:
        """What is kept of the wanted frames."""
        names = (frame.digest for frame in wanted.frames)
        return Evidence(frames={name: self._found[name] for name in names if name in self._found})

    def settled(self, segment: str) -> None:
        """The segment is judged: nothing of it is looked out for any more."""
        for name in [name for name, of in self._missed.items() if of == segment]:
            del self._missed[name]
            self._found.pop(name, None)
