"""Many replicas of a very small language model that train side by side in one process, as one stack of tensors.

A transformer on bytes: learned positions, attention, SwiGLU, AdamW. All replicas' parameters are the rows of one
matrix, so a step of ten costs little more than a step of one; no row sees another. For figures about merging, which
need many runs; what miners train is `subnet.stage`. Knows nothing of merges.

Letters: R replicas, B sequences of a batch, T tokens of a sequence, D model width, P parameters of a replica.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from subnet.data.pack import Corpus, Split

BETA1, BETA2, EPS, DECAY = 0.9, 0.95, 1e-8, 0.1
MAX_GRAD_NORM = 1.0
WARMUP_STEPS = 20
FINAL_LR_FRAC = 0.1
HELDOUT_EVERY = 20

Tokens = Int64[Tensor, "replicas batch tokens"]
Rows = Float32[Tensor, "replicas parameters"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The model's size."""

    vocabulary: int = 256
    width: int = 32
    blocks: int = 2
    heads: int = 2
    inner: int = 88
    tokens: int = 32

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor by a name like those of the real models, in order."""
        shapes: dict[str, tuple[int, ...]] = {
            "embed.weight": (self.vocabulary, self.width),
            "positions.weight": (self.tokens, self.width),
        }
        for block in range(self.blocks):
            shapes |= {
                f"model.layers.{block}.norm1": (self.width,),
                f"model.layers.{block}.qkv": (self.width, 3 * self.width),
                f"model.layers.{block}.out": (self.width, self.width),
                f"model.layers.{block}.norm2": (self.width,),
                f"model.layers.{block}.gate_up": (self.width, 2 * self.inner),
                f"model.layers.{block}.down": (self.inner, self.width),
            }
        return shapes | {"norm": (self.width,), "head": (self.width, self.vocabulary)}

    def slices(self) -> dict[str, slice]:
        """Where each tensor lies in a replica's row."""
        found, first = {}, 0
        for name, shape in self.tensors().items():
            found[name] = slice(first, first + math.prod(shape))
            first += math.prod(shape)
        return found

    @property
    def num_parameters(self) -> int:
        """P."""
        return sum(math.prod(shape) for shape in self.tensors().values())


def initial(shape: Shape, seed: int) -> Float32[np.ndarray, " parameters"]:
    """The parameters in which every replica starts."""
    chance = np.random.default_rng(seed)
    parts = [
        np.ones(sizes)
        if len(sizes) == 1
        else chance.standard_normal(sizes) / math.sqrt(sizes[0] if "." in name else 1e3)
        for name, sizes in shape.tensors().items()
    ]
    return np.concatenate([part.reshape(-1) for part in parts]).astype(np.float32)


def losses(shape: Shape, rows: Rows, tokens: Tokens, labels: Tokens) -> Float32[Tensor, " replicas"]:
    """Each replica's mean loss in nats per token, on a batch of its own."""
    replicas, batch, length = tokens.shape
    sizes = shape.tensors()
    part = {name: rows[:, span].reshape(replicas, *sizes[name]) for name, span in shape.slices().items()}
    own = torch.arange(replicas)[:, None, None]
    x = part["embed.weight"][own, tokens] + part["positions.weight"][:, None, :length]
    x = x.reshape(replicas, batch * length, shape.width)
    for block in range(shape.blocks):
        here = {name.rsplit(".", 1)[1]: value for name, value in part.items() if f".{block}." in name}
        q, k, v = (
            each.reshape(replicas * batch, length, shape.heads, -1).transpose(1, 2)
            for each in torch.bmm(_normed(x, here["norm1"]), here["qkv"]).chunk(3, dim=-1)
        )
        seen = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + torch.bmm(seen.reshape(x.shape), here["out"])
        gate, up = torch.bmm(_normed(x, here["norm2"]), here["gate_up"]).chunk(2, dim=-1)
        x = x + torch.bmm(silu(gate) * up, here["down"])
    logits = torch.bmm(_normed(x, part["norm"]), part["head"])
    each = cross_entropy(logits.reshape(-1, shape.vocabulary), labels.reshape(-1), reduction="none")
    return each.reshape(replicas, -1).mean(dim=1)


def _normed(x: Tensor, gain: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * gain[:, None]


class Replicas:
    """So many replicas with their inner optimizers, which keep their moments across merges."""

    def __init__(self, shape: Shape, num_replicas: int, *, seed: int, lr: float, steps: int) -> None:
        self.shape = shape
        start = torch.from_numpy(initial(shape, seed))
        self.rows = start.repeat(num_replicas, 1).requires_grad_()
        self._first, self._second = (
            torch.zeros_like(start.repeat(num_replicas, 1)),
            torch.zeros(num_replicas, len(start)),
        )
        self._lr, self._steps, self.step_number = lr, steps, 0

    def step(self, tokens: Tokens, labels: Tokens) -> None:
        """One inner step of every replica."""
        losses(self.shape, self.rows, tokens, labels).sum().backward()  # type: ignore[no-untyped-call]
        gradient = self.rows.grad
        assert gradient is not None
        self.step_number += 1
        with torch.no_grad():
            gradient *= (MAX_GRAD_NORM / gradient.norm(dim=1, keepdim=True)).clamp(max=1)
            self._first.lerp_(gradient, 1 - BETA1)
            self._second.lerp_(gradient.square(), 1 - BETA2)
            first = self._first / (1 - BETA1**self.step_number)
            second = self._second / (1 - BETA2**self.step_number)
            self.rows -= self.lr() * (first / (second.sqrt() + EPS) + DECAY * self.rows)
        self.rows.grad = None

    def lr(self) -> float:
        """The learning rate of this step: a linear warm-up, then a cosine."""
        if self.step_number <= WARMUP_STEPS:
            return self._lr * self.step_number / WARMUP_STEPS
        part = (self.step_number - WARMUP_STEPS) / max(1, self._steps - WARMUP_STEPS)
        return self._lr * (FINAL_LR_FRAC + (1 - FINAL_LR_FRAC) * (1 + math.cos(math.pi * part)) / 2)

    def ends(self) -> list[Float32[np.ndarray, " parameters"]]:
        """A copy of each replica's parameters."""
        return [row.detach().numpy().copy() for row in self.rows]

    def put(self, place: int, parameters: Float32[np.ndarray, " parameters"]) -> None:
        """Set one replica's parameters."""
        with torch.no_grad():
            self.rows[place] = torch.from_numpy(parameters)


def batches(corpus: Corpus, shape: Shape, replicas: int, batch: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and labels (R, B, T) of each step, without end; no held-out sequence is among them."""
    cut, chance = _split(corpus, shape), np.random.default_rng(seed)
    while True:
        drawn = chance.integers(cut.num_training, size=(replicas, batch))
        yield _rows(corpus, shape, np.array([[cut.training(each) for each in row] for row in drawn.tolist()]))


def heldout_loss(shape: Shape, parameters: Float32[np.ndarray, " parameters"], corpus: Corpus, *, num: int) -> float:
    """The mean loss in nats per token on so many held-out sequences, evenly spread."""
    cut = _split(corpus, shape)
    chosen = np.array([cut.heldout(place * cut.num_heldout // num) for place in range(num)])
    with torch.no_grad():
        return float(losses(shape, torch.from_numpy(parameters)[None], *_rows(corpus, shape, chosen[None])))


def _split(corpus: Corpus, shape: Shape) -> Split:
    return Split((len(corpus.tokens) - 1) // shape.tokens, HELDOUT_EVERY)


def _rows(corpus: Corpus, shape: Shape, sequences: np.ndarray) -> tuple[Tensor, Tensor]:
    places = sequences[..., None] * shape.tokens + np.arange(shape.tokens)
    tokens, labels = (corpus.tokens[places + ahead].astype(np.int64) for ahead in (0, 1))
    return torch.from_numpy(tokens), torch.from_numpy(labels)
