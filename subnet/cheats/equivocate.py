"""`equivocate`: its receipt names honest tensors, and its neighbour gets others, larger by 1 + strength.

An auditor who asks for what the receipt names would see nothing wrong: only what the neighbour got tells.
"""

from collections.abc import Callable

import numpy as np

from subnet.cheats.base import Cheat
from subnet.wire.codec import decode, encode
from subnet.wire.frames import decode_frame, encode_frame


class Equivocate(Cheat):
    """Shows the auditor other bytes than the neighbour."""

    default_strength = 0.2

    def deliver(self, honest: Callable[[bytes], bytes | None], frame: bytes) -> bytes | None:
        """A frame of this hop with other values."""
        header, payload = decode_frame(frame, limit_bytes=len(frame))
        values = decode(header.codec, payload, header.shape) * np.float32(1 + self.strength)
        return honest(encode_frame(header, encode(header.codec, values)))
