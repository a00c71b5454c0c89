"""A canary in a network: planted before it joins, caught by who looks, revealed before the merge, never paid."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.cheats.registry import make_cheat
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from subnet.ledger.canary import measured_of
from subnet.ledger.events import Planted, Revealed
from subnet.nodes.canaries import Listed, consenting
from template.fake.keys import FakeSigner
from tests.flow.network import network
from tests.flow.test_accusations import Lazy

pytestmark = pytest.mark.flow


async def test_a_canary_tells_who_looks_from_who_does_not(tmp_path: Path) -> None:
    """Six segments of it at the most, each drawn by either validator with chance 1/2; the honest one catches all that
    it drew, the lazy one none."""
    run = build_run(RunOptions(model="nano", rounds=1, steps=8, segment_steps=2))
    run = replace(run, audit=replace(run.audit, rate_frac=1.0, grace_s=1.0), pay=replace(run.pay, audit_window_s=60.0))
    listed = Listed(wallet="owner", hotkey="miner-2", cheat="stale", strength=1.0, salt="5a" * 32)
    (canary,) = consenting([listed], run.run_id, signer_of=lambda _, hotkey: FakeSigner(hotkey))
    async with network(run, load_corpus(run.data), tmp_path, num_miners=3) as net:
        net.orchestrator.canaries = (canary,)
        for name in ("miner-0", "miner-1"):
            net.start_miner(name)
        net.start_miner("miner-2", make_cheat("stale"))
        net.start_validator("validator-0")
        net.start_validator("validator-1", Lazy)
        await net.until(lambda: net.state.phase == "done")
        kinds = [type(event.body) for event in net.orchestrator.events]
        assert kinds.count(Planted) == kinds.count(Revealed) == 1 and kinds.index(Planted) < kinds.index(Revealed)
        honest, lazy = (measured_of(net.state, FakeSigner(name).hotkey) for name in ("validator-0", "validator-1"))
        assert honest.missed == 0 and honest.caught >= honest.drawn - 1 and lazy.caught == 0
        merged = {entry.hotkey for closed in net.state.closed.values() for entry in closed.contributions}
        assert merged and canary.hotkey not in merged
        assert [validator.follower.orchestrator_faults for validator in net.validators.values()] == [[], []]
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=None)
        assert book[canary.hotkey].payable == 0
