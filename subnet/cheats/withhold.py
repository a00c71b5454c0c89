"""`withhold`: does its work and does not serve the evidence when it is drawn.

Strength: the part of the blobs and states that it does not serve, by their digest: the same ones to everybody.
"""

from collections.abc import Callable

from subnet.cheats.base import Cheat

WIDTH = 1 << 32


class Withhold(Cheat):
    """Shows nothing, or only some of it."""

    def serve_blob(self, honest: Callable[[str], bytes | None], digest: str) -> bytes | None:
        """Nothing."""
        return None if int(digest[:8], 16) < self.strength * WIDTH else honest(digest)
