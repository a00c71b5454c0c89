"""A stage's merge as every node does it: all contributions count, by their weight, as on one machine."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.canonical import digest
from subnet.config import OuterConfig, ReduceConfig, RunConfig
from subnet.ledger.events import ClosedSet, Contributed
from subnet.merge.outer import outer_step
from subnet.nodes.merging import as_it_is, merge_stage
from subnet.stage.layout import PublicState, StateLayout, public_from_bytes, public_to_bytes
from tests.ledger.small import run_config

RUN = replace(run_config(), outer=replace(run_config().outer, lr=1.0, momentum=0.0))
LAYOUT = StateLayout(RUN, 0)


def constant(value: float) -> np.ndarray:
    return np.full(LAYOUT.num_parameters, value, dtype="<f4")


async def merged(
    values: Mapping[float, int], *, run: RunConfig = RUN, momentum: float = 0.0, way: Any = as_it_is
) -> np.ndarray:
    """How far the parameters move when miners contribute constant pseudo-gradients of these values and tokens."""
    store = {digest(constant(value).tobytes()): constant(value).tobytes() for value in values}
    entries = [
        Contributed(hotkey=f"miner {value}", digest=digest(constant(value).tobytes()), tokens=tokens, factor=1.0)
        for value, tokens in values.items()
    ]
    closed = ClosedSet(round=0, stage=0, contributions=tuple(sorted(entries, key=lambda entry: entry.digest)))
    public = PublicState(parameters=constant(10.0), outer_momentum=constant(momentum))

    async def fetch(name: str, size: int) -> bytes:
        assert size == len(store[name])
        return store[name]

    data = await merge_stage(run, closed, public, fetch=fetch, way=way)
    return 10.0 - public_from_bytes(LAYOUT, data).parameters


@pytest.mark.parametrize(
    ("values", "mean"),
    [({1.0: 5, 2.0: 5, 6.0: 5}, 3.0), ({1.0: 1, 2.0: 1, 6.0: 2}, 3.75), ({6.0: 5}, 6.0), ({1.0: 5, 6.0: 5}, 3.5)],
)
async def test_every_contribution_counts_by_its_tokens(values: dict[float, int], mean: float) -> None:
    assert (await merged(values) == np.float32(mean)).all()


async def test_the_merge_is_a_single_process_s_outer_step_over_all_contributions() -> None:
    """With momentum, against DiLoCo's step on the plain mean."""
    run = replace(RUN, outer=replace(RUN.outer, lr=0.7, momentum=0.9))
    parts = [np.random.default_rng(seed).standard_normal(LAYOUT.num_parameters).astype("<f4") for seed in range(3)]
    store = {digest(part.tobytes()): part for part in parts}
    entries = [Contributed(hotkey=name, digest=name, tokens=64, factor=1.0) for name in sorted(store)]
    public = PublicState(parameters=constant(0.5), outer_momentum=constant(0.25))

    async def fetch(name: str, size: int) -> bytes:
        return store[name].tobytes()

    closed = ClosedSet(round=0, stage=0, contributions=tuple(entries))
    found = public_from_bytes(LAYOUT, await merge_stage(run, closed, public, fetch=fetch))
    mean = np.mean(np.stack(parts).astype(np.float64), axis=0).astype(np.float32)
    parameters, momentum = outer_step(public.parameters, public.outer_momentum, mean, run.outer)
    assert np.abs(found.parameters - parameters).max() < 1e-6
    assert np.abs(found.outer_momentum - momentum).max() < 1e-6


@pytest.mark.parametrize(
    ("reduce", "moved"),
    [
        (ReduceConfig(), 103.0),
        (ReduceConfig(mode="trimmed_mean", trim_frac=0.26), 2.5),
        (ReduceConfig(mode="centred_clipping", clip_iterations=1), 2.25),
    ],
    ids=lambda each: getattr(each, "mode", ""),
)
async def test_the_run_says_how_contributions_become_one(reduce: ReduceConfig, moved: float) -> None:
    """Of 1, 2, 3 and 406 the mean; the mean of the middle; and a step from 2, where the rounds before came to, of at
    most as far as the lower of the two middle distances, 1: 2 + (-1 + 0 + 1 + 1) / 4. Nothing is clipped before."""
    run = replace(RUN, reduce=reduce, outer=OuterConfig(kind="averaging", lr=1.0, momentum=0.0))
    found = await merged({1.0: 5, 2.0: 5, 3.0: 5, 406.0: 5}, run=run, momentum=2.0)
    assert np.abs(found - np.float32(moved)).max() < 1e-5


async def test_centred_clipping_starts_where_the_momentum_says_the_last_rounds_came_to() -> None:
    """Nesterov's buffer of 20 is 10 rounds' of 2. Around that, one contribution of 3 moves by what it is away."""
    run = replace(RUN, reduce=ReduceConfig(mode="centred_clipping"), outer=OuterConfig(lr=1.0, momentum=0.9))
    found = await merged({3.0: 5}, run=run, momentum=20.0)
    buffer = np.float32(0.9) * np.float32(20.0) + np.float32(3.0)
    assert np.abs(found - (buffer * np.float32(0.9) + np.float32(3.0))).max() < 1e-5


async def test_whoever_merges_otherwise_does_it_with_the_run_s_own_reduction_at_hand() -> None:
    run = replace(RUN, reduce=ReduceConfig(mode="trimmed_mean", trim_frac=0.4))
    doubled = await merged({1.0: 5, 2.0: 5, 90.0: 5}, run=run, way=lambda honest, of, parts: 2 * honest(of, parts))
    assert (doubled == 4.0).all()


async def test_a_stage_without_contributions_stays_as_it_is() -> None:
    public = PublicState(parameters=constant(0.5), outer_momentum=constant(0.25))

    async def fetch(name: str, size: int) -> bytes:
        raise AssertionError("there is nothing to fetch")

    data = await merge_stage(RUN, ClosedSet(round=0, stage=0, contributions=()), public, fetch=fetch)
    assert data == public_to_bytes(LAYOUT, public)
