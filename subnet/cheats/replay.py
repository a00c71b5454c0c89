"""`replay`: reuses what was used before: frames of an earlier step, and receipts that it has signed already.

It computes until it has one frame of each kind and one receipt, and then sends those again. Strength: the part of its
frames and receipts that are old ones.
"""

from collections.abc import Callable

from subnet.cheats.base import Cheat
from subnet.wire.frames import decode_frame
from subnet.wire.messages import Receipt


class Replay(Cheat):
    """Says the same thing twice."""

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._frames: dict[str, bytes] = {}  # by kind
        self._receipt: Receipt | None = None
        self._said = 0

    def deliver(self, honest: Callable[[bytes], bytes | None], frame: bytes) -> bytes | None:
        """The first frame of its kind."""
        kind = decode_frame(frame, limit_bytes=len(frame))[0].kind
        old = self._frames.setdefault(kind, frame)
        return honest(old if self._repeats() else frame)

    def receipt(self, honest: Callable[[Receipt], Receipt], receipt: Receipt) -> Receipt:
        """The first receipt of a step."""
        if receipt.kind != "step":
            return honest(receipt)
        if self._receipt is None:
            self._receipt = receipt
        return honest(self._receipt if self._repeats() else receipt)

    def _repeats(self) -> bool:
        """Spread evenly: of what it says the part that `strength` gives."""
        self._said += 1
        return int(self._said * self.strength) > int((self._said - 1) * self.strength)
