"""What a miner's lane neighbours deliver: which frames are planned, which have come, and who waits for them.

A delivery that no plan foresees, from another sender, of another length, or a second one with another digest, is
refused. Knows nothing of HTTP, of signatures, or of what tensors mean.
"""

import asyncio
from dataclasses import dataclass, field

import numpy as np

from subnet.audit.tensors import Activation, frame_header, read_frame
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.errors import FrameError, InputError, RefusedError
from subnet.wire.delivery import Key, inbound
from subnet.wire.frames import FrameHeader
from subnet.wire.messages import Plan, Receipt

PLAN_WAIT_S = 5.0  # a neighbour may have its plan a moment before we have ours


@dataclass(kw_only=True)
class Slot:
    """One expected frame: who may send it, what came, and the sender's signed line for it."""

    sender: str
    arrived: asyncio.Future[tuple[str, Activation]]  # digest of the frame, its tensor
    digest: str = ""
    line: bytes = b""


@dataclass(kw_only=True)
class Inbox:
    """The frames of the steps in progress."""

    run: RunConfig
    plan_wait_s: float = PLAN_WAIT_S
    slots: dict[Key, Slot] = field(default_factory=dict)
    payloads: set[str] = field(default_factory=set)  # digests of this step's tensors: none may come twice
    _planned: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self, plan: Plan, stage: int) -> None:
        """Expect the frames of a plan in which we hold `stage`; older steps are forgotten."""
        loop = asyncio.get_running_loop()
        self.slots.clear()
        self.payloads.clear()
        for index in plan.microbatches:
            if stage > 0:
                key = (plan.round, plan.step, index, "activation")
                self.slots[key] = Slot(sender=plan.path[stage - 1], arrived=loop.create_future())
            if stage < self.run.stages - 1:
                key = (plan.round, plan.step, index, "gradient")
                self.slots[key] = Slot(sender=plan.path[stage + 1], arrived=loop.create_future())
        planned, self._planned = self._planned, asyncio.Event()
        planned.set()

    async def slot(self, key: Key, sender: str) -> Slot:
        """The slot of a delivery that is just beginning. Raises RefusedError when no plan foresees it."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self.plan_wait_s
        while key not in self.slots and loop.time() < end_s:
            try:
                async with asyncio.timeout_at(end_s):
                    await self._planned.wait()
            except TimeoutError:
                break
        slot = self.slots.get(key)
        if slot is None or slot.sender != sender:
            raise RefusedError(
                f"expected a planned delivery, found a {key[3]} of microbatch {key[2]} in round {key[0]} step {key[1]} "
                f"from {sender}; deliver what the plan says"
            )
        return slot

    def accept(self, key: Key, slot: Slot, name: str, frame: bytes, *, line: bytes) -> None:
        """Take a frame of digest `name`, delivered under this signed line.

        Raises FrameError or InputError, and keeps nothing, when it is unfit.
        An unfit frame is what its sender signed, so there is no second try: whoever waits for it drops the microbatch.
        """
        if slot.arrived.done():
            if slot.digest != name:
                raise RefusedError(
                    f"expected one {key[3]} of microbatch {key[2]}, found a second of another digest; stop"
                )
            return
        try:
            tensor = read_frame(header_of(self.run, key), frame)
            content = digest(tensor.tobytes())
            check_input(self.run, tensor, repeated=content in self.payloads)
        except (FrameError, InputError) as error:
            _give_up(slot, f"expected a fit frame, found another ({error}); drop the microbatch")
            raise
        self.payloads.add(content)
        slot.digest, slot.line = name, line
        slot.arrived.set_result((name, tensor))

    def give_up(self, key: Key) -> None:
        """Nothing will come for this key: whoever waits for it drops the microbatch."""
        slot = self.slots.get(key)
        if slot is not None and not slot.arrived.done():
            _give_up(slot, f"expected a frame for {key}, the neighbour refused ours; drop it")

    def lines(self, receipt: Receipt) -> bytes:
        """The signed lines of what this step's receipt says came in: the senders' word for it."""
        return b"".join(self.slots[key].line for key, _ in inbound(receipt))

    async def take(self, key: Key, *, until_s: float) -> tuple[str, Activation]:
        """Wait for a frame until the event loop's time `until_s`. Raises TimeoutError, or InputError when given up."""
        async with asyncio.timeout_at(until_s):
            return await asyncio.shield(self.slots[key].arrived)


def _give_up(slot: Slot, sentence: str) -> None:
    slot.arrived.set_exception(InputError(sentence))
    slot.arrived.exception()  # seen: nobody needs to wait for it


def check_input(run: RunConfig, tensor: Activation, *, repeated: bool) -> None:
    """Raise InputError for a tensor outside the norm band, one of identical rows, or one that came before.

    (Values that are not finite are refused by the codec.)
    """
    rms = float(np.sqrt(np.mean(np.square(tensor, dtype=np.float64))))
    low, high = run.lanes.norm_band_low, run.lanes.norm_band_high
    if not low <= rms <= high:
        raise InputError(f"expected a root mean square from {low:g} to {high:g}, found {rms:g}; drop the microbatch")
    rows = tensor.reshape(-1, tensor.shape[-1])
    if len(rows) > 1 and bool((rows == rows[0]).all()):
        raise InputError("expected rows that differ, found one row repeated; drop the microbatch")
    if repeated:
        raise InputError("expected a new tensor, found one that this step had already; drop the microbatch")


def header_of(run: RunConfig, key: Key) -> FrameHeader:
    """The header of the frame for one key."""
    round_number, step, microbatch, kind = key
    return frame_header(run, round=round_number, step=step, microbatch=microbatch, kind=kind)
