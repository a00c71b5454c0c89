"""Dialling back: what a miner is told about its address, and what the orchestrator refuses to connect to."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.nodes import dialback
from subnet.nodes.announcing import dial_back, stands
from subnet.nodes.client import RunClient
from subnet.nodes.orchestrator_routes import REFUSALS
from template.errors import PeerRefused
from template.fake.chain import FakeChain
from template.fake.keys import FakeSigner
from template.fake.transport import FakeTransport
from template.transport import Incoming, Reply, Route, json_reply
from template.web import application, serve
from template.web_client import HttpTransport
from tests.flow.network import ORCHESTRATOR, Network, network

pytestmark = pytest.mark.flow

RUN = build_run(RunOptions(model="nano"))
PUBLIC = ("8.8.4.4", 8091)
ADDRESS = "8.8.4.4:8091"


@pytest.fixture
async def net(tmp_path: Path) -> AsyncIterator[Network]:
    async with network(RUN, load_corpus(RUN.data), tmp_path, num_miners=2) as running:
        running.tasks.pop("publisher").cancel()
        yield running


async def announce(net: Network, host: str, port: int, name: str = "miner-0") -> RunClient:
    signer = FakeSigner(name)
    await FakeChain(net.chain, signer.hotkey, FakeSigner(f"{name}/coldkey").hotkey).publish_endpoint(host, port)
    return net.client(name)


def answering(net: Network, address: str, reply: Reply) -> None:
    async def health(request: Incoming) -> Reply:
        return reply

    net.peers.apps[address] = application([Route(method="GET", path="/healthz", handler=health, signed=False)], None)


def of(name: str) -> Reply:
    return json_reply({"hotkey": FakeSigner(name).hotkey})


async def told(client: RunClient, address: str = ADDRESS) -> dialback.DialBack:
    answer = await dial_back(client, address, patience_s=0.0)
    assert answer is not None
    return answer


async def test_a_miner_that_answers_where_it_announced_itself_is_reached(net: Network) -> None:
    client = await announce(net, *PUBLIC)
    answering(net, ADDRESS, of("miner-0"))
    assert await told(client) == dialback.DialBack(
        address=ADDRESS, tested=True, reached=True, message=f"reached {ADDRESS}"
    )
    assert await stands(net.client("miner-0"), ADDRESS), "a second call is too soon, which is no reason to doubt"


async def test_what_is_to_be_opened_is_said_once_and_the_relay_takes_over(net: Network, caplog) -> None:
    client = await announce(net, *PUBLIC)
    with caplog.at_level(logging.WARNING):
        assert not await stands(client, ADDRESS)
    said = [record.getMessage() for record in caplog.records if record.name == "strata.start"]
    assert (
        len(said) == 1
        and (
            f"expected to reach {ADDRESS}, found: no connection; open TCP port 8091 on the firewall and forward it to "
            "this machine, or use --outbound-only"
        )
        in said[0]
    )


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (of("miner-1"), "the miner of another hotkey"),
        (json_reply({"error": "no"}, status=404), "a server that answers /healthz with 404"),
        (json_reply([1]), "a server that is not a miner"),
        (Reply(body=b"\xff" * 100), "a server that is not a miner"),
        (Reply(body=b" " * (dialback.ANSWER_BYTES + 1)), "a server with another kind of answer"),
    ],
)
async def test_somebody_else_at_the_address_is_told_apart(net: Network, reply: Reply, found: str) -> None:
    client = await announce(net, *PUBLIC)
    answering(net, ADDRESS, reply)
    answer = await told(client)
    assert answer.tested and not answer.reached and f"found: {found}" in answer.message


async def test_only_the_address_in_the_caller_s_own_record_is_dialled(net: Network) -> None:
    await announce(net, *PUBLIC, name="miner-1")
    client = await announce(net, "8.8.4.4", 9000)
    answering(net, ADDRESS, of("miner-0"))
    with pytest.raises(
        PeerRefused, match=r"not_announced.*to have announced 8\.8\.4\.4:8091, the chain shows"
    ) as caught:
        await ask_at_once(client, ADDRESS)
    assert caught.value.status == 503


async def ask_at_once(client: RunClient, address: str) -> None:
    await client.transport.request(
        "POST", ORCHESTRATOR, f"/v1/dial-back?address={address}", receiver=client.orchestrator
    )


@pytest.mark.parametrize("host", ["10.0.0.5", "192.168.1.2", "169.254.169.254", "198.18.0.1", "100.64.0.1"])
async def test_an_address_inside_a_private_network_is_not_dialled(net: Network, host: str) -> None:
    client = await announce(net, host, 80)
    answering(net, f"{host}:80", of("miner-0"))
    answer = await told(client, f"{host}:80")
    assert not answer.tested and not answer.reached and "expected a public address" in answer.message
    assert await stands(net.client("miner-0"), f"{host}:80")


async def test_calls_are_signed_registered_and_rare(net: Network) -> None:
    client = await announce(net, *PUBLIC)
    answering(net, ADDRESS, of("miner-0"))
    target = f"/v1/dial-back?address={ADDRESS}"
    with pytest.raises(PeerRefused, match="malformed_auth"):
        await FakeTransport(net.peers, None).request("POST", ORCHESTRATOR, target)
    stranger = FakeTransport(net.peers, FakeSigner("stranger"))
    with pytest.raises(PeerRefused, match="unregistered"):
        await stranger.request("POST", ORCHESTRATOR, target, receiver=client.orchestrator)
    await ask_at_once(client, ADDRESS)
    with pytest.raises(PeerRefused, match="too_soon") as caught:
        await ask_at_once(client, ADDRESS)
    assert caught.value.status == 429


async def test_over_real_connections_a_refusal_a_redirect_and_silence_are_told_apart(net: Network) -> None:
    """The orchestrator's own client, against sockets of this machine."""

    async def away(request: Incoming) -> Reply:
        return Reply(status=302, headers={"Location": "http://127.0.0.1:1/healthz"})

    async def health(request: Incoming) -> Reply:
        return of("miner-0")

    transport = HttpTransport(None, address_map={"198.18.0.1": "127.0.0.1"})
    routes = dialback.routes(net.orchestrator, transport, address_map={"198.18.0.1": "127.0.0.1"})
    net.peers.apps["dialling:1"] = application(routes, net.orchestrator.verifier, refusals=REFUSALS)
    elsewhere = application([Route(method="GET", path="/healthz", handler=away, signed=False)], None)
    mine = application([Route(method="GET", path="/healthz", handler=health, signed=False)], None)
    try:
        async with serve(elsewhere) as redirecting, serve(mine) as answering_one:
            found = [await self_told(net, name, server.port) for name, server in
                     (("miner-0", answering_one), ("miner-1", redirecting))]  # fmt: skip
            gone = answering_one.port
        await asyncio.sleep(dialback.BETWEEN_S)
        found.append(await self_told(net, "miner-0", gone))
    finally:
        await transport.close()
    assert found[0]["reached"]
    assert "something that is not a miner" in found[1]["message"]
    assert f"198.18.0.1:{gone}, found: connection refused; open TCP port {gone}" in found[2]["message"]


async def self_told(net: Network, name: str, port: int) -> dict[str, object]:
    client = await announce(net, "198.18.0.1", port, name)
    target = f"/v1/dial-back?address=198.18.0.1:{port}"
    response = await client.transport.request("POST", "dialling:1", target, receiver=client.orchestrator)
    return dict(json.loads(response.body))
