"""Before any work: the chain is waited for, a hotkey without a uid is told how, a subnet that pays nobody is named."""

import asyncio
import logging
from pathlib import Path

import pytest

from subnet.nodes.starting import find_orchestrator, reach_chain, require_registered
from template.config import NeuronConfig
from template.errors import ChainUnreachable, NotRegistered
from template.fake.chain import FakeChain, FakeNetwork, FakeRules
from template.fake.keys import fake_address
from template.values import ChainView


class Away(FakeChain):
    """Answers no wait before it is let go, or fails it."""

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__(FakeNetwork(), fake_address("hot"), fake_address("cold"))
        self.back = asyncio.Event()
        self._fault = fault

    async def wait_for_block(self, number: int) -> int:
        if self._fault is not None:
            raise self._fault
        await self.back.wait()
        return number


async def test_a_start_goes_on_when_the_chain_answers() -> None:
    chain = Away()
    reaching = asyncio.create_task(reach_chain(chain, stopping=asyncio.Event()))
    await asyncio.sleep(0)
    assert not reaching.done()
    chain.back.set()
    await reaching


async def test_a_start_that_is_told_to_stop_ends_without_complaint() -> None:
    stopping = asyncio.Event()
    stopping.set()
    with pytest.raises(asyncio.CancelledError):
        await reach_chain(Away(), stopping=stopping)


async def test_a_chain_that_stays_away_ends_the_start() -> None:
    with pytest.raises(ChainUnreachable, match="gone"):
        await reach_chain(Away(ChainUnreachable("gone")), stopping=asyncio.Event())


@pytest.mark.parametrize("started", [True, False])
async def test_who_may_work_is_checked_and_a_subnet_that_pays_nobody_is_named(
    started: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = FakeNetwork(rules=FakeRules(started=started))
    chain = FakeChain(network, fake_address("hot"), fake_address("cold"))
    config = NeuronConfig(data_dir=tmp_path, network="local")
    with pytest.raises(NotRegistered, match="run strata register --network local"):
        await require_registered(chain, config, stopping=asyncio.Event())
    network.add(chain.hotkey, fake_address("cold"))
    with caplog.at_level(logging.WARNING, "strata.start"):
        caplog.clear()
        await require_registered(chain, config, stopping=asyncio.Event())
    said = "subnet=1 not started: nobody is paid before its owner does that (btcli sudo start --netuid 1)"
    assert caplog.messages == ([] if started else [said])


class Cut(FakeChain):
    """Gone for the next few views; a wait for a block outlives that, or not."""

    def __init__(self, network: FakeNetwork, *, cuts: int, lasting: bool = False) -> None:
        super().__init__(network, fake_address("hot"), fake_address("cold"))
        self.cuts, self._lasting = cuts, lasting

    async def view(self, block: int | None = None) -> ChainView:
        if self.cuts:
            self.cuts -= 1
            raise ChainUnreachable("gone")
        return await super().view(block)

    async def wait_for_block(self, number: int) -> int:
        if self._lasting:
            raise ChainUnreachable("gone for ten minutes")
        return await super().wait_for_block(number)


async def test_an_outage_while_the_orchestrator_is_looked_for_is_waited_for(tmp_path: Path) -> None:
    network = FakeNetwork()
    network.add(network.owner_hotkey, network.owner_coldkey)
    await FakeChain(network, network.owner_hotkey, network.owner_coldkey).publish_endpoint("198.18.0.1", 8080)
    config, chain = NeuronConfig(data_dir=tmp_path, network="local"), Cut(network, cuts=3)
    found = await find_orchestrator(chain, config, stopping=asyncio.Event())
    assert found == (network.owner_hotkey, "198.18.0.1:8080") and chain.cuts == 0
    with pytest.raises(ChainUnreachable, match="for ten minutes"):
        await find_orchestrator(Cut(network, cuts=1, lasting=True), config, stopping=asyncio.Event())
