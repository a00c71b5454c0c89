"""What a hotkey has to lose: the pay of the segments in its window that an upheld fail would void.

A pure function of the ledger up to a head: verdicts and segments that came later do not count, whatever the state at
hand knows of them, so that a draw can be repeated at any later time. Knows nothing of draws, money or time.
"""

from bisect import bisect_left

from subnet.ledger.state import RunState, Segment
from subnet.ledger.window import window_rounds


def pay_of(segment: Segment, *, count: int) -> int:
    """What the segment is worth if it is not refuted, under a head of `count` events: its priced work less what nobody
    acknowledged, or nothing once its round is forfeited."""
    forfeited = segment.forfeit_event is not None and segment.forfeit_event < count
    return 0 if forfeited else segment.work - segment.unacknowledged


def forfeitable(state: RunState, segment: Segment, *, count: int) -> int:
    """The unexpired score that the author of a segment had at stake when it committed it, under a head of `count`
    events: the pay of its earlier segments in the window, less what the fails upheld under that head have refuted.

    The window is that of the segment's own round, as `in_window` has it; no more of the past is looked at.
    """
    run, names = state.config, state.chains.get(segment.hotkey, [])
    since, expired_round = _refuted_until(state, segment.hotkey, count), segment.round - window_rounds(run)
    total, left = 0, run.pay.window_segments
    for position in range(bisect_left(names, segment.event, key=lambda name: state.segments[name].event) - 1, -1, -1):
        earlier = state.segments[names[position]]
        if not left or earlier.event < since or earlier.round <= expired_round:
            break
        if earlier.work:
            left -= 1
            total += pay_of(earlier, count=count)
    return total


def _refuted_until(state: RunState, hotkey: str, count: int) -> int:
    """The event before which everything of this hotkey is refuted, under a head of `count` events.

    An upheld fail voids all that was committed before it was upheld, and taints what follows the failed segment up to
    a fresh start (a segment that starts from no earlier state).
    """
    if hotkey not in state.voided:
        return 0
    chain = [state.segments[name] for name in state.chains.get(hotkey, [])]
    failed = [segment for segment in chain if segment.upheld_event is not None and segment.upheld_event < count]
    if not failed:
        return 0
    last = failed[-1].event
    fresh = next((each.event for each in chain if each.event > last and not each.start_root), count)
    return max(fresh, *(1 + (segment.upheld_event or 0) for segment in failed))
