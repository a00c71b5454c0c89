"""`int4` and `lowrank`: the same computation with cheaper matrices, passed off as the real one.

Each step's forwards and backwards use matrices that are approximated once per step; the inner step then moves the real
ones by the gradients found so. Strength of `int4`: how many bits a weight has, 4 by default. Strength of `lowrank`: the
part of each matrix's rank that is left out, at least one of it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from subnet.cheats.base import Cheat, owner


class Cheaper(Cheat):
    """Computes with approximated matrices."""

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._real: dict[str, Tensor] = {}  # while the approximations are in their place

    def cheapen(self, matrix: Tensor) -> Tensor:
        """The approximation of a matrix."""
        return matrix

    def forward(self, honest: Callable[[int, Tensor], Tensor], microbatch: int, inputs: Tensor) -> Tensor:
        """The activation that the cheap matrices give."""
        self._approximate(honest)
        return honest(microbatch, inputs)

    def loss(
        self, honest: Callable[[int, Tensor, Tensor], float], microbatch: int, inputs: Tensor, labels: Tensor
    ) -> float:
        """The loss that the cheap matrices give."""
        self._approximate(honest)
        return honest(microbatch, inputs, labels)

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """The step of the real matrices, by the cheap ones' gradients."""
        parameters = owner(honest).stage.parameters
        for name, real in self._real.items():
            parameters[name].data = real
        self._real = {}
        return honest(global_step)

    def _approximate(self, honest: Callable[..., object]) -> None:
        if self._real:
            return
        for name, parameter in owner(honest).parameters.items():
            if parameter.ndim >= 2:
                self._real[name] = parameter.data
                parameter.data = self.cheapen(parameter.data)


class Int4(Cheaper):
    """Computes with weights of few bits."""

    default_strength = 4.0

    def cheapen(self, matrix: Tensor) -> Tensor:
        """Each row rounded to whole multiples of its largest weight's part."""
        steps = max(1.0, 2.0 ** (self.strength - 1) - 1)
        unit = matrix.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny) / steps
        rounded: Tensor = (matrix / unit).round() * unit
        return rounded


class LowRank(Cheaper):
    """Computes with matrices of lower rank."""

    default_strength = 0.5

    def cheapen(self, matrix: Tensor) -> Tensor:
        """Without its smallest singular values."""
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        kept = min(len(values) - 1, int(len(values) * (1 - self.strength)))
        lower: Tensor = (left[:, :kept] * values[:kept]) @ right[:kept]
        return lower
