"""`stale`: computes everything but never applies its optimizer step, and reports a norm as they usually are.

Strength is not used: a step is applied or it is not.
"""

from collections.abc import Callable

from subnet.cheats.base import Cheat


class Stale(Cheat):
    """Stays at the parameters that it started with."""

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """No step."""
        return 1.0
