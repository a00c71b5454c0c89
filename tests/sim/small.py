"""Runs for the simulator's tests: rounds of 4 segments, a pay window of 16."""

from msgspec.structs import replace

from subnet.config import RunConfig
from tests.ledger.small import run_config


def short_run(rate: float = 0.2, *, window: int = 16) -> RunConfig:
    run = run_config(steps=8, segment_steps=2)
    return replace(
        run,
        audit=replace(run.audit, rate_frac=rate, draw_every_blocks=4, draw_delay_blocks=4),
        pay=replace(run.pay, window_segments=window),
    )
