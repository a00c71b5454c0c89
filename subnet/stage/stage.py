"""One stage at work: forward and backward of microbatches, in the run's compute dtype.

Owns the stage's module and what each microbatch in flight needs for its backward. Gradients accumulate until
`zero_gradients`. Does not know the order of microbatches, the optimizer, or who sends and receives.

Parameters, their gradients and everything that enters or leaves a stage are float32. In a bfloat16 run only the matrix
products and the attention are rounded (torch.autocast casts their operands); the residual stream, the norms, the
rotary embedding and the loss (of the head's bfloat16 logits) stay in float32. The stream that is handed on is the one
between two blocks, so a cut changes nothing: stages in a row still equal the whole model bit for bit.

Letters: B sequences in a microbatch, T tokens in a sequence, D model width, V vocabulary, P parameters of the stage.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import overload

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from subnet.config import RunConfig
from subnet.model.cost import spans
from subnet.model.partition import build_stage, stage_names
from subnet.stage.layout import Flat, StateLayout

Tokens = Int64[Tensor, "batch tokens"]
Activation = Float32[Tensor, "batch tokens model"]
Output = Float32[Tensor, "batch tokens out"]  # D wide, or V wide with the head
Inputs = Int64[Tensor, "batch tokens"] | Float32[Tensor, "batch tokens model"]


@dataclass(frozen=True, kw_only=True)
class Flight:
    """A microbatch between its forward and its backward: a leaf of the graph, and its end."""

    inputs: Tensor
    result: Tensor  # the activation handed on, or the sum of token losses


class Stage:
    """Stage `index` of the run: takes tokens if it is the first, activations otherwise."""

    def __init__(
        self, run: RunConfig, index: int, tensors: dict[str, Tensor] | None = None, *, recompute: bool = False
    ) -> None:
        """tensors: by name in the whole model (copied); None means the run's initial values.

        recompute: keep only what enters each block, and compute the rest again in the backward. A choice of the
        machine, not of the run: about a third more work for less memory, and the same results.
        """
        self.index = index
        self.layout = StateLayout(run, index)
        self.span = spans(run)[index]
        self.module: nn.Module = build_stage(run, index, tensors)
        self._bfloat16 = run.train.dtype == "bfloat16"
        if recompute:
            for block in self.module.base_model.layers:  # type: ignore[union-attr]
                block.forward = _recomputed(block.forward)
        own = dict(self.module.named_parameters())
        self.parameters: dict[str, nn.Parameter] = {whole: own[name] for name, whole in stage_names(run, index).items()}
        self._flights: dict[int, Flight] = {}

    def forward(self, microbatch: int, inputs: Inputs) -> Activation:
        """The activation for the next stage. Keeps what `backward` needs under this microbatch."""
        assert not self.span.head, f"stage {self.index} is the last: it has a loss, not an activation"
        leaf = self._leaf(microbatch, inputs)
        result = self._run(leaf)
        self._flights[microbatch] = Flight(inputs=leaf, result=result)
        return result.detach()

    def loss(self, microbatch: int, inputs: Inputs, labels: Tokens) -> float:
        """The sum of the microbatch's token losses in nats (last stage). labels[t] is the token after tokens[t]."""
        assert self.span.head, f"stage {self.index} is not the last: it has no loss"
        leaf = self._leaf(microbatch, inputs)
        result = _loss_sum(self._run(leaf), labels)
        self._flights[microbatch] = Flight(inputs=leaf, result=result)
        return float(result.detach())

    def backward(self, microbatch: int, gradient: Activation | None, planned_tokens: int) -> Activation | None:
        """Accumulate parameter gradients and return the gradient of the inputs (None for the first stage).

        The last stage takes no gradient and back-propagates its loss divided by the lane step's planned tokens, so
        that a dropped microbatch does not rescale the rest. Frees the microbatch.
        """
        flight = self._flights.pop(microbatch)
        assert (gradient is None) == self.span.head, f"stage {self.index} got the wrong kind of gradient"
        if gradient is None:
            (flight.result / planned_tokens).backward()  # type: ignore[no-untyped-call]
        else:
            torch.autograd.backward(flight.result, gradient)
        return flight.inputs.grad

    def drop(self, microbatch: int) -> None:
        """Forget a microbatch in flight; its gradient is never added. Unknown ones are forgotten already."""
        self._flights.pop(microbatch, None)

    @overload
    def evaluate(self, inputs: Inputs) -> Output: ...

    @overload
    def evaluate(self, inputs: Inputs, labels: Tokens) -> float: ...

    @torch.no_grad()
    def evaluate(self, inputs: Inputs, labels: Tokens | None = None) -> Tensor | float:
        """Without gradients: the activation (or the logits, last stage), or with labels the sum of token losses."""
        output = self._run(inputs)
        if labels is None:
            return output
        assert self.span.head, f"stage {self.index} is not the last: it has no loss"
        return float(_loss_sum(output, labels))

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The microbatches between their forward and their backward."""
        return tuple(self._flights)

    @torch.no_grad()
    def parameters_flat(self) -> Flat:
        """A copy of the parameters in the layout's order."""
        return self.layout.join({name: parameter.numpy() for name, parameter in self.parameters.items()})

    @torch.no_grad()
    def load_flat(self, flat: Flat) -> None:
        """Set the parameters from the layout's order. Raises EvidenceError on another length or dtype."""
        for name, value in self.layout.split(flat).items():
            self.parameters[name].copy_(torch.from_numpy(np.array(value)))

    def zero_gradients(self) -> None:
        """Forget the accumulated gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def _leaf(self, microbatch: int, inputs: Inputs) -> Tensor:
        assert microbatch not in self._flights, f"microbatch {microbatch} is already in flight"
        return inputs if self.span.embedding else inputs.detach().requires_grad_()

    def _run(self, inputs: Inputs) -> Output:
        given = {"input_ids" if self.span.embedding else "inputs_embeds": inputs}
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=self._bfloat16):
            output: Tensor = self.module(**given, use_cache=False).logits
        return output.float()


def _recomputed(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same forward, of which only the inputs are kept. There is no dropout, so no random state to keep either."""
    return partial(checkpoint, forward, use_reentrant=False, preserve_rng_state=False)


def _loss_sum(logits_BTV: Float32[Tensor, "batch tokens vocabulary"], labels_BT: Tokens) -> Float32[Tensor, ""]:
    return cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="sum")
