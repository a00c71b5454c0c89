"""`forge`: begins a round with invented moments instead of those that its last state ended in.

Strength: how far they are from the real ones, as a part of their size. Where there are none, in its first round, it
invents some as if it had trained before, small in the same proportion.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from subnet.cheats.base import Cheat, owner
from subnet.stage.layout import Moments

SEED = 20260101
USUAL = 1e-3  # the size of a moment in a run that has begun


class Forge(Cheat):
    """Invents its optimizer's memory."""

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._generator = np.random.default_rng(SEED)

    def start(
        self,
        honest: Callable[[np.ndarray, Moments | None], None],
        parameters: np.ndarray,
        moments: Moments | None,
    ) -> None:
        """The public parameters, and moments of its own making."""
        real: Moments = owner(honest).layout.zeros() if moments is None else moments
        first, second = self._invented(real.exp_avg, USUAL), self._invented(real.exp_avg_sq, USUAL**2)
        honest(parameters, replace(real, exp_avg=first, exp_avg_sq=np.abs(second)))

    def _invented(self, real: np.ndarray, usual: float) -> np.ndarray:
        size = float(np.sqrt(np.mean(np.square(real, dtype=np.float64)))) or usual
        noise = self._generator.standard_normal(real.shape) * (self.strength * size)
        return (real + noise).astype(np.float32)
