"""A validator's check of disputed merges: computed again from the public contributions, and said like a replica's.

As soon as one replica merged otherwise than the manifest, the validators' own merges decide who is right, whatever the
other replicas of the stage say (`subnet.ledger.closed`). Costs nothing while nobody dissents, and goes on beside the
audits, so that neither waits for the other. A merge that cannot be computed here, for want of a blob, is no judgement:
it is tried a few times; an outage, however long, is waited for. Knows nothing of audits and weights.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from subnet.config import RunConfig
from subnet.errors import MessageError, SubnetError, UnreachableError
from subnet.ledger.closed import is_unconfirmed
from subnet.ledger.state import RunState
from subnet.nodes.client import RunClient, temporary
from subnet.nodes.clock import now_ms
from subnet.nodes.merging import merge_stage
from subnet.stage.layout import StateLayout, public_from_bytes
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import WIRE_VERSION, Merged
from template.errors import ClockSkew, TransportError

log = logging.getLogger("strata.validator")

MOST_TRIES = 5
LOOK_S = 1.0  # between two looks at whether something is disputed
RETRY_S = 10.0  # before a merge that failed is tried again

Disputed = tuple[int, int]  # the round that a merge leads to, and the stage


class MergeChecks:
    """The disputed merges that one validator looks into."""

    def __init__(self, client: RunClient, run: RunConfig, *, retry_s: float = RETRY_S) -> None:
        self._client = client
        self._run = run
        self._retry_s = retry_s
        self._tried: Counter[Disputed] = Counter()
        self._rests_until_s: dict[Disputed, float] = {}

    def due(self, state: RunState) -> list[Disputed]:
        """What is disputed, by the ledger here, and not looked at yet."""
        me = self._client.signer.hotkey
        if not state.dissents or me not in state.validators():
            return []
        return [
            place
            for place in state.dissents
            if self._tried[place] < MOST_TRIES and me not in state.merged[place] and is_unconfirmed(state, *place)
        ]

    async def work(self, state: Callable[[], RunState]) -> None:
        """Look into what is disputed until cancelled. state: as it is known when it is asked for."""
        while True:
            await self.look(state())
            await asyncio.sleep(LOOK_S)

    async def look(self, state: RunState) -> None:
        """Compute the first of them again that does not rest, and say what came out."""
        clock = asyncio.get_running_loop().time
        ready = (place for place in self.due(state) if self._rests_until_s.get(place, 0.0) <= clock())
        for number, stage in list(ready)[:1]:
            try:
                data = await self._merge(state, number, stage)
                root = await asyncio.to_thread(merkle_root, data)
                await self._say(number, stage, root, len(data))
            except (SubnetError, TransportError) as error:
                self._tried[number, stage] += not _passes(error)
                self._rests_until_s[number, stage] = clock() + self._retry_s
                log.warning("merge round=%d stage=%d not checked reason=%r", number, stage, str(error))
                continue
            self._tried[number, stage] = MOST_TRIES
            right = root == state.manifests[number].stages[stage].root
            log.info("merge round=%d stage=%d manifest=%s", number, stage, "confirmed" if right else "wrong")

    async def _merge(self, state: RunState, number: int, stage: int) -> bytes:
        public = state.manifests[number - 1].stages[stage]
        start = await self._client.state(public.root, public.state_bytes)
        layout = StateLayout(self._run, stage)
        closed = state.closed[number - 1, stage]

        async def fetch(name: str, size: int) -> bytes:
            return await self._client.get(name, limit_bytes=size)

        return await merge_stage(self._run, closed, public_from_bytes(layout, start), fetch=fetch)

    async def _say(self, number: int, stage: int, root: str, size_bytes: int) -> None:
        await self._client.say(
            Merged(
                version=WIRE_VERSION,
                run_id=self._run.run_id,
                hotkey=self._client.signer.hotkey,
                round=number,
                stage=stage,
                root=root,
                state_bytes=size_bytes,
                time_ms=now_ms(),
            )
        )


def _passes(error: SubnetError | TransportError) -> bool:
    """Whether the network, the orchestrator or a clock was at fault, which says nothing about the blobs."""
    if isinstance(error, TransportError):
        return temporary(error) or isinstance(error, ClockSkew)
    return isinstance(error, UnreachableError | MessageError)
