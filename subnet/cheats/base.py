"""The base of every cheat: the hooks at which a miner may be dishonest, all of them honest here.

The miner process is the ordinary one; at each hook it calls the cheat with the honest function and the arguments that
the honest function would get, and uses what comes back. A cheat overrides the hooks it needs. Knows nothing of the
miner and does not import torch: whoever only names cheats stays without it.

Ten hooks stand where an honest miner computes, states or sends something. Two more let a cheat do what is no
alteration of these: `start` hands the replica the state in which a round begins, and `beside` runs next to the work.

Letters: B sequences of a microbatch, T tokens of a sequence, D model width, P parameters of the stage.
"""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from subnet.config import RunConfig
from subnet.ledger.events import ClosedSet, Event
from subnet.stage.layout import Moments
from subnet.wire.messages import Message, Receipt

if TYPE_CHECKING:
    import torch

M = TypeVar("M", bound=Message)


@runtime_checkable
class Line(Protocol):
    """How a cheat speaks to others under its miner's own key, next to the ordinary work."""

    @property
    def run(self) -> RunConfig:
        """The run."""

    @property
    def hotkey(self) -> str:
        """The miner's hotkey."""

    async def ledger(self, first: int) -> tuple[Event, ...]:
        """The public ledger's events from `first` on, waiting a little for one."""

    async def fetch(self, name: str, limit_bytes: int) -> bytes | None:
        """Bytes from the run's store; None when it does not give them."""

    async def say(self, message: Message) -> bool:
        """Send a message to the orchestrator; whether it was taken."""

    async def post(self, hotkey: str, target: str, body: bytes) -> bool:
        """Send any request to a neighbour of some plan so far; whether it was taken."""

    def neighbours(self) -> tuple[str, ...]:
        """The hotkeys of the replicas in the miner's plans so far."""


def owner(honest: Callable[..., object]) -> Any:
    """The stage or the replica whose method an honest function is.

    A cheat is the miner's own code: it may do with both as it likes, and computes otherwise through them.
    """
    return cast(MethodType, honest).__self__


class Cheat:
    """An honest miner. `strength` is what follows the colon in `--cheats KIND:STRENGTH`; its meaning is the cheat's."""

    default_strength = 1.0

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def start(
        self,
        honest: Callable[[np.ndarray, Moments | None], None],
        parameters: np.ndarray,
        moments: Moments | None,
    ) -> None:
        """Put the replica where a round begins: public parameters (P,) and the moments its last state ended in."""
        honest(parameters, moments)

    async def beside(self, line: Line) -> None:
        """Runs next to the ordinary work until that ends; an honest miner does nothing."""

    def forward(
        self, honest: "Callable[[int, torch.Tensor], torch.Tensor]", microbatch: int, inputs: "torch.Tensor"
    ) -> "torch.Tensor":
        """The activation (B, T, D) float32 for the next stage. inputs: tokens (B, T) int64 on the first stage, else
        the activation (B, T, D) that came. Not called on the last stage."""
        return honest(microbatch, inputs)

    def loss(
        self,
        honest: "Callable[[int, torch.Tensor, torch.Tensor], float]",
        microbatch: int,
        inputs: "torch.Tensor",
        labels: "torch.Tensor",
    ) -> float:
        """The last stage's sum of token losses in nats. inputs as in `forward`, labels (B, T) int64."""
        return honest(microbatch, inputs, labels)

    def backward(
        self,
        honest: "Callable[[int, torch.Tensor | None, int], torch.Tensor | None]",
        microbatch: int,
        gradient: "torch.Tensor | None",
        planned_tokens: int,
    ) -> "torch.Tensor | None":
        """The gradient (B, T, D) for the stage before; None on the first stage. gradient: what came, None on the last
        stage, which divides its loss by planned_tokens."""
        return honest(microbatch, gradient, planned_tokens)

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """Take the inner step with what the backwards gathered, forget that, and return the gradients' L2 norm."""
        return honest(global_step)

    def contribution(
        self, honest: Callable[[np.ndarray, np.ndarray], bytes], start: np.ndarray, end: np.ndarray
    ) -> bytes:
        """The contribution's bytes. start, end: parameters (P,) float32 at the round's start and of the own end."""
        return honest(start, end)

    def reduce(
        self,
        honest: Callable[[ClosedSet, Sequence[np.ndarray]], np.ndarray],
        closed: ClosedSet,
        contributions: Sequence[np.ndarray],
    ) -> np.ndarray:
        """The stage's reduced pseudo-gradient (P,) float32. contributions: those of the closed set, in its order."""
        return honest(closed, contributions)

    def receipt(self, honest: Callable[[Receipt], Receipt], receipt: Receipt) -> Receipt:
        """The receipt that is signed in the place of this one."""
        return honest(receipt)

    def deliver(self, honest: Callable[[bytes], bytes | None], frame: bytes) -> bytes | None:
        """The frame that the neighbour gets in the place of this one; None: it gets none."""
        return honest(frame)

    def serve_blob(self, honest: Callable[[str], bytes | None], digest: str) -> bytes | None:
        """What is served to whoever asks for bytes of this digest (or a state's root); None: not found. honest gives
        the part that was asked for, which may be a range, a chunk, or the hashes of all chunks."""
        return honest(digest)

    def send(self, honest: Callable[[M], M], message: M) -> M:
        """The message that goes to the orchestrator in the place of this one, before it is signed."""
        return honest(message)
