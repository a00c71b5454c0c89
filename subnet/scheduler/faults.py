"""The orchestrator's proven faults: entries of the log that the public functions do not give. Pure.

Anybody who folds the log can find them: messages under another name than their signer's, plans against their wiring,
the split of a step, closed sets against the closes, manifests against the merge reports. Who was alive and what was
readable is not in the log, and not judged; signatures are checked where the keys are.
"""

from collections.abc import Iterator, Sequence

from subnet.errors import RefusedError
from subnet.ledger.events import ClosedSet, Event, Manifest, Said, StepEnd
from subnet.ledger.fold import apply, fold
from subnet.ledger.state import RunState, StepState
from subnet.scheduler.lanes import check_plan, wire_lanes
from subnet.scheduler.tick import closed_set, split_microbatches
from subnet.wire.messages import KINDS, Message, Signed, read_signed


def fold_checked(events: Sequence[Event]) -> tuple[RunState, list[str]]:
    """The fold of a log, and the entries that its orchestrator could not honestly make, a sentence each."""
    state, faults = fold(events[:1]), []
    for event in events[1:]:
        faults += orchestrator_faults(state, event)
        apply(state, event)
    return state, faults


def orchestrator_faults(state: RunState, event: Event) -> list[str]:
    """What is wrong with an event, a sentence each; `state` is the fold of all events before it."""
    body = event.body
    if isinstance(body, Said):
        return [f"event {event.n}: {fault}" for fault in _authorship(state, body.signed)]
    if isinstance(body, StepEnd) and state.current is not None:
        return [f"event {event.n}: {fault}" for fault in _step(state, state.current, body)]
    if isinstance(body, ClosedSet):
        return [f"event {event.n}: {fault}" for fault in _closed(state, body)]
    if isinstance(body, Manifest):
        return [f"event {event.n}: {fault}" for fault in _manifest(state, body)]
    return []


def _authorship(state: RunState, signed: Signed) -> Iterator[str]:
    claimed = _author(read_signed(signed, KINDS[signed.kind]), state.orchestrator)
    if claimed != signed.hotkey:
        yield f"a {signed.kind} of {claimed} is signed by {signed.hotkey}"


def _author(message: Message, orchestrator: str) -> str:
    """Whose word a message is: the validator or hotkey that it names, else the orchestrator's."""
    return str(getattr(message, "validator", "") or getattr(message, "hotkey", "") or orchestrator)


def _step(state: RunState, current: StepState, end: StepEnd) -> Iterator[str]:
    """Wiring, plans and the end of one step, once per step: the lanes of a wiring are computed for all its plans."""
    yield from _wiring(state, current)
    yield from _plans(state, current)
    if (end.done, end.partial, end.requeued) != split_microbatches(state.config, current):
        yield f"the end of step {end.step} splits its microbatches otherwise than its receipts"
    if set(end.missing) != set(current.members()) - current.receipts.keys() or not set(end.late) <= set(end.missing):
        yield f"the end of step {end.step} names others than those without a receipt"


def _wiring(state: RunState, current: StepState) -> Iterator[str]:
    wiring = current.wiring
    if (wiring.round, wiring.step, wiring.requeued) != (state.round, state.step, _requeued_before(state, current)):
        yield f"the wiring of round {wiring.round} step {wiring.step} is not of this step"
    for stage, row in enumerate(wiring.free):
        for free in row:
            member = state.members.get(free.hotkey)
            if member is None or member.stage != stage:
                yield f"the wiring of step {wiring.step} has {free.hotkey} on stage {stage}, which it does not hold"


def _plans(state: RunState, current: StepState) -> Iterator[str]:
    wiring, lanes = current.wiring, wire_lanes(state.config, current.wiring)
    if sorted(current.plans) != list(range(len(lanes))):
        yield f"step {wiring.step} has the lanes {sorted(current.plans)}, its wiring gives {len(lanes)}"
    for lane, plan in current.plans.items():
        given = lanes[lane] if lane < len(lanes) else None
        if given is None or (plan.path, plan.microbatches) != (given.path, given.microbatches):
            try:
                check_plan(state.config, wiring, plan)
            except RefusedError as error:
                yield str(error)


def _requeued_before(state: RunState, current: StepState) -> tuple[int, ...]:
    """What was to be planned again when the step was wired: what its plans took of it, and what is left."""
    planned = {index for plan in current.plans.values() for index in plan.microbatches}
    return tuple(index for index in current.wiring.requeued if index in planned or index in state.requeued)


def _closed(state: RunState, closed: ClosedSet) -> Iterator[str]:
    """The set that the closes give, if what is in it was what could be read: weights, factors, order, no copies."""
    readable = frozenset(entry.digest for entry in closed.contributions)
    given = closed_set(state, closed.stage, stored=readable)
    if closed.round != state.round or given.contributions != closed.contributions:
        yield f"the closed set of round {closed.round} stage {closed.stage} is not what its closes give"


def _manifest(state: RunState, manifest: Manifest) -> Iterator[str]:
    for stage, public in enumerate(manifest.stages):
        merged = state.merged.get((manifest.round, stage), {}).get(state.orchestrator)
        if merged is not None and (merged.root, merged.state_bytes) != (public.root, public.state_bytes):
            yield f"the manifest of round {manifest.round} has a state of stage {stage} other than the published one"
        if manifest.round == 0 and state.config.start and public.root != state.config.start.roots[stage]:
            yield f"the manifest of round 0 has a state of stage {stage} other than that of the model in the run"
