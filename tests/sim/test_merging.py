"""Replicas that train and merge: the same setting gives the same loss, each outer step learns, and liars cost."""

from dataclasses import replace

import numpy as np
import pytest

from subnet.config import ReduceConfig
from subnet.merge.reduce import clip_factors, reduce_stage
from subnet.sim.merging import LIES, Run, Setting, trained
from subnet.sim.stacked import heldout_loss, initial
from tests.sim.test_stacked import SHAPE, corpus

SETTING = Setting(
    replicas=4, rounds=5, steps=8, batch=4, lr=2e-2, shape=SHAPE, heldout=10, num_fragments=2, overlap_steps=2
)
START = heldout_loss(SHAPE, initial(SHAPE, 0), corpus(), num=10)


@pytest.mark.parametrize("outer", ["averaging", "diloco", "streaming", "noloco", "none"])
def test_every_outer_step_learns_and_repeats(outer: str):
    setting = replace(SETTING, outer=outer)
    found = trained(setting, corpus())
    assert found < START - 0.5
    assert trained(setting, corpus()) == found


def test_one_replica_that_averages_with_nobody_is_one_that_never_merges():
    alone = replace(SETTING, replicas=1, outer="none")
    assert trained(replace(alone, outer="averaging"), corpus()) == pytest.approx(trained(alone, corpus()), abs=1e-4)


def test_after_a_merge_all_start_from_the_same_and_noloco_s_do_not():
    for outer, different in (("averaging", 1), ("diloco", 1), ("noloco", 2)):
        run = Run(replace(SETTING, outer=outer, rounds=1), corpus())
        run.train()
        assert len({end.tobytes() for end in run.replicas.ends()}) == different


def test_what_the_codec_makes_of_a_contribution_is_what_is_merged():
    """With one that gives nothing back nothing is learned; it is told whose contribution it has."""
    told = set()

    def nothing(replica: int, values: np.ndarray) -> np.ndarray:
        told.add(replica)
        return np.zeros_like(values) + np.float32(replica) * np.float32(1e-30)

    assert trained(replace(SETTING, codec=nothing), corpus()) == pytest.approx(START, abs=1e-6)
    assert told == set(range(4))


def test_liars_cost_the_mean_more_than_the_trimmed_mean():
    """Three of ten contribute the opposite of what they learned."""
    clean = replace(SETTING, replicas=10)
    lied_to = replace(clean, liars=3, lie="signflip")
    trimmed = ReduceConfig(mode="trimmed_mean", trim_frac=0.3)
    assert trained(replace(lied_to, rule=trimmed), corpus()) < trained(lied_to, corpus()) - 0.05


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_another_contribution_of_the_same_size(lie: str):
    own, others = np.array([3.0, 4.0], dtype=np.float32), [np.array([1.0, 0.0], dtype=np.float32)]
    found = LIES[lie](own, others, np.random.default_rng(0))
    assert found.dtype == np.float32 and found.shape == own.shape and found.tolist() != own.tolist()
    expected = {"signflip": 5.0, "scale": 50.0, "noise": 5.0, "copy": 1.0}
    assert np.linalg.norm(found) == pytest.approx(expected[lie], rel=1e-6)


def test_copies_of_the_first_do_not_count():
    """With three copies of replica 0 the merge is that of the seven others, each by its tokens."""
    run = Run(replace(SETTING, replicas=10, liars=3, lie="copy", rounds=1, steps=3, outer="averaging"), corpus())
    seen: list[np.ndarray] = []
    run.setting = replace(run.setting, codec=lambda replica, values: seen.append(values) or values)
    start = run.slow[0].parameters
    run.train()
    assert [values.tobytes() for values in seen[7:]] == [seen[0].tobytes()] * 3
    assert np.abs(start - run.slow[0].parameters).max() > 1e-3
    clipped = clip_factors([float(np.linalg.norm(values)) for values in seen[:7]])
    expected = start - reduce_stage(seen[:7], [1] * 7, clipped)
    assert np.abs(run.slow[0].parameters - expected).max() < 1e-6
