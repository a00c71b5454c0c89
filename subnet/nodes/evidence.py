"""Fetching evidence: each byte from whoever owes it, in parallel, with what cannot be had simply left out.

A peer that does not answer, or answers with something else, is no error here: the judgement decides what a gap means.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
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
LIMIT_S = 45.0  # for all of one audit's evidence, and
LEAST_BYTES_PER_S = 1e6  # as much more as its bytes need: who drips must not hold up the audits of others
PEER_PATIENCE_S = 2.0


async def gather(client: RunClient, state: RunState, need: Needed) -> Evidence:
    """Everything of the needed bytes that can be had now."""
    size_bytes = need.public_bytes + need.start_bytes + need.end_bytes
    size_bytes += frame_bytes(state.config) * (len(need.inbound) + len(need.outbound))
    source = _Source(client, state, limit_s=LIMIT_S + size_bytes / LEAST_BYTES_PER_S)
    owner = source.peer(need.case.hotkey)
    owners = {name: owner for name in need.inbound}
    owners |= {outbound.digest: source.peer(outbound.receiver) for outbound in need.outbound}
    signed = {lines.name: lines for lines in need.deliveries}
    public, start, kept, deliveries, chunks = await asyncio.gather(
        source.public(need.public_root, need.public_bytes) if need.public_root else _nothing(),
        source.blob(owner, need.start_root, need.start_bytes) if need.start_root else _nothing(),
        _all(owners, lambda name: source.frame(owners[name], name, state)),
        _all(signed, lambda name: source.blob(source.peer(signed[name].holder), name, signed[name].size_bytes)),
        _all(need.chunks, lambda index: source.chunk(owner, need.end_root, index)),
    )
    return Evidence(public=public, start=start, frames=kept, deliveries=deliveries, chunks=chunks)


async def _nothing() -> None:
    return None


async def _all(keys: Iterable[K], fetch: Callable[[K], Awaitable[V | None]]) -> dict[K, V]:
    """What can be had, by key. Nothing is asked for before this runs, so nothing is left behind when it is stopped."""
    names = list(keys)
    found = await asyncio.gather(*(fetch(name) for name in names))
    return {name: value for name, value in zip(names, found, strict=True) if value is not None}


class _Source:
    """Peers by hotkey, and bounded requests to them."""

    def __init__(self, client: RunClient, state: RunState, *, limit_s: float) -> None:
        self._client = client
        self._reach = Reach(client)
        self._addresses = {hotkey: member.address for hotkey, member in state.members.items()}
        self._slots = asyncio.Semaphore(PARALLEL)
        self._end_s = asyncio.get_running_loop().time() + limit_s

    def peer(self, hotkey: str) -> Peer:
        """The member of this hotkey, who owes evidence."""
        return Peer(hotkey=hotkey, address=self._addresses.get(hotkey, ""))

    async def got(self, request: Callable[[], Awaitable[V]]) -> V | None:
        """What the request gives, or None when it fails."""
        async with self._slots:
            try:
                async with asyncio.timeout_at(self._end_s):
                    return await request()
            except (TransportError, SubnetError, TimeoutError) as error:
                log.info("evidence missing=%r", str(error))
                return None

    async def public(self, root: str, size_bytes: int) -> bytes | None:
        """A public state, from the run's store."""
        return await self.got(lambda: self._client.get(root, limit_bytes=size_bytes))

    async def blob(self, peer: Peer, name: str, size_bytes: int) -> bytes | None:
        """A blob by digest or root."""
        return await self.got(lambda: self._reach.blob(peer, name, limit_bytes=size_bytes, patience_s=PEER_PATIENCE_S))

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

        return await self.got(ask)
