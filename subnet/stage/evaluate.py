"""The held-out loss of a whole model, with one stage in memory at a time.

Owns the order: every microbatch through the first stage, then the stage is freed. Does not know where tensors or
microbatches come from.
"""

import math
from collections.abc import Iterable, Sequence

from jaxtyping import Int64
from torch import Tensor

from subnet.config import RunConfig
from subnet.errors import CheckpointError
from subnet.stage.stage import Stage

Microbatch = tuple[Int64[Tensor, "batch tokens"], Int64[Tensor, "batch tokens"]]  # tokens, labels


def heldout_loss(run: RunConfig, stages: Iterable[dict[str, Tensor]], microbatches: Sequence[Microbatch]) -> float:
    """Mean loss in nats per token over the microbatches.

    stages: the tensors of stage 0, 1, ... by their name in the whole model; taken one by one, so that a generator
    keeps only one in memory. Raises CheckpointError when there are more or fewer than the run's.
    """
    flowing: list[Tensor] = [tokens for tokens, _ in microbatches]
    sums: list[float] = []
    num_stages = 0
    for index, tensors in enumerate(stages):
        if index == run.stages:
            raise CheckpointError(f"expected {run.stages} stages to evaluate, found more; pass each stage once")
        stage = Stage(run, index, tensors)
        del tensors
        num_stages += 1
        for position, (_, labels) in enumerate(microbatches):
            if stage.span.head:
                sums.append(stage.evaluate(flowing[position], labels))
            else:
                flowing[position] = stage.evaluate(flowing[position])
        del stage
    if num_stages != run.stages:
        raise CheckpointError(f"expected {run.stages} stages to evaluate, found {num_stages}; fetch those missing")
    return math.fsum(sums) / sum(labels.numel() for _, labels in microbatches)
