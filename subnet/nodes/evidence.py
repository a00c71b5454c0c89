"""Fetching evidence: each byte from whoever owes it, in parallel, with what cannot be had simply left out.

A peer that does not answer, or answers with something else, is no error here: the judgement decides what a gap means.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import TypeVar

import msgspec

from subnet.audit.evidence import Chunk, Evidence, Needed
from subnet.audit.tensors import frame_bytes
from subnet.errors import SubnetError
from subnet.ledger.state import RunState
from subnet.nodes.client import RunClient
from subnet.nodes.miner_routes import ChunkReply
from subnet.nodes.reach import Peer, Reach
from template.errors import TransportError

log = logging.getLogger("strata.validator")

K = TypeVar("K")
V = TypeVar("V")

PARALLEL = 8  # requests under way at once
PEER_PATIENCE_S = 2.0


async def gather(client: RunClient, state: RunState, need: Needed) -> Evidence:
    """Everything of the needed bytes that can be had now."""
    source = _Source(client, state)
    owner = source.peer(need.case.hotkey)
    frames = {name: source.frame(owner, name, state) for name in need.inbound}
    for outbound in need.outbound:
        frames[outbound.digest] = source.frame(source.peer(outbound.receiver), outbound.digest, state)
    public, start, kept, chunks = await asyncio.gather(
        source.got(client.get(need.public_root, limit_bytes=need.public_bytes)) if need.public_root else _nothing(),
        source.blob(owner, need.start_root, need.start_bytes) if need.start_root else _nothing(),
        _all(frames),
        _all({index: source.chunk(owner, need.end_root, index) for index in need.chunks}),
    )
    return Evidence(public=public, start=start, frames=kept, chunks=chunks)


async def _nothing() -> None:
    return None


async def _all(pending: Mapping[K, Awaitable[V | None]]) -> dict[K, V]:
    found = await asyncio.gather(*pending.values())
    return {key: value for key, value in zip(pending, found, strict=True) if value is not None}


class _Source:
    """Peers by hotkey, and bounded requests to them."""

    def __init__(self, client: RunClient, state: RunState) -> None:
        self._reach = Reach(client)
        self._addresses = {hotkey: member.address for hotkey, member in state.members.items()}
        self._slots = asyncio.Semaphore(PARALLEL)

    def peer(self, hotkey: str) -> Peer:
        """The member of this hotkey, who owes evidence."""
        return Peer(hotkey=hotkey, address=self._addresses.get(hotkey, ""))

    async def got(self, request: Awaitable[V]) -> V | None:
        """What the request gives, or None when it fails."""
        async with self._slots:
            try:
                return await request
            except (TransportError, SubnetError) as error:
                log.info("evidence missing=%r", str(error))
                return None

    async def blob(self, peer: Peer, name: str, size_bytes: int) -> bytes | None:
        """A blob by digest or root."""
        return await self.got(self._reach.blob(peer, name, limit_bytes=size_bytes, patience_s=PEER_PATIENCE_S))

    async def frame(self, peer: Peer, name: str, state: RunState) -> bytes | None:
        """A frame by digest."""
        return await self.blob(peer, name, frame_bytes(state.config))

    async def chunk(self, peer: Peer, root: str, index: int) -> Chunk | None:
        """A chunk of a state with its proof (which the audit checks)."""

        async def ask() -> Chunk:
            response = await self._reach.ask(peer, f"/v1/states/{root}/chunks/{index}")
            try:
                reply = msgspec.json.decode(response.body, type=ChunkReply)
            except msgspec.MsgspecError as error:
                raise SubnetError(
                    f"expected a chunk from {peer.hotkey}, found another answer ({error}); leave it out"
                ) from error
            return Chunk(data=reply.data, proof=reply.proof)

        return await self.got(ask())
