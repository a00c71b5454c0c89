"""Simulated grids: the marginal effect ranks cheaters above honest replicas, and better than a mean of losses does."""

import numpy as np

from subnet.sim.pathways import Grid, area_under_roc, caught_at, marginal_scores, mean_scores, run_grid
from tests.sim.small import short_run

BAD = frozenset({(0, "a"), (1, "b")})


def test_the_effects_rank_better_than_the_means():
    """Mean area over 6 grids; the difference in the benchmark is 0.2 with an error of 0.01."""
    ours, plain = [], []
    for seed in range(6):
        grid = Grid(stages=5, replicas=5, cheaters=3, harm=0.15)
        observed, guilty = run_grid(short_run(), grid, np.random.default_rng(seed))
        assert len(guilty) == 3
        ours.append(area_under_roc(marginal_scores(observed), guilty))
        plain.append(area_under_roc(mean_scores(observed), guilty))
    assert np.mean(ours) > 0.85 > np.mean(plain)


def test_who_harms_nobody_is_not_told_from_others():
    grid = Grid(stages=4, replicas=5, cheaters=4, harm=0.0)
    areas = []
    for seed in range(10):
        observed, guilty = run_grid(short_run(), grid, np.random.default_rng(seed))
        areas.append(area_under_roc(marginal_scores(observed), guilty))
    assert abs(np.mean(areas) - 0.5) < 0.25  # standard error 0.05


def test_the_area_counts_pairs():
    scores = {(0, "a"): 3.0, (1, "b"): 1.0, (0, "c"): 2.0, (0, "d"): 1.0}
    assert area_under_roc(scores, BAD) == (2 + 0.5) / 4
    assert caught_at(scores, BAD, false_frac=0.0) == 0.5
