"""One step of one lane, as one of its miners does it: 1F1B over the planned microbatches, then one inner step.

Waits for frames, computes in the compute thread, sends on, and collects what the receipt will say. A microbatch that
cannot be finished is dropped and does not rescale the rest. Knows nothing of rounds, ledgers or merges.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from subnet.audit.tensors import Activation, make_frame, tokens_digest
from subnet.canonical import digest
from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.data.pack import Corpus, microbatch
from subnet.errors import InputError
from subnet.nodes.inbox import Inbox, header_of
from subnet.stage.pipeline import one_forward_one_backward
from subnet.stage.state import Replica
from subnet.wire.delivery import Key
from subnet.wire.messages import Plan, Work
from template.errors import TransportError

log = logging.getLogger("strata.miner")

MARGIN_FRAC = 0.1  # of a step's time, kept for the inner step and the receipt


@runtime_checkable
class Deliver(Protocol):
    """Send a frame to a lane neighbour; its signature over the delivery. Raises TransportError kinds."""

    async def __call__(self, receiver: str, key: Key, frame: bytes, name: str) -> str: ...


@runtime_checkable
class Compute(Protocol):
    """Run a function in the one thread that computes."""

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any: ...


@dataclass(kw_only=True)
class Draft:
    """What the receipt will say of one microbatch, as it becomes known."""

    input: str = ""
    output: str = ""
    gradient_in: str = ""
    gradient_out: str = ""
    loss: float | None = None
    finished: bool = False
    acks: dict[str, str] = field(default_factory=dict)  # by kind


@dataclass(kw_only=True)
class LaneStep:
    """The step in progress of the replica that holds `stage` in the plan's path."""

    run: RunConfig
    plan: Plan
    stage: int
    replica: Replica
    corpus: Corpus
    inbox: Inbox
    cheat: Cheat
    deliver: Deliver
    compute: Compute
    until_s: float  # by the event loop's clock
    drafts: dict[int, Draft] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    sends: list[asyncio.Task[None]] = field(default_factory=list)

    async def train(self) -> tuple[tuple[Work, ...], float | None]:
        """All microbatches that can be done by the deadline, and the inner step: (work, gradient norm).

        Without a finished microbatch there is no inner step, and no norm.
        """
        self.drafts = {index: Draft() for index in self.plan.microbatches}
        actions = one_forward_one_backward(self.stage, self.run.stages, len(self.plan.microbatches))
        for action in actions:
            index = self.plan.microbatches[action.position]
            if index not in self.dropped:
                await self._one(index, self._forward if action.kind == "F" else self._backward)
        finished = [index for index, draft in self.drafts.items() if draft.finished]
        norm = await self._inner_step() if finished else None
        await self._settle()
        return tuple(self._work(index) for index in finished) if norm is not None else (), norm

    async def _one(self, index: int, action: Callable[[int], Awaitable[None]]) -> None:
        try:
            await action(index)
        except (TimeoutError, InputError) as error:
            self.dropped.add(index)
            await self.compute(self.replica.stage.drop, index)
            log.warning("microbatch=%d dropped=%r", index, str(error) or "no frame in time")

    async def _inner_step(self) -> float | None:
        try:
            norm = await self.compute(self.cheat.optimizer_step, self.replica.step, self.plan.global_step)
        except InputError as error:
            log.warning("step=%d dropped=%r", self.plan.step, str(error))
            await self.compute(self.replica.stage.zero_gradients)
            return None
        return float(norm)

    async def _forward(self, index: int) -> None:
        draft, last = self.drafts[index], self.stage == self.run.stages - 1
        tokens, labels = microbatch(self.run, self.corpus, index)
        if self.stage == 0:
            draft.input, inputs = tokens_digest(tokens), torch.from_numpy(tokens)
        else:
            draft.input, tensor = await self.inbox.take(self._key(index, "activation"), until_s=self.until_s)
            inputs = torch.from_numpy(tensor)
        if last:
            loss = await self.compute(self.cheat.loss, self.replica.stage.loss, index, inputs, torch.from_numpy(labels))
            if not (math.isfinite(loss) and loss >= 0):
                raise InputError(f"expected a finite loss, found {loss}; drop the microbatch")
            draft.loss = float(loss)
            return
        output = await self.compute(self.cheat.forward, self.replica.stage.forward, index, inputs)
        draft.output = self._send(index, "activation", output.numpy(), to=self.stage + 1)

    async def _backward(self, index: int) -> None:
        draft, gradient = self.drafts[index], None
        if self.stage < self.run.stages - 1:
            draft.gradient_in, tensor = await self.inbox.take(self._key(index, "gradient"), until_s=self.until_s)
            gradient = torch.from_numpy(tensor)
        result = await self.compute(
            self.cheat.backward, self.replica.stage.backward, index, gradient, self._planned_tokens()
        )
        draft.finished = True
        if result is not None and self.stage > 0:
            draft.gradient_out = self._send(index, "gradient", result.numpy(), to=self.stage - 1)

    def _planned_tokens(self) -> int:
        return len(self.plan.microbatches) * self.run.microbatch_tokens

    def _send(self, index: int, kind: str, tensor: Activation, *, to: int) -> str:
        """Start sending a tensor to the neighbour; the digest of its frame."""
        key = self._key(index, kind)
        frame = make_frame(header_of(self.run, key), np.ascontiguousarray(tensor))
        name = digest(frame)
        self.sends.append(asyncio.create_task(self._delivered(key, frame, name, to)))
        return name

    async def _delivered(self, key: Key, frame: bytes, name: str, to: int) -> None:
        sent = self.cheat.deliver(lambda same: same, frame)
        if sent is None:
            return
        try:
            ack = await self.deliver(self.plan.path[to], key, sent, digest(sent))
        except TransportError as error:
            log.warning("microbatch=%d undelivered=%s to=%s reason=%r", key[2], key[3], self.plan.path[to], str(error))
            if key[3] == "activation":
                self.inbox.give_up(self._key(key[2], "gradient"))
            return
        if digest(sent) == name:
            self.drafts[key[2]].acks[key[3]] = ack

    async def _settle(self) -> None:
        """Wait for the neighbours' acknowledgements until the deadline."""
        if self.sends:
            loop = asyncio.get_running_loop()
            await asyncio.wait(self.sends, timeout=max(0.0, self.until_s - loop.time()))
        for task in self.sends:
            task.cancel()

    def _key(self, index: int, kind: str) -> Key:
        return self.plan.round, self.plan.step, index, kind

    def _work(self, index: int) -> Work:
        draft = self.drafts[index]
        return Work(
            index=index,
            input=draft.input,
            output=draft.output,
            output_ack=draft.acks.get("activation", ""),
            gradient_in=draft.gradient_in,
            gradient_out=draft.gradient_out,
            gradient_ack=draft.acks.get("gradient", ""),
            loss=draft.loss,
        )
