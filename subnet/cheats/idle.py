"""`idle`: sends plausible cached tensors and computes nothing.

It works on one microbatch, to have something to send, and from then on repeats what it has with a little noise, so
that no two frames are alike. Losses fall slowly; the optimizer never steps. Strength: the noise's part of the signal.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from subnet.cheats.base import Cheat

SEED = 20260101
FALL_FRAC = 0.999  # by which the reported loss falls with each microbatch


class Idle(Cheat):
    """Computes one microbatch, then nothing."""

    default_strength = 0.1

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._noise = torch.Generator().manual_seed(SEED)
        self._activation: Tensor | None = None
        self._gradient: Tensor | None = None
        self._loss = 0.0
        self._backwards = 0

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """The first activation again, with noise."""
        if self._activation is None:
            self._activation = honest(microbatch, inputs)
            return self._activation
        return self._like(self._activation)

    def loss(
        self, honest: Callable[[int, Tensor, Tensor], float], microbatch: int, inputs: Tensor, labels: Tensor
    ) -> float:
        """A little less than the last time."""
        self._loss = self._loss * FALL_FRAC if self._loss else honest(microbatch, inputs, labels)
        return self._loss

    def backward(
        self,
        honest: Callable[[int, Tensor | None, int], Tensor | None],
        microbatch: int,
        gradient: Tensor | None,
        planned_tokens: int,
    ) -> Tensor | None:
        """The first gradient again, with noise."""
        self._backwards += 1
        if self._backwards == 1:
            self._gradient = honest(microbatch, gradient, planned_tokens)
            return self._gradient
        return None if self._gradient is None else self._like(self._gradient)

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """No step, and a norm as they usually are."""
        return 1.0

    def _like(self, values: Tensor) -> Tensor:
        noise = torch.randn(values.shape, generator=self._noise) * values.std()
        return values + self.strength * noise
