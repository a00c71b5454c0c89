"""A miner's part in the end of a round: commit and contribute, then merge with its peers and say what came out.

Knows the miner that it belongs to, and nothing of lanes or of who may contribute.
"""

import logging
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from subnet.canonical import digest
from subnet.ledger.events import ClosedSet
from subnet.merge.contribution import make_contribution, norm
from subnet.nodes.clock import now_ms
from subnet.nodes.merging import merge_stage
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import Merged

if TYPE_CHECKING:
    import subnet.nodes.miner

log = logging.getLogger("strata.miner")


class Closing:
    """The end of each round, for one miner."""

    def __init__(self, miner: "subnet.nodes.miner.Miner") -> None:
        self._miner = miner

    async def close(self, number: int) -> None:
        """Commit the end state and the contribution, then make the contribution readable."""
        miner, custody = self._miner, self._miner.custody
        if custody is None or number not in custody.publics:
            return
        if custody.opened_round != number and not custody.uncommitted_steps:
            return
        start, end = custody.pseudo_gradient(number)
        data = await miner.compute(miner.cheat.contribution, make_contribution, start, end)
        root, state_bytes = await miner.compute(custody.commit)
        tokens = custody.round_tokens
        contribution = np.frombuffer(data, dtype="<f4")
        receipt = replace(
            miner.blank("close"),
            state_root=root,
            state_bytes=state_bytes,
            contribution=digest(data) if tokens else "",
            contribution_norm=norm(contribution) if tokens else None,
            tokens=tokens,
        )
        await miner.unless_refused(miner.say_receipt(receipt), "close")
        if tokens:
            miner.keep(digest(data), data)
            await miner.unless_refused(miner.client.put(digest(data), data), "contribution")

    async def merge(self, closed: ClosedSet) -> None:
        """Reduce the stage's closed set, take the outer step, and say what came out."""
        miner, custody = self._miner, self._miner.custody
        if custody is None or closed.stage != custody.stage:
            return
        if closed.round not in custody.publics:
            if closed.round not in miner.manifests:
                return
            await miner.load_public(closed.round)

        async def fetch(name: str, size: int) -> bytes:
            return await miner.client.get(name, limit_bytes=size)

        data = await merge_stage(miner.run, closed, custody.publics[closed.round], fetch=fetch, way=miner.cheat.reduce)
        root = merkle_root(data)
        miner.retention.keep(closed.round + 1, root, data)
        merged = Merged(
            **miner.names(),
            hotkey=miner.signer.hotkey,
            round=closed.round + 1,
            stage=closed.stage,
            root=root,
            state_bytes=len(data),
            time_ms=now_ms(),
        )
        await miner.unless_refused(miner.client.say(miner.cheat.send(lambda same: same, merged)), "merged")
