"""The inner optimizers: AdamW and Muon in a fixed order of operations, clipping, and the learning rate.

One implementation per machine class repeats bit for bit: no foreach, no fused kernels. Decay acts on matrices, not
on norms and biases. Knows parameters by name; does not know stages, rounds or bytes.
"""

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from subnet.config import TrainConfig
from subnet.errors import InputError
from subnet.model.shapes import BLOCKS
from subnet.stage.layout import Flat, Moments, StateLayout

FINAL_LR_FRAC = 0.1  # where the cosine ends
MUON_MOMENTUM = 0.95
MUON_RMS = 0.2  # of an update's elements per learning rate: AdamW's, so that one lr and decay serve both
MUON_EPS = 1e-7  # a matrix of a smaller norm counts as zero


@runtime_checkable
class InnerOptimizer(Protocol):
    """What a replica needs of its inner optimizer. `steps`: how many made its memory."""

    steps: int
    orthogonal: frozenset[str]  # the parameters whose first moment is made orthogonal; all others are AdamW's

    def step(self, lr: float) -> None:
        """Take one step with the gradients as they are; a parameter without gradient counts as gradient zero."""

    def memory(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The memory itself, first and second moments by name; it changes with the next step."""

    def moments(self) -> Moments:
        """A copy of the memory in the layout's order."""

    def load(self, moments: Moments) -> None:
        """Replace the memory. Raises EvidenceError on another length or dtype."""


class AdamW:
    """torch's AdamW over a stage's named parameters."""

    orthogonal: frozenset[str] = frozenset()

    def __init__(self, train: TrainConfig, layout: StateLayout, parameters: Mapping[str, nn.Parameter]) -> None:
        self._layout = layout
        self._parameters = parameters
        self._torch = _torch_adamw(train, parameters)
        self.steps = 0
        self.load(layout.zeros())

    def step(self, lr: float) -> None:
        """Take one step."""
        _fill(self._parameters)
        _torch_step(self._torch, lr)
        self.steps += 1

    def memory(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The memory itself."""
        return _torch_memory(self._torch, self._parameters)

    def moments(self) -> Moments:
        """A copy of the memory."""
        return _moments(self._layout, self.memory(), self.steps)

    def load(self, moments: Moments) -> None:
        """Replace the memory."""
        _torch_load(self._torch, self._layout, self._parameters, moments)
        self.steps = moments.step


class Muon:
    """Muon for the matrices of the blocks, AdamW for the embedding, the head, norms and biases.

    Momentum, made orthogonal (Jordan et al. 2024, kellerjordan.github.io/posts/muon), times 0.2 sqrt(larger side) so
    that an update is as large as AdamW's (Moonshot, arXiv 2502.16982). Their Newton-Schulz iteration enlarges what a
    gradient has almost nothing of 485 times, and its rounding errors with it, so that two machines step apart; here the
    run's damping bounds that (`orthogonal`). A matrix keeps its momentum where AdamW has the first moment; its second
    moment is zero, whatever was loaded.
    """

    def __init__(self, train: TrainConfig, layout: StateLayout, parameters: Mapping[str, nn.Parameter]) -> None:
        self._layout = layout
        self._parameters = parameters
        self._decay, self._damping = train.weight_decay, train.muon_damping
        hidden = {name for name, parameter in parameters.items() if name.startswith(BLOCKS) and parameter.ndim == 2}
        self.orthogonal = frozenset(hidden)
        self._hidden = {name: parameter for name, parameter in parameters.items() if name in hidden}
        self._rest = {name: parameter for name, parameter in parameters.items() if name not in hidden}
        self._momentum: dict[str, Tensor] = {}
        self._torch = _torch_adamw(train, self._rest) if self._rest else None
        self.steps = 0
        self.load(layout.zeros())

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Take one step. Raises InputError, and changes nothing, where the memory is not finite."""
        if not all(bool(momentum.isfinite().all()) for momentum in self._momentum.values()):
            raise InputError("expected a finite momentum, found one that is not; start afresh from zero moments")
        _fill(self._parameters)
        if self._torch is not None:
            _torch_step(self._torch, lr)
        for name, matrix in self._hidden.items():
            assert matrix.grad is not None
            momentum = self._momentum[name].lerp_(matrix.grad, 1 - MUON_MOMENTUM)
            ahead = matrix.grad.lerp(momentum, MUON_MOMENTUM)  # Nesterov's look ahead
            update = orthogonal(ahead, damping=self._damping)
            matrix.mul_(1 - lr * self._decay)
            matrix.add_(update, alpha=-lr * MUON_RMS * math.sqrt(max(matrix.shape)))
        self.steps += 1

    def memory(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The memory itself."""
        first, second = _torch_memory(self._torch, self._rest) if self._torch is not None else ({}, {})
        return first | self._momentum, second | {name: torch.zeros_like(m) for name, m in self._momentum.items()}

    def moments(self) -> Moments:
        """A copy of the memory."""
        return _moments(self._layout, self.memory(), self.steps)

    def load(self, moments: Moments) -> None:
        """Replace the memory."""
        if self._torch is not None:
            _torch_load(self._torch, self._layout, self._rest, moments)
        exp_avg = self._layout.split(moments.exp_avg)
        self._momentum = {name: torch.from_numpy(np.array(exp_avg[name])) for name in self._hidden}
        self.steps = moments.step


def make_optimizer(train: TrainConfig, layout: StateLayout, parameters: Mapping[str, nn.Parameter]) -> InnerOptimizer:
    """The run's inner optimizer over a stage's parameters, with an empty memory."""
    kind = Muon if train.optimizer == "muon" else AdamW
    return kind(train, layout, parameters)


def orthogonal(matrix: Float32[Tensor, "rows columns"], *, damping: float) -> Float32[Tensor, "rows columns"]:
    """The matrix with each singular value s made s sqrt((1 + d^2) / (s^2 + d^2)), in units of their root mean square.

    d is `damping`. So what the matrix has much of gets about 1 (where all are equal, exactly), what it has of rounding
    errors alone stays small, and no difference grows by more than sqrt(smaller side) (1 + 1 / d) on the scale of the
    norms. In float64: what is left are the matrix' own errors.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).double()  # the Gram matrix is the smaller one
    x = x / torch.linalg.vector_norm(x).clamp(min=MUON_EPS)
    gram = x @ x.T
    gram.diagonal().add_(damping**2 / len(x))
    squares, directions = torch.linalg.eigh(gram)
    x = directions @ ((directions.T @ x) * ((1 + damping**2) / squares).sqrt().unsqueeze(1))
    update: Tensor = (x.T if tall else x).float()
    return update


def inverse_root(matrix: Float32[Tensor, "rows columns"], *, damping: float) -> Flat:
    """What an audit needs of a step: (M'M + d^2)^(-1/2) of the matrix M in units of its norm, d as in `orthogonal`.

    From the eigenvalues q^2 - d^2 of the smaller Gram matrix: 1/d less M' f(M M') M, where f = 1 / (d q (q + d)).
    """
    x = matrix.double()
    x = (x.T if x.shape[0] > x.shape[1] else x) / torch.linalg.vector_norm(x).clamp(min=MUON_EPS)
    least = damping / math.sqrt(len(x))
    gram = x @ x.T
    gram.diagonal().add_(least**2)
    squares, directions = torch.linalg.eigh(gram)
    roots = squares.sqrt()
    if matrix.shape[0] > matrix.shape[1]:
        found = (directions / roots) @ directions.T
    else:
        along = directions.T @ x
        found = -(along / (least * roots * (roots + least)).unsqueeze(1)).T @ along
        found.diagonal().add_(1 / least)
    root: Flat = found.float().numpy()
    return root


def _fill(parameters: Mapping[str, nn.Parameter]) -> None:
    for parameter in parameters.values():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _torch_adamw(train: TrainConfig, parameters: Mapping[str, nn.Parameter]) -> torch.optim.AdamW:
    matrices = [parameter for parameter in parameters.values() if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters.values() if parameter.ndim < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": train.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=train.lr,
        betas=(train.beta1, train.beta2),
        eps=train.eps,
        foreach=False,
        fused=False,
    )


def _torch_step(optimizer: torch.optim.AdamW, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()


def _torch_memory(
    optimizer: torch.optim.AdamW, parameters: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    state = {name: optimizer.state[parameter] for name, parameter in parameters.items()}
    first, second = ({name: kept[key] for name, kept in state.items()} for key in ("exp_avg", "exp_avg_sq"))
    return first, second


def _moments(layout: StateLayout, memory: tuple[dict[str, Tensor], dict[str, Tensor]], step: int) -> Moments:
    first, second = (layout.join({name: tensor.numpy() for name, tensor in moment.items()}) for moment in memory)
    return Moments(exp_avg=first, exp_avg_sq=second, step=step)


def _torch_load(
    optimizer: torch.optim.AdamW, layout: StateLayout, parameters: Mapping[str, nn.Parameter], moments: Moments
) -> None:
    exp_avg, exp_avg_sq = layout.split(moments.exp_avg), layout.split(moments.exp_avg_sq)
    for name, parameter in parameters.items():
        optimizer.state[parameter] = {
            "step": torch.tensor(float(moments.step), dtype=torch.float32),
            "exp_avg": torch.from_numpy(np.array(exp_avg[name])),
            "exp_avg_sq": torch.from_numpy(np.array(exp_avg_sq[name])),
        }


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

    Raises InputError, and changes no parameter, when the norm is not finite, or the optimizer's memory.
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
