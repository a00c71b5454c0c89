"""`strata replay`'s work on real bytes: a verdict repeated from the run's store after its miner has gone, and a lie."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.audit.judge import Judgement
from subnet.cheats.registry import make_cheat
from subnet.cli.replay import facts_of, lines_of
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.errors import ConfigError, EvidenceError
from subnet.incentive.leaderboard import audits
from subnet.nodes.replaying import Claim, Folders, Outcome, find_verdict, replay_verdict, source_of
from subnet.nodes.validator import Validator
from subnet.wire.messages import Verdict
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakeTransport
from tests.flow.network import DRAWS_ALL_RAO, DRAWS_NONE_RAO, ORCHESTRATOR, Network, network, unhurried

pytestmark = pytest.mark.flow

HONEST, CHEATER = ("miner-0", "miner-1"), ("miner-2",)


def small_run() -> RunConfig:
    """One round of segments of one step, so that each miner has some."""
    run = unhurried(build_run(RunOptions(model="nano", rounds=1, steps=8, segment_steps=1)))
    audit = replace(run.audit, rate_frac=1.0, grace_s=1.0)
    return replace(run, audit=audit, pay=replace(run.pay, audit_window_s=1.0))


class Accuser(Validator):
    """Says fail of all that it draws of one miner."""

    async def _judge(self, judge: object) -> Judgement:
        return Judgement(verdict="fail", reason="activation", distance=0.5, tolerance=1e-4)


def of(net: Network, validator: str, miners: tuple[str, ...], verdict: str) -> str:
    """The id of such a verdict, as the board shows it; empty where there is none."""
    hotkeys = {FakeSigner(miner).hotkey for miner in miners}
    said = (
        row.id
        for row in audits(net.state)
        if (row.validator, row.verdict) == (FakeSigner(validator).hotkey, verdict) and row.hotkey in hotkeys
    )
    return next(said, "")


def claimed(net: Network, validator: str, miners: tuple[str, ...], verdict: str) -> Claim:
    return find_verdict(net.orchestrator.events, of(net, validator, miners, verdict)[:12])


def pinned(net: Network, said: Verdict) -> bool:
    """Whether the last thing that the accuser pins, the pack, is in the store."""
    return bool(said.evidence) and net.orchestrator.store.has(said.evidence[-1])


async def replayed(claim: Claim, corpus: Corpus, folders: list[Path], net: Network | None) -> Outcome:
    """From folders, or from the run's store and whichever miner is still there."""
    transport = FakeTransport(net.peers, None) if net else None
    source = source_of(claim, Folders(folders), transport, ORCHESTRATOR if net else "")
    return await replay_verdict(claim, source, corpus, FakeVerifier("anybody"))


@pytest.fixture
async def judged(tmp_path: Path) -> AsyncIterator[Network]:
    """A cheater, two honest miners, and two validators: one draws and accuses everybody, one looks and is honest."""
    run = small_run()
    (tmp_path / "net").mkdir()
    stakes_rao = (DRAWS_NONE_RAO, DRAWS_ALL_RAO)
    async with network(run, load_corpus(run.data), tmp_path / "net", num_miners=3, stakes_rao=stakes_rao) as net:
        net.start_miner("miner-0")
        net.start_miner("miner-1")
        net.start_miner("miner-2", make_cheat("scale", 0.2))
        net.start_validator("validator-0")
        net.start_validator("validator-1", Accuser)
        await net.until(lambda: net.state.phase == "done")
        wanted = [
            ("validator-0", CHEATER, "fail"),
            ("validator-1", HONEST, "fail"),
            ("validator-0", HONEST, "pass"),
        ]
        await net.until(lambda: all(of(net, *each) for each in wanted))
        await net.until(lambda: pinned(net, claimed(net, "validator-0", CHEATER, "fail").verdict))
        yield net


async def test_verdicts_are_repeated_from_public_bytes(judged: Network, tmp_path: Path) -> None:
    net, corpus = judged, judged.corpus
    true, lie, passed = (
        claimed(net, *each)
        for each in (
            ("validator-0", CHEATER, "fail"),
            ("validator-1", HONEST, "fail"),
            ("validator-0", HONEST, "pass"),
        )
    )
    # A lie is found out, and shows as what it is.
    outcome = await replayed(lie, corpus, [], net)
    assert not outcome.agrees and outcome.judgement.verdict == "pass"
    facts = facts_of(outcome)
    assert lines_of(facts)[-1] == "claimed fail (activation), recomputed pass (ok): DOES NOT AGREE"
    assert facts["claimed"]["distance"] == 0.5 and facts["recomputed"]["distance"] == 0.0

    # A pass is repeated as long as the miner serves it.
    outcome = await replayed(passed, corpus, [], net)
    assert outcome.agrees and all(each.claimed == each.recomputed for each in outcome.lines)

    # A fail outlives its miner, and the neighbour too: its accuser pinned it in the run's store.
    for name in ("miner-0", "miner-1", "miner-2"):
        await net.kill(name)
    outcome = await replayed(true, corpus, [], net)
    sent = outcome.judgement.reason
    assert outcome.agrees and sent in ("activation", "gradient")
    assert sent in [each.name for each in outcome.lines if each.recomputed and each.recomputed > each.tolerance]
    assert all(each.claimed == each.recomputed for each in outcome.lines)

    # The same from copies in a folder, with no network at all.
    copies = tmp_path / "copies"
    shutil.copytree(tmp_path / "net" / "store", copies)
    assert (await replayed(true, corpus, [copies], None)).agrees

    # What is gone is said in one sentence.
    with pytest.raises(EvidenceError, match="a pass of round 0.* parts of it gone; a fail is kept until its window"):
        await replayed(passed, corpus, [], None)
    for name in (true.verdict.evidence[-1], true.need.end_root):  # the latter is there if the next segment failed too
        path = copies / name[:2] / name
        if path.exists():
            path.write_bytes(b"damaged")
    with pytest.raises(EvidenceError, match="a fail of round 0"):
        await replayed(true, corpus, [copies], None)

    # An id that names nothing, or too much, is refused.
    for prefix, found in (("ab", "at least 4 characters"), ("0" * 12, "found none")):
        with pytest.raises(ConfigError, match=found):
            find_verdict(net.orchestrator.events, prefix)
