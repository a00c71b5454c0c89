"""Custody in a network at work: a miner that failed once starts afresh from public parameters, and is paid again."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.cheats.base import Cheat
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from template.fake.keys import FakeSigner
from tests.flow.network import Held, network, unhurried

pytestmark = pytest.mark.flow


class Once(Cheat):
    """Scales what it sends until it is told that this is over: a fault that passed."""

    over = False

    def forward(self, honest, microbatch, inputs):
        """The activation, too large."""
        return honest(microbatch, inputs) * (1.0 if self.over else 1.5)

    def backward(self, honest, microbatch, gradient, planned_tokens):
        """The gradient, too large."""
        result = honest(microbatch, gradient, planned_tokens)
        return result if self.over or result is None else result * 1.5


async def test_a_miner_that_failed_once_starts_afresh_and_is_paid_again(tmp_path: Path) -> None:
    """Refuted, it sits out its quarantine, gives up its moments, and what it does from then on is paid in full."""
    run = unhurried(build_run(RunOptions(model="nano", rounds=4, steps=6, segment_steps=2)))
    pay = replace(run.pay, quarantine_rounds=1, audit_window_s=1.0)
    run = replace(run, audit=replace(run.audit, rate_frac=1.0), pay=pay)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        key, cheat = FakeSigner("miner-0").hotkey, Once(1.0)
        net.start_miner("miner-0", cheat)
        others = [Held(5) for _ in range(3)]  # the first round is not over before the fault is found
        for number, held in enumerate(others, 1):
            net.start_miner(f"miner-{number}", held)
        for name in ("validator-0", "validator-1"):
            net.start_validator(name)
        await net.until(lambda: key in net.state.voided)
        cheat.over = True
        for held in others:
            held.go.set()
        assert net.state.members[key].tainted
        await net.until(lambda: net.state.phase == "done")
        await net.until(lambda: all(validator.settled() for validator in net.validators.values()))
        chain = [segment for segment in net.state.segments.values() if segment.hotkey == key]
        refuted = [segment for segment in net.state.segments.values() if net.state.upheld(segment)]
        assert {segment.hotkey for segment in refuted} == {key} and not net.state.members[key].tainted
        after = [segment for segment in chain if segment.event > net.state.voided[key] and not segment.tainted]
        assert after and after[0].opens_round and after[0].start_root == ""
        assert all(segment.tainted or segment.upheld_event for segment in chain if segment not in after)
        book = books(net.state, now_ms=net.state.time_ms + 10_000, own=None)[key]
        assert book.payable == sum(segment.work for segment in after) > 0
        assert all(manifest.dissenting == () for manifest in net.state.manifests.values())


async def test_a_miner_that_lost_its_blobs_gets_its_public_state_from_another_replica(tmp_path: Path) -> None:
    """The store sends something else; the other replica of the stage has the state, and the run goes on."""
    run = build_run(RunOptions(model="nano", rounds=3, steps=6, segment_steps=2))
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        for number in range(4):
            net.start_miner(f"miner-{number}")
        await net.until(lambda: net.state.round == 1 and net.state.phase == "train")
        key = FakeSigner("miner-0").hotkey
        stage, round_number = net.state.members[key].stage, net.state.round
        root = net.state.manifests[round_number].stages[stage].root
        (holder,) = (h for h, m in net.state.members.items() if m.stage == stage and h != key)
        await net.kill("miner-0")
        shutil.rmtree(tmp_path / "miner-0" / "blobs")
        (stored,) = (tmp_path / "store").glob(f"*/{root}")
        stored.write_bytes(bytes(stored.stat().st_size))
        net.peers.down.discard("miner-0:1")
        again = net.start_miner("miner-0")
        await net.until(lambda: again.blobs.has(root))
        tally = again.client.tally
        assert tally.lied == {net.chain.owner_hotkey: 1} and tally.chunks[holder] > 0
        assert not list((tmp_path / "miner-0" / "partial").iterdir())
        await net.until(lambda: net.state.phase == "done")
