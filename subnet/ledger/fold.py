"""The fold: what each event does to the state of a run. The only code that changes a `RunState`.

`the_state_is_the_log`: the same events give the same state on every machine. Events were admitted before they were
appended (`subnet.ledger.admit`); the fold trusts them and decides nothing but what they mean.
"""

from collections.abc import Callable, Iterable
from typing import Any

from subnet.canonical import parse
from subnet.config import RunConfig
from subnet.errors import LedgerError
from subnet.ledger import canary, closed, trained
from subnet.ledger.closed import take_closed, weigh_merges
from subnet.ledger.events import (
    Assign,
    Begin,
    ClosedSet,
    Commitment,
    Done,
    Event,
    Left,
    Manifest,
    Planted,
    Revealed,
    Roster,
    RoundBegin,
    RoundClose,
    Said,
    StepEnd,
)
from subnet.ledger.state import WITHHELD, Member, RoundStats, RunState, StepState
from subnet.wire.messages import (
    KINDS,
    Checkpoint,
    Join,
    Leave,
    Merged,
    Plan,
    Receipt,
    Seen,
    Signed,
    Verdict,
    Wiring,
    read_signed,
)


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState:
    """Fold events into a state (a new one when the first is `begin`). Raises LedgerError on a log without a begin."""
    for event in events:
        if state is None:
            state = begin(event)
        else:
            apply(state, event)
    if state is None:
        raise LedgerError("expected a log that starts with the run's configuration, found an empty one; fetch it again")
    return state


def begin(event: Event) -> RunState:
    """The state after event 0."""
    body = event.body
    if not isinstance(body, Begin) or event.n != 0:
        raise LedgerError(f"expected event 0 with the run's configuration, found event {event.n}; fetch the log from 0")
    state = RunState(config=parse(body.config.encode(), RunConfig), orchestrator=body.orchestrator, netuid=body.netuid)
    _advance(state, event)
    return state


def apply(state: RunState, event: Event) -> None:
    """Take one more event into the state. Raises LedgerError when it does not follow the last one."""
    if event.n != state.count or event.previous != state.root:
        raise LedgerError(f"expected event {state.count} of this log, found event {event.n} of another; fetch it again")
    body = event.body
    try:
        if isinstance(body, Said):
            _take_said(state, body.signed, event)
        else:
            _STATED[type(body)](state, body, event)
    except LookupError as error:  # of a member, a segment, a round that no event before it has
        raise LedgerError(
            f"expected what event {event.n} speaks of, found none ({error}); the log is contradictory"
        ) from error
    _advance(state, event)


def _take_said(state: RunState, signed: Signed, event: Event) -> None:
    """Take a message in once. A second entry of the same one is the orchestrator's fault (`subnet.scheduler.watch`) and
    changes nothing: an old rollback, or an old join, would undo what its author did since. Nor does a receipt that is
    not its author's next."""
    message = read_signed(signed, KINDS[signed.kind]) if signed.kind in KINDS else None
    take = _SAID.get(type(message))
    if take is None:
        raise LedgerError(f"expected a message of a run at event {event.n}, found {signed.kind!r}; update this program")
    if state.said.setdefault(signed.digest, event.n) != event.n:
        return
    if isinstance(message, Receipt) and not _is_next(state, message):
        return
    take(state, message, event)


def _is_next(state: RunState, receipt: Receipt) -> bool:
    member = state.members.get(receipt.hotkey)
    return member is not None and member.head == receipt.previous


def _advance(state: RunState, event: Event) -> None:
    state.count, state.root, state.time_ms = event.n + 1, event.digest, event.time_ms


def _roster(state: RunState, body: Roster, event: Event) -> None:
    state.roster = {entry.hotkey: entry for entry in body.entries}
    for member in state.members.values():
        member.coldkey = state.roster[member.hotkey].coldkey if member.hotkey in state.roster else member.coldkey
    state.roster_block = body.block
    state.rosters.append((event.n, state.roster))


def _assign(state: RunState, body: Assign, event: Event) -> None:
    member = state.members[body.hotkey]
    member.stage, member.from_round = body.stage, body.round
    member.state_root, member.root_steps, member.opened_round, member.tainted = "", 0, -1, False
    state.pending.pop(body.hotkey, None)


def _manifest(state: RunState, body: Manifest, event: Event) -> None:
    state.manifests[body.round] = body
    ended = state.rounds.get(body.round - 1)
    if ended:
        ended.ended_ms = event.time_ms
    for stage in range(state.config.stages):
        weigh_merges(state, body.round, stage)


def _round(state: RunState, body: RoundBegin, event: Event) -> None:
    state.phase, state.round, state.step, state.current = "train", body.round, 0, None
    state.pending.clear()  # steps of the last round that nobody committed: a round starts from committed states only
    state.rounds[body.round] = RoundStats(round=body.round, begun_ms=event.time_ms)


def _step_end(state: RunState, body: StepEnd, event: Event) -> None:
    if state.current is None:
        raise LedgerError(f"expected a step in progress at event {event.n}, found none; the log is contradictory")
    ran = set(state.current.members()) - set(body.missing)
    for free in (free for stage in state.current.wiring.free for free in stage):
        member = state.members[free.hotkey]
        member.waited_steps = 0 if free.hotkey in ran else member.waited_steps + 1
    for hotkey in body.late:
        state.members[hotkey].missed_steps += 1
    state.partial.extend(body.partial)
    state.requeued += body.requeued
    state.current = None
    state.step += 1
    state.global_step += 1
    state.rounds[state.round].steps += 1


def _close(state: RunState, body: RoundClose, event: Event) -> None:
    state.phase, state.close_deadline_ms = "close", body.deadline_ms
    state.closes.setdefault(body.round, {})


def _closed(state: RunState, body: ClosedSet, event: Event) -> None:
    state.closed[body.round, body.stage] = body
    state.contributions.update({entry.digest: entry for entry in body.contributions})
    trained.count_sync(state, body)
    take_closed(state, body)
    if all((body.round, stage) in state.closed for stage in range(state.config.stages)):
        state.phase = "merge"


def _left(state: RunState, body: Left, event: Event) -> None:
    state.members[body.hotkey].active = False


def _commitment(state: RunState, body: Commitment, event: Event) -> None:
    state.commitments.append(body)


def _done(state: RunState, body: Done, event: Event) -> None:
    state.phase = "done"


def _join(state: RunState, message: Join, event: Event) -> None:
    member = state.members.get(message.hotkey)
    if member is None:
        coldkey = state.coldkey(message.hotkey)
        state.members[message.hotkey] = Member(hotkey=message.hotkey, coldkey=coldkey, address=message.address)
        return
    member.active, member.address, member.missed_steps = True, message.address, 0
    if message.root != member.state_root or not message.root:
        # Its committed state is lost: moments start again from zeros, and so at a round's public parameters. Not in
        # a round of which it has a segment: a round is entered once.
        trained_now = member.opened_round == state.round
        member.from_round = max(member.from_round, state.round + 1 if trained_now else state.round)
        member.state_root, member.root_steps, member.tainted = "", 0, False
    state.pending.pop(message.hotkey, None)


def _leave(state: RunState, message: Leave, event: Event) -> None:
    state.members[message.hotkey].active = False


def _wiring(state: RunState, message: Wiring, event: Event) -> None:
    digest = event.body.signed.digest if isinstance(event.body, Said) else ""
    state.current = StepState(wiring=message, wiring_digest=digest, begun_ms=event.time_ms)


def _plan(state: RunState, message: Plan, event: Event) -> None:
    if state.current is None or not isinstance(event.body, Said):
        raise LedgerError(f"expected a wiring before the plan of event {event.n}, found none; the log is contradictory")
    digest = event.body.signed.digest
    state.plans[digest] = message
    state.current.plans[message.lane] = message
    state.current.plan_digests[message.lane] = digest
    taken = set(message.microbatches)
    state.next_microbatch = max([state.next_microbatch, *(i + 1 for i in taken - set(state.requeued))])
    state.requeued = tuple(index for index in state.requeued if index not in taken)


def _receipt(state: RunState, message: Receipt, event: Event) -> None:
    if not isinstance(event.body, Said):
        raise LedgerError(f"expected a signed receipt at event {event.n}, found another body; the log is contradictory")
    trained.take_receipt(state, message, event.body.signed.digest, event)
    if message.hotkey in state.canaries:
        closed.forfeit(state, message.hotkey, message.round, canary.CANARY)


def _merged(state: RunState, message: Merged, event: Event) -> None:
    state.merged.setdefault((message.round, message.stage), {})[message.hotkey] = message
    weigh_merges(state, message.round, message.stage)


def _seen(state: RunState, message: Seen, event: Event) -> None:
    """A head out of order is the orchestrator's fault, which let it in, and changes no draw."""
    seen = state.seen.setdefault(message.validator, [])
    if not seen or (message.block > seen[-1].block and message.count >= seen[-1].count):
        seen.append(message)


def _verdict(state: RunState, message: Verdict, event: Event) -> None:
    segment = state.segments[message.segment]
    segment.verdicts[message.validator] = message
    if message.verdict == "void":
        voids, withheld = segment.voids.get(message.validator, (0, 0))
        segment.voids[message.validator] = voids + 1, withheld + (message.reason == WITHHELD)
    elif message.verdict == "fail":
        state.fails.setdefault(message.validator, []).append(segment.id)
    if segment.upheld_event is None and state.stands(segment):
        segment.upheld_event = event.n
        trained.refute(state, segment, event.n)


def _checkpoint(state: RunState, message: Checkpoint, event: Event) -> None:
    state.checkpoints[message.round] = message


_STATED: dict[type, Callable[[RunState, Any, Event], None]] = {
    Roster: _roster,
    Assign: _assign,
    Manifest: _manifest,
    RoundBegin: _round,
    StepEnd: _step_end,
    RoundClose: _close,
    ClosedSet: _closed,
    Left: _left,
    Commitment: _commitment,
    Planted: canary.plant,
    Revealed: canary.reveal,
    Done: _done,
}

_SAID: dict[type, Callable[[RunState, Any, Event], None]] = {
    Join: _join,
    Leave: _leave,
    Wiring: _wiring,
    Plan: _plan,
    Receipt: _receipt,
    Merged: _merged,
    Seen: _seen,
    Verdict: _verdict,
    Checkpoint: _checkpoint,
}
