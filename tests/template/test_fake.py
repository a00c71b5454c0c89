"""What only the fakes can do: make blocks on demand, take peers down, give addresses without keys."""

import asyncio

import bittensor_core
import pytest

from template.errors import DeadlineExceeded, PeerUnreachable, RateLimited
from template.fake.chain import FakeChain, FakeNetwork, FakeRules
from template.fake.keys import fake_address
from template.fake.transport import FakePeers, FakeTransport
from template.transport import Incoming, Reply, Route
from template.web import application


async def answer(request: Incoming) -> Reply:
    return Reply(body=b"here")


def peers() -> FakePeers:
    known = FakePeers()
    known.apps["a:1"] = application([Route(method="GET", path="/", handler=answer, signed=False)], None)
    return known


def test_a_fake_address_is_a_wellformed_one() -> None:
    assert len(bittensor_core.ss58_decode(fake_address("alice"))) == 32
    assert fake_address("alice") == fake_address("alice") != fake_address("bob")


async def test_a_peer_can_be_taken_down_and_brought_back() -> None:
    known = peers()
    transport = FakeTransport(known, None)
    assert (await transport.request("GET", "a:1", "/")).body == b"here"
    known.down.add("a:1")
    with pytest.raises(PeerUnreachable):
        await transport.request("GET", "a:1", "/")
    known.down.clear()
    known.hanging.add("a:1")
    with pytest.raises(DeadlineExceeded, match=r"within 0.05 s"):
        await transport.request("GET", "a:1", "/", timeout_s=0.05)
    known.hanging.clear()
    assert (await transport.request("GET", "a:1", "/")).body == b"here"


async def test_a_fault_of_a_handler_is_the_tests_to_see() -> None:
    async def broken(request: Incoming) -> Reply:
        raise ZeroDivisionError("our own fault")

    known = FakePeers()
    known.apps["a:1"] = application([Route(method="GET", path="/", handler=broken, signed=False)], None)
    with pytest.raises(ZeroDivisionError, match="our own fault"):
        await FakeTransport(known, None).request("GET", "a:1", "/")


async def test_blocks_come_on_demand_or_on_a_beat() -> None:
    network = FakeNetwork()
    chain = FakeChain(network, fake_address("a"), fake_address("a/cold"))
    start = await chain.block()
    assert network.advance(3) == start + 3 == await chain.block()
    waiting = asyncio.create_task(chain.wait_for_block(start + 5))
    beat = asyncio.create_task(network.run(every_s=0.001))
    assert await waiting >= start + 5
    beat.cancel()


async def test_an_extrinsic_has_a_block_of_its_own() -> None:
    network = FakeNetwork()
    network.add(fake_address("a"), fake_address("a/cold"))
    chain = FakeChain(network, fake_address("a"), fake_address("a/cold"))
    first, second = await chain.commit(b"1"), await chain.commit(b"2")
    assert second.block == first.block + 1 and first.extrinsic_index == 1


async def test_an_endpoint_may_not_change_too_often() -> None:
    network = FakeNetwork(rules=FakeRules(serving_rate_limit_blocks=5))
    network.add(fake_address("a"), fake_address("a/cold"))
    chain = FakeChain(network, fake_address("a"), fake_address("a/cold"))
    await chain.publish_endpoint("198.18.0.1", 1)
    with pytest.raises(RateLimited) as caught:
        await chain.publish_endpoint("198.18.0.1", 2)
    network.advance(caught.value.blocks_to_wait)
    await chain.publish_endpoint("198.18.0.1", 2)
