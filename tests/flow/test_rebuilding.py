"""A miner that keeps few states, audited: what it dropped is made again by replay, and proves itself by its root."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.ledger.state import Segment
from subnet.nodes.miner import Miner
from subnet.nodes.rebuilding import ANYBODY
from template.errors import PeerRefused, RefusedRequest
from template.fake.keys import FakeSigner
from template.fake.transport import FakeTransport
from tests.flow.network import Network, network, unhurried

pytestmark = pytest.mark.flow

ROUNDS, STEPS = 2, 4


def segments_of(net: Network, name: str) -> list[Segment]:
    return [segment for segment in net.state.segments.values() if segment.hotkey == FakeSigner(name).hotkey]


def asked(miner: Miner, root: str) -> bool:
    """Ask for a state; whether that was given up."""
    try:
        miner.rebuilding.ask_for(root)
    except RefusedRequest:
        return False
    return True


async def test_an_audit_of_a_dropped_state_passes(tmp_path: Path) -> None:
    """Validators that come when training is over draw every segment; of most, start and end were dropped."""
    run = unhurried(build_run(RunOptions(model="nano", rounds=ROUNDS, steps=STEPS, segment_steps=1)))
    audit = replace(run.audit, rate_frac=1.0, grace_s=60.0)
    run = replace(run, audit=audit, pay=replace(run.pay, audit_window_s=1.0))
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        thrifty = [net.start_miner(f"miner-{number}") for number in range(2)]
        for miner in thrifty:
            miner.rebuilding.newest = 1
        await net.until(lambda: net.state.phase == "done")
        roots = {name: [segment.end_root for segment in segments_of(net, name)] for name in net.miners}
        assert all(len(set(ends)) == ROUNDS * STEPS for ends in roots.values())
        for name, miner in net.miners.items():
            held = {root for root in roots[name] if miner.blobs.has(root)}
            assert held == {roots[name][STEPS - 1], roots[name][-1]}, "each round's last, and no other"
        kept = {root for name in roots for root in (roots[name][STEPS - 1], roots[name][-1])}
        dropped = roots["miner-0"][1]
        with pytest.raises(PeerRefused) as refused:
            await FakeTransport(net.peers, None).request("GET", "miner-0:1", f"/v1/states/{dropped}/leaves")
        assert (refused.value.status, refused.value.word) == (503, "rebuilding")
        assert refused.value.retry_after_s is not None and refused.value.retry_after_s >= 1
        for name in ("validator-0", "validator-1"):
            net.start_validator(name)
        await net.until(lambda: all(validator.view and validator.settled() for validator in net.validators.values()))
        judged = [segment for name in net.miners for segment in segments_of(net, name) if segment.verdicts]
        assert {said.verdict for segment in judged for said in segment.verdicts.values()} == {"pass"}
        assert len({segment.end_root for segment in judged} - kept) > STEPS, "by the draw, 3 of 4 have a verdict"
        assert all(miner.rebuilding.count > 0 and not miner.rebuilding.failed for miner in thrifty)
        judges = {validator.hotkey for validator in net.validators.values()}
        for name, miner in net.miners.items():
            made = {root for each in miner.rebuilding.rebuilt.values() for root in each}
            assert set(roots[name]) & set(miner.blobs.digests()) <= kept | made
            assert judges & set(miner.rebuilding.rebuilt) and set(miner.rebuilding.rebuilt) <= {ANYBODY, *judges}

        # What comes to another state than the committed one is not served.
        miner = thrifty[0]
        root = roots["miner-0"][1]
        miner.blobs.delete(root)  # those that were made again for validators stay for a while
        recipe = miner.rebuilding.recipes[root]
        later = {name: replace(plan, global_step=plan.global_step + 7) for name, plan in recipe.plans.items()}
        miner.rebuilding.recipes[root] = replace(recipe, plans=later)
        await net.until(lambda: asked(miner, root))
        with pytest.raises(PeerRefused) as refused:
            await FakeTransport(net.peers, None).request("GET", "miner-0:1", f"/v1/blobs/{root}")
        assert refused.value.status == 404 and not miner.blobs.has(root)
