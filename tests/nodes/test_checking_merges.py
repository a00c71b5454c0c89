"""A validator merges again where all replicas of a stage disagree with the manifest, from public bytes, once."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from subnet.canonical import digest
from subnet.errors import BlobMissing, MessageError, UnreachableError
from subnet.ledger.closed import DISSENT
from subnet.merge.contribution import norm
from subnet.nodes.checking_merges import MOST_TRIES, MergeChecks
from subnet.nodes.client import RunClient
from subnet.nodes.clock import now_ms
from subnet.nodes.merging import merge_stage
from subnet.stage.layout import PublicState, StateLayout, public_from_bytes, public_to_bytes
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import Merged, Message
from template.errors import PeerRefused, PeerUnreachable
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

MINERS = ("ann", "ben", "cem", "dov")


@dataclass(kw_only=True)
class Merging(Simulation):
    """A run whose public states and contributions exist."""

    states: dict[tuple[int, int], bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def merged(self, name: str, stage: int, *, round_number: int | None = None, root: str = "") -> Merged:
        number = self.state.round + 1 if round_number is None else round_number
        data = self.states[number, stage]
        values: dict[str, Any] = {"root": root or merkle_root(data), "state_bytes": len(data), "time_ms": self.now_ms}
        return self.of(Merged, hotkey=hotkey(name), round=number, stage=stage, **values)

    async def fetch(self, name: str, size: int) -> bytes:
        return self.blobs[name]


class Store(RunClient):
    """The run's store and ledger as the validator reaches them."""

    def __init__(self, sim: Merging, name: str) -> None:
        self.sim, self.name, self.signer = sim, name, signer(name)
        self.asked = 0
        self.faults: dict[str, Exception] = {}  # by what is asked for

    def _fail(self, where: str) -> None:
        if where in self.faults:
            raise self.faults[where]

    async def state(self, root: str, size_bytes: int, **_: Any) -> bytes:
        self.asked += 1
        self._fail("state")
        return next(data for data in self.sim.states.values() if merkle_root(data) == root)

    async def get(self, name: str, *, limit_bytes: int) -> bytes:
        self._fail("get")
        if name not in self.sim.blobs:
            raise BlobMissing(f"expected the blob {name[:12]}, found none; fetch it later")
        return self.sim.blobs[name]

    async def say(self, message: Message, *, patience_s: float | None = None) -> int:
        self._fail("say")
        self.sim.say(self.name, message)
        return self.sim.state.count - 1


async def disputed() -> tuple[Merging, int]:
    """Both replicas of Ann's stage say that they merged to another state than the publisher did; and that stage."""
    sim = Merging(run=run_config(rounds=2), validators=("validator-0", "validator-1"))
    layouts = [StateLayout(sim.run, stage) for stage in range(sim.run.stages)]
    for stage, layout in enumerate(layouts):
        start = np.full(layout.num_parameters, 1.0 + stage, dtype=np.float32)
        state = PublicState(parameters=start, outer_momentum=np.zeros_like(start))
        sim.states[0, stage] = public_to_bytes(layout, state)
    sim.start(*MINERS)
    while sim.state.phase == "train":
        sim.do_step()
    for number, name in enumerate(MINERS):
        layout = layouts[sim.state.members[hotkey(name)].stage or 0]
        data = np.full(layout.num_parameters, 0.5 + number, dtype="<f4").tobytes()
        sim.blobs[digest(data)] = data
        claimed = norm(np.frombuffer(data, dtype="<f4"))
        if sim.trained(name):
            sim.say(name, sim.close_receipt(name, contribution=digest(data), contribution_norm=claimed))
            sim.stored.add(digest(data))
    sim.decide()
    for stage, layout in enumerate(layouts):
        public = public_from_bytes(layout, sim.states[0, stage])
        sim.states[1, stage] = await merge_stage(sim.run, sim.state.closed[0, stage], public, fetch=sim.fetch)
    stage = sim.state.members[hotkey("ann")].stage or 0
    liars = [name for name in MINERS if sim.state.members[hotkey(name)].stage == stage]
    for name in liars:
        sim.say(name, sim.merged(name, stage, root="e" * 64))
    sim.do_merge(silent=liars)
    sim.now_ms = now_ms()  # the validator's own clock dates what it says
    return sim, stage


async def test_two_validators_that_merge_again_take_the_liars_round() -> None:
    sim, stage = await disputed()
    for name in ("validator-0", "validator-1"):
        assert not any(segment.forfeit for segment in sim.segments("ann"))
        checks = MergeChecks(store := Store(sim, name), sim.run)
        assert checks.due(sim.state) == [(1, stage)]
        await checks.look(sim.state)
        assert sim.state.merged[1, stage][hotkey(name)].root == sim.state.manifests[1].stages[stage].root
        assert checks.due(sim.state) == []
        await checks.look(sim.state)
        assert store.asked == 1
    assert {segment.forfeit for segment in sim.segments("ann") if segment.round == 0} == {DISSENT}
    assert MergeChecks(Store(sim, "ann"), sim.run).due(sim.state) == []


async def test_a_merge_that_cannot_be_computed_here_is_no_judgement() -> None:
    """A blob that the store has lost is not the miner's fault; it is tried a few times."""
    sim, stage = await disputed()
    sim.blobs.clear()
    checks = MergeChecks(store := Store(sim, "validator-0"), sim.run, retry_s=0.0)
    for _ in range(MOST_TRIES + 2):
        await checks.look(sim.state)
    assert store.asked == MOST_TRIES and checks.due(sim.state) == []
    assert hotkey("validator-0") not in sim.state.merged[1, stage]


PASSING = [
    UnreachableError("expected the store to answer within 120 s; found nobody"),
    MessageError("expected an answer of the orchestrator, found another server's; wait"),
    PeerUnreachable("expected a connection to orchestrator:1, found none; wait"),
    PeerRefused("expected room, found none; wait", status=503, word="full"),
    PeerRefused("expected fewer requests, found too many; wait", status=429, word="busy"),
]


@pytest.mark.parametrize("where", ["state", "get", "say"])
@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{type(fault).__name__}{getattr(fault, 'status', '')}")
async def test_an_outage_uses_up_no_try_however_long_it_lasts(fault: Exception, where: str) -> None:
    """Else ten minutes without a network would leave a lie unsettled for ever."""
    sim, stage = await disputed()
    checks = MergeChecks(store := Store(sim, "validator-0"), sim.run, retry_s=0.0)
    store.faults[where] = fault
    for _ in range(3 * MOST_TRIES):
        await checks.look(sim.state)
    assert checks.due(sim.state) == [(1, stage)]
    store.faults.clear()
    await checks.look(sim.state)
    assert hotkey("validator-0") in sim.state.merged[1, stage] and checks.due(sim.state) == []


async def test_a_merge_that_failed_rests_and_others_are_looked_at_meanwhile() -> None:
    """What one stage's blobs cost does not keep another stage's lie from being found."""
    sim, stage = await disputed()
    other = next(name for name in MINERS if sim.state.members[hotkey(name)].stage != stage)
    sim.state.merged[1, 1 - stage].pop(hotkey(other))
    sim.say(other, sim.merged(other, 1 - stage, round_number=1, root="f" * 64))
    sim.now_ms = now_ms()
    checks = MergeChecks(store := Store(sim, "validator-0"), sim.run, retry_s=3600.0)
    store.faults["state"] = PASSING[0]
    await checks.look(sim.state)
    store.faults.clear()
    assert checks.due(sim.state) == [(1, stage), (1, 1 - stage)]
    await checks.look(sim.state)
    assert checks.due(sim.state) == [(1, stage)], "the first rests"
    await checks.look(sim.state)
    assert store.asked == 2 and checks.due(sim.state) == [(1, stage)]
