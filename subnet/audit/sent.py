"""Which frames of what the miner sent an audit looks at, once it has replayed the segment.

The replay says of each whether it is, to the last bit, the one that the receipt names: then nobody has to show it. Of
those that are not, bytes are asked for in the order of the draw's lots, up to the run's part of all. So on like
machines every frame that deviates is looked at; where honest work differs everywhere in its last bits, an audit costs
what the drawn part costs. Knows nothing of transport or verdicts.
"""

from collections.abc import Collection, Set

from subnet.audit.evidence import Needed, Outbound
from subnet.audit.replayed import Replayed


def recomputed(frame: Outbound, replayed: Replayed) -> bool:
    """Whether the replay gave the very frame that the receipt names."""
    position, index, kind = frame.hop
    return position < len(replayed.steps) and (index, kind) not in replayed.steps[position].outbound


def frames_chosen(need: Needed, differ: Set[Outbound]) -> tuple[Outbound, ...]:
    """Of the frames that differ those to look at: the first by lot, and among them one of each kind from the first step
    in which that kind differs, for later steps inherit whatever was wrong before them."""
    ranked = [frame for frame in need.outbound if frame in differ]
    by_step = sorted(ranked, key=lambda frame: frame.hop[0])
    first = {frame.hop[2]: frame for frame in reversed(by_step)}.values()  # of each kind
    others = [frame for frame in ranked if frame not in first]
    return (*first, *others[: max(0, need.most_outbound - len(first))])


def frames_wanted(need: Needed, replayed: Replayed) -> tuple[Outbound, ...]:
    """The frames that their receivers have to show after this replay; none of a step that could not be computed."""
    known = (frame for frame in need.outbound if frame.hop[0] < len(replayed.steps))
    differ = frozenset(frame for frame in known if not recomputed(frame, replayed))
    return frames_chosen(need, differ)


def frames_to_repeat(need: Needed, replayed: Replayed, named: Collection[str]) -> tuple[Outbound, ...]:
    """The frames that repeating a fail takes: those that it names, for one of them has to show it."""
    return tuple(frame for frame in need.outbound if frame.digest in named and not recomputed(frame, replayed))
