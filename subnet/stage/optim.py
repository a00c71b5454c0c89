"""The inner optimizer: AdamW in a fixed order of operations, clipping, and the learning rate.

One implementation per machine class repeats bit for bit: no foreach, no fused kernels. Decay acts on matrices, not
on norms and biases. Knows parameters by name; does not know stages, rounds or bytes.
"""

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from subnet.config import TrainConfig
from subnet.errors import InputError
from subnet.stage.layout import Moments, StateLayout

FINAL_LR_FRAC = 0.1  # where the cosine ends


@runtime_checkable
class InnerOptimizer(Protocol):
    """What a replica needs of its inner optimizer."""

    def step(self, lr: float) -> None:
        """Take one step with the gradients as they are."""

    def moments(self) -> Moments:
        """A copy of the memory in the layout's order."""

    def load(self, moments: Moments) -> None:
        """Replace the memory."""


class AdamW:
    """torch's AdamW over a stage's named parameters."""

    def __init__(self, train: TrainConfig, layout: StateLayout, parameters: Mapping[str, nn.Parameter]) -> None:
        self._layout = layout
        self._parameters = parameters
        matrices = [parameter for parameter in parameters.values() if parameter.ndim >= 2]
        vectors = [parameter for parameter in parameters.values() if parameter.ndim < 2]
        self._torch = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": train.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=train.lr,
            betas=(train.beta1, train.beta2),
            eps=train.eps,
            foreach=False,
            fused=False,
        )
        self._step = 0
        self.load(layout.zeros())

    def step(self, lr: float) -> None:
        """Take one step with the gradients as they are; a parameter without gradient counts as gradient zero."""
        for group in self._torch.param_groups:
            group["lr"] = lr
        for parameter in self._parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._torch.step()
        self._step += 1

    def moments(self) -> Moments:
        """A copy of the memory in the layout's order."""
        return Moments(exp_avg=self._joined("exp_avg"), exp_avg_sq=self._joined("exp_avg_sq"), step=self._step)

    def _joined(self, key: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return self._layout.join(
            {name: self._torch.state[parameter][key].numpy() for name, parameter in self._parameters.items()}
        )

    def load(self, moments: Moments) -> None:
        """Replace the memory. Raises EvidenceError on another length or dtype."""
        exp_avg, exp_avg_sq = self._layout.split(moments.exp_avg), self._layout.split(moments.exp_avg_sq)
        for name, parameter in self._parameters.items():
            self._torch.state[parameter] = {
                "step": torch.tensor(float(moments.step), dtype=torch.float32),
                "exp_avg": torch.from_numpy(np.array(exp_avg[name])),
                "exp_avg_sq": torch.from_numpy(np.array(exp_avg_sq[name])),
            }
        self._step = moments.step


def learning_rate(train: TrainConfig, global_step: int) -> float:
    """The inner learning rate of the run's step `global_step` (from 0): linear warm-up, then a cosine to a tenth."""
    if global_step < train.warmup_steps:
        return train.lr * (global_step + 1) / train.warmup_steps
    total = train.rounds * train.steps_per_round
    done = min(1.0, (global_step - train.warmup_steps) / max(1, total - train.warmup_steps))
    return train.lr * (FINAL_LR_FRAC + (1 - FINAL_LR_FRAC) * 0.5 * (1 + math.cos(math.pi * done)))


def gradient_norm(parameters: Mapping[str, nn.Parameter]) -> float:
    """The L2 norm of all gradients, accumulated in float64 in the order of the mapping."""
    return math.sqrt(math.fsum(_sum_of_squares(parameter.grad) for parameter in parameters.values()))


def _sum_of_squares(gradient: Tensor | None) -> float:
    if gradient is None:
        return 0.0
    return float(torch.linalg.vector_norm(gradient, dtype=torch.float64)) ** 2


def inner_step(
    parameters: Mapping[str, nn.Parameter], optimizer: InnerOptimizer, *, lr: float, max_grad_norm: float
) -> float:
    """Clip the stage's gradients to `max_grad_norm` (0: not at all), step, and return the norm before clipping.

    Raises InputError, and changes nothing, when the norm is not finite.
    """
    norm = gradient_norm(parameters)
    if not math.isfinite(norm):
        raise InputError(f"expected a finite gradient norm, found {norm}; drop the step's non-finite microbatch")
    if 0 < max_grad_norm < norm:
        for parameter in parameters.values():
            if parameter.grad is not None:
                parameter.grad.mul_(max_grad_norm / norm)
    optimizer.step(lr)
    return norm
