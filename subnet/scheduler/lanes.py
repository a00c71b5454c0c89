"""The public wiring function: which replicas form the lanes of a step, and which microbatches each lane takes.

A pure function of a signed `Wiring`, so anyone can check a plan; a plan that it does not give is the orchestrator's
proven fault. Replicas that waited longest go first, lanes are made of replicas of like speed, ties are broken by a
hash that the block decides. Nobody chooses its neighbours, its data or its labels.
"""

from dataclasses import dataclass

from subnet.canonical import digest
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
    chosen = [_first(wiring, stage, width) for stage in range(run.stages)]
    paths: list[tuple[Free, ...]] = []
    for head in chosen[0]:
        path: tuple[Free, ...] = (head,)
        for stage in range(1, run.stages):
            partner = _partner(path, chosen[stage], allow_same=run.allow_same_identity)
            if partner is None:
                break
            chosen[stage].remove(partner)
            path += (partner,)
        else:
            paths.append(path)
    each = run.train.microbatches_per_step
    fresh = wiring.first_microbatch
    indices = list(wiring.requeued[: len(paths) * each])
    indices += range(fresh, fresh + len(paths) * each - len(indices))
    return tuple(
        Lane(path=tuple(free.hotkey for free in path), microbatches=tuple(indices[i * each : (i + 1) * each]))
        for i, path in enumerate(paths)
    )


def check_plan(run: RunConfig, wiring: Wiring, plan: Plan) -> None:
    """Raise RefusedError unless the wiring gives exactly this plan's path and microbatches."""
    lanes = wire_lanes(run, wiring)
    wanted = lanes[plan.lane] if 0 <= plan.lane < len(lanes) else None
    if wanted != Lane(path=plan.path, microbatches=plan.microbatches):
        raise RefusedError(
            f"expected the lane that the wiring of step {plan.step} gives, found another plan for lane {plan.lane}; "
            "keep the signed plan as proof against the orchestrator"
        )


def _first(wiring: Wiring, stage: int, width: int) -> list[Free]:
    """The `width` replicas of a stage that run this step, fastest first."""

    def tie(free: Free) -> str:
        return digest(f"strata/wire/1/{wiring.block_hash}/{wiring.round}/{wiring.step}/{stage}/{free.hotkey}".encode())

    ranked = sorted(wiring.free[stage], key=lambda free: (-free.waited_steps, tie(free)))
    return sorted(ranked[:width], key=lambda free: (free.speed_class, tie(free)))


def _partner(path: tuple[Free, ...], candidates: list[Free], *, allow_same: bool) -> Free | None:
    """The first candidate whose coldkey is not in the path yet."""
    taken = {free.coldkey for free in path}
    return next((free for free in candidates if allow_same or free.coldkey not in taken), None)
