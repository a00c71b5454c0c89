"""A replica: a stage, its inner optimizer and its step counter, and their canonical bytes.

Owns the trajectory of one miner's copy of a stage. The bytes themselves are laid out in `subnet.stage.layout`,
which needs no torch; its names can be imported from either. Does not know rounds, merges or who else holds the stage.
"""

import numpy as np
import numpy.typing as npt
import torch

from subnet.config import RunConfig
from subnet.stage.layout import (
    Flat,
    Moments,
    PublicState,
    ReplicaState,
    StateLayout,
    public_from_bytes,
    public_to_bytes,
    state_from_bytes,
    state_to_bytes,
    tensors_to_bytes,
)
from subnet.stage.optim import InnerOptimizer, inner_step, learning_rate, make_optimizer
from subnet.stage.stage import Stage
from subnet.stage.view import StateView

__all__ = [
    "Flat",
    "Moments",
    "PublicState",
    "Replica",
    "ReplicaState",
    "StateLayout",
    "public_from_bytes",
    "public_to_bytes",
    "state_from_bytes",
    "state_to_bytes",
]


class Replica:
    """One miner's copy of stage `index`: starts at these parameters, or the run's initial ones, with zero moments."""

    def __init__(self, run: RunConfig, index: int, *, parameters: Flat | None = None, recompute: bool = False) -> None:
        """recompute: spare memory for a third more work; see `Stage`. Raises EvidenceError on parameters of another
        length or dtype."""
        self._train = run.train
        tensors = None
        if parameters is not None:
            views = StateLayout(run, index).split(parameters)
            tensors = {name: torch.from_numpy(np.array(value)) for name, value in views.items()}
        self.stage = Stage(run, index, tensors, recompute=recompute)
        self.layout = self.stage.layout
        self.optimizer: InnerOptimizer = make_optimizer(run.train, self.layout, self.stage.parameters)

    def start(self, parameters: Flat, moments: Moments | None = None) -> None:
        """Begin at public parameters, with the moments of the previous segment, or zeros (a joiner)."""
        self.stage.load_flat(parameters)
        self.optimizer.load(self.layout.zeros() if moments is None else moments)
        self.stage.zero_gradients()

    def step(self, global_step: int) -> float:
        """One inner step with the accumulated gradients, which it then forgets. Returns their unclipped norm."""
        norm = inner_step(
            self.stage.parameters,
            self.optimizer,
            lr=learning_rate(self._train, global_step),
            max_grad_norm=self._train.max_grad_norm,
        )
        self.stage.zero_gradients()
        return norm

    def state(self) -> ReplicaState:
        """A copy of the state."""
        return ReplicaState(parameters=self.stage.parameters_flat(), moments=self.optimizer.moments())

    def commit(self) -> bytes:
        """The canonical bytes of the state: `state_to_bytes(layout, state())`, without a copy of it in between."""
        return tensors_to_bytes(self.layout, self._arrays(), self.optimizer.steps)

    def view(self) -> StateView:
        """What `commit` would give, read where it is: it changes with the next step."""
        return StateView(self.layout, self._arrays(), self.optimizer.steps)

    def _arrays(self) -> list[dict[str, npt.NDArray[np.float32]]]:
        sections = (self.stage.parameters, *self.optimizer.memory())
        return [{name: tensor.detach().numpy() for name, tensor in section.items()} for section in sections]

    def restore(self, data: bytes) -> None:
        """Continue from committed bytes. Raises EvidenceError when they are not a state of this stage."""
        state = state_from_bytes(self.layout, data)
        self.start(state.parameters, state.moments)
