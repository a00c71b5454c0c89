"""A whole network in one process and one event loop: the real nodes over the in-memory chain, keys and transport."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.blobs import LocalBlobs
from subnet.edges.ledger import SqlLedger
from subnet.edges.relay import Relay
from subnet.ledger.state import RunState
from subnet.nodes import beside, dialback, miner_routes, orchestrator_routes, relay_routes
from subnet.nodes.client import RunClient
from subnet.nodes.custody import initial_public
from subnet.nodes.letters import Letters, bundle_limit_bytes
from subnet.nodes.miner import Miner
from subnet.nodes.orchestrator import Orchestrator, Start
from subnet.nodes.publisher import Publisher
from subnet.nodes.validator import Validator
from template.auth import FORWARDED_AGE_S
from template.fake.chain import FakeChain, FakeNetwork, FakeRules
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.nonces import MemoryNonceStore
from template.web import application

ORCHESTRATOR = "orchestrator:1"
STORE_BYTES = 1 << 30
LIMIT_S = 500.0  # for a few seconds of work, on a machine that does other things too
STARVED_S = 10.0  # a step's deadline where a neighbour waits in vain: long enough for all that does come
DRAWS_ALL_RAO, DRAWS_NONE_RAO = 10**18, 10**12  # beside each other they have all but 1e-6 of the stake, and the rest


def unhurried(run: RunConfig, *, deadline_s: float = LIMIT_S) -> RunConfig:
    """A run whose steps and rounds end when all is done, however slow the machine: no deadline comes before that."""
    return replace(run, lanes=replace(run.lanes, deadline_s=deadline_s))


class Held(Cheat):
    """Honest, and from one step on it waits before its optimizer step until it is let go: training stands still there,
    until something else has happened."""

    def __init__(self, from_step: int) -> None:
        super().__init__(0.0)
        self.from_step = from_step
        self.go = threading.Event()

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """As it is, and not before its time."""
        if global_step >= self.from_step:
            self.go.wait()
        return honest(global_step)


@dataclass(kw_only=True)
class Network:
    """Everything that runs, by name; `tasks` are the nodes at work."""

    run: RunConfig
    corpus: Corpus
    folder: Path
    chain: FakeNetwork
    peers: FakePeers = field(default_factory=FakePeers)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    relay: Relay = field(default_factory=Relay)
    letters: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    orchestrator: Orchestrator = field(init=False)
    publisher: Publisher = field(init=False)
    miners: dict[str, Miner] = field(default_factory=dict)
    validators: dict[str, Validator] = field(default_factory=dict)
    num_miners: int = 4
    alive_s: float = LIMIT_S  # nobody is taken for dead because all of this process is slow

    @property
    def state(self) -> RunState:
        """The orchestrator's state."""
        return self.orchestrator.state

    def client(self, name: str, *, transport: type[FakeTransport] = FakeTransport) -> RunClient:
        """A client of the orchestrator for the hotkey of this name."""
        signer = FakeSigner(name)
        return RunClient(
            transport(self.peers, signer),
            ORCHESTRATOR,
            self.chain.owner_hotkey,
            signer=signer,
            verifier=FakeVerifier(signer.hotkey),
        )

    def blobs(self, name: str) -> LocalBlobs:
        """The blob folder of a node."""
        return LocalBlobs(self.folder / name, limit_bytes=STORE_BYTES)

    def seat(self, name: str, *, stake_rao: int = 0, coldkey: str | None = None) -> str:
        """Register a hotkey of this name, with a coldkey of its own unless one is named."""
        signer = FakeSigner(name)
        cold = FakeSigner(coldkey or f"{name}/coldkey").hotkey
        self.chain.add(signer.hotkey, cold, stake_rao=stake_rao, permit=stake_rao > 0)
        return signer.hotkey

    async def start_orchestrator(self) -> None:
        """Open the ledger, and begin to answer and decide."""
        signer = FakeSigner("owner")
        self.orchestrator = Orchestrator(
            FakeChain(self.chain, signer.hotkey, FakeSigner("owner/coldkey").hotkey),
            SqlLedger(f"sqlite:///{self.folder}/ledger.sqlite"),
            store=self.blobs("store"),
            signer=signer,
            verifier=FakeVerifier(signer.hotkey),
            start=Start(num_miners=self.num_miners, patience_s=20.0),
        )
        self.orchestrator.alive_s = self.alive_s
        await self.orchestrator.open(self.run)
        routes = [
            *orchestrator_routes.routes(self.orchestrator),
            *relay_routes.routes(self.orchestrator, self.relay),
            *dialback.routes(self.orchestrator, FakeTransport(self.peers, None), address_map={}),
        ]
        self.peers.apps[ORCHESTRATOR] = application(
            routes, self.orchestrator.verifier, refusals=orchestrator_routes.REFUSALS
        )
        self.tasks["orchestrator"] = asyncio.create_task(self.orchestrator.run())

    def start_publisher(self) -> None:
        """The publisher, with the orchestrator's key."""
        self.publisher = Publisher(
            self.client("owner"),
            self.run,
            corpus=self.corpus,
            blobs=self.blobs("publisher"),
            folder=self.folder / "out",
        )
        self.tasks["publisher"] = asyncio.create_task(self.publisher.work())

    def start_miner(self, name: str, cheat: Cheat | None = None, *, outbound_only: bool = False) -> Miner:
        """A miner under a registered name; nobody can connect to one that is outbound-only."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        miner = Miner(
            run=self.run,
            corpus=self.corpus,
            client=self.client(name),
            blobs=self.blobs(f"{name}/blobs"),
            folder=folder,
            address="" if outbound_only else f"{name}:1",
            cheat=cheat or Cheat(0.0),
        )
        hotkey, nonces, routes = FakeSigner(name).hotkey, MemoryNonceStore(), miner_routes.routes(miner)
        refusals = orchestrator_routes.REFUSALS
        if not outbound_only:
            self.peers.apps[f"{name}:1"] = application(routes, FakeVerifier(hotkey, nonces), refusals=refusals)
        forwarded = application(routes, FakeVerifier(hotkey, nonces, max_age_s=FORWARDED_AGE_S), refusals=refusals)
        letters = Letters(miner.client, forwarded, limit_bytes=bundle_limit_bytes(self.run))
        self.letters[name] = asyncio.create_task(letters.work())
        self.miners[name] = miner
        self.tasks[name] = asyncio.create_task(beside.work(miner))
        return miner

    def start_validator(
        self, name: str, kind: type[Validator] = Validator, *, transport: type[FakeTransport] = FakeTransport
    ) -> Validator:
        """A validator under a registered name; another kind is a dishonest one, another transport a worse network."""
        client = self.client(name, transport=transport)
        chain = FakeChain(self.chain, client.signer.hotkey, FakeSigner(f"{name}/coldkey").hotkey)
        validator = kind(chain, client, self.run, corpus=self.corpus)
        self.validators[name] = validator
        self.tasks[name] = asyncio.create_task(validator.work())
        return validator

    async def until(self, holds: Callable[[], bool], *, limit_s: float = LIMIT_S) -> None:
        """Return once `holds()`; a node's failure, or the limit, is raised."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + limit_s
        while not holds():
            for name, task in self.tasks.items():
                if task.done() and name != "publisher":
                    task.result()
            assert loop.time() < end_s, f"not within {limit_s} s: phase {self.state.phase} round {self.state.round}"
            await asyncio.sleep(0.05)

    async def kill(self, name: str) -> None:
        """End a node at once; nobody answers at its address any more."""
        task = self.tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if name in self.letters:
            self.letters.pop(name).cancel()
        self.peers.down.add(f"{name}:1")


@contextlib.asynccontextmanager
async def network(
    run: RunConfig,
    corpus: Corpus,
    folder: Path,
    *,
    num_miners: int,
    block_s: float = 0.1,
    stakes_rao: Sequence[int] = (DRAWS_ALL_RAO, DRAWS_NONE_RAO),
) -> AsyncIterator[Network]:
    """A network with the owner and validators seated, a chain that runs, an orchestrator and a publisher.

    stakes_rao: of validator-0, validator-1 and so on. A segment is drawn by each with its rate times the validator's
    part of the stake. As they are, validator-0 draws every segment whose rate is 1, except with a chance of 1e-6, and
    validator-1 comes to look at what is accused: no test hangs on who drew what.
    """
    initial_public(run, 0)  # loads what computes: later that would hold up the one event loop for seconds
    rules = FakeRules(tempo=20, block_time_s=block_s, genesis_time_s=time.time(), weights_rate_limit_blocks=5)
    chain = FakeNetwork(owner="owner", rules=rules)
    net = Network(run=run, corpus=corpus, folder=folder, chain=chain, num_miners=num_miners)
    net.seat("owner")
    for number, stake_rao in enumerate(stakes_rao):
        net.seat(f"validator-{number}", stake_rao=stake_rao)
    for number in range(num_miners):
        net.seat(f"miner-{number}")
    net.chain.advance()
    net.tasks["chain"] = asyncio.create_task(net.chain.run(every_s=block_s))
    try:
        await net.start_orchestrator()
        net.start_publisher()
        yield net
    finally:
        working = [*net.tasks.values(), *net.letters.values()]
        for miner in net.miners.values():
            if isinstance(miner.cheat, Held):
                miner.cheat.go.set()
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for miner in net.miners.values():
            miner.close()
