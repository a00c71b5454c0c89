"""A cheat alone on its stage, refuted in the middle of a round: what was trained counts, and the run goes on."""

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.cheats.registry import make_cheat
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from template.fake.keys import FakeSigner
from tests.flow.network import Held, network, unhurried

pytestmark = pytest.mark.flow

STEPS = 20


async def test_a_stage_that_lost_its_only_replica_is_taken_by_a_newcomer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    run = unhurried(build_run(RunOptions(model="nano", rounds=2, steps=STEPS, segment_steps=1)))
    run = replace(run, audit=replace(run.audit, rate_frac=1.0))
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        held = Held(STEPS - 1)  # the round is not over before the cheat is refuted
        net.start_miner("miner-0", held)
        net.start_miner("miner-1", make_cheat("scale", 0.5))
        for name in ("validator-0", "validator-1"):
            net.start_validator(name)
        honest, cheat = (FakeSigner(name).hotkey for name in ("miner-0", "miner-1"))
        await net.until(lambda: cheat in net.state.voided)
        held.go.set()
        assert (net.state.round, net.state.phase) == (0, "train") and net.state.step < STEPS
        await net.until(lambda: 1 in net.state.manifests)
        assert net.state.phase == "merge" and net.state.rounds[0].steps < STEPS
        stages = {hotkey: net.state.members[hotkey].stage for hotkey in (honest, cheat)}
        (merged,) = net.state.closed[0, stages[honest]].contributions
        assert merged.hotkey == honest and not net.state.closed[0, stages[cheat]].contributions
        await net.until(lambda: f"stage {stages[cheat]} has nobody to train it in round 1" in caplog.text)
        net.seat("miner-2")
        net.start_miner("miner-2")
        newcomer = FakeSigner("miner-2").hotkey
        await net.until(lambda: net.state.phase == "done")
        assert net.state.members[newcomer].stage == stages[cheat] and net.state.rounds[1].steps == STEPS
        assert any(segment.hotkey == newcomer and segment.work for segment in net.state.segments.values())
