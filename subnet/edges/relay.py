"""The relay's memory: letters that wait for a receiver who comes for them, and senders who wait for the answers.

Everything is bounded: letters and bytes per receiver, letters per sender, bytes in all, and how long a letter lives.
Room for a letter and for its answer is taken before a byte of it is read. Nothing is kept once the sender has its
answer or has gone. Knows nothing of what letters say; they are checked by whoever reads them.
"""

import asyncio
import contextlib
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from msgspec.structs import replace

from subnet.wire.letter import Letter
from template.errors import RefusedRequest
from template.values import Hotkey

REFUSAL_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class RelayLimits:
    """How much one relay carries at once."""

    letters_per_receiver: int = 64
    letters_per_sender: int = 64
    bytes_per_receiver: int = 128 << 20
    bytes_in_all: int = 512 << 20
    bundle_bytes: int = 8 << 20  # a bundle ends with the letter that passes this
    life_s: float = 25.0
    away_s: float = 30.0  # a receiver that has not asked for this long is not there


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a receiver answered."""

    status: int
    body: bytes


@dataclass(kw_only=True)
class _Pending:
    """A letter under way, and the sender who waits for its answer."""

    letter: Letter
    receiver: Hotkey
    answer: "asyncio.Future[Answer]"


@dataclass(kw_only=True)
class _Box:
    """What waits for one receiver. `asked` is when it last came; `turn` counts its questions."""

    waiting: deque[int] = field(default_factory=deque)
    asked_s: float = float("-inf")
    turn: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """Carries letters between senders and receivers, both of whom come to it."""

    def __init__(self, limits: RelayLimits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or RelayLimits()
        self.carried = 0
        self._clock = clock
        self._numbers = itertools.count(1)
        self._boxes: dict[Hotkey, _Box] = {}
        self._pending: dict[int, _Pending] = {}
        self._letters_from: Counter[Hotkey] = Counter()
        self._letters_to: Counter[Hotkey] = Counter()
        self._bytes_to: Counter[Hotkey] = Counter()

    @property
    def held_bytes(self) -> int:
        """The room that is taken now."""
        return self._bytes_to.total()

    def waits_for(self, receiver: Hotkey) -> bool:
        """Whether a receiver has come for letters lately."""
        box = self._boxes.get(receiver)
        return box is not None and self._clock() - box.asked_s <= self.limits.away_s

    @contextlib.contextmanager
    def room(self, sender: Hotkey, receiver: Hotkey, size_bytes: int) -> Generator[None, None, None]:
        """Room for a letter with its answer while the block runs. Raises RefusedRequest when there is none."""
        self._check_room(sender, receiver, size_bytes)
        self._letters_from[sender] += 1
        self._letters_to[receiver] += 1
        self._bytes_to[receiver] += size_bytes
        try:
            yield
        finally:
            for counter, key, amount in (
                (self._letters_from, sender, 1),
                (self._letters_to, receiver, 1),
                (self._bytes_to, receiver, size_bytes),
            ):
                counter[key] -= amount
                if counter[key] <= 0:
                    del counter[key]

    def _check_room(self, sender: Hotkey, receiver: Hotkey, size_bytes: int) -> None:
        limits = self.limits
        if not self.waits_for(receiver):
            raise RefusedRequest(
                f"expected {receiver} to come for its letters, it has not asked for any within {limits.away_s:.0f} s; "
                "try again when it runs",
                word="receiver_away",
                status=503,
            )
        full = (
            self._letters_from[sender] >= limits.letters_per_sender
            or self._letters_to[receiver] >= limits.letters_per_receiver
            or self._bytes_to[receiver] + size_bytes > limits.bytes_per_receiver
            or self.held_bytes + size_bytes > limits.bytes_in_all
        )
        if full:
            raise RefusedRequest(
                f"expected room for a letter of {size_bytes} bytes to {receiver}, found the relay full; wait for the "
                "answers that are under way",
                word="relay_full",
                status=429,
                retry_after_s=1.0,
            )

    async def send(self, receiver: Hotkey, letter: Letter) -> Answer:
        """Have a letter taken and answered. Raises RefusedRequest when that does not happen while it lives."""
        number, box = next(self._numbers), self._boxes[receiver]
        numbered = Letter(head=replace(letter.head, number=number), body=letter.body)
        pending = _Pending(letter=numbered, receiver=receiver, answer=asyncio.get_running_loop().create_future())
        self._pending[number] = pending
        box.waiting.append(number)
        box.arrived.set()
        try:
            async with asyncio.timeout(self.limits.life_s):
                answer = await pending.answer
        except TimeoutError as error:
            raise RefusedRequest(
                f"expected an answer from {receiver} within {self.limits.life_s:.0f} s, found none; try again",
                word="relay_expired",
                status=504,
            ) from error
        finally:
            del self._pending[number]
            with contextlib.suppress(ValueError):
                box.waiting.remove(number)
        self.carried += 1
        return answer

    async def take(self, receiver: Hotkey, *, wait_s: float) -> list[Letter]:
        """The letters that wait for a receiver; waits for the first. A newer question ends the wait of an older one."""
        box = self._boxes.setdefault(receiver, _Box())
        box.turn += 1
        turn, box.asked_s = box.turn, self._clock()
        box.arrived.set()  # whoever asked before gives way: its connection may be dead
        box.arrived = asyncio.Event()
        if not box.waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await box.arrived.wait()
        if turn != box.turn:
            return []
        box.asked_s = self._clock()
        taken: list[Letter] = []
        size_bytes = 0
        while box.waiting and size_bytes < self.limits.bundle_bytes:
            letter = self._pending[box.waiting.popleft()].letter
            taken.append(letter)
            size_bytes += len(letter.body)
        return taken

    def expected_bytes(self, receiver: Hotkey, number: int) -> int:
        """How long the answer to a letter may be. Raises RefusedRequest when nobody waits for it from this receiver."""
        pending = self._pending.get(number)
        if pending is None or pending.receiver != receiver or pending.answer.done():
            raise RefusedRequest(
                f"expected the answer to a letter under way to {receiver}, found number {number}; its sender has gone, "
                "drop it",
                word="no_letter",
                status=404,
            )
        return answer_room(pending.letter.head.answer_bytes)

    def answer(self, receiver: Hotkey, number: int, answer: Answer) -> None:
        """Give a letter's sender its answer."""
        self.expected_bytes(receiver, number)
        self._pending[number].answer.set_result(answer)


def answer_room(answer_bytes: int) -> int:
    """The room that an answer needs: a refusal has its sentence, whatever was asked for."""
    return max(answer_bytes, REFUSAL_BYTES)
