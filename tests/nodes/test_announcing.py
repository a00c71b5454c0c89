"""Where a miner says it can be reached: the port that it has, or the pair that the user gives; never port 0."""

import asyncio
from pathlib import Path

import pytest

from subnet.canonical import canonical
from subnet.nodes.announcing import announced
from subnet.nodes.client import RunClient
from subnet.nodes.dialback import DialBack
from subnet.nodes.starting import Joined
from template.config import NeuronConfig
from template.fake.chain import FakeChain, FakeNetwork
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.sdk import HotkeyVerifier
from template.transport import Incoming, Reply, Route
from template.web import WebServer, application, serve
from tests.ledger.small import run_config

ME = FakeSigner("me")


def joined(config: NeuronConfig, network: FakeNetwork, *, reached: bool = True) -> Joined:
    """A registered miner, whose orchestrator says whether it reached the address."""

    async def dial(request: Incoming) -> Reply:
        address = request.query["address"]
        answer = DialBack(address=address, tested=True, reached=reached, message="open TCP port")
        return Reply(body=canonical(answer), content_type="application/json")

    peers = FakePeers()
    routes = [Route(method="POST", path="/v1/dial-back", handler=dial, signed=False)]
    peers.apps["127.0.0.1:1"] = application(routes, None)
    owner = FakeSigner("owner").hotkey
    client = RunClient(FakeTransport(peers, ME), "127.0.0.1:1", owner, signer=ME, verifier=FakeVerifier(ME.hotkey))
    chain = FakeChain(network, ME.hotkey, FakeSigner("me/coldkey").hotkey)
    verifier = HotkeyVerifier(ME.hotkey)
    return Joined(config=config, chain=chain, client=client, run=run_config(), verifier=verifier, forwarded=verifier)


async def announce(tmp_path: Path, *, reached: bool = True, **place: object) -> tuple[str, str | None, WebServer]:
    """Serve on a free port and announce it; the address for others, the chain's record, the server."""
    network = FakeNetwork()
    network.add(ME.hotkey, FakeSigner("me/coldkey").hotkey)
    config = NeuronConfig(data_dir=tmp_path, network="ws://127.0.0.1:9944", host="127.0.0.1", port=0, **place)
    async with serve(application([], None), host=config.host, port=config.port) as server:
        address = await announced(joined(config, network, reached=reached), server)
    neuron = network.find(ME.hotkey)
    assert neuron is not None
    return address, neuron.endpoint, server


async def test_the_announced_pair_may_be_another_than_the_bound_one(tmp_path: Path) -> None:
    """As behind a rented machine's port map: bound here, announced as 1.2.3.4:40123."""
    address, on_chain, server = await announce(tmp_path, external_host="1.2.3.4", external_port=40123)
    assert address == on_chain == "1.2.3.4:40123" and server.port != 40123


@pytest.mark.parametrize("external_port", [None, 0])
async def test_the_real_port_is_announced_where_zero_was_asked_for(tmp_path: Path, external_port: int | None) -> None:
    address, on_chain, server = await announce(tmp_path, external_host="1.2.3.4", external_port=external_port)
    assert server.port > 0
    assert address == on_chain == f"1.2.3.4:{server.port}"


async def test_ports_announced_at_the_same_time_are_all_different_and_none_is_zero(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(announce(tmp_path, external_host="1.2.3.4")) for _ in range(8)]
    for address, on_chain, server in (task.result() for task in made):
        assert address == on_chain == f"1.2.3.4:{server.port}" and not address.endswith(":0")


async def test_on_one_machine_the_address_that_stands_for_it_is_announced(tmp_path: Path) -> None:
    address, on_chain, server = await announce(tmp_path, address_map={"198.18.0.1": "127.0.0.1"})
    assert address == on_chain == f"198.18.0.1:{server.port}"


async def test_an_address_that_nobody_can_reach_leaves_the_relay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address, on_chain, server = await announce(tmp_path, external_host="1.2.3.4", reached=False)
    assert address == "" and on_chain == f"1.2.3.4:{server.port}"
    assert "open TCP port; until then deliveries and evidence go through the relay" in caplog.text
    assert (await announce(tmp_path, outbound_only=True))[:2] == ("", None)
