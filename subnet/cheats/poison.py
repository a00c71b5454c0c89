"""Poison: what `scale`, `signflip` and `noise` have in common, whatever it is that they do to an array.

`Sent` spoils what goes to the neighbours, activations and gradients, on the way out; the only stage of a run sends
none and spoils its contribution. `Update` works honestly and spoils what each inner step did to the parameters, so that
its own contribution and everything after it are built on the poison.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from subnet.cheats.base import Cheat, owner

SEED = 20260101


class Poison(Cheat):
    """Has an array to spoil, and a generator of its own."""

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self.generator = np.random.default_rng(SEED)

    def spoil(self, values: np.ndarray) -> np.ndarray:
        """The values as the cheat wants them, float32 of the same shape."""
        return values


class Sent(Poison):
    """Spoils activations and gradients; where there are none, the contribution."""

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._sent_tensors = False

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """The activation, spoilt."""
        self._sent_tensors = True
        return torch.from_numpy(self.spoil(honest(microbatch, inputs).numpy()))

    def backward(
        self,
        honest: Callable[[int, Tensor | None, int], Tensor | None],
        microbatch: int,
        gradient: Tensor | None,
        planned_tokens: int,
    ) -> Tensor | None:
        """The gradient, spoilt."""
        result = honest(microbatch, gradient, planned_tokens)
        if result is None:
            return None
        self._sent_tensors = True
        return torch.from_numpy(self.spoil(result.numpy()))

    def contribution(
        self, honest: Callable[[np.ndarray, np.ndarray], bytes], start: np.ndarray, end: np.ndarray
    ) -> bytes:
        """Honest where tensors are sent, else spoilt."""
        data = honest(start, end)
        if self._sent_tensors:
            return data
        return self.spoil(np.frombuffer(data, dtype="<f4")).astype("<f4").tobytes()


class Update(Poison):
    """Spoils the change that an inner step made."""

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """The honest step, then the parameters moved as the cheat wants; the honest norm."""
        stage = owner(honest).stage
        before = stage.parameters_flat()
        norm = honest(global_step)
        stage.load_flat(before + self.spoil(stage.parameters_flat() - before))
        return norm
