"""The run's configuration: what it refuses, and that what is not stated is the default."""

import msgspec
import pytest

from subnet.canonical import canonical, parse
from subnet.config import RunConfig
from subnet.errors import ConfigError
from tests.model.tiny import tiny_run

RUN = tiny_run()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_names_its_compute_dtype_and_its_optimizer(dtype: str, optimizer: str) -> None:
    """Both are part of the run: another of either is another run."""
    run = msgspec.structs.replace(RUN, train=msgspec.structs.replace(RUN.train, dtype=dtype, optimizer=optimizer))
    assert parse(canonical(run), RunConfig) == run
    assert (run.run_id == RUN.run_id) == ((dtype, optimizer) == ("float32", "adamw"))


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
