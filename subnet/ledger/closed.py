"""What the end of a round means for pay: who did not contribute, and who merged to another state.

A round's work reaches the model through the contribution alone, so segments of a round whose author does not deliver
it, or lies about the merge, are committed but never paid: they are forfeited. Part of the fold (`subnet.ledger.fold`).
"""

from subnet.ledger.events import ClosedSet
from subnet.ledger.state import RunState, Segment
from subnet.ledger.window import window_rounds

UNCLOSED = "unclosed"  # the round was not closed, or the committed contribution could not be read
DISSENT = "dissent"  # the author's merge is not what the manifest and the validators' own merges say


def take_closed(state: RunState, closed: ClosedSet) -> None:
    """Forfeit the round of every replica of the stage that trained and is not in the set, where that is its fault.

    A replica that did not answer may have died: that is forgiven, but only once in a pay window of rounds.
    """
    there = {entry.hotkey for entry in closed.contributions}
    closes, readable = state.closes.get(closed.round, {}), _any_readable(state, closed)
    for hotkey in {segment.hotkey: None for segment in _of_round(state, closed.round, closed.stage)}:
        member = state.members[hotkey]
        if hotkey in there or member.barred_until_round > closed.round:
            continue
        unread = hotkey in closes and bool(closes[hotkey].contribution)
        if hotkey in closed.silent and not _often_silent(state, hotkey, closed.round):
            member.silent_rounds.append(closed.round)
        elif readable or not unread:  # where nothing at all could be read, the store is at fault
            forfeit(state, hotkey, closed.round, UNCLOSED)


def _any_readable(state: RunState, closed: ClosedSet) -> bool:
    """Whether some contribution of the round was readable, on this stage or another."""
    others = (done for (number, _), done in state.closed.items() if number == closed.round)
    return bool(closed.contributions) or any(done.contributions for done in others)


def _often_silent(state: RunState, hotkey: str, number: int) -> bool:
    """Whether the replica was silent at a round's end before, in the pay window."""
    return any(earlier > number - window_rounds(state.config) for earlier in state.members[hotkey].silent_rounds)


def _of_round(state: RunState, number: int, stage: int) -> list[Segment]:
    """Segments of one stage in a round, newest first."""
    found: list[Segment] = []
    for segment in reversed(state.segments.values()):
        if segment.round < number:
            break
        if (segment.round, segment.stage) == (number, stage):
            found.append(segment)
    return found


def forfeit(state: RunState, hotkey: str, number: int, reason: str) -> None:
    """The work of a hotkey in a round is committed, and never payable."""
    for segment in (state.segments[name] for name in state.chains.get(hotkey, ())):
        if segment.round == number:
            segment.forfeit, segment.unpaid = reason, segment.work
            segment.forfeit_event = state.count if segment.forfeit_event is None else segment.forfeit_event


def weigh_merges(state: RunState, number: int, stage: int) -> None:
    """Note whose merge into round `number` is not the manifest's, whenever it is reported.

    It costs a replica the merged round once validators confirm the manifest: the orchestrator's word takes no pay.
    """
    manifest, reports = state.manifests.get(number), state.merged.get((number, stage), {})
    if manifest is None or number == 0:
        return
    root = manifest.stages[stage].root
    others = [hotkey for hotkey, merged in reports.items() if merged.root != root]
    if others:
        state.dissents[number, stage] = others
    for hotkey in others:
        if _confirmed(state, number, stage, against=hotkey):
            forfeit(state, hotkey, number - 1, DISSENT)


def _confirmed(state: RunState, number: int, stage: int, *, against: str) -> bool:
    """Whether validators that merged again came to the manifest's state: two of coldkeys that are neither the
    dissenter's nor the orchestrator's, or the only one that there is.

    What other replicas of the stage say decides nothing: an orchestrator may have miners of its own there, who agree
    with whatever its manifest says.
    """
    root, own = state.manifests[number].stages[stage].root, {state.coldkey(against), state.coldkey(state.orchestrator)}
    able = {
        hotkey: state.coldkey(hotkey)
        for hotkey in state.validators()
        if state.coldkey(hotkey) not in own and not is_replica(state, hotkey, number, stage)
    }
    agreeing = {able[who] for who, said in state.merged[number, stage].items() if who in able and said.root == root}
    return len(agreeing) >= 2 or (bool(agreeing) and len(set(able.values())) < 2)


def is_replica(state: RunState, hotkey: str, number: int, stage: int) -> bool:
    """Whether the merge into round `number` is this hotkey's own task: it holds the stage, or contributed to it."""
    member, closed = state.members.get(hotkey), state.closed.get((number - 1, stage))
    contributed = closed is not None and any(entry.hotkey == hotkey for entry in closed.contributions)
    return member is not None and (member.stage == stage or contributed)


def is_unconfirmed(state: RunState, number: int, stage: int) -> bool:
    """Whether a replica merged otherwise than the manifest, and validators have not settled yet who is right."""
    dissenting = state.dissents.get((number, stage), [])
    replicas = [hotkey for hotkey in dissenting if is_replica(state, hotkey, number, stage)]
    return any(not _confirmed(state, number, stage, against=hotkey) for hotkey in replicas)
