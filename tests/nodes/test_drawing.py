"""A validator draws at every draw block, also where the log never rests: on a slow chain every block brings work."""

import asyncio
import time

import pytest

from subnet.ledger.events import Said
from subnet.nodes.validator import Validator
from template.fake.chain import FakeChain
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config
from tests.nodes.served import MINERS, ServedRun, served
from tests.nodes.skipping import skipping
from tests.nodes.test_validator import validator_of

pytestmark = pytest.mark.flow

BLOCKS = 12
BLOCK_S = 12.0


def step(run: ServedRun) -> None:
    """A step of the run, which ends a segment of everybody, and then a block."""
    known = len(run.sim.events)
    run.sim.do_step()
    bodies = [event.body for event in run.sim.events[known:]]
    run.node.append([body.signed if isinstance(body, Said) else body for body in bodies])
    assert isinstance(run.node.chain, FakeChain)
    run.node.chain._network.advance(1)


async def drawn_after(validator: Validator, run: ServedRun) -> tuple[int, int]:
    """The last draw block that was done, and the chain's block, after some blocks with a new segment each."""
    work = asyncio.create_task(validator.work())
    for _ in range(BLOCKS):
        step(run)
        await run.node.look_at_chain()
        await asyncio.sleep(BLOCK_S)
    assert not work.done()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return validator.drawn_block, await validator.chain.block()


def test_a_log_that_never_rests_is_drawn_from_at_every_draw_block() -> None:
    async def scenario() -> None:
        sim = Simulation(run=run_config(steps=40, segment_steps=1), now_ms=time.time_ns() // 1_000_000 - 5_000)
        for name in MINERS:
            sim.seat(name)
        sim.start(*MINERS)
        run = await served(sim)
        validator = validator_of(run)
        drawn, block = await drawn_after(validator, run)
        assert drawn == block, "every block is a draw block here"
        drawn_from = {*validator.dues.waiting, *validator.dues.judged, *validator.dues.rests_until_s}
        assert len(drawn_from) > BLOCKS

    skipping(scenario())
