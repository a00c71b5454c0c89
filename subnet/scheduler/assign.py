"""Which stage a miner takes: the one with the fewest replicas, by rules that every node can recompute. Pure.

A newcomer has nothing to lose and is given its stage at once; it trains from the next round on. A replica changes its
stage only between two rounds, when all that it did is committed and merged.
"""

from collections.abc import Set

from subnet.canonical import digest
from subnet.ledger.events import Assign
from subnet.ledger.state import Member, RunState
from subnet.model.cost import spans, state_bytes

LEAST_GAP = 2  # a stage with this many replicas less than another is thin: moving one never makes another thin


def assign(state: RunState, *, alive: Set[str]) -> list[Assign]:
    """Stages for members that have none: in an order that no hotkey can choose, to the stage with the fewest usable
    replicas. Before the first round a thin stage is filled from the others as well."""
    counts = [0] * state.config.stages
    for member in state.members.values():
        if member.stage is not None and usable(state, member, alive=alive):
            counts[member.stage] += 1
    orders = []
    newcomers = [m for m in state.members.values() if m.stage is None and usable(state, m, alive=alive)]
    start = state.round if state.phase == "waiting" else state.round + 1
    for member in sorted(newcomers, key=lambda m: digest(f"strata/assign/1/{state.config.run_id}/{m.hotkey}".encode())):
        stage = min(range(len(counts)), key=lambda s: (counts[s], -_cost(state, s)))
        counts[stage] += 1
        orders.append(Assign(hotkey=member.hotkey, stage=stage, round=start))
    if not orders and state.phase == "waiting":
        orders += moves(state, alive=alive, start=start)
    return orders


def usable(state: RunState, member: Member, *, alive: Set[str]) -> bool:
    """Whether a member can be planned for now: active, answering, not in quarantine, not on a tainted state."""
    return ready(member, alive=alive, start=state.round) and not member.tainted


def ready(member: Member, *, alive: Set[str], start: int) -> bool:
    """Whether a member can begin round `start`: active, answering, out of quarantine. (A tainted one starts afresh.)"""
    return member.active and member.hotkey in alive and member.barred_until_round <= start


def moves(state: RunState, *, alive: Set[str], start: int) -> list[Assign]:
    """Replicas that take another stage from the begin of round `start`: to each thin stage one, the fastest of the
    richest. One a round is enough: who is only away for a moment finds its stage as it was, and nothing flaps."""
    counts = [0] * state.config.stages
    for member in state.members.values():
        if member.stage is not None and ready(member, alive=alive, start=start):
            counts[member.stage] += 1
    orders: list[Assign] = []
    for thin in sorted(range(len(counts)), key=lambda stage: (counts[stage], stage)):
        richest = max(range(len(counts)), key=lambda stage: counts[stage])
        if counts[richest] - counts[thin] < LEAST_GAP:
            break
        moved = _fastest(state, richest, alive=alive, start=start, taken={order.hotkey for order in orders})
        if moved is None:
            break
        counts[richest] -= 1
        counts[thin] += 1
        orders.append(Assign(hotkey=moved.hotkey, stage=thin, round=start))
    return orders


def _fastest(state: RunState, stage: int, *, alive: Set[str], start: int, taken: Set[str]) -> Member | None:
    """The fastest replica of a stage; one that is accused only where there is no other."""
    able = (
        member
        for member in state.members.values()
        if member.stage == stage and member.hotkey not in taken and ready(member, alive=alive, start=start)
    )
    return min(able, key=lambda m: (state.accused(m.hotkey), m.step_ms, m.hotkey), default=None)


def _cost(state: RunState, stage: int) -> int:
    return state_bytes(state.config, spans(state.config)[stage])
