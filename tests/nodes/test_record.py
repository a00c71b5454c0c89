"""The orchestrator's record on the chain: there once per round, and there again when a reorganisation dropped it."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from subnet.cli.ledger import look_up
from subnet.ledger.record import Record, make_record
from template.values import Record as OnChain
from tests.nodes.served import ServedRun, served, simulated


async def lived(run: ServedRun, change: Callable[[], None]) -> list[int]:
    """Let the chain change, and the orchestrator see some blocks more; where the ledger's commitments then stand."""
    watching = asyncio.create_task(run.node._watch_chain())
    change()
    for _ in range(12):
        run.node.chain._network.advance()
        await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return [each.block for each in run.node.state.commitments]


@pytest.fixture
async def run() -> ServedRun:
    """A run whose begin and whose round are committed."""
    run = await served(simulated("train"))
    assert len(await lived(run, lambda: None)) == 2
    return run


async def test_a_record_that_stands_is_not_committed_again(run: ServedRun) -> None:
    before = [each.block for each in run.node.state.commitments]
    assert await lived(run, lambda: None) == before


@pytest.mark.parametrize("left", ["nothing", "the one before"])
async def test_a_record_that_the_chain_lost_is_committed_again(
    left: str, run: ServedRun, caplog: pytest.LogCaptureFixture
) -> None:
    """The log then has both places, and a look-up finds the one that stands."""
    network, node = run.node.chain._network, run.node
    earlier, last = node.state.commitments[0], node.state.commitments[-1]
    record = network.records[node.chain.hotkey]

    def fork() -> None:
        network.commit_log.pop((record.block, 1))
        network.records.pop(node.chain.hotkey)
        if left == "the one before":
            data = make_record(
                Record(run_id=node.state.config.run_id, round=earlier.round, root=earlier.root, count=earlier.count)
            )
            network.records[node.chain.hotkey] = OnChain(
                hotkey=node.chain.hotkey, data=data, block=earlier.block, extrinsic_index=1
            )

    with caplog.at_level(logging.WARNING, "strata.orchestrator"):
        blocks = await lived(run, fork)
    assert [message for message in caplog.messages if message.startswith("record=lost")] == [
        f"record=lost round={last.round} block={last.block}; committed again"
    ]
    again = node.state.commitments[-1]
    assert (again.root, again.count) == (last.root, last.count) and again.block == blocks[-1] > last.block
    assert network.records[node.chain.hotkey].block == again.block
    assert await look_up(node.chain, node.events, node.chain.hotkey) == 2


async def test_another_run_s_record_is_left_alone(run: ServedRun) -> None:
    """Two orchestrators of one hotkey would otherwise replace each other's for ever."""
    before = [each.block for each in run.node.state.commitments]
    foreign = make_record(Record(run_id="ab" * 32, round=0, root="cd" * 32, count=1))
    await run.node.chain.commit(foreign)
    assert await lived(run, lambda: None) == before
    assert (await run.node.chain.read_commit(run.node.chain.hotkey)).data == foreign
