"""Whose presence in a lane goes with a higher loss: marginal effects of miners, estimated from paths and losses.

Every step of a lane is one observation: a path (one replica per stage) and the loss that its last stage reported. The
loss is explained by the step (how far training is, what all lanes of the step share) and by one effect per miner, so
the bias that a miner's neighbours bring into its average is taken out: ridge regression on miner indicators, with the
mean of each step removed. Effects are relative within a stage, in nats per token; nothing can be said of a miner that
never had another in its place.

The idea of judging miners by the losses of sampled pathways is that of CLASP in IOTA's technical primer
(arXiv:2507.17766); the estimate here is an ordinary regression of our own. It accuses nobody and pays nobody: a
validator may order its own audits by it. A loss is what the last stage says, so it is evidence of nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from subnet.ledger.state import RunState

RIDGE = 1.0  # in observations: a miner seen once is drawn half way to the mean of its stage
SUSPECT_ERRORS = 3.0  # an effect so many standard errors above its stage's mean is suspect
RECENT_ROUNDS = 2
MOST_NATS = 100.0  # per token: no honest loss is near it, and whoever reports the largest number overflows no sum


@dataclass(frozen=True, kw_only=True)
class Pathway:
    """One lane of one step: who formed it, stage by stage, and its loss in nats per token."""

    step: int
    path: tuple[str, ...]
    loss: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A miner's marginal effect on the loss at its stage, its standard error, and in how many lanes it was seen."""

    hotkey: str
    stage: int
    effect: float
    error: float
    count: int

    @property
    def errors_above(self) -> float:
        """The effect in standard errors; 0 where nothing is known."""
        return self.effect / self.error if self.error > 0 else 0.0


def pathways(state: RunState, *, rounds: int = RECENT_ROUNDS) -> list[Pathway]:
    """The lanes of the last rounds that ended in a loss, in ledger order."""
    run = state.config
    made = []
    for receipt in reversed(state.receipts.values()):
        if receipt.round <= state.round - rounds:
            break
        if receipt.kind != "step" or receipt.stage != run.stages - 1 or not receipt.work:
            continue
        plan = state.plans[receipt.plan]
        nats = sum(work.loss for work in receipt.work if work.loss is not None)
        loss = min(MOST_NATS, nats / (run.microbatch_tokens * len(receipt.work)))
        made.append(Pathway(step=plan.global_step, path=plan.path, loss=loss))
    return made[::-1]


def effects(observed: Iterable[Pathway], *, ridge: float = RIDGE) -> dict[tuple[int, str], Effect]:
    """The effect of every (stage, hotkey) that was seen. Empty without two lanes in one step to compare."""
    steps: dict[int, list[Pathway]] = {}
    for each in observed:
        steps.setdefault(each.step, []).append(each)
    compared = [lanes for lanes in steps.values() if len(lanes) > 1]
    column: dict[tuple[int, str], int] = {}
    for lanes in compared:
        for lane in lanes:
            for seat in enumerate(lane.path):
                column.setdefault(seat, len(column))
    if not column:
        return {}
    gram, moment = np.zeros((len(column), len(column))), np.zeros(len(column))
    seen, square = np.zeros(len(column), dtype=int), 0.0
    for lanes in compared:
        design = np.zeros((len(lanes), len(column)))
        for row, lane in enumerate(lanes):
            design[row, [column[seat] for seat in enumerate(lane.path)]] = 1.0
        used = np.flatnonzero(design.any(axis=0))
        seen[used] += design[:, used].sum(axis=0).astype(int)
        within = design[:, used] - design[:, used].mean(axis=0)
        losses = np.array([lane.loss for lane in lanes])
        losses = losses - losses.mean()
        gram[np.ix_(used, used)] += within.T @ within
        moment[used] += within.T @ losses
        square += float(losses @ losses)
    fitted, covariance = _solve(gram, moment, square=square, ridge=ridge, rows=_freedom(compared))
    return _centred(column, fitted, covariance, seen)


def _freedom(compared: Iterable[list[Pathway]]) -> int:
    """Observations less the mean that each step took."""
    return sum(len(lanes) - 1 for lanes in compared)


def _solve(
    gram: np.ndarray, moment: np.ndarray, *, square: float, ridge: float, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ridge solution and its covariance: the noise is what the fit leaves, over the freedom it leaves."""
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    fitted = inverse @ moment
    left = max(0.0, square - 2 * float(fitted @ moment) + float(fitted @ gram @ fitted))
    used = float(np.trace(inverse @ gram))
    noise = left / max(1.0, rows - used)
    return fitted, noise * (inverse @ gram @ inverse)


def _centred(
    column: Mapping[tuple[int, str], int], fitted: np.ndarray, covariance: np.ndarray, seen: np.ndarray
) -> dict[tuple[int, str], Effect]:
    """Effects relative to the mean of their stage, with the errors of these differences."""
    made = {}
    for stage in sorted({stage for stage, _ in column}):
        seats = [(hotkey, position) for (at, hotkey), position in column.items() if at == stage]
        index = np.array([position for _, position in seats])
        centre = np.eye(len(index)) - 1.0 / len(index)
        effect = centre @ fitted[index]
        variance = np.diag(centre @ covariance[np.ix_(index, index)] @ centre)
        for number, (hotkey, position) in enumerate(seats):
            made[stage, hotkey] = Effect(
                hotkey=hotkey,
                stage=stage,
                effect=float(effect[number]),
                error=float(np.sqrt(max(0.0, variance[number]))),
                count=int(seen[position]),
            )
    return made


def suspects(state: RunState, *, rounds: int = RECENT_ROUNDS) -> tuple[str, ...]:
    """Hotkeys whose lanes lose more than their stage's others explain, worst first.

    For the order of a validator's own audits only: who is drawn, judged or paid does not depend on it.
    """
    worst: dict[str, float] = {}
    for found in effects(pathways(state, rounds=rounds)).values():
        if found.errors_above > SUSPECT_ERRORS:
            worst[found.hotkey] = max(worst.get(found.hotkey, 0.0), found.errors_above)
    return tuple(sorted(worst, key=lambda hotkey: (-worst[hotkey], hotkey)))
