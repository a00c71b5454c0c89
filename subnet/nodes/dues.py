"""What a validator still has to audit, and when it asks again: draws, and the accusations of others to recheck.

Keeps when evidence of a segment was first found missing: the grace counts from there, however often the segment comes
up. The clock is given to it. Knows nothing of fetching, judging or saying.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from subnet.wire.messages import Draw

LEAST_TRIES = 3
RETRY_S = 2.0  # between two tries to get evidence
KEPT = 4  # audits of which something is kept between two tries
REST_S = 20.0  # between two rechecks of a segment of which this validator could not come to a judgement


@dataclass(kw_only=True)
class Due:
    """A segment to audit, and why: a draw, or (None) somebody else's accusation to recheck."""

    segment: str
    draw: Draw | None
    tries: int = 0
    since_s: float | None = None  # of tries that failed for another reason than the miner's
    not_before_s: float = 0.0  # asked again only then
    begun: object | None = None  # what the audit keeps of one try for the next


@dataclass(kw_only=True)
class Dues:
    """The due segments by id, those said already, and since when evidence is missing."""

    rest_s: float = REST_S
    waiting: dict[str, Due] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)  # though the ledger here may not show it yet
    missing_since_s: dict[str, float] = field(default_factory=dict)
    rests_until_s: dict[str, float] = field(default_factory=dict)

    def put(self, segment: str, draw: Draw | None) -> None:
        """Audit this segment, unless that is due or done already."""
        if segment not in self.waiting and segment not in self.judged:
            rests = self.rests_until_s.get(segment, 0.0) if draw is None else 0.0
            self.waiting[segment] = Due(segment=segment, draw=draw, not_before_s=rests)

    def look_again(self, segment: str) -> None:
        """What was missing of it is here: it does not rest any longer."""
        self.rests_until_s.pop(segment, None)
        if segment in self.waiting:
            self.waiting[segment].not_before_s = 0.0

    def ready(self, clock_s: float) -> list[Due]:
        """What may be asked for now."""
        return [due for due in self.waiting.values() if due.not_before_s <= clock_s]

    def tried(self, due: Due, clock_s: float, *, withheld: bool, grace_s: float) -> bool:
        """Note a try that gave no judgement; whether there were enough, for long enough, to say so.

        withheld: it is the miner that does not show something; only such tries count towards its grace.
        """
        due.tries += 1
        if withheld:
            since_s = self.missing_since_s.setdefault(due.segment, clock_s)
        else:
            self.missing_since_s.pop(due.segment, None)
            since_s = due.since_s = clock_s if due.since_s is None else due.since_s
        due.not_before_s = clock_s + RETRY_S
        return due.tries >= LEAST_TRIES and clock_s - since_s > grace_s

    def keep(self, due: Due, begun: object) -> None:
        """Keep what a try came to, of the newest few: it may be large."""
        due.begun = None
        for older in [each for each in self.waiting.values() if each.begun is not None][: -(KEPT - 1)]:
            older.begun = None
        due.begun = begun

    def done(self, due: Due, clock_s: float, *, judged: bool) -> None:
        """It was said; a `void` (not judged) may come up again, a recheck only after a rest."""
        del self.waiting[due.segment]
        if judged:
            self.judged.add(due.segment)
            self.missing_since_s.pop(due.segment, None)
        else:
            self.rests_until_s[due.segment] = clock_s + self.rest_s


def first_of(ready: Iterable[Due], *, is_accused: Callable[[str], bool], event_of: Callable[[str], int]) -> Due:
    """Rechecks first, then segments of accused or suspected miners, then the oldest."""
    return min(ready, key=lambda due: (due.draw is not None, not is_accused(due.segment), event_of(due.segment)))
