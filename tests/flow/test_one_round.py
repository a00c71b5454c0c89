"""The tour: two rounds of training from chain to chain, in memory: wire, train, commit, audit, merge, pay, publish."""

import asyncio
from pathlib import Path

import pytest

from subnet.cheats.scale import Scale
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from tests.flow.network import Network, network

OPTIONS = RunOptions(model="nano", rounds=2, steps=6, segment_steps=2, audit_rate=1.0)


async def test_a_network_trains_audits_and_pays(tmp_path: Path) -> None:
    """Four honest miners on two stages and two validators: loss falls, all merge alike, nobody is refuted."""
    run = build_run(OPTIONS)
    corpus = load_corpus(run.data)
    async with network(run, corpus, tmp_path, num_miners=4) as net:
        for number in range(4):
            net.start_miner(f"miner-{number}")
        for name in ("validator-0", "validator-1"):
            net.start_validator(name)
        await net.until(lambda: net.state.phase == "done" and run.train.rounds in net.state.checkpoints)
        await net.until(lambda: all(s.verdicts for s in net.state.segments.values()))
        _holds(net)


def _holds(net: Network) -> None:
    state = net.state
    assert all(not manifest.dissenting for manifest in state.manifests.values())
    assert {v.verdict for s in state.segments.values() for v in s.verdicts.values()} == {"pass"}
    assert not any(book.refuted for book in books(state, now_ms=state.time_ms, own=None).values())
    assert state.rounds[1].steps == net.run.train.steps_per_round
