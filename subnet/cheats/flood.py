"""`flood`: works honestly, and next to that sends what nobody asked for, as fast as it can.

To the orchestrator: malformed joins, receipts that it has signed before, of steps it was not planned for, oversized
ones. To its neighbours: deliveries that no plan foresees, too long ones, frames that are none. Of what it owes it
spoils some: frames with a number that is not finite. Strength: messages a second.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from subnet.canonical import digest
from subnet.cheats.base import Cheat, Line
from subnet.wire.frames import decode_frame, header_bytes
from subnet.wire.messages import WIRE_VERSION, Join, Message, Receipt

SPOILT_EVERY = 4  # one frame in so many
OVERSIZED = 1 << 18


class Flood(Cheat):
    """Drowns the others in messages."""

    default_strength = 20.0

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._frames = 0
        self._said: list[Receipt] = []
        self.taken: list[str] = []  # which kinds of junk somebody has accepted

    def deliver(self, honest: Callable[[bytes], bytes | None], frame: bytes) -> bytes | None:
        """Some with a number that is not finite."""
        self._frames += 1
        if self._frames % SPOILT_EVERY:
            return honest(frame)
        header, _ = decode_frame(frame, limit_bytes=len(frame))
        first = header_bytes(len(header.shape))
        return honest(frame[:first] + struct.pack("<f", float("nan")) + frame[first + 4 :])

    def receipt(self, honest: Callable[[Receipt], Receipt], receipt: Receipt) -> Receipt:
        """The honest one; the one before it is sent again later."""
        mine = honest(receipt)
        if mine.kind == "step":
            self._said = [*self._said[-1:], mine]
        return mine

    async def beside(self, line: Line) -> None:
        """Junk to everybody in turn."""
        pause_s = 1 / self.strength
        for number in itertools.count():
            for name, message in self._messages(line):
                if await line.say(message):
                    self.taken.append(name)
                await asyncio.sleep(pause_s)
            for neighbour in line.neighbours():
                for name, target, body in _deliveries(line.run.run_id, number):
                    if await line.post(neighbour, target, body):
                        self.taken.append(name)
                    await asyncio.sleep(pause_s)

    def _messages(self, line: Line) -> Iterator[tuple[str, Message]]:
        """Each with its name."""
        join = Join(
            version=WIRE_VERSION,
            run_id=line.run.run_id,
            hotkey=line.hotkey,
            address="junk",
            memory_bytes=-1,
            root="junk",
            time_ms=0,
        )
        yield "join", join
        if len(self._said) > 1:
            old = self._said[0]
            yield "repeated", old
            yield "unplanned", replace(old, previous="", plan="", step=old.step + 1)
            yield "oversized", replace(old, plan="ab" * OVERSIZED)


def _deliveries(run_id: str, number: int) -> Iterator[tuple[str, str, bytes]]:
    body = number.to_bytes(8, "little") * 8
    for name, length in (("unplanned", len(body)), ("too-long", 1 << 40)):
        yield (
            name,
            f"/v1/deliver?run={run_id}&round=0&step={number}&microbatch={number}&kind=gradient"
            f"&digest={digest(body)}&length={length}",
            body,
        )
