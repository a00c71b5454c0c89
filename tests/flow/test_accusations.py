"""Three validators of different coldkeys: what is withheld, and who lies about whom (whole networks in one process)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.audit.judge import Judgement
from subnet.cheats.base import Cheat
from subnet.cheats.registry import make_cheat
from subnet.config import RunConfig
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.incentive.score import books
from subnet.ledger.accusing import accusations, records
from subnet.ledger.state import Segment
from subnet.nodes.validator import Validator
from subnet.wire.messages import Verdict
from template.errors import PeerRefused
from template.fake.keys import FakeSigner
from template.fake.transport import FakeTransport
from template.transport import Response
from tests.flow.network import DRAWS_ALL_RAO, DRAWS_NONE_RAO, ORCHESTRATOR, Network, network, unhurried

pytestmark = pytest.mark.flow

NAMES = ("validator-0", "validator-1", "validator-2")
FIRST_DRAWS = (DRAWS_ALL_RAO, DRAWS_NONE_RAO, DRAWS_NONE_RAO)
THIRD_DRAWS = FIRST_DRAWS[::-1]
ALL_DRAW = (10**12, 10**12, 199 * 10**10)
GRACE_S = 1.0


def small_run(*, steps: int = 16, segment_steps: int = 2) -> RunConfig:
    """One round of eight segments of each miner, and every segment is drawn."""
    run = unhurried(build_run(RunOptions(model="nano", rounds=1, steps=steps, segment_steps=segment_steps)))
    audit = replace(run.audit, rate_frac=1.0, grace_s=GRACE_S)
    return replace(run, audit=audit, pay=replace(run.pay, audit_window_s=1.0))


def hotkey(name: str) -> str:
    return FakeSigner(name).hotkey


class Accuser(Validator):
    """Says fail of everything that it draws."""

    async def _judge(self, judge: object) -> Judgement:
        return Judgement(verdict="fail", reason="activation", distance=0.5, tolerance=1e-4)


class Lazy(Validator):
    """Says pass of everything, and replays nothing."""

    async def _judge(self, judge: object) -> Judgement:
        return Judgement(verdict="pass", reason="ok")


class Shunned(FakeTransport):
    """A validator to whom miners do not show anything, directly or by letter."""

    async def request(self, method: str, peer: str, target: str, **options: object) -> Response:
        if peer != ORCHESTRATOR or target.startswith("/v1/relay/"):
            raise PeerRefused("expected evidence, found none", status=404, word="not_found")
        return await super().request(method, peer, target, **options)  # type: ignore[arg-type]

    async def download(self, peer: str, target: str, **options: object) -> AsyncIterator[bytes]:
        if peer != ORCHESTRATOR:
            raise PeerRefused("expected evidence, found none", status=404, word="not_found")
        async for part in super().download(peer, target, **options):  # type: ignore[arg-type]
            yield part


async def run_to_the_end(
    net: Network, *, cheat: Cheat | None = None, third: type[Validator] = Validator, shunned: bool = False
) -> None:
    """Two miners, the last of them with the cheat, and three validators; until all is trained.

    With a cheat the validators come when that is so: nobody else could take the stage of a cheater that is out.
    """
    net.start_miner("miner-0")
    net.start_miner("miner-1", cheat)
    if cheat:
        await net.until(lambda: net.state.phase == "done")
    for name in NAMES[:2]:
        net.start_validator(name)
    net.start_validator(NAMES[2], third, transport=Shunned if shunned else FakeTransport)
    for validator in net.validators.values():
        validator.dues.rest_s = 0.5
    await net.until(lambda: net.state.phase == "done")


def of(net: Network, name: str) -> list[Segment]:
    return [segment for segment in net.state.segments.values() if segment.hotkey == hotkey(name)]


def said(net: Network, validator: str) -> list[Verdict]:
    verdicts = (segment.verdicts.get(hotkey(validator)) for segment in net.state.segments.values())
    return [verdict for verdict in verdicts if verdict is not None]


def settled(net: Network, *names: str) -> bool:
    return all(net.validators[name].settled() for name in names)


async def test_what_is_withheld_from_all_is_upheld_although_only_one_drew_it(tmp_path: Path) -> None:
    """The others come to look when one was not shown the evidence: two coldkeys and the relay saw the refusal."""
    run = small_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2, stakes_rao=FIRST_DRAWS) as net:
        await run_to_the_end(net, cheat=make_cheat("withhold"))
        await net.until(lambda: any(map(net.state.upheld, of(net, "miner-1"))))
        failed = next(segment for segment in of(net, "miner-1") if net.state.upheld(segment))
        fails = [verdict for verdict in failed.verdicts.values() if verdict.verdict == "fail"]
        assert len(fails) >= 2 and {verdict.reason for verdict in fails} == {"withheld"}
        assert not any(map(net.state.upheld, of(net, "miner-0")))
        assert not any(
            verdict.verdict == "fail" for segment in of(net, "miner-0") for verdict in segment.verdicts.values()
        )
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=None)
        assert book[hotkey("miner-1")].score == 0 < book[hotkey("miner-0")].score


async def test_who_shows_one_validator_what_it_shows_not_another_is_not_failed(tmp_path: Path) -> None:
    """One witness is none: the others replay the segment, and it is paid."""
    run = small_run()
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2, stakes_rao=THIRD_DRAWS) as net:
        await run_to_the_end(net, shunned=True)
        await net.until(lambda: settled(net, *NAMES[:2]) and bool(said(net, NAMES[2])))
        lonely = [verdict.segment for verdict in said(net, NAMES[2])]
        await net.until(
            lambda: all(
                any(v.verdict == "pass" for v in net.state.segments[segment].verdicts.values()) for segment in lonely
            )
        )
        assert {(verdict.verdict, verdict.reason) for verdict in said(net, NAMES[2])} <= {("void", "withheld")}
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=None)
        assert all(entry.score == entry.committed > 0 for entry in book.values())


async def test_a_validator_that_accuses_honest_work_is_never_upheld_and_stands_on_the_record(tmp_path: Path) -> None:
    """Both others replay what it failed and pass it: false, under its name; nobody's pay or place changes.

    It may not have more stake than those two together. That it draws none of eighteen segments has a chance of
    (200/399)^18, one in 250,000.
    """
    run = small_run(steps=18)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2, stakes_rao=ALL_DRAW) as net:
        await run_to_the_end(net, third=Accuser)
        await net.until(
            lambda: {each.outcome for each in accusations(net.state)} == {"false"} and settled(net, *NAMES[:2])
        )
        accused = accusations(net.state)
        assert {each.validator for each in accused} == {hotkey(NAMES[2])}
        assert {each.outcome for each in accused} == {"false"}
        assert records(net.state)[hotkey(NAMES[2])].false == len(accused) > 0
        assert not any(map(net.state.upheld, net.state.segments.values()))
        assert {member.barred_until_round for member in net.state.members.values()} == {0}
        book = books(net.state, now_ms=net.state.time_ms + 10**9, own=hotkey(NAMES[0]))
        assert all(entry.score == entry.committed > 0 for entry in book.values())
        assert len(net.validators[NAMES[0]].weights) == 2


async def test_a_validator_that_passes_everything_is_not_believed(tmp_path: Path) -> None:
    """Its passes are never imported: the others refute the cheater all the same and pay it nothing."""
    run = small_run(steps=4, segment_steps=1)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2, stakes_rao=FIRST_DRAWS) as net:
        await run_to_the_end(net, cheat=make_cheat("scale", 0.2), third=Lazy)
        await net.until(lambda: any(map(net.state.upheld, of(net, "miner-1"))) and settled(net, *NAMES[:2]))
        await net.until(lambda: any(verdict.hotkey == hotkey("miner-1") for verdict in said(net, NAMES[2])))
        for name in NAMES[:2]:
            book = books(net.state, now_ms=net.state.time_ms + 10**9, own=hotkey(name))
            assert book[hotkey("miner-1")].score == 0 < book[hotkey("miner-0")].score
            assert net.validators[name].weights == {net.chain.find(hotkey("miner-0")).uid: 1.0}
        wrong = [verdict for verdict in said(net, NAMES[2]) if verdict.hotkey == hotkey("miner-1")]
        assert {verdict.verdict for verdict in wrong} == {"pass"}
