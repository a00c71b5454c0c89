"""`stale`: computes everything but does not apply its optimizer step, and reports a norm as they usually are.

Strength of `stale`: the part of its steps that it does not apply. `stale-state` applies them all, but begins each round
at old parameters, those of its first round, instead of the merged ones; strength: how much of the way back it goes.
"""

from collections.abc import Callable

import numpy as np

from subnet.cheats.base import Cheat
from subnet.stage.layout import Moments


class Stale(Cheat):
    """Stays at the parameters that it started with."""

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """No step; spread evenly where only some are left out."""
        if int((global_step + 1) * self.strength) > int(global_step * self.strength):
            return 1.0
        return honest(global_step)


class StaleState(Cheat):
    """Does not follow the merges."""

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._first: np.ndarray | None = None

    def start(
        self,
        honest: Callable[[np.ndarray, Moments | None], None],
        parameters: np.ndarray,
        moments: Moments | None,
    ) -> None:
        """A round begins where the first one did."""
        if self._first is None or self._first.shape != parameters.shape:
            self._first = parameters.copy()
        back = np.float32(self.strength)
        honest(parameters + back * (self._first - parameters), moments)
