"""The orchestrator is away: the roles at work wait for it however long it takes, say so, and lose nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from subnet.audit.draw import seed_of
from subnet.audit.evidence import needed
from subnet.audit.judge import Judgement
from subnet.errors import LedgerError, UnreachableError
from subnet.ledger.events import Roster
from subnet.nodes.client import FOR_EVER_S, PATIENCE_S, retried
from subnet.nodes.validator import Validator
from template.errors import PeerUnreachable, RefusedRequest
from template.fake.chain import FakeChain
from template.fake.transport import FakePeers, FakeTransport
from template.transport import Incoming, Reply, Route
from template.web import application
from tests.nodes.served import ServedRun, served
from tests.nodes.skipping import skipping
from tests.nodes.test_orchestrator_routes import in_phase
from tests.nodes.test_validator import validator_of

pytestmark = pytest.mark.flow

LONG_S = 3 * PATIENCE_S


def peers_of(validator: Validator) -> FakePeers:
    transport = validator.client.transport
    assert isinstance(transport, FakeTransport)
    return transport._peers


@contextlib.asynccontextmanager
async def at_work(validator: Validator) -> AsyncIterator["asyncio.Task[None]"]:
    """A validator that works, and has read the ledger."""
    work = asyncio.create_task(validator.work())
    while validator.view is None:
        await asyncio.sleep(0.1)
    try:
        yield work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def new_block(run: ServedRun) -> None:
    """A block of the chain, and an event of the log that states its roster."""
    assert isinstance(run.node.chain, FakeChain)
    run.node.chain._network.advance(1)
    entries = tuple(run.node.state.roster.values())
    run.node.append([Roster(block=run.node.state.roster_block + 1, block_hash="0x" + "0" * 64, entries=entries)])


@pytest.mark.parametrize("patience_s", [PATIENCE_S, FOR_EVER_S], ids=["an impatient client", "a role's client"])
def test_a_validator_outlives_an_outage_of_the_orchestrator_and_looks_at_its_weights_meanwhile(
    patience_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        run = await served(in_phase("train"))
        validator = validator_of(run)
        validator.client.patience_s = patience_s
        async with at_work(validator) as work:
            peers_of(validator).down.add("orchestrator:1")
            await asyncio.sleep(LONG_S)
            before = validator.view
            assert before is not None and not work.done()
            new_block(run)
            await asyncio.sleep(60.0)
            assert validator.view is not None and validator.view.block == before.block + 1
            assert validator.weighing._view == validator.view and not work.done()
            peers_of(validator).down.clear()
            await asyncio.sleep(60.0)
            assert not work.done() and validator.state.count == run.node.state.count

    with caplog.at_level("INFO", "strata"):
        skipping(scenario())
    said = [record.getMessage() for record in caplog.records]
    outage = [line for line in said if line.startswith("waiting for=") and "ledger" in line]
    assert outage and all("check that it runs" in line for line in outage)
    if patience_s == FOR_EVER_S:
        assert len(outage) == 1 and any(line.startswith("answered what='the orchestrator to send") for line in said)


async def other_server(request: Incoming) -> Reply:
    """What a page behind the same address says: an answer, and none of ours."""
    return Reply(body=b"<html>down for maintenance</html>")


async def no_such_page(request: Incoming) -> Reply:
    raise RefusedRequest("no such page", word="not_found", status=404)


@pytest.mark.parametrize("handler", [other_server, no_such_page])
def test_another_server_in_the_orchestrator_s_place_is_waited_for_too(
    handler: Callable[[Incoming], Awaitable[Reply]],
) -> None:
    async def scenario() -> None:
        run = await served(in_phase("train"))
        validator = validator_of(run)
        paths = [("GET", "/v1/ledger"), ("POST", "/v1/seen"), ("POST", "/v1/verdicts")]
        other = application([Route(method=m, path=p, handler=handler, signed=False) for m, p in paths], None)
        async with at_work(validator) as work:
            peers_of(validator).apps["orchestrator:1"] = other
            await asyncio.sleep(LONG_S)
            new_block(run)
            await asyncio.sleep(LONG_S)
            assert not work.done()
            peers_of(validator).apps["orchestrator:1"] = run.app
            await asyncio.sleep(60.0)
            assert not work.done() and validator.state.count == run.node.state.count

    skipping(scenario())


def test_a_verdict_that_nobody_takes_now_is_said_when_the_orchestrator_is_back() -> None:
    """Its audit counts as done: it must not be lost, nor done again."""

    async def scenario() -> None:
        run = await served(in_phase("train"))
        validator = validator_of(run)
        await validator.follower.catch_up()
        segment = next(iter(validator.state.segments.values()))
        need = needed(validator.state, segment, seed=seed_of(validator.state, segment, None, validator.hotkey))
        peers_of(validator).down.add("orchestrator:1")
        void = Judgement(verdict="void", reason="validator-fault")
        saying = asyncio.create_task(validator._say(need, None, void))
        await asyncio.sleep(LONG_S)
        assert not saying.done()
        peers_of(validator).down.clear()
        assert await saying
        assert run.node.state.segments[segment.id].verdicts[validator.hotkey].verdict == "void"

    skipping(scenario())


def test_a_ledger_that_was_rewritten_ends_a_validator_at_once() -> None:
    """That is proof, and no outage."""

    async def scenario() -> None:
        run = await served(in_phase("train"))
        validator = validator_of(run)
        async with at_work(validator) as work:
            peers_of(validator).apps["orchestrator:1"] = (await served(in_phase("close"))).app
            new_block(run)
            await asyncio.wait([work], timeout=LONG_S)
            with pytest.raises(ExceptionGroup) as ended:
                work.result()
            assert ended.group_contains(LedgerError)

    skipping(scenario())


def test_a_role_at_work_waits_for_ever_and_says_the_outage_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        begun_s, tries = loop.time(), 0

        async def ask() -> str:
            nonlocal tries
            tries += 1
            if loop.time() - begun_s < LONG_S:
                raise PeerUnreachable("nobody listens")
            return "answer"

        assert await retried(ask, what="plans", patience_s=FOR_EVER_S) == "answer"
        assert tries > LONG_S / 4, "it is asked every few seconds"
        with pytest.raises(UnreachableError, match="expected plans within 1 s"):
            begun_s = loop.time()
            await retried(ask, what="plans", patience_s=1.0)

    with caplog.at_level("INFO", "strata.client"):
        skipping(scenario())
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "waiting for='plans' reason='nobody listens'"
    assert len(said) == 2 and said[1].startswith("answered what='plans' after=36")
