"""The order of one stage's work within a lane step: one forward, one backward (1F1B).

Owns the order only; does not know what a microbatch holds or how it travels.
"""

from typing import Literal

import msgspec


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work: the forward ("F") or backward ("B") of the step's microbatch at `position`."""

    kind: Literal["F", "B"]
    position: int


def one_forward_one_backward(stage: int, num_stages: int, num_microbatches: int) -> list[Action]:
    """The order in which `stage` works: fill the pipeline, then alternate, then drain it.

    At most `num_stages - stage` microbatches are between their forward and their backward, so the first stage
    keeps the most activations and the last only one.
    """
    assert 0 <= stage < num_stages, f"stage {stage} of {num_stages}"
    forwards = [Action(kind="F", position=position) for position in range(num_microbatches)]
    backwards = [Action(kind="B", position=position) for position in range(num_microbatches)]
    warmup = min(num_stages - stage - 1, num_microbatches)
    steady = [
        action
        for pair in zip(forwards[warmup:], backwards[: num_microbatches - warmup], strict=True)
        for action in pair
    ]
    return forwards[:warmup] + steady + backwards[num_microbatches - warmup :]
