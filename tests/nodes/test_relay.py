"""The relay: a miner that nobody can connect to trains, is audited and is paid like everybody else."""

from pathlib import Path

from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from template.fake.keys import FakeSigner
from tests.flow.network import network

OPTIONS = RunOptions(model="nano", rounds=1, steps=4, segment_steps=2, audit_rate=1.0)


async def test_an_outbound_only_miner_is_acknowledged_audited_and_paid_like_the_others(tmp_path: Path) -> None:
    run = build_run(OPTIONS)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        net.chain.find(FakeSigner("validator-1").hotkey).permit = False  # so that the other one draws everything
        net.chain.advance()
        hidden = net.start_miner("miner-0", outbound_only=True).signer.hotkey
        other = net.start_miner("miner-1").signer.hotkey
        net.start_validator("validator-0")
        await net.until(lambda: net.state.phase == "done")
        await net.until(lambda: all(segment.verdicts for segment in net.state.segments.values()))
        state = net.state
        assert state.members[hidden].address == "" and state.members[other].address == "miner-1:1"
        mine = [segment for segment in state.segments.values() if segment.hotkey == hidden]
        assert mine and {v.verdict for segment in mine for v in segment.verdicts.values()} == {"pass"}
        paid = books(state, now_ms=state.time_ms + 10**9, own=None)
        assert paid[hidden].payable > 0 and paid[hidden].refuted == 0
        assert net.relay.carried > 0 and net.relay.held_bytes == 0
