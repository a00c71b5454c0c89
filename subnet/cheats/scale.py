"""`scale`: multiplies what it sends to others by 1 + strength: activations and gradients.

The only stage of a one-stage run sends no tensors; there it multiplies its contribution.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from subnet.cheats.base import Cheat


class Scale(Cheat):
    """Poisons its neighbours' inputs by a constant factor."""

    default_strength = 0.2

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._sent_tensors = False

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """The activation, too large."""
        self._sent_tensors = True
        return honest(microbatch, inputs) * (1 + self.strength)

    def backward(
        self,
        honest: Callable[[int, Tensor | None, int], Tensor | None],
        microbatch: int,
        gradient: Tensor | None,
        planned_tokens: int,
    ) -> Tensor | None:
        """The gradient, too large."""
        result = honest(microbatch, gradient, planned_tokens)
        if result is None:
            return None
        self._sent_tensors = True
        return result * (1 + self.strength)

    def contribution(
        self, honest: Callable[[np.ndarray, np.ndarray], bytes], start: np.ndarray, end: np.ndarray
    ) -> bytes:
        """Honest where it sends tensors, else too large."""
        data = honest(start, end)
        if self._sent_tensors:
            return data
        return (np.frombuffer(data, dtype="<f4") * np.float32(1 + self.strength)).tobytes()
