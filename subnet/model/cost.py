"""What a stage costs: parameters, work per token, bytes of state; and the cuts that balance it.

Pure functions of the configuration, exact integers. Know nothing of torch or transformers, of miners, or of prices.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from subnet.config import RunConfig
from subnet.model.shapes import Span, block_shapes, geometry, num_elements, span_shapes

__all__ = ["FLOAT_BYTES", "Span", "activation_bytes", "parameters", "spans", "state_bytes", "work_per_token"]

FLOAT_BYTES = 4
COUNTER_BYTES = 8
FLOPS_PER_PARAMETER = 6  # a multiply and an add, once forward and twice backward
FLOPS_PER_ATTENDED = 12  # the same for scores and for values, per query element and attended position


def parameters(run: RunConfig, span: Span) -> int:
    """How many parameters the stage holds."""
    return num_elements(span_shapes(run, span))


def state_bytes(run: RunConfig, span: Span) -> int:
    """Bytes of a replica's state: parameters and two moments in float32, and the step counter."""
    return 3 * FLOAT_BYTES * parameters(run, span) + COUNTER_BYTES


def activation_bytes(run: RunConfig) -> int:
    """Bytes of one microbatch's activation, or gradient, between two stages (float32, before any codec)."""
    tokens = run.train.microbatch_sequences * run.data.sequence_tokens
    return FLOAT_BYTES * tokens * geometry(run.model).width


def work_per_token(run: RunConfig, span: Span) -> int:
    """FLOPs of one trained token: 6 x matmul parameters (head counted, look-ups not), plus attention."""
    shape = geometry(run.model)
    head = FLOPS_PER_PARAMETER * shape.vocabulary * shape.width if span.head else 0
    return span.num_blocks * _block_work(run) + head


def _block_work(run: RunConfig) -> int:
    shape = geometry(run.model)
    matrices = sum(math.prod(size) for size in block_shapes(run.model).values() if len(size) == 2)
    attended = shape.num_heads * shape.head_width * run.data.sequence_tokens
    return FLOPS_PER_PARAMETER * matrices + FLOPS_PER_ATTENDED * attended


@lru_cache(maxsize=64)
def spans(run: RunConfig) -> tuple[Span, ...]:
    """The run's stages: contiguous, at least one block each, the largest cost as small as any cut can make it.

    The cost of a cut is the work per token, with the embedding counted like the head: it costs no FLOPs, but fills
    memory and the optimizer as much.
    """
    shape = geometry(run.model)
    num_blocks, block, table = shape.num_blocks, _block_work(run), FLOPS_PER_PARAMETER * shape.vocabulary * shape.width

    def cost(first: int, end: int) -> int:
        return (end - first) * block + ((first == 0) + (end == num_blocks)) * table

    ends = _cut(num_blocks, run.stages, cost)
    return tuple(
        Span(first_block=first, end_block=end, embedding=first == 0, head=end == num_blocks)
        for first, end in zip((0, *ends[:-1]), ends, strict=True)
    )


def _cut(num_blocks: int, stages: int, cost: Callable[[int, int], int]) -> tuple[int, ...]:
    """Where each stage ends. Minimises the largest cost exactly; among equals it prefers even ones, then early cuts.

    best[end] is the cheapest way to cut the first `end` blocks into the stages so far: (largest cost, sum of
    squares, cuts).
    """
    best: dict[int, tuple[int, int, tuple[int, ...]]] = {
        end: (cost(0, end), cost(0, end) ** 2, (end,)) for end in range(1, num_blocks - stages + 2)
    }
    for stage in range(2, stages + 1):
        extended = {}
        for end in range(stage, num_blocks - stages + stage + 1):
            choices = []
            for first in range(stage - 1, end):
                largest, squares, cuts = best[first]
                last = cost(first, end)
                choices.append((max(largest, last), squares + last**2, (*cuts, end)))
            extended[end] = min(choices)
        best = extended
    return best[num_blocks][2]
