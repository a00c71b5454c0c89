"""A validator's check of disputed merges: computed again from the public contributions, and said like a replica's.

As soon as one replica merged otherwise than the manifest, the validators' own merges decide who is right, whatever the
other replicas of the stage say (`subnet.ledger.closed`). Costs nothing while nobody dissents. A merge that cannot be
computed here, for want of a blob, is no judgement: it is tried a few times. Knows nothing of audits and weights.
"""

import logging
from collections import Counter

from subnet.config import RunConfig
from subnet.errors import SubnetError
from subnet.ledger.closed import is_unconfirmed
from subnet.ledger.state import RunState
from subnet.nodes.client import RunClient
from subnet.nodes.clock import now_ms
from subnet.nodes.merging import merge_stage
from subnet.stage.layout import StateLayout, public_from_bytes
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import WIRE_VERSION, Merged
from template.errors import TransportError

log = logging.getLogger("strata.validator")

MOST_TRIES = 5

Disputed = tuple[int, int]  # the round that a merge leads to, and the stage


class MergeChecks:
    """The disputed merges that one validator looks into."""

    def __init__(self, client: RunClient, run: RunConfig) -> None:
        self._client = client
        self._run = run
        self._tried: Counter[Disputed] = Counter()

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

    async def look(self, state: RunState) -> None:
        """Compute the first of them again, and say what came out."""
        for number, stage in self.due(state)[:1]:
            self._tried[number, stage] += 1
            try:
                data = await self._merge(state, number, stage)
                await self._say(number, stage, data)
            except (SubnetError, TransportError) as error:
                log.warning("merge round=%d stage=%d not checked reason=%r", number, stage, str(error))
                continue
            self._tried[number, stage] = MOST_TRIES
            right = merkle_root(data) == state.manifests[number].stages[stage].root
            log.info("merge round=%d stage=%d manifest=%s", number, stage, "confirmed" if right else "wrong")

    async def _merge(self, state: RunState, number: int, stage: int) -> bytes:
        public = state.manifests[number - 1].stages[stage]
        start = await self._client.state(public.root, public.state_bytes)
        layout = StateLayout(self._run, stage)
        closed = state.closed[number - 1, stage]

        async def fetch(name: str, size: int) -> bytes:
            return await self._client.get(name, limit_bytes=size)

        return await merge_stage(self._run, closed, public_from_bytes(layout, start), fetch=fetch)

    async def _say(self, number: int, stage: int, data: bytes) -> None:
        await self._client.say(
            Merged(
                version=WIRE_VERSION,
                run_id=self._run.run_id,
                hotkey=self._client.signer.hotkey,
                round=number,
                stage=stage,
                root=merkle_root(data),
                state_bytes=len(data),
                time_ms=now_ms(),
            )
        )
