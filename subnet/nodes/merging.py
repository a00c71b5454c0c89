"""A stage's merge as every replica and the publisher do it: fetch the closed set, reduce, take the outer step.

Each of them arrives at the same bytes, or one of them is at fault. Knows nothing of who may contribute.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from subnet.config import RunConfig
from subnet.ledger.events import ClosedSet
from subnet.merge.contribution import contribution_bytes, read_contribution
from subnet.merge.outer import lately, outer_step
from subnet.merge.robust import reduce_by
from subnet.stage.layout import Flat, PublicState, StateLayout, public_to_bytes

Reduce = Callable[[ClosedSet, Sequence[Flat]], Flat]


def reduce_of(run: RunConfig, public: PublicState) -> Reduce:
    """How this run reduces a closed set's contributions, given in its order, in a round that starts from `public`."""

    def reduce(closed: ClosedSet, contributions: Sequence[Flat]) -> Flat:
        tokens = [entry.tokens for entry in closed.contributions]
        factors = [entry.factor for entry in closed.contributions]
        return reduce_by(run.reduce, contributions, tokens, factors, lately(public.outer_momentum, run.outer))

    return reduce


def as_it_is(reduce: Reduce, closed: ClosedSet, contributions: Sequence[Flat]) -> Flat:
    """The honest way to reduce."""
    return reduce(closed, contributions)


async def merge_stage(
    run: RunConfig,
    closed: ClosedSet,
    public: PublicState,
    *,
    fetch: Callable[[str, int], Awaitable[bytes]],
    way: Callable[[Reduce, ClosedSet, Sequence[Flat]], Flat] = as_it_is,
) -> bytes:
    """The bytes of the stage's next public state. An empty closed set leaves it as it is.

    fetch: the bytes of a digest, of a size that is known. way: what is made of the honest reduction, and its arguments.
    Computed in a thread: that takes seconds for each GiB, and whoever merges has others to answer meanwhile.
    """
    layout = StateLayout(run, closed.stage)
    if not closed.contributions:
        return public_to_bytes(layout, public)
    size = contribution_bytes(layout.num_parameters)
    parts = await asyncio.gather(*(fetch(entry.digest, size) for entry in closed.contributions))

    def computed() -> bytes:
        contributions = [read_contribution(part, layout.num_parameters) for part in parts]
        gradient = way(reduce_of(run, public), closed, contributions)
        parameters, momentum = outer_step(public.parameters, public.outer_momentum, gradient, run.outer)
        return public_to_bytes(layout, PublicState(parameters=parameters, outer_momentum=momentum))

    return await asyncio.to_thread(computed)
