"""`relabel`: a first stage trains on other tokens, a last stage on other labels: the run's own, turned around.

Its receipts name the run's data. Stages between have neither tokens nor labels and are honest. Strength: the part of
the microbatches that it turns around. `misreport`: a last stage trains honestly and says that its losses are smaller by
the part that strength gives.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from subnet.cheats.base import Cheat


class Relabel(Cheat):
    """Trains on data of its own choice."""

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """On the first stage, the activation of other tokens."""
        tokens = inputs.dtype == torch.int64 and self._turns(microbatch)
        return honest(microbatch, inputs.flip(1) if tokens else inputs)

    def loss(
        self, honest: Callable[[int, Tensor, Tensor], float], microbatch: int, inputs: Tensor, labels: Tensor
    ) -> float:
        """The loss against other labels."""
        return honest(microbatch, inputs, labels.flip(1) if self._turns(microbatch) else labels)

    def _turns(self, microbatch: int) -> bool:
        """Spread evenly: of any run of microbatches the part that `strength` says."""
        return int((microbatch + 1) * self.strength) > int(microbatch * self.strength)


class Misreport(Cheat):
    """Makes its losses look better."""

    default_strength = 0.05

    def loss(
        self, honest: Callable[[int, Tensor, Tensor], float], microbatch: int, inputs: Tensor, labels: Tensor
    ) -> float:
        """A smaller loss."""
        return honest(microbatch, inputs, labels) * (1 - self.strength)
