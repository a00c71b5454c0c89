"""One subnet, in memory and on the dev chain behind the real SDK, with the same people in it."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from websockets.sync.client import connect as websocket

from template.chain import Chain
from template.fake.chain import FakeChain, FakeNetwork, FakeRules
from template.fake.keys import fake_address
from template.values import RAO_PER_TAO
from tests.template.proxy import Proxy, proxy_to

if TYPE_CHECKING:
    from tests.template.faulty import Connect, Lab

TEMPO = 12
RATE_LIMIT_BLOCKS = 5
NEWCOMERS = 32
VALIDATORS = 7
LIVE = os.environ.get("STRATA_TEST_NETWORK")  # a network's name or a ws:// endpoint, a dev chain's too
LIVE_NETUID = int(os.environ.get("STRATA_TEST_NETUID", "1"))


class Subnet(Protocol):
    """A subnet with an owner, staked validators and people who are not registered yet."""

    def validator(self) -> Chain:
        """One that nobody has asked for yet, so that its rate limits are fresh."""
        ...

    def majority(self) -> Chain:
        """The validator with most of the stake, whose weights alone decide an epoch. There is one."""
        ...

    def newcomer(self) -> Chain:
        """A funded key without a uid."""
        ...

    def pauper(self) -> Chain:
        """A key without a uid or funds."""
        ...

    async def pass_blocks(self, blocks: int) -> None:
        """Return when so many more blocks are finalised."""
        ...


class FakeSubnet:
    """Implements Subnet in memory."""

    def __init__(self) -> None:
        self.network = FakeNetwork(
            rules=FakeRules(tempo=TEMPO, weights_rate_limit_blocks=RATE_LIMIT_BLOCKS, serving_rate_limit_blocks=1)
        )
        self.network.add(self.network.owner_hotkey, self.network.owner_coldkey)
        self._names = iter(f"person{number}" for number in range(1000))
        self._validators = []
        for number in range(VALIDATORS):
            chain = self._chain(f"validator{number}")
            self.network.add(chain.hotkey, fake_address(f"validator{number}/cold"), stake_rao=RAO_PER_TAO, permit=True)
            self._validators.append(chain)
        self.network.add(fake_address("majority"), fake_address("majority/cold"), stake_rao=10**12, permit=True)
        self.network.advance(RATE_LIMIT_BLOCKS)

    def _chain(self, name: str) -> FakeChain:
        return FakeChain(self.network, fake_address(name), fake_address(f"{name}/cold"))

    def validator(self) -> Chain:
        return self._validators.pop()

    def majority(self) -> Chain:
        return self._chain("majority")

    def newcomer(self) -> Chain:
        name = next(self._names)
        self.network.fund(fake_address(f"{name}/cold"), 100 * RAO_PER_TAO)
        return self._chain(name)

    def pauper(self) -> Chain:
        return self._chain(next(self._names))

    async def pass_blocks(self, blocks: int) -> None:
        self.network.advance(blocks)


class ChainThread:
    """A dev chain in a thread of its own, on a free port unless one is given."""

    def __init__(self, genesis: object, port: int = 0, *, dev_controls: bool = False) -> None:
        self.port = port
        self._dev_controls = dev_controls
        self._genesis = genesis
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(30), "the dev chain did not start"

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def _run(self) -> None:
        from template.devchain.node import serve

        work = serve(
            self._genesis, port=self.port, on_ready=self._on_ready, stop=self._stop, dev_controls=self._dev_controls
        )
        self._loop.run_until_complete(work)
        self._loop.close()

    def ask(self, method: str, *params: object) -> object:
        """One request of one's own, a test control for example; its result."""
        with websocket(self.url, max_size=None) as socket:
            socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}))
            answer = json.loads(socket.recv(timeout=20))
        assert "error" not in answer, answer
        return answer["result"]

    def _on_ready(self, port: int) -> None:
        self.port = port
        self._ready.set()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


@dataclass
class DevSubnet:
    """Implements Subnet on a dev chain through the real SDK."""

    url: str
    wallets: dict[str, list[object]]
    open: list[Chain] = field(default_factory=list)

    def connect(self, kind: str, url: str | None = None, **options: object) -> Chain:
        from template.sdk import SdkChain

        chain = SdkChain(url or self.url, 1, self.wallets[kind].pop(), **options)
        self.open.append(chain)
        return chain

    def validator(self) -> Chain:
        return self.connect("validator")

    def majority(self) -> Chain:
        return self.connect("majority")

    def newcomer(self) -> Chain:
        return self.connect("newcomer")

    def pauper(self) -> Chain:
        return self.connect("pauper")

    async def pass_blocks(self, blocks: int) -> None:
        chain = self.open[0]
        await chain.wait_for_block(await chain.block() + blocks)

    async def close(self) -> None:
        for chain in self.open:
            await chain.close()
        self.open.clear()


@pytest.fixture(scope="module")
def dev_people(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """Wallets on disk, by what they are for."""
    from template.sdk import create_wallet

    path = tmp_path_factory.mktemp("wallets")
    counts = {"owner": 1, "majority": 1, "validator": VALIDATORS, "newcomer": NEWCOMERS, "pauper": 4}
    return {
        kind: [create_wallet(f"{kind}{number}", "default", path) for number in range(count)]
        for kind, count in counts.items()
    }


@pytest.fixture(scope="module")
def make_genesis(dev_people: dict[str, list[object]]) -> Callable[..., object]:
    """The genesis of that subnet, with any field changed."""
    from template.devchain.genesis import Genesis, GenesisValidator

    people = {kind: list(wallets) for kind, wallets in dev_people.items()}

    def make(**changes: object) -> object:
        owner = people["owner"][0]
        values: dict[str, object] = {
            "owner_coldkey": owner.coldkeypub.ss58_address,
            "owner_hotkey": owner.hotkey.ss58_address,
            "sudo": owner.coldkeypub.ss58_address,
            "validators": tuple(
                GenesisValidator(
                    hotkey=each.hotkey.ss58_address, coldkey=each.coldkeypub.ss58_address, stake_tao=stake_tao
                )
                for kind, stake_tao in (("validator", 1000.0), ("majority", 100_000.0))
                for each in people[kind]
            ),
            "funds_tao": tuple((each.coldkeypub.ss58_address, 100.0) for each in people["newcomer"]),
            "tempo": TEMPO,
            "weights_rate_limit": RATE_LIMIT_BLOCKS,
            "block_time_s": 0.1,
        }
        return Genesis(**values | changes)

    return make


@pytest.fixture(scope="module")
def dev_chain(make_genesis: Callable[..., object]) -> Iterator[ChainThread]:
    """One dev chain for all tests of a file; each takes people whom no other test has touched. It ends with the file:
    its thread must not be there where another test limits files, or watches what is random."""
    thread = ChainThread(make_genesis())
    yield thread
    thread.stop()


@pytest.fixture
async def dev_subnet(dev_chain: ChainThread, dev_people: dict[str, list[object]]) -> AsyncIterator[DevSubnet]:
    subnet = DevSubnet(dev_chain.url, dev_people)
    yield subnet
    await subnet.close()


@pytest.fixture(params=["fake", "dev"])
async def subnet(request: pytest.FixtureRequest) -> AsyncIterator[Subnet]:
    """The same subnet twice: in memory, and on the dev chain through the SDK."""
    if request.param == "fake":
        yield FakeSubnet()
        return
    subnet = DevSubnet(request.getfixturevalue("dev_chain").url, request.getfixturevalue("dev_people"))
    yield subnet
    await subnet.close()


@pytest.fixture(params=["fake", "dev", *([pytest.param("live", marks=pytest.mark.network)] if LIVE else [])])
async def reader(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Chain]:
    """A chain that is only read: in memory, the dev chain, and subnet STRATA_TEST_NETUID of STRATA_TEST_NETWORK."""
    if request.param == "fake":
        subnet = FakeSubnet()
        beat = asyncio.create_task(subnet.network.run(every_s=0.01))
        yield subnet.pauper()
        beat.cancel()
        return
    from template.sdk import SdkChain, create_wallet

    where = (request.getfixturevalue("dev_chain").url, 1) if request.param == "dev" else (LIVE, LIVE_NETUID)
    chain = SdkChain(*where, create_wallet("reader", "default", tmp_path))
    yield chain
    await chain.close()


@pytest.fixture(scope="module")
def chain_of_faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lab"]:
    """One chain for a file; its weights' rate limit is over when the first test begins."""
    from tests.template.faulty import make_lab

    lab = make_lab(tmp_path_factory.mktemp("faults"))
    yield lab
    lab.node.stop()


@pytest.fixture
def lab(chain_of_faults: "Lab") -> Iterator["Lab"]:
    """That chain, healthy at the begin and at the end."""
    yield chain_of_faults
    chain_of_faults.heal()


@pytest.fixture
async def proxy(lab: "Lab") -> AsyncIterator[Proxy]:
    """A way to the node that can be made worse."""
    async with proxy_to(lab.node.port) as proxy:
        yield proxy


@pytest.fixture
async def connect() -> AsyncIterator["Connect"]:
    """Open chain objects that are closed at the end."""
    from template.sdk import SdkChain

    opened: list[SdkChain] = []

    def connect(url: str, wallet: object, netuid: int = 1, **options: object) -> SdkChain:
        opened.append(SdkChain(url, netuid, wallet, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield connect
    for chain in opened:
        await chain.close()
