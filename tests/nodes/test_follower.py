"""The follower's copy of the ledger: what it takes, and that it takes nobody's word for another's."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from subnet.errors import LedgerError
from subnet.ledger.events import Event, Said, make_event
from subnet.nodes.client import RunClient
from subnet.nodes.follower import Follower
from subnet.wire.messages import WIRE_VERSION, Head, make_signed
from template.fake.keys import FakeVerifier
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config


class Served(RunClient):
    """An orchestrator's log, handed over as it is."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = tuple(events)
        self.verifier = FakeVerifier(hotkey("validator-0"))

    async def ledger(self, first: int, *, wait_s: float = 0.0) -> tuple[Head, tuple[Event, ...]]:
        last = self.events[-1]
        head = Head(version=WIRE_VERSION, run_id="", root=last.digest, count=last.n + 1, time_ms=last.time_ms)
        return head, self.events[first:]


def log_of(sim: Simulation, said: Said) -> list[Event]:
    return [*sim.events, make_event(said, n=sim.state.count, previous=sim.state.root, time_ms=sim.now_ms)]


async def test_a_message_that_its_author_did_not_sign_is_proof_against_the_orchestrator():
    """The log is the orchestrator's, but a forged receipt would be audited, and refuted, as its miner's."""
    sim = Simulation(run=run_config())
    sim.start("ann", "ben")
    honest = make_signed(sim.step_receipt("ann"), signer("ann"))
    follower = Follower(Served(log_of(sim, Said(signed=honest))), sim.run)
    await follower.catch_up()
    assert follower.orchestrator_faults == [] and honest.digest in follower.state.receipts
    forged = replace(honest, signature=make_signed(sim.step_receipt("ann"), signer("ben")).signature)
    with pytest.raises(LedgerError, match="found another signature"):
        await Follower(Served(log_of(sim, Said(signed=forged))), sim.run).catch_up()


async def test_a_message_under_anothers_name_is_the_orchestrators_fault():
    sim = Simulation(run=run_config())
    sim.start("ann", "ben")
    lie = Said(signed=make_signed(sim.step_receipt("ann"), signer("owner")))
    follower = Follower(Served(log_of(sim, lie)), sim.run)
    await follower.catch_up()
    (fault,) = follower.orchestrator_faults
    assert f"a receipt of {hotkey('ann')} is signed by {hotkey('owner')}" in fault


async def test_a_genuine_message_that_is_logged_again_is_the_orchestrators_fault():
    sim = Simulation(run=run_config())
    sim.start("ann", "ben")
    joined = next(e.body for e in sim.events if isinstance(e.body, Said) and e.body.signed.hotkey == hotkey("ann"))
    follower = Follower(Served(log_of(sim, joined)), sim.run)
    await follower.catch_up()
    (fault,) = follower.orchestrator_faults
    assert f"a join of {hotkey('ann')} is logged again" in fault
