"""An orchestrator and a miner that answer, and do nothing else: over a simulated run, without a network or a thread."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from starlette.applications import Starlette

from subnet.audit.tensors import make_frame
from subnet.canonical import canonical, digest
from subnet.cheats.base import Cheat
from subnet.data.pack import Corpus
from subnet.edges.blobs import MemoryBlobs
from subnet.edges.ledger import SqlLedger
from subnet.ledger.state import state_digest
from subnet.merge.contribution import norm
from subnet.model.cost import parameters, spans
from subnet.nodes import miner_routes, orchestrator_routes
from subnet.nodes.client import ROUTES, RunClient
from subnet.nodes.inbox import Key, header_of
from subnet.nodes.miner import Miner
from subnet.nodes.miner_routes import deliver_target
from subnet.nodes.orchestrator import Orchestrator, Start
from subnet.wire.messages import WIRE_VERSION, Leave, Message, Plan, Signed, make_signed
from template.auth import NonceStore, Signer
from template.fake.chain import FakeChain, FakeNetwork
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.web import application
from tests.ledger.log import STAKE_RAO, hotkey, signer
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

MINERS = ("ann", "ben", "cem", "dov")
STORE_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request, ready to be signed by whoever."""

    method: str
    target: str
    body: bytes
    name: str  # who is to sign it
    receiver: str

    def headers(self, by: Signer | None = None, **changes: str) -> dict[str, str]:
        """The honest headers, or those with another signer, method, target or receiver."""
        values = {"method": self.method, "target": self.target, "receiver": self.receiver, **changes}
        who = by or FakeSigner(self.name)
        return who.sign_request(values["method"], values["target"], values["receiver"])


@dataclass(kw_only=True)
class ServedRun:
    """A simulated run in some phase, and the orchestrator that answers for it."""

    sim: Simulation
    node: Orchestrator
    app: Starlette

    @property
    def facts(self) -> tuple[Any, ...]:
        """Everything that a refused request may not change."""
        node = self.node
        return node.ledger.count, node.ledger.root, state_digest(node.state), node.store.digests(), dict(node.polled)

    def restarted(self, nonces: NonceStore) -> "ServedRun":
        """The same orchestrator behind a server that has just started, over the same store of nonces."""
        return ServedRun(sim=self.sim, node=self.node, app=orchestrator_app(self.node, nonces))


def orchestrator_app(node: Orchestrator, nonces: NonceStore | None = None) -> Starlette:
    """The orchestrator's routes behind a server of their own."""
    verifier = FakeVerifier(node.signer.hotkey, nonces)
    return application(orchestrator_routes.routes(node), verifier, refusals=orchestrator_routes.REFUSALS)


def simulated(phase: str) -> Simulation:
    """A run of four miners, now, in this phase; everybody has a segment."""
    sim = Simulation(run=run_config(rounds=2), now_ms=time.time_ns() // 1_000_000 - 5_000)
    for name in (*MINERS, "eva"):
        sim.seat(name)
    sim.start(*MINERS)
    sim.do_step()
    sim.do_step()
    sim.judge("ann", validators=("validator-1",))  # a fail for others to recheck
    while sim.state.phase != phase:
        {"train": sim.do_step, "close": lambda: close(sim)}[sim.state.phase]()
    return sim


def contribution(sim: Simulation, name: str) -> bytes:
    """A contribution of the right size, with a norm of its own."""
    stage = sim.state.members[hotkey(name)].stage or 0
    values = np.zeros(parameters(sim.run, spans(sim.run)[stage]), dtype="<f4")
    values[MINERS.index(name)] = 0.5
    return values.tobytes()


def close(sim: Simulation) -> None:
    """Everybody closes with a contribution that exists; the store has none of them yet but the ledger says so."""
    for name in MINERS:
        data = contribution(sim, name)
        claimed = norm(np.frombuffer(data, dtype="<f4"))
        receipt = sim.close_receipt(name, contribution=digest(data), contribution_norm=claimed)
        sim.say(name, receipt)
        sim.stored.add(receipt.contribution)
    sim.decide()


async def served(sim: Simulation, nonces: NonceStore | None = None) -> ServedRun:
    """The orchestrator of a simulated run."""
    network = FakeNetwork(owner="owner")
    for name, cold in sim.seats.items():
        stake_rao = STAKE_RAO if name in sim.validators else 0
        network.add(hotkey(name), hotkey(cold), stake_rao=stake_rao, permit=name in sim.validators)
    network.advance(max(0, sim.block - network.number))
    ledger = SqlLedger("sqlite://")
    ledger.copy(sim.events)
    owner = FakeSigner("owner")
    node = Orchestrator(
        FakeChain(network, owner.hotkey, hotkey("owner/coldkey")),
        ledger,
        store=MemoryBlobs(limit_bytes=STORE_BYTES),
        signer=owner,
        verifier=FakeVerifier(owner.hotkey),
        start=Start(num_miners=4, patience_s=1.0),
    )
    await node.open(sim.run)
    return ServedRun(sim=sim, node=node, app=orchestrator_app(node, nonces))


def message_request(name: str, message: Message, *, signed: Signed | None = None, route: str = "") -> Request:
    """A message to the orchestrator on the route of its kind."""
    said = signed or make_signed(message, signer(name))
    body = canonical(said)
    target = f"{route or ROUTES[said.kind]}?digest={digest(body)}&length={len(body)}"
    return Request(method="POST", target=target, body=body, name=name, receiver=hotkey("owner"))


def blob_request(name: str, data: bytes) -> Request:
    """A blob for the run's store."""
    target = f"/v1/blobs/{digest(data)}?length={len(data)}"
    return Request(method="PUT", target=target, body=data, name=name, receiver=hotkey("owner"))


def leave_message(sim: Simulation, name: str) -> Leave:
    """A miner's leave."""
    message: Leave = sim.of(Leave, hotkey=hotkey(name), time_ms=sim.now_ms)
    return message


@dataclass(kw_only=True)
class ServedMiner:
    """A miner in a lane: it expects the frames of one plan."""

    miner: Miner
    plan: Plan
    stage: int
    app: Starlette
    nonces: NonceStore | None = None
    frames: dict[Key, bytes] = field(default_factory=dict)

    @property
    def facts(self) -> tuple[Any, ...]:
        """Everything that a refused delivery may not change."""
        inbox = self.miner.inbox
        slots = {key: (slot.sender, slot.digest, slot.arrived.done()) for key, slot in inbox.slots.items()}
        return self.miner.blobs.digests(), slots, set(inbox.payloads)

    def key(self, position: int = 0, kind: str = "activation") -> Key:
        """The place of a frame of the plan."""
        return self.plan.round, self.plan.step, self.plan.microbatches[position], kind

    def frame(self, key: Key, *, scale: float = 1.0) -> bytes:
        """A fit frame, of its own for each place and scale."""
        header = header_of(self.miner.run, key)
        values = np.arange(np.prod(header.shape), dtype=np.float32).reshape(header.shape)
        return make_frame(header, (values % 97 / 97 + key[2]) * np.float32(scale))

    def request(self, key: Key, frame: bytes, *, name: str = "before", **changes: Any) -> Request:
        """A delivery, with changes of its target's parts."""
        values = {"run_id": self.miner.run.run_id, "key": key, "name": digest(frame), "length_bytes": len(frame)}
        target = deliver_target(**(values | changes))
        return Request(method="POST", target=target, body=frame, name=name, receiver=hotkey("me"))


def served_miner(tmp_path: Path, *, stages: int = 2, stage: int = 1, nonces: NonceStore | None = None) -> ServedMiner:
    """A miner called "me" that holds this stage of one lane; "before" and "after" are its neighbours."""
    run = replace(run_config(stages=stages), lanes=replace(run_config().lanes, norm_band_low=1e-3, norm_band_high=1e3))
    me = FakeSigner("me")
    client = RunClient(
        FakeTransport(FakePeers(), me), "orchestrator:1", hotkey("owner"), signer=me, verifier=FakeVerifier(me.hotkey)
    )
    miner = Miner(
        run=run,
        corpus=Corpus(tokens=np.zeros(1, dtype=np.uint16), digest="0" * 64, vocabulary=259),
        client=client,
        blobs=MemoryBlobs(limit_bytes=STORE_BYTES),
        folder=tmp_path,
        address="me:1",
        cheat=Cheat(0.0),
    )
    names = {stage - 1: "before", stage: "me", stage + 1: "after"}
    plan = Plan(
        version=WIRE_VERSION,
        run_id=run.run_id,
        round=0,
        step=3,
        global_step=3,
        lane=0,
        path=tuple(hotkey(names.get(number, f"other-{number}")) for number in range(stages)),
        microbatches=(6, 7),
        wiring="0" * 64,
        deadline_ms=1,
    )
    miner.inbox.plan_wait_s = 0.0
    miner.inbox.open(plan, stage)
    verifier = FakeVerifier(me.hotkey, nonces)
    app = application(miner_routes.routes(miner), verifier, refusals=orchestrator_routes.REFUSALS)
    return ServedMiner(miner=miner, plan=plan, stage=stage, app=app)
