"""How a node reaches a miner: directly at its address, or by a letter through the orchestrator's relay.

The same request either way, signed for the receiver; so the answer is checked in the same way too. A miner without an
address, or one that could not be connected to a moment ago, gets letters. Knows nothing of what is asked.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass

from subnet.edges.blobs import check_blob
from subnet.errors import EvidenceError
from subnet.nodes.client import LATE_TRIES, RunClient, fetch_rest, retried
from subnet.wire.letter import make_letter, pack, send_target
from subnet.wire.merkle import check_leaves, leaves_bytes
from template.errors import BodyTooLarge, ClockSkew, PeerRefused, PeerUnreachable
from template.inward import Inward
from template.transport import Response

log = logging.getLogger("strata.reach")

DIRECT_S = 15.0
LETTER_S = 30.0  # a little longer than a letter lives
AVOID_S = 60.0  # a peer that could not be connected to gets letters for so long
PIECE_BYTES = 4 << 20
ANSWER_BYTES = 256 << 10  # an acknowledgement, or a chunk with its proof


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A miner: its hotkey, and its address as the ledger has it (empty when it works outbound-only)."""

    hotkey: str
    address: str


class Reach:
    """One node's way to all miners."""

    def __init__(self, client: RunClient, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._client = client
        self._piece_bytes = piece_bytes

    def directly(self, peer: Peer) -> bool:
        """Whether the next request goes straight to the peer."""
        now_s = asyncio.get_running_loop().time()
        return bool(peer.address) and self._client.avoid_until_s.get(peer.address, 0.0) <= now_s

    async def deliver(self, peer: Peer, target: str, frame: bytes) -> Response:
        """POST a frame, signed for the peer; its answer. Raises TransportError kinds."""
        if self.directly(peer):
            try:
                return await self._posted(peer, target, frame)
            except ClockSkew:
                return await self._posted(peer, target, frame)  # dated by the peer's clock this time
            except PeerUnreachable as error:
                self._avoid(peer, error)
        return await self.deliver_by_letter(peer, target, frame)

    async def deliver_by_letter(self, peer: Peer, target: str, frame: bytes) -> Response:
        """The same through the relay, which acknowledges a gradient in the place of a peer that does not."""
        for _ in range(LATE_TRIES - 1):
            with contextlib.suppress(ClockSkew):
                return await self._posted_by_letter(peer, target, frame)
        return await self._posted_by_letter(peer, target, frame)

    async def _posted_by_letter(self, peer: Peer, target: str, frame: bytes) -> Response:
        """Once, dated by the peer's clock as far as that is known. Raises ClockSkew when it has just become known."""
        client, clocks, signed_s = self._client, self._client.letter_clocks, time.monotonic()
        headers = client.signer.sign_request("POST", target, peer.hotkey, offset_s=clocks.offset_s(peer.hotkey))
        request = Inward(method="POST", target=target, headers=headers, body=frame)
        try:
            return await self._by_letter(peer, request, answer_bytes=ANSWER_BYTES)
        except PeerRefused as refused:
            if refused.delta_s is None or isinstance(refused, ClockSkew):
                raise
            elapsed_s = time.monotonic() - signed_s
            # Part of that time the letter was under way. Dated too early it has patience, dated too late it has none.
            skew = ClockSkew(str(refused), word=refused.word, delta_s=refused.delta_s + elapsed_s)
            raise clocks.noted(skew, peer.hotkey, elapsed_s=elapsed_s) from refused

    async def _posted(self, peer: Peer, target: str, frame: bytes) -> Response:
        return await self._client.transport.request(
            "POST", peer.address, target, body=frame, receiver=peer.hotkey, timeout_s=DIRECT_S
        )

    async def want(self, peer: Peer, root: str) -> Response:
        """Have a miner make a state again that it dropped, as a validator may. Raises TransportError kinds; that it is
        being made, or waits for its turn, is such a refusal too."""
        return await self.deliver(peer, wanted_target(root), b"")

    async def ask(self, peer: Peer, target: str) -> Response:
        """GET something small that anybody may ask for. Raises TransportError kinds."""
        if self.directly(peer):
            try:
                return await self._client.transport.request("GET", peer.address, target)
            except PeerUnreachable as error:
                self._avoid(peer, error)
        return await self._by_letter(peer, _get(target), answer_bytes=ANSWER_BYTES)

    async def ask_by_letter(self, peer: Peer, target: str) -> Response:
        """The same through the relay, whether or not the peer can be connected to."""
        return await self._by_letter(peer, _get(target), answer_bytes=ANSWER_BYTES)

    async def by_letter(self, peer: Peer, name: str, *, limit_bytes: int) -> bytes:
        """A blob through the relay alone, once, verified: so that the relay sees what the peer answers."""
        data = bytearray()
        await self._in_pieces(peer, _blob(name), data, limit_bytes)
        return _verified(data, name, peer)

    async def blob(self, peer: Peer, name: str, *, limit_bytes: int, patience_s: float) -> bytes:
        """A blob by digest or root, verified. Raises TransportError kinds, UnreachableError, or EvidenceError."""

        data = bytearray()  # grows from one attempt to the next

        async def attempt() -> None:
            if self.directly(peer):
                try:
                    return await fetch_rest(self._client.transport, peer.address, name, data, limit_bytes=limit_bytes)
                except PeerUnreachable as error:
                    self._avoid(peer, error)
            await self._in_pieces(peer, _blob(name), data, limit_bytes)

        await retried(attempt, what=f"{peer.hotkey} to send {name[:12]}", patience_s=patience_s)
        return _verified(data, name, peer)

    async def leaves(self, peer: Peer, root: str, *, size_bytes: int) -> bytes:
        """The leaf hashes of a state of so many bytes, verified. Raises TransportError kinds, or EvidenceError."""
        if self.directly(peer):
            limit_bytes = leaves_bytes(size_bytes)
            try:
                parts = self._client.transport.download(peer.address, _leaves(root), limit_bytes=limit_bytes)
                return _bound(b"".join([part async for part in parts]), root, size_bytes, peer)
            except PeerUnreachable as error:
                self._avoid(peer, error)
        return await self.leaves_by_letter(peer, root, size_bytes=size_bytes)

    async def leaves_by_letter(self, peer: Peer, root: str, *, size_bytes: int) -> bytes:
        """The same through the relay, whether or not the peer can be connected to."""
        data = bytearray()
        await self._in_pieces(peer, _leaves(root), data, leaves_bytes(size_bytes))
        return _bound(bytes(data), root, size_bytes, peer)

    async def _in_pieces(self, peer: Peer, path: str, data: bytearray, limit_bytes: int) -> None:
        """By one letter after the other, so that no relay has to hold a whole state."""
        while len(data) < limit_bytes:
            length = min(self._piece_bytes, limit_bytes - len(data))
            target = f"{path}?start={len(data)}&length={length}"
            piece = await self._by_letter(peer, _get(target), answer_bytes=length)
            data += piece.body
            if len(piece.body) != length:
                break

    async def _by_letter(self, peer: Peer, request: Inward, *, answer_bytes: int) -> Response:
        """Have the orchestrator's relay carry a request to the peer and its answer back."""
        client = self._client
        bundle = pack(
            [make_letter(request.method, request.target, request.headers, request.body, answer_bytes=answer_bytes)]
        )
        target = send_target(peer.hotkey, bundle, answer_bytes=answer_bytes)
        response = await client.transport.request(
            "POST", client.peer, target, body=bundle, receiver=client.orchestrator, timeout_s=LETTER_S
        )
        if len(response.body) > answer_bytes:
            raise BodyTooLarge(
                f"expected at most {answer_bytes} bytes from {peer.hotkey}, found {len(response.body)}; leave it"
            )
        return response

    def _avoid(self, peer: Peer, error: PeerUnreachable) -> None:
        """Remember that this peer cannot be connected to; it is tried again after a while."""
        if peer.address not in self._client.avoid_until_s:
            log.warning(
                "peer=%s address=%s unreachable=%r; by letter from now on", peer.hotkey, peer.address, str(error)
            )
        self._client.avoid_until_s[peer.address] = asyncio.get_running_loop().time() + AVOID_S


def wanted_target(root: str) -> str:
    """The request target by which a validator wants a state made again."""
    return f"/v1/states/{root}/wanted"


def _verified(data: bytearray, name: str, peer: Peer) -> bytes:
    if not data:
        raise EvidenceError(f"expected the bytes of {name[:12]} from {peer.hotkey}, found none; ask another source")
    check_blob(name, data)
    return bytes(data)


def _bound(data: bytes, root: str, size_bytes: int, peer: Peer) -> bytes:
    if not check_leaves(root, size_bytes, data):
        raise EvidenceError(f"expected the leaves of {root[:12]} from {peer.hotkey}, found others; leave it")
    return data


def _blob(name: str) -> str:
    return f"/v1/blobs/{name}"


def _leaves(root: str) -> str:
    return f"/v1/states/{root}/leaves"


def _get(target: str) -> Inward:
    return Inward(method="GET", target=target, headers={})
