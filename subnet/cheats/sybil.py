"""`sybil`: one machine under several hotkeys, each of them honest and as many times slower.

Strength: how many hotkeys share the machine. Run as many miners with it (`--cheats sybil:4=4`); what a machine gains by
it is what they earn together less what it would have earned alone. With fresh hotkeys it is also how to hit and run.
"""

import time
from collections.abc import Callable

from torch import Tensor

from subnet.cheats.base import Cheat


class Sybil(Cheat):
    """A part of a machine."""

    default_strength = 2.0

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """The activation, late."""
        began_s = time.perf_counter()
        result = honest(microbatch, inputs)
        self._share(began_s)
        return result

    def loss(
        self, honest: Callable[[int, Tensor, Tensor], float], microbatch: int, inputs: Tensor, labels: Tensor
    ) -> float:
        """The loss, late."""
        began_s = time.perf_counter()
        result = honest(microbatch, inputs, labels)
        self._share(began_s)
        return result

    def backward(
        self,
        honest: Callable[[int, Tensor | None, int], Tensor | None],
        microbatch: int,
        gradient: Tensor | None,
        planned_tokens: int,
    ) -> Tensor | None:
        """The gradient, late."""
        began_s = time.perf_counter()
        result = honest(microbatch, gradient, planned_tokens)
        self._share(began_s)
        return result

    def _share(self, began_s: float) -> None:
        """Wait as long as the machine works for its other hotkeys."""
        time.sleep(max(0.0, self.strength - 1) * (time.perf_counter() - began_s))
