"""How well losses of lanes tell who spoils them: simulated grids, wired by the real function, and their ROC.

Lanes are made of replicas of like speed, some replicas are away for a while, and the loss falls as training goes on:
whatever makes a plain mean of losses unfair is here. Pure: randomness is handed in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from subnet.audit.pathway import Pathway, effects
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.scheduler.lanes import wire_lanes
from subnet.wire.messages import WIRE_VERSION, Free, Wiring

SPEED_SPREAD = 0.5  # standard deviation of the logarithm of a step's time


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Stages times replicas, and how losses come about; nats per token.

    noise: of one lane's loss at one step, from its data. harm: what a cheater adds. honest_spread: how honest replicas
    differ. away: the part of the steps that a replica misses, in one piece.
    """

    stages: int
    replicas: int
    cheaters: int
    steps: int = 64
    noise: float = 0.19
    harm: float = 0.1
    honest_spread: float = 0.01
    away: float = 0.25
    first_loss: float = 5.5
    last_loss: float = 2.5


def run_grid(run: RunConfig, grid: Grid, rng: np.random.Generator) -> tuple[list[Pathway], frozenset[tuple[int, str]]]:
    """The lanes of a run and their losses, and who cheated."""
    run = replace(run, allow_same_identity=True)
    seats = [(stage, f"{stage}/{number}") for stage in range(grid.stages) for number in range(grid.replicas)]
    guilty = frozenset(seats[place] for place in rng.choice(len(seats), size=grid.cheaters, replace=False))
    harm = {seat: grid.harm * (seat in guilty) + grid.honest_spread * rng.standard_normal() for seat in seats}
    speed = {seat: int(1000 * np.exp(SPEED_SPREAD * rng.standard_normal())).bit_length() for seat in seats}
    gone = {seat: int(rng.integers(0, grid.steps)) for seat in seats}
    observed = []
    for step in range(grid.steps):
        here = [seat for seat in seats if not 0 <= step - gone[seat] < grid.away * grid.steps]
        level = grid.last_loss + (grid.first_loss - grid.last_loss) * np.exp(-4 * step / grid.steps)
        for path in _lanes(run, grid, here, speed=speed, step=step):
            added = sum(harm[seat] for seat in enumerate(path))
            loss = float(level + added + grid.noise * rng.standard_normal())
            observed.append(Pathway(step=step, path=path, loss=loss))
    return observed, guilty


def _lanes(
    run: RunConfig, grid: Grid, here: Sequence[tuple[int, str]], *, speed: Mapping[tuple[int, str], int], step: int
) -> list[tuple[str, ...]]:
    free: list[list[Free]] = [[] for _ in range(grid.stages)]
    for seat in here:
        entry = Free(hotkey=seat[1], coldkey=f"{seat[1]}/coldkey", speed_class=speed[seat], waited_steps=0)
        free[seat[0]].append(entry)
    wiring = Wiring(
        version=WIRE_VERSION,
        run_id=run.run_id,
        round=0,
        step=step,
        block=step,
        block_hash=digest(f"block {step}".encode()),
        free=tuple(map(tuple, free)),
        first_microbatch=0,
        requeued=(),
    )
    return [lane.path for lane in wire_lanes(run, wiring)]


def marginal_scores(observed: Sequence[Pathway]) -> dict[tuple[int, str], float]:
    """By seat, the estimated effect in standard errors."""
    return {seat: found.errors_above for seat, found in effects(observed).items()}


def mean_scores(observed: Sequence[Pathway]) -> dict[tuple[int, str], float]:
    """By seat, the plain mean of the losses of the lanes it was in."""
    seen: dict[tuple[int, str], list[float]] = {}
    for each in observed:
        for seat in enumerate(each.path):
            seen.setdefault(seat, []).append(each.loss)
    return {seat: float(np.mean(losses)) for seat, losses in seen.items()}


def area_under_roc(scores: Mapping[tuple[int, str], float], guilty: frozenset[tuple[int, str]]) -> float:
    """The chance that a guilty seat scores above an innocent one; half for a tie. Over the seats that were seen."""
    bad = np.array([score for seat, score in scores.items() if seat in guilty])
    good = np.array([score for seat, score in scores.items() if seat not in guilty])
    above = (bad[:, None] > good[None, :]).mean()
    return float(above + 0.5 * (bad[:, None] == good[None, :]).mean())


def caught_at(
    scores: Mapping[tuple[int, str], float], guilty: frozenset[tuple[int, str]], *, false_frac: float
) -> float:
    """The part of the guilty that score above all but this part of the innocent: a point of the ROC."""
    good = np.array([score for seat, score in scores.items() if seat not in guilty])
    bad = np.array([score for seat, score in scores.items() if seat in guilty])
    return float((bad > np.quantile(good, 1 - false_frac)).mean())
