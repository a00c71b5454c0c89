"""A stage's merge as every replica and the publisher do it: fetch the closed set, reduce, take the outer step.

Each of them arrives at the same bytes, or one of them is at fault. Knows nothing of who may contribute.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from subnet.config import RunConfig
from subnet.ledger.events import ClosedSet
from subnet.merge.contribution import contribution_bytes, read_contribution
from subnet.merge.outer import outer_step
from subnet.merge.reduce import reduce_stage
from subnet.stage.layout import Flat, PublicState, StateLayout, public_to_bytes

Reduce = Callable[[ClosedSet, Sequence[Flat]], Flat]


def reduce_closed(closed: ClosedSet, contributions: Sequence[Flat]) -> Flat:
    """The reduced pseudo-gradient of a closed set; contributions in its order."""
    return reduce_stage(
        contributions,
        [entry.tokens for entry in closed.contributions],
        [entry.factor for entry in closed.contributions],
    )


async def merge_stage(
    run: RunConfig,
    closed: ClosedSet,
    public: PublicState,
    *,
    fetch: Callable[[str, int], Awaitable[bytes]],
    reduce: Reduce = reduce_closed,
) -> bytes:
    """The bytes of the stage's next public state. An empty closed set leaves it as it is.

    Computed in a thread: that takes seconds for each GiB, and whoever merges has others to answer meanwhile.
    """
    layout = StateLayout(run, closed.stage)
    if not closed.contributions:
        return public_to_bytes(layout, public)
    size = contribution_bytes(layout.num_parameters)
    parts = await asyncio.gather(*(fetch(entry.digest, size) for entry in closed.contributions))

    def computed() -> bytes:
        contributions = [read_contribution(part, layout.num_parameters) for part in parts]
        gradient = reduce(closed, contributions)
        parameters, momentum = outer_step(public.parameters, public.outer_momentum, gradient, run.outer)
        return public_to_bytes(layout, PublicState(parameters=parameters, outer_momentum=momentum))

    return await asyncio.to_thread(computed)
