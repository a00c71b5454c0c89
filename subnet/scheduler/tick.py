"""The orchestrator's decisions: given the state, the time and what is alive, what to log next. Pure.

Each call looks once and returns the entries to append now, oldest first; the node signs and appends them, folds them,
and calls again. Nothing is decided anywhere else, so a restarted orchestrator goes on from its ledger.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from subnet.canonical import digest_of
from subnet.config import RunConfig
from subnet.ledger.events import (
    Body,
    ClosedSet,
    Contributed,
    Done,
    Left,
    Manifest,
    RoundBegin,
    RoundClose,
    StagePublic,
    StepEnd,
)
from subnet.ledger.state import Member, RunState, StepState
from subnet.merge.closed import Offer, close_set
from subnet.model.cost import parameters, spans
from subnet.scheduler.assign import assign, moves, ready, usable
from subnet.scheduler.lanes import wire_lanes
from subnet.wire.messages import WIRE_VERSION, Free, Message, Plan, Wiring

DEADLINE_FACTOR = 4  # a lane may take this many times its slowest member's measured step
LONGEST_FACTOR = 5  # but no longer than so many floors: one slow miner cannot stretch everybody's steps
CLOSE_FACTOR = 3  # a round's end may take this many times a step's floor,
UPLOAD_BYTES_PER_S = 1_000_000  # and as long as the largest contribution takes at this rate


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What the ledger does not say: the time, the chain's finalised block, who answers, what the store holds.

    enough: whether the members expected at the start are there (or were waited for long enough).
    """

    now_ms: int
    block: int
    block_hash: str
    alive: frozenset[str]
    stored: frozenset[str]
    enough: bool


def tick(state: RunState, outside: Outside) -> list[Body | Message]:
    """The entries to append now; none when there is nothing to decide yet."""
    orders: list[Body | Message] = []
    if state.phase != "done":
        orders += [
            Left(hotkey=member.hotkey, reason="deregistered")
            for member in state.members.values()
            if member.active and member.hotkey not in state.roster
        ]
        if not orders:
            orders += assign(state, alive=outside.alive)
    if orders:
        return orders
    return _PHASES[state.phase](state, outside)


def _waiting(state: RunState, outside: Outside) -> list[Body | Message]:
    manifest = _manifest(state, 0, waited=True)
    if 0 not in state.manifests:
        return [manifest] if manifest else []
    if outside.enough and all(_free(state, stage, outside) for stage in range(state.config.stages)):
        return [RoundBegin(round=0, block=outside.block)]
    return []


def _train(state: RunState, outside: Outside) -> list[Body | Message]:
    current = state.current
    if current is not None:
        return _finish(state, current, outside)
    if state.step >= state.config.train.steps_per_round or _bereft(state, outside) or _broken_off(state):
        largest_bytes = max(4 * parameters(state.config, span) for span in spans(state.config))
        wait_ms = int(1000 * (CLOSE_FACTOR * state.config.lanes.deadline_s + largest_bytes / UPLOAD_BYTES_PER_S))
        return [RoundClose(round=state.round, deadline_ms=outside.now_ms + wait_ms)]
    return _wire(state, outside)


def _bereft(state: RunState, outside: Outside) -> bool:
    """Whether some stage has nobody left in this round, but somebody from the next on: then the round ends early."""
    members, alive, following = list(state.members.values()), outside.alive, state.round + 1
    here = [m for m in members if m.from_round <= state.round and ready(m, alive=alive, start=state.round)]
    now = {m.stage for m in here if not (m.tainted and m.opened_round == state.round)}  # others may yet start afresh
    empty = set(range(state.config.stages)) - now
    if not empty:
        return False
    later = {m.stage for m in members if ready(m, alive=alive, start=following)}
    return bool(empty & (later | {order.stage for order in moves(state, alive=alive, start=following)}))


def _broken_off(state: RunState) -> bool:
    """Whether no lane can come together in this round any more, whoever comes back, and there is work to be merged."""
    here = [
        member
        for member in state.members.values()
        if member.from_round <= state.round and member.barred_until_round <= state.round
        and not (member.tainted and member.opened_round == state.round)
    ]  # fmt: skip
    return state.step > 0 and not _lane_among(state, here)


def _can_begin(state: RunState, start: int) -> bool:
    """Whether some lane could be wired in round `start`, if all who belong to the run then answer."""
    able = [m for m in state.members.values() if m.active and m.barred_until_round <= start]
    return _lane_among(state, able)


def _lane_among(state: RunState, members: Sequence[Member]) -> bool:
    """Whether these replicas have all stages, and may stand in one lane."""
    rows: list[list[Free]] = [[] for _ in range(state.config.stages)]
    for member in members:
        if member.stage is not None:
            rows[member.stage].append(Free(hotkey=member.hotkey, coldkey=member.coldkey, speed_class=0, waited_steps=0))
    free = tuple(tuple(row) for row in rows)
    wiring = Wiring(
        version=WIRE_VERSION, run_id=state.config.run_id, round=state.round, step=state.step, block=0, block_hash="",
        free=free, first_microbatch=0, requeued=(),
    )  # fmt: skip
    return bool(wire_lanes(state.config, wiring))


def waits_for(state: RunState, outside: Outside) -> str:
    """What the run stands still for, in one sentence; empty while it goes on, or where it waits for an answer only."""
    idle = state.phase == "train" and state.current is None
    if not idle and not (state.phase == "merge" and state.round + 1 in state.manifests):
        return ""
    start = state.round + (state.phase == "merge")
    parts = []
    for stage in range(state.config.stages):
        of_stage = [member for member in state.members.values() if member.stage == stage]
        if any(ready(m, alive=outside.alive, start=start) and (not idle or not m.tainted) for m in of_stage):
            continue
        barred = sum(member.barred_until_round > start for member in of_stage)
        tainted = sum(member.tainted and member.barred_until_round <= start for member in of_stage)
        parts.append(
            f"stage {stage} has nobody to train it in round {start}: of {len(of_stage)} replicas {barred} are in "
            f"quarantine, {tainted} have to start afresh, {len(of_stage) - barred - tainted} do not answer"
        )
    if not parts:
        return "a miner of another coldkey: those that are here hold all stages, but no lane may have one coldkey twice"
    return "; ".join(parts) + "; start or wait for a miner, a newcomer is given that stage"


def _wire(state: RunState, outside: Outside) -> list[Body | Message]:
    """The wiring and plans of the next step, when every stage has somebody free."""
    wiring = Wiring(
        version=WIRE_VERSION,
        run_id=state.config.run_id,
        round=state.round,
        step=state.step,
        block=outside.block,
        block_hash=outside.block_hash,
        free=tuple(tuple(_free(state, stage, outside)) for stage in range(state.config.stages)),
        first_microbatch=state.next_microbatch,
        requeued=state.requeued,
    )
    lanes = wire_lanes(state.config, wiring)
    if not lanes:
        return []
    slowest_ms = max(state.members[hotkey].step_ms for lane in lanes for hotkey in lane.path)
    floor_ms = 1000 * state.config.lanes.deadline_s
    patience_ms = int(min(max(floor_ms, DEADLINE_FACTOR * slowest_ms), LONGEST_FACTOR * floor_ms))
    plans = [
        Plan(
            version=WIRE_VERSION,
            run_id=state.config.run_id,
            round=state.round,
            step=state.step,
            global_step=state.global_step,
            lane=number,
            path=lane.path,
            microbatches=lane.microbatches,
            wiring=digest_of(wiring),
            deadline_ms=outside.now_ms + patience_ms,
        )
        for number, lane in enumerate(lanes)
    ]
    return [wiring, *plans]


def _free(state: RunState, stage: int, outside: Outside) -> list[Free]:
    """Replicas of a stage that may be wired, by hotkey; those under an accusation stand last in waiting."""
    able = (
        member
        for member in state.members.values()
        if member.stage == stage and member.from_round <= state.round and usable(state, member, alive=outside.alive)
    )
    return [_entry(state, member) for member in sorted(able, key=lambda member: member.hotkey)]


def _entry(state: RunState, member: Member) -> Free:
    waited = -1 if state.accused(member.hotkey) else member.waited_steps
    slow = 2 if member.missed_steps >= 2 else 0
    speed = int(member.step_ms).bit_length() + slow
    return Free(hotkey=member.hotkey, coldkey=member.coldkey, speed_class=speed, waited_steps=waited)


def _finish(state: RunState, current: StepState, outside: Outside) -> list[Body | Message]:
    """End the step once everybody who can still answer has, or its deadline is over."""
    missing = [hotkey for hotkey in current.members() if hotkey not in current.receipts]
    late = outside.now_ms > max((plan.deadline_ms for plan in current.plans.values()), default=0)
    if missing and not late:
        return []
    done, partial, requeued = split_microbatches(state.config, current)
    return [
        StepEnd(
            round=state.round,
            step=state.step,
            done=done,
            partial=partial,
            requeued=requeued,
            missing=tuple(missing),
            late=late_members(current, alive=outside.alive),
        )
    ]


def late_members(current: StepState, *, alive: Set[str]) -> tuple[str, ...]:
    """Of the members without a receipt, those at whom a lane's others waited; their neighbours only starved.

    Where a member died, it is the one. Otherwise gradients run from the last stage to the first: the last silent
    member before one that did finish, and has its signature for a gradient, had all that it needed. Where the lane's
    end is silent, nobody can tell.
    """
    late: list[str] = []
    for plan in current.plans.values():
        silent = [hotkey not in current.receipts for hotkey in plan.path]
        dead = [hotkey for hotkey in plan.path if hotkey not in current.receipts and hotkey not in alive]
        for stage, hotkey in enumerate(plan.path):
            if not silent[stage]:
                continue
            following = current.receipts.get(plan.path[stage + 1]) if stage + 1 < len(plan.path) else None
            fed = following is not None and any(work.gradient_ack for work in following.work)
            unknown = all(silent[stage:])
            if hotkey in dead or (not dead and (fed or unknown)):
                late.append(hotkey)
    return tuple(late)


def split_microbatches(run: RunConfig, current: StepState) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(done on every stage, done on some, done on none) of the step's planned microbatches."""
    stages_of: dict[int, set[int]] = {index: set() for plan in current.plans.values() for index in plan.microbatches}
    for receipt in current.receipts.values():
        for work in receipt.work:
            stages_of[work.index].add(receipt.stage)
    done = tuple(index for index, stages in stages_of.items() if len(stages) == run.stages)
    partial = tuple(index for index, stages in stages_of.items() if 0 < len(stages) < run.stages)
    return done, partial, tuple(index for index, stages in stages_of.items() if not stages)


def _close(state: RunState, outside: Outside) -> list[Body | Message]:
    """Close each stage's set when every replica that trained has committed and stored, or time is over."""
    closes = state.closes[state.round]
    late = outside.now_ms > state.close_deadline_ms
    orders: list[Body | Message] = []
    for stage in range(state.config.stages):
        if (state.round, stage) in state.closed:
            continue
        expected = {m.hotkey for m in state.members.values() if m.stage == stage and _trained(state, m)}
        silent = {hotkey for hotkey in expected if hotkey not in outside.alive and hotkey not in closes}
        here = [receipt for receipt in closes.values() if receipt.stage == stage]
        ready = [receipt for receipt in here if not receipt.contribution or receipt.contribution in outside.stored]
        if late or (expected - silent <= {receipt.hotkey for receipt in ready}):
            orders.append(closed_set(state, stage, stored=outside.stored, silent=expected - outside.alive))
    return orders


def _trained(state: RunState, member: Member) -> bool:
    able = member.barred_until_round <= state.round and member.from_round <= state.round
    return able and (member.opened_round == state.round or bool(state.pending.get(member.hotkey)))


def closed_set(state: RunState, stage: int, *, stored: frozenset[str], silent: Set[str] = frozenset()) -> ClosedSet:
    """The stage's closed set from this round's closes, in ledger order; members in quarantine are left out, and
    contributions that an earlier merge has used.

    silent: replicas that trained and do not answer; those of them that are not in the set are named in it.
    """
    closes = state.closes[state.round]
    offers = [
        Offer(
            hotkey=receipt.hotkey,
            digest=receipt.contribution,
            tokens=receipt.tokens,
            norm=receipt.contribution_norm or 0.0,
            position=position,
        )
        for position, receipt in enumerate(closes.values())
        if receipt.stage == stage
        and state.members[receipt.hotkey].barred_until_round <= state.round
        and receipt.contribution not in state.contributions
    ]
    shares = close_set(offers, last_position=len(closes), readable=stored)
    contributions = tuple(
        Contributed(hotkey=share.hotkey, digest=share.digest, tokens=share.tokens, factor=share.factor)
        for share in shares
    )
    quiet = sorted(silent - {share.hotkey for share in shares})
    return ClosedSet(round=state.round, stage=stage, contributions=contributions, silent=tuple(quiet))


def _merge(state: RunState, outside: Outside) -> list[Body | Message]:
    """Once every stage is merged: the next round's manifest, and its begin or the end of training."""
    following = state.round + 1
    if following not in state.manifests:
        late = outside.now_ms > state.close_deadline_ms
        manifest = _manifest(state, following, waited=late or _all_merged(state, outside))
        return [manifest] if manifest else []
    if following >= state.config.train.rounds:
        return [Done(rounds=following)]
    moving = moves(state, alive=outside.alive, start=following)
    if moving:
        return [*moving]
    if not _can_begin(state, following):
        return []  # a newcomer trains from this round on; begun without it, the round would pass empty
    return [RoundBegin(round=following, block=outside.block)]


def _all_merged(state: RunState, outside: Outside) -> bool:
    """Whether every answering contributor has reported its merge."""
    for stage in range(state.config.stages):
        reported = state.merged.get((state.round + 1, stage), {})
        authors = {entry.hotkey for entry in state.closed[state.round, stage].contributions}
        if any(hotkey in outside.alive and hotkey not in reported for hotkey in authors):
            return False
    return True


def _manifest(state: RunState, round_number: int, *, waited: bool) -> Manifest | None:
    """The manifest, once the publisher (who merges every stage as well) has reported all of them."""
    reports = [state.merged.get((round_number, stage), {}) for stage in range(state.config.stages)]
    if not waited or any(state.orchestrator not in report for report in reports):
        return None
    publics = [report[state.orchestrator] for report in reports]
    dissenting = [
        hotkey
        for report, public in zip(reports, publics, strict=True)
        for hotkey, merged in sorted(report.items())
        if merged.root != public.root
    ]
    return Manifest(
        round=round_number,
        stages=tuple(StagePublic(root=public.root, state_bytes=public.state_bytes) for public in publics),
        dissenting=tuple(dissenting),
    )


def _done(state: RunState, outside: Outside) -> list[Body | Message]:
    return []


_PHASES: dict[str, Callable[[RunState, Outside], list[Body | Message]]] = {
    "waiting": _waiting,
    "train": _train,
    "close": _close,
    "merge": _merge,
    "done": _done,
}
