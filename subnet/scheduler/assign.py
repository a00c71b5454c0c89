"""Which stage a miner takes: the one with the fewest replicas, by rules that every node can recompute. Pure."""

from subnet.canonical import digest
from subnet.ledger.events import Assign
from subnet.ledger.state import Member, RunState
from subnet.model.cost import spans, state_bytes


def assign(state: RunState, *, alive: frozenset[str]) -> list[Assign]:
    """Stages for members that have none, and for stages that have nobody.

    Newcomers, in an order that no hotkey can choose, go to the stage with the fewest active replicas
    A stage without any active replica takes one from the richest stage, from the next round on.
    """
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
    orders += _cover(state, counts, alive=alive, start=start)
    return orders


def usable(state: RunState, member: Member, *, alive: frozenset[str]) -> bool:
    """Whether a member can be planned for: active, answering, not in quarantine."""
    return member.active and member.hotkey in alive and member.barred_until_round <= state.round


def _cover(state: RunState, counts: list[int], *, alive: frozenset[str], start: int) -> list[Assign]:
    """The fastest replica of an over-provided stage takes a stage that has none."""
    orders: list[Assign] = []
    for empty in [stage for stage, count in enumerate(counts) if count == 0]:
        richest = max(range(len(counts)), key=lambda s: counts[s])
        if counts[richest] < 2:
            return orders
        moved = min(
            (m for m in state.members.values() if m.stage == richest and usable(state, m, alive=alive)),
            key=lambda m: (m.step_ms, m.hotkey),
            default=None,
        )
        if moved is None:
            return orders
        counts[richest] -= 1
        counts[empty] += 1
        orders.append(Assign(hotkey=moved.hotkey, stage=empty, round=start))
    return orders


def _cost(state: RunState, stage: int) -> int:
    return state_bytes(state.config, spans(state.config)[stage])
