"""The run's configuration: what it refuses, and that what is not stated is the default."""

import math
from typing import Any

import msgspec
import pytest

from subnet.canonical import canonical, digest, parse
from subnet.config import REDUCTIONS, OuterConfig, ReduceConfig, RunConfig
from subnet.errors import ConfigError
from tests.model.tiny import tiny_run

RUN = tiny_run()
AVERAGING = OuterConfig(lr=1.0, momentum=0.0, kind="averaging")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_names_its_compute_dtype_and_its_optimizer(dtype: str, optimizer: str) -> None:
    """Both are part of the run: another of either is another run."""
    run = msgspec.structs.replace(RUN, train=msgspec.structs.replace(RUN.train, dtype=dtype, optimizer=optimizer))
    assert parse(canonical(run), RunConfig) == run
    assert (run.run_id == RUN.run_id) == ((dtype, optimizer) == ("float32", "adamw"))


def test_an_id_that_was_read_is_not_carried_into_a_changed_copy() -> None:
    """It is made once for a run, and is no part of what a run says."""
    read, fresh = parse(canonical(RUN), RunConfig), parse(canonical(RUN), RunConfig)
    assert read.run_id is read.run_id
    assert read == fresh and canonical(read) == canonical(fresh)
    changed = msgspec.structs.replace(read, seed=read.seed + 1)
    assert changed.run_id != read.run_id == fresh.run_id == digest(canonical(fresh))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dtype": "float16"}, "expected the compute dtype float32 or bfloat16, found 'float16'"),
        ({"optimizer": "sgd"}, "expected the optimizer adamw or muon, found 'sgd'"),
    ],
)
def test_other_numerics_are_refused(change: dict[str, str], sentence: str) -> None:
    values = msgspec.structs.asdict(RUN.train) | change
    with pytest.raises(ConfigError, match=sentence):
        type(RUN.train)(**values)


@pytest.mark.parametrize("mode", REDUCTIONS)
@pytest.mark.parametrize("outer", [OuterConfig(lr=0.7, momentum=0.9), AVERAGING], ids=lambda outer: outer.kind)
def test_a_run_names_its_reduction_and_its_outer_step(mode: str, outer: OuterConfig) -> None:
    """Whoever merges must do it alike: another of either is another run. What is not stated is the mean, and DiLoCo."""
    run = msgspec.structs.replace(RUN, outer=outer, reduce=ReduceConfig(mode=mode))
    assert parse(canonical(run), RunConfig) == run
    assert (run.run_id == RUN.run_id) == ((mode, outer.kind) == ("mean", "diloco"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mode": "median"}, "expected a reduction of mean, trimmed_mean, centred_clipping, found 'median'"),
        ({"trim_frac": 0.5}, "expected to trim at least 0 and less than half .* found 0.5"),
        ({"trim_frac": -0.1}, "less than half of the weight at either end, found -0.1"),
        ({"trim_frac": math.nan}, "less than half of the weight at either end, found nan"),
        ({"clip_iterations": 0}, "expected at least 1 iteration of centred clipping, found 0"),
    ],
)
def test_another_reduction_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ReduceConfig(**change)


@pytest.mark.parametrize(
    ("kind", "lr", "sentence"),
    [
        ("sgd", 0.7, "expected the outer step averaging or diloco, found 'sgd'"),
        ("streaming", 0.7, "expected the outer step averaging or diloco in a run, found 'streaming'; it leaves each"),
        ("noloco", 0.7, "found 'noloco'; it leaves each replica with parameters of its own between rounds"),
        ("averaging", 0.7, "expected outer lr 1 and momentum 0 for averaging, found 0.7 and 0.0"),
        ("diloco", 0.0, "expected outer lr > 0"),
    ],
)
def test_another_outer_step_is_refused(kind: str, lr: float, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        OuterConfig(lr=lr, momentum=0.0, kind=kind)
