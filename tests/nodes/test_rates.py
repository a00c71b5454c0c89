"""How often a hotkey may join and roll back: often enough for any honest miner, never without end."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from subnet.errors import UnreachableError
from subnet.nodes.client import RunClient
from subnet.nodes.rates import ALLOWED, Rates
from subnet.wire.messages import Join, Message, make_signed
from template.errors import PeerRefused, RefusedRequest
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation
from tests.nodes.asking import ask
from tests.nodes.served import ServedRun, message_request, served
from tests.nodes.test_orchestrator_routes import in_phase, lane_member

gaps = st.lists(st.floats(0, 30), max_size=60)


@given(gaps, st.sampled_from(sorted(ALLOWED)))
def test_no_more_than_the_burst_and_the_rate_pass_in_any_time(waits: list[float], kind: str) -> None:
    """And a refusal says exactly how long to wait: then it passes."""
    now, allowance = [0.0], ALLOWED[kind]
    rates, passed = Rates(clock=lambda: now[0]), list[float]()
    for wait_s in waits:
        now[0] += wait_s
        try:
            rates.take("ann", kind)
        except RefusedRequest as refused:
            assert refused.status == 429 and refused.retry_after_s is not None
            now[0] += refused.retry_after_s + 1e-6
            rates.take("ann", kind)
        passed.append(now[0])
    for first, begin_s in enumerate(passed):
        for last in range(first, len(passed)):
            allowed = allowance.burst + (passed[last] - begin_s) / allowance.every_s
            assert last - first + 1 <= allowed + 1e-6


def test_each_hotkey_and_each_kind_has_its_own_and_other_messages_none() -> None:
    rates = Rates(clock=lambda: 0.0)
    for _ in range(ALLOWED["join"].burst):
        rates.take("ann", "join")
    rates.take("ben", "join")
    rates.take("ann", "rollback")
    for _ in range(100):
        rates.take("ann", "step")
    with pytest.raises(RefusedRequest, match="expected at most 6 joins of a hotkey at once and then one every 10 s"):
        rates.take("ann", "join")


def test_who_came_once_is_forgotten() -> None:
    now = [0.0]
    rates = Rates(clock=lambda: now[0])
    for number in range(50):
        rates.take(f"hotkey {number}", "join")
    now[0] = 1000.0
    rates.take("ann", "join")
    assert list(rates._full_s) == [("ann", "join")]


def join(sim: Simulation, number: int) -> Message:
    values = {"hotkey": hotkey("ann"), "address": f"ann:{number + 1}", "memory_bytes": 0, "root": ""}
    return sim.of(Join, **values, time_ms=sim.now_ms)


def rollback(sim: Simulation, number: int) -> Message:
    return sim.rollback_receipt(lane_member(sim))


async def answers(run: ServedRun, make: Callable[[Simulation, int], Message], times: int) -> list[Any]:
    """Send so many of these, each another one."""
    found = []
    for number in range(times):
        run.sim.state = run.node.state
        run.sim.now_ms += 1
        message = make(run.sim, number)
        request = message_request(run.sim.names[message.hotkey], message)
        found.append(
            await ask(run.app, request.method, request.target, headers=request.headers(), parts=(request.body,))
        )
    return found


@pytest.mark.parametrize(("kind", "make"), [("join", join), ("rollback", rollback)])
async def test_too_many_are_refused_with_the_wait_and_not_logged(
    kind: str, make: Callable[[Simulation, int], Message]
) -> None:
    run = await served(in_phase("train"))
    burst, before = ALLOWED[kind].burst, run.node.ledger.count
    found = await answers(run, make, burst + 2)
    assert [answer.status for answer in found] == [200] * burst + [429, 429], [a.body for a in found]
    assert found[-1].word == "too_often" and run.node.ledger.count == before + burst


async def test_the_same_message_again_is_not_counted() -> None:
    run = await served(in_phase("train"))
    message = join(run.sim, 0)
    for _ in range(3 * ALLOWED["join"].burst):
        request = message_request("ann", message)
        headers = request.headers()
        assert (await ask(run.app, "POST", request.target, headers=headers, parts=(request.body,))).status == 200


async def test_nobody_uses_up_what_another_may_say() -> None:
    """Forged joins in ann's name, brought by somebody registered, cost ann nothing."""
    run = await served(in_phase("train"))
    for number in range(3 * ALLOWED["join"].burst):
        forged = replace(make_signed(join(run.sim, number), signer("ben")), hotkey=hotkey("ann"))
        request = message_request("ben", None, signed=forged)  # type: ignore[arg-type]
        answer = await ask(run.app, "POST", request.target, headers=request.headers(), parts=(request.body,))
        assert answer.status == 400
    assert [a.status for a in await answers(run, join, 1)] == [200]


async def test_a_client_waits_as_long_as_it_is_told() -> None:
    """With less patience than that it says so at once, with the orchestrator's own sentence."""
    run = await served(in_phase("train"))
    await answers(run, join, ALLOWED["join"].burst)
    peers = FakePeers()
    peers.apps["orchestrator:1"] = run.app
    me = FakeSigner("ann")
    client = RunClient(
        FakeTransport(peers, me), "orchestrator:1", hotkey("owner"), signer=me, verifier=FakeVerifier(me.hotkey)
    )
    with pytest.raises(UnreachableError, match=r"within 5 s.*too_often.*send it again in \d+ s") as caught:
        await client.say(join(run.sim, 99), patience_s=5.0)
    cause = caught.value.__cause__
    assert isinstance(cause, PeerRefused) and cause.retry_after_s is not None and 5 < cause.retry_after_s <= 10
