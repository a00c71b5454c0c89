#!/usr/bin/env python3
"""How well the losses of lanes tell who spoils them: ROC of the marginal effects against the plain mean of losses.

    scripts/bench/pathway.py            # a minute or two, leaves docs/benchmarks/pathway.json and prints the ROC
    scripts/bench/pathway.py --quick    # fewer grids

Owns the grids and what they must show; the estimate is `subnet/audit/pathway.py`, the simulation `subnet/sim`.
"""

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from scripts.bench.report import Figure, options, report  # noqa: E402
from subnet.config import RunConfig  # noqa: E402
from subnet.edges.presets import RunOptions, build_run  # noqa: E402
from subnet.sim.pathways import (  # noqa: E402
    Grid,
    area_under_roc,
    caught_at,
    marginal_scores,
    mean_scores,
    run_grid,
)

GRIDS = {"5x5": (5, 5, 3), "10x20": (10, 20, 20)}  # stages, replicas, cheaters: about a tenth
HARMS = (0.05, 0.1, 0.2)
JUDGED_HARM = 0.1
RUNS = {"5x5": 400, "10x20": 60}
QUICK_RUNS = {"5x5": 40, "10x20": 6}
FALSE_FRACS = (0.01, 0.05, 0.1, 0.2, 0.5)


def grid_figures(run: RunConfig, name: str, harm: float, *, runs: int) -> list[Figure]:
    """The area under the ROC of both rankings over simulated runs, and its points printed."""
    stages, replicas, cheaters = GRIDS[name]
    grid = Grid(stages=stages, replicas=replicas, cheaters=cheaters, harm=harm)
    ours, plain, points = [], [], []
    for seed in range(runs):
        observed, guilty = run_grid(run, grid, np.random.default_rng(seed))
        scores = marginal_scores(observed)
        ours.append(area_under_roc(scores, guilty))
        plain.append(area_under_roc(mean_scores(observed), guilty))
        points.append([caught_at(scores, guilty, false_frac=frac) for frac in FALSE_FRACS])
    roc = ", ".join(f"{hit:.2f} at {frac:g}" for frac, hit in zip(FALSE_FRACS, np.mean(points, axis=0), strict=True))
    sys.stdout.write(f"{name}, harm {harm:g} nats per token: cheaters found {roc} of the honest suspected\n")
    mean, error = float(np.mean(ours)), float(np.std(ours, ddof=1) / np.sqrt(runs))
    key = f"{name}_harm_{round(1000 * harm)}"
    how = (
        f"{runs} runs of {grid.steps} steps, {cheaters} of {stages * replicas} replicas add {harm:g} nats per token to "
        f"their lanes' loss; noise of a lane's loss {grid.noise:g} (as measured in a demo run), lanes by the wiring "
        "function, speeds log-normal, every replica away for a quarter of the steps, loss falling"
    )
    judged = harm >= JUDGED_HARM
    return [
        Figure(
            name=f"auc_{key}", value=round(mean, 4), unit="area under the ROC",
            must="above the plain mean's" + (", at least 0.85" if judged else ""),
            holds=mean - 3.29 * error > float(np.mean(plain)) and (mean >= 0.85 or not judged),
            how=f"{how}; +-{3.29 * error:.3f}; found {roc} of the honest suspected",
        ),
        Figure(
            name=f"auc_plain_mean_{key}", value=round(float(np.mean(plain)), 4), unit="area under the ROC",
            must="for comparison", holds=None, how=f"the mean loss of a replica's lanes, in the same {runs} runs",
        ),
    ]  # fmt: skip


def main() -> int:
    chosen = options(__doc__ or "")
    run = build_run(RunOptions())
    runs = QUICK_RUNS if chosen.quick else RUNS
    figures = [figure for name in GRIDS for harm in HARMS for figure in grid_figures(run, name, harm, runs=runs[name])]
    return report("pathway", figures, quick=chosen.quick, folder=chosen.out)


if __name__ == "__main__":
    sys.exit(main())
