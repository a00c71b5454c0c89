"""`skip`: does only a fraction of its microbatches; `skip-blocks`: runs only a fraction of its blocks.

Strength of `skip`: the part of the microbatches that it does not compute. There it passes on what came in, forward and
backward, as if its blocks did nothing; a first or last stage, which cannot, sends its last tensor again with a little
noise, and a last one repeats its loss. Strength of `skip-blocks`: the part of its blocks left out, at least one.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from subnet.cheats.base import Cheat, owner

SEED = 20260101
NOISE = 0.05  # of the signal, so that no tensor is sent twice


class Skip(Cheat):
    """Computes some microbatches and makes the others up."""

    default_strength = 0.5

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._noise = torch.Generator().manual_seed(SEED)
        self._activation: Tensor | None = None
        self._gradient: Tensor | None = None
        self._loss: float | None = None
        self._skipped: set[int] = set()
        self._first = False

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """What came in or, on the first stage, an earlier activation."""
        self._first = inputs.dtype == torch.int64
        made_up = self._like(self._activation) if self._first else inputs
        if made_up is not None and self._skips(microbatch):
            return made_up
        self._activation = honest(microbatch, inputs)
        return self._activation

    def loss(
        self, honest: Callable[[int, Tensor, Tensor], float], microbatch: int, inputs: Tensor, labels: Tensor
    ) -> float:
        """The last loss."""
        self._first = inputs.dtype == torch.int64
        lacking = self._loss is None or (self._gradient is None and not self._first)
        if self._loss is None or lacking or not self._skips(microbatch):
            self._loss = honest(microbatch, inputs, labels)
        return self._loss

    def backward(
        self,
        honest: Callable[[int, Tensor | None, int], Tensor | None],
        microbatch: int,
        gradient: Tensor | None,
        planned_tokens: int,
    ) -> Tensor | None:
        """What came in or, on the last stage, an earlier gradient."""
        if microbatch in self._skipped:
            self._skipped.remove(microbatch)
            if self._first:
                return None
            return self._like(self._gradient) if gradient is None else gradient
        self._gradient = honest(microbatch, gradient, planned_tokens)
        return self._gradient

    def _skips(self, microbatch: int) -> bool:
        """Spread evenly: of any run of microbatches the part that `strength` says."""
        if int((microbatch + 1) * self.strength) == int(microbatch * self.strength):
            return False
        self._skipped.add(microbatch)
        return True

    def _like(self, values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        return values + torch.randn(values.shape, generator=self._noise) * (NOISE * values.std())


class Passing(nn.Module):
    """A block that does nothing."""

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """What came in."""
        return hidden_states


class SkipBlocks(Cheat):
    """Runs some of its blocks."""

    default_strength = 0.5

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._emptied: object = None  # the stage whose blocks are out already

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """The activation of the blocks that are left."""
        self._empty(owner(honest))
        return honest(microbatch, inputs)

    def loss(
        self, honest: Callable[[int, Tensor, Tensor], float], microbatch: int, inputs: Tensor, labels: Tensor
    ) -> float:
        """The loss of the blocks that are left."""
        self._empty(owner(honest))
        return honest(microbatch, inputs, labels)

    def _empty(self, stage: Any) -> None:
        if stage is self._emptied:
            return
        blocks = stage.module.base_model.layers
        for number in range(max(1, round(self.strength * len(blocks)))):
            blocks[-1 - number] = Passing()
        self._emptied = stage
