"""One step of one lane: what two neighbours give each other, and what becomes of a microbatch that is not finished."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from subnet.cheats.base import Cheat
from subnet.cheats.equivocate import Equivocate
from subnet.config import RunConfig
from subnet.data.pack import microbatch
from subnet.nodes.inbox import Inbox
from subnet.nodes.lane import LaneStep
from subnet.stage.state import Replica
from subnet.wire.delivery import Key
from subnet.wire.messages import WIRE_VERSION, Plan
from template.errors import PeerUnreachable
from tests.audit.lane import corpus, lane_run

PATH = ("first", "last")
INDICES = (4, 5, 6)


@pytest.fixture
def run() -> RunConfig:
    small = lane_run(2)
    return replace(small, lanes=replace(small.lanes, norm_band_low=1e-12, norm_band_high=1e6))


def planned(run: RunConfig) -> Plan:
    return Plan(
        version=WIRE_VERSION, run_id=run.run_id, round=0, step=1, global_step=1, lane=0, path=PATH,
        microbatches=INDICES, wiring="0" * 64, deadline_ms=1,
    )  # fmt: skip


class Pair:
    """Both ends of a lane in one event loop; `down` are those whom nobody reaches."""

    def __init__(self, run: RunConfig, *, seconds: float = 30.0, cheat: Cheat | None = None) -> None:
        self.down: set[str] = set()
        until_s = asyncio.get_running_loop().time() + seconds
        self.steps = [
            LaneStep(
                run=run, plan=planned(run), stage=stage, replica=Replica(run, stage), corpus=corpus(),
                inbox=Inbox(run=run), cheat=(cheat if stage == 0 else None) or Cheat(0.0), deliver=self.deliver,
                compute=self.compute, until_s=until_s,
            )
            for stage in range(2)
        ]  # fmt: skip
        for step in self.steps:
            step.inbox.open(step.plan, step.stage)

    async def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def deliver(self, receiver: str, key: Key, frame: bytes, name: str) -> str:
        if receiver in self.down:
            raise PeerUnreachable(f"expected {receiver} to answer, found nobody")
        inbox = self.steps[PATH.index(receiver)].inbox
        slot = await inbox.slot(key, PATH[1 - PATH.index(receiver)])
        inbox.accept(key, slot, name, frame, line=b"line")
        return f"ack {key[2]} {key[3]}"

    def parameters(self, stage: int) -> bytes:
        return self.steps[stage].replica.stage.parameters_flat().tobytes()


async def test_both_ends_say_the_same_of_every_hop(run: RunConfig) -> None:
    pair = Pair(run)
    (first, norm), (last, other_norm) = await asyncio.gather(*(step.train() for step in pair.steps))
    assert [work.index for work in first] == [work.index for work in last] == list(INDICES)
    assert norm and other_norm and [step.replica.optimizer.steps for step in pair.steps] == [1, 1]
    for sent, got in zip(first, last, strict=True):
        assert sent.output == got.input and got.gradient_out == sent.gradient_in and len(sent.output) == 64
        assert (sent.output_ack, got.gradient_ack) == (f"ack {sent.index} activation", f"ack {sent.index} gradient")
        assert sent.loss is None and got.loss is not None and got.loss > 0
        assert (sent.gradient_out, sent.gradient_ack, got.output, got.gradient_in) == ("", "", "", "")


async def test_without_a_finished_microbatch_there_is_no_step(run: RunConfig) -> None:
    """A neighbour that says nothing until the deadline costs the step, and changes nothing."""
    pair = Pair(run, seconds=0.3)
    before = pair.parameters(1)
    assert await pair.steps[1].train() == ((), None)
    assert pair.steps[1].dropped == set(INDICES) and pair.steps[1].replica.optimizer.steps == 0
    assert pair.parameters(1) == before


def by_hand(run: RunConfig, indices: tuple[int, ...]) -> list[bytes]:
    """The parameters of both stages after a step over these microbatches of three planned ones."""
    first, last = (Replica(run, stage) for stage in range(2))
    planned_tokens = len(INDICES) * run.microbatch_tokens
    for index in indices:
        tokens, labels = microbatch(run, corpus(), index)
        last.stage.loss(index, first.stage.forward(index, torch.from_numpy(tokens)), torch.from_numpy(labels))
        first.stage.backward(index, last.stage.backward(index, None, planned_tokens), planned_tokens)
    for replica in (first, last):
        replica.step(1)
    return [replica.stage.parameters_flat().tobytes() for replica in (first, last)]


@pytest.mark.parametrize("dropped", [4, 5, 6])
async def test_a_dropped_microbatch_contributes_nothing_and_does_not_rescale_the_rest(
    run: RunConfig, dropped: int
) -> None:
    """As if the loss were of the others alone, over the tokens of all; bit for bit."""
    pair, left = Pair(run), tuple(index for index in INDICES if index != dropped)
    pair.steps[1].inbox.give_up((0, 1, dropped, "activation"))
    pair.steps[0].inbox.give_up((0, 1, dropped, "gradient"))
    works = [work for work, _ in await asyncio.gather(*(step.train() for step in pair.steps))]
    assert [tuple(work.index for work in each) for each in works] == [left, left]
    assert [step.dropped for step in pair.steps] == [{dropped}, {dropped}]
    assert [pair.parameters(stage) for stage in range(2)] == by_hand(run, left) != by_hand(run, INDICES)


async def test_a_neighbour_that_cannot_be_reached_is_not_waited_for(run: RunConfig) -> None:
    """Whoever did not get the activation sends no gradient: the step is over long before its deadline."""
    pair = Pair(run, seconds=3600.0)
    pair.down.add("last")
    async with asyncio.timeout(60.0):
        assert await pair.steps[0].train() == ((), None)
    assert pair.steps[0].dropped == set(INDICES)


async def test_what_was_sent_in_the_place_of_the_stated_frame_is_not_acknowledged(run: RunConfig) -> None:
    """The neighbour's signature is over other bytes than the receipt names: it proves nothing of these."""
    pair = Pair(run, cheat=Equivocate(0.2))
    (first, _), (last, _) = await asyncio.gather(*(step.train() for step in pair.steps))
    assert [work.output_ack for work in first] == [""] * 3
    assert all(sent.output != got.input for sent, got in zip(first, last, strict=True))


async def test_a_tensor_that_is_not_finite_drops_its_microbatch(run: RunConfig) -> None:
    class Broken(Cheat):
        """Loses one microbatch's loss."""

        def loss(self, honest, microbatch, inputs, labels):
            """Not a number."""
            found = honest(microbatch, inputs, labels)
            return float("nan") if microbatch == 5 else found

    pair = Pair(run)
    pair.steps[1].cheat = Broken(1.0)
    pair.steps[0].inbox.give_up((0, 1, 5, "gradient"))
    (first, _), (last, _) = await asyncio.gather(*(step.train() for step in pair.steps))
    assert [work.index for work in first] == [work.index for work in last] == [4, 6]
    assert [pair.parameters(stage) for stage in range(2)] == by_hand(run, (4, 6))
