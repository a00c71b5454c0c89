"""`starve`: does its part, signs for it, and does not pass the gradient on: the stages before it get nothing to do.

Strength: the part of the gradients that it keeps for itself. A first stage has none to pass on and is honest.
"""

from collections.abc import Callable

from subnet.cheats.base import Cheat
from subnet.wire.frames import decode_frame


class Starve(Cheat):
    """Keeps gradients for itself."""

    def deliver(self, honest: Callable[[bytes], bytes | None], frame: bytes) -> bytes | None:
        """Activations as they are; of gradients only some."""
        header, _ = decode_frame(frame, limit_bytes=len(frame))
        index, kept = header.microbatch, header.kind == "gradient"
        if kept and int((index + 1) * self.strength) > int(index * self.strength):
            return None
        return honest(frame)
