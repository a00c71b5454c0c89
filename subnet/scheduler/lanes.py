"""The public wiring function: which replicas form the lanes of a step, and which microbatches each lane takes.

A pure function of a signed `Wiring`, so anyone can check a plan; a plan that it does not give is the orchestrator's
proven fault. Replicas that waited longest go first, lanes are made of replicas of like speed, ties are broken by a
hash that the block decides. Nobody chooses its neighbours, its data or its labels.
"""

from dataclasses import dataclass

from subnet.canonical import digest, digest_of
from subnet.config import RunConfig
from subnet.errors import RefusedError
from subnet.wire.messages import Free, Plan, Wiring


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One pipeline of a step: a hotkey per stage, and its microbatch indices in order."""

    path: tuple[str, ...]
    microbatches: tuple[int, ...]


def wire_lanes(run: RunConfig, wiring: Wiring) -> tuple[Lane, ...]:
    """The lanes of a step: as many as the thinnest stage allows, no coldkey twice in a lane.

    Microbatches that are planned again come first, then the run's next ones, without gaps.
    """
    width = min((len(free) for free in wiring.free), default=0)
    pools = [_preferred(wiring, stage, width) for stage in range(len(wiring.free))]
    paths: list[tuple[Free, ...]] = []
    while len(paths) < width and (path := _path(pools, allow_same=run.allow_same_identity)):
        paths.append(path)
        for pool, free in zip(pools, path, strict=True):
            pool.remove(free)
    each = run.train.microbatches_per_step
    fresh = wiring.first_microbatch
    indices = list(wiring.requeued[: len(paths) * each])
    indices += range(fresh, fresh + len(paths) * each - len(indices))
    return tuple(
        Lane(path=tuple(free.hotkey for free in path), microbatches=tuple(indices[i * each : (i + 1) * each]))
        for i, path in enumerate(paths)
    )


def check_plan(run: RunConfig, wiring: Wiring, plan: Plan) -> None:
    """Raise RefusedError unless the plan is of this wiring's step, with exactly the path and microbatches it gives."""
    if (plan.run_id, plan.round, plan.step, plan.wiring) != (
        wiring.run_id, wiring.round, wiring.step, digest_of(wiring),
    ):  # fmt: skip
        raise RefusedError(
            f"expected a plan of the wiring of round {wiring.round} step {wiring.step}, found one of round "
            f"{plan.round} step {plan.step} under {plan.wiring[:12]}; fetch the wiring that the plan names"
        )
    lanes = wire_lanes(run, wiring)
    wanted = lanes[plan.lane] if 0 <= plan.lane < len(lanes) else None
    if wanted != Lane(path=plan.path, microbatches=plan.microbatches):
        raise RefusedError(
            f"expected the lane that the wiring of step {plan.step} gives, found another plan for lane {plan.lane}; "
            "keep the signed plan as proof against the orchestrator"
        )


def _preferred(wiring: Wiring, stage: int, width: int) -> list[Free]:
    """A stage's replicas: the `width` that waited longest, fastest first, then the others by how long they waited."""
    where = f"strata/wire/1/{wiring.block_hash}/{wiring.round}/{wiring.step}/{stage}"
    tie = {free.hotkey: digest(f"{where}/{free.hotkey}".encode()) for free in wiring.free[stage]}
    ranked = sorted(wiring.free[stage], key=lambda free: (-free.waited_steps, tie[free.hotkey]))
    return sorted(ranked[:width], key=lambda free: (free.speed_class, tie[free.hotkey])) + ranked[width:]


def _path(pools: list[list[Free]], *, allow_same: bool) -> tuple[Free, ...] | None:
    """The preferred replica of every stage such that no coldkey comes twice, or None when there is no such path.

    A stage whose choices are taken has an earlier stage choose again (augmenting paths), so a path is found whenever
    one exists: otherwise one coldkey on two stages could keep a whole step from being wired, for ever.
    """
    if allow_same:
        return tuple(pool[0] for pool in pools) if all(pools) else None
    holder: dict[str, int] = {}
    chosen: dict[int, Free] = {}
    if not all(_seat(pools, stage, tried=set(), holder=holder, chosen=chosen) for stage in range(len(pools))):
        return None
    return tuple(chosen[stage] for stage in range(len(pools)))


def _seat(
    pools: list[list[Free]], stage: int, *, tried: set[str], holder: dict[str, int], chosen: dict[int, Free]
) -> bool:
    """Whether the stage found a replica of a coldkey that was not tried; who held that coldkey has another by then."""
    for free in pools[stage]:
        if free.coldkey in tried:
            continue
        tried.add(free.coldkey)
        held = holder.get(free.coldkey)
        if held is None or _seat(pools, held, tried=tried, holder=holder, chosen=chosen):
            holder[free.coldkey], chosen[stage] = stage, free
            return True
    return False
