"""What a miner answers: deliveries of its lane neighbours, and evidence to anybody who names it by digest or root.

A delivery is judged by its signed target before a byte of its body is read: run, plan, sender, length. The answer is
the receiver's signature over the delivery.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from subnet.audit.tensors import frame_bytes
from subnet.canonical import canonical
from subnet.edges.blobs import BlobStore
from subnet.errors import BlobMissing, RefusedError, StoreError
from subnet.nodes.readiness import ready_route
from subnet.nodes.rebuilding import ANYBODY
from subnet.wire.delivery import Key, deliver_target, delivery_of, line_holds, make_line
from subnet.wire.merkle import Tree, chunk_span, merkle_leaves, num_chunks
from subnet.wire.messages import Signed, make_signed
from template.errors import RefusedRequest
from template.transport import Incoming, Reply, Route, json_reply

if TYPE_CHECKING:
    import subnet.nodes.miner

REMEMBERED_STATES = 16


class ChunkReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chunk of a state with its Merkle proof; `data` is base64 in JSON."""

    length_bytes: int
    proof: tuple[str, ...]
    data: bytes


def routes(miner: "subnet.nodes.miner.Miner") -> list[Route]:
    """All routes of a miner."""
    doors = _Doors(miner)
    return [
        Route(method="POST", path="/v1/deliver", handler=doors.deliver),
        Route(method="GET", path="/v1/blobs/{name}", handler=doors.blob, signed=False),
        Route(method="GET", path="/v1/states/{name}/chunks/{index}", handler=doors.chunk, signed=False),
        Route(method="GET", path="/v1/states/{name}/leaves", handler=doors.leaves, signed=False),
        Route(method="POST", path="/v1/states/{name}/wanted", handler=doors.wanted),
        Route(method="GET", path="/healthz", handler=doors.health, signed=False),
        ready_route(miner.readiness),
    ]


class _Doors:
    """The handlers of one miner."""

    def __init__(self, miner: "subnet.nodes.miner.Miner") -> None:
        self._miner = miner
        self._trees: dict[str, asyncio.Task[Tree]] = {}  # by root

    async def deliver(self, request: Incoming) -> Reply:
        """Take a planned frame from a lane neighbour and sign for it."""
        assert request.caller is not None
        miner, sender = self._miner, request.caller.hotkey
        key, name = _key(request), request.query.get("digest", "")
        if request.query.get("run") != miner.run.run_id or _number(request, "length") != frame_bytes(miner.run):
            raise RefusedError(
                f"expected a frame of {frame_bytes(miner.run)} bytes for run {miner.run.run_id[:12]}, found "
                f"{request.query.get('length')} for {request.query.get('run', '')[:12]}; check the run"
            )
        line = self._line(request, deliver_target(miner.run.run_id, key, name, frame_bytes(miner.run)))
        slot = await miner.inbox.slot(key, sender)
        frame = await request.body(length_bytes=frame_bytes(miner.run), digest=name)
        miner.inbox.accept(key, slot, name, frame, line=line)
        miner.keep(name, frame)
        delivery = delivery_of(miner.run.run_id, key, name, sender=sender, receiver=miner.signer.hotkey)
        signed: Signed = make_signed(delivery, miner.signer)
        return Reply(body=canonical(signed), content_type="application/json")

    def _line(self, request: Incoming, target: str) -> bytes:
        """The sender's signed line: what this miner shows to whoever doubts that the frame came from there.

        Raises RefusedError for a delivery whose signature nobody else could check by the ledger alone.
        """
        miner, caller = self._miner, request.caller
        assert caller is not None
        try:
            line = make_line(caller.nonce_ns, request.headers.get("x-bittensor-signature", ""))
        except ValueError as error:
            raise RefusedError(f"expected an sr25519 signature, found another ({error}); sign it anew") from error
        me = miner.signer.hotkey
        held = line_holds(line, target, sender=caller.hotkey, receiver=me, verifier=miner.verifier)
        if request.target != target or not held:
            raise RefusedError(f"expected a delivery signed as {target}, found another spelling; see docs/wire.md")
        return line

    async def blob(self, request: Incoming) -> Reply:
        """Evidence by digest or root: all of it, or `length` bytes from `start` on, for who puts pieces together."""
        name = request.path["name"]
        data = self._served(name, lambda same: self._miner.blobs.get_range(same, *self._asked(request, same)))
        if data is None:
            raise BlobMissing(
                f"expected a blob {name[:16]}, found none; it is older than two rounds, or another miner's"
            )
        return Reply(body=data)

    async def chunk(self, request: Incoming) -> Reply:
        """One 64 KiB chunk of a state, with its proof."""
        name, index, blobs = request.path["name"], request.path["index"], self._miner.blobs
        tree = await self._tree(name)
        length_bytes = blobs.size(name) if tree is not None else 0
        if tree is None or not (index.isascii() and index.isdigit()) or int(index) >= num_chunks(length_bytes):
            raise BlobMissing(
                f"expected a chunk of a committed state, found {name[:16]} chunk {index[:10]}; check the root"
            )
        start, end = chunk_span(length_bytes, int(index))
        data = self._served(name, lambda same: blobs.get_range(same, start, end - start))
        if data is None:
            raise BlobMissing(f"expected a committed state, found no {name[:16]}; check the root")
        reply = ChunkReply(length_bytes=length_bytes, proof=tuple(tree.proof(int(index))), data=data)
        return Reply(body=canonical(reply), content_type="application/json")

    async def leaves(self, request: Incoming) -> Reply:
        """The hashes of a state's chunks, which its root proves: all, or `length` bytes of them from `start` on."""
        name = request.path["name"]
        tree = await self._tree(name)
        data = self._served(name, lambda same: tree.leaves) if tree is not None else None
        if data is None:
            raise BlobMissing(f"expected a committed state, found no {name[:16]}; check the root")
        return Reply(body=_part(request, data))

    async def wanted(self, request: Incoming) -> Reply:
        """A validator wants a state here, made again where it was dropped: in its own turn, not in everybody's."""
        assert request.caller is not None
        caller, name = request.caller.hotkey, request.path["name"]
        if caller not in self._miner.validators:
            raise RefusedRequest(
                f"expected a validator of the run, found {caller[:64]}; ask for the state itself, as anybody may",
                word="no_permit",
                status=403,
            )
        if not self._is_here(name, caller):
            raise BlobMissing(f"expected a committed state, found no {name[:16]}; check the root")
        self._miner.rebuilding.hold(name, caller)
        return Reply(body=b"{}", content_type="application/json")

    def _served(self, name: str, read: Callable[[str], bytes]) -> bytes | None:
        """What the miner shows of a blob: the part that `read` gives, as its cheat has it.

        Not verified here: whoever asked checks what it gets against the name.
        """
        return self._miner.cheat.serve_blob(lambda same: read(same) if self._is_here(same) else None, name)

    def _is_here(self, name: str, who: str = ANYBODY) -> bool:
        """Whether there is such a blob. Raises RefusedRequest for a state that is being made again."""
        here = self._miner.blobs.has(name)
        if not here:
            self._miner.rebuilding.ask_for(name, who)
        return here

    def _asked(self, request: Incoming, name: str) -> tuple[int, int]:
        """From where on, and how many bytes, within what there is."""
        size_bytes = self._miner.blobs.size(name)
        if "start" not in request.query:
            return 0, size_bytes
        start = min(_number(request, "start"), size_bytes)
        return start, min(_number(request, "length"), size_bytes - start)

    async def _tree(self, root: str) -> Tree | None:
        """The hashes of a state, remembered: an audit asks for many chunks of the same one. None where it is not here.

        Made in a thread: that takes a second for each GiB, and deliveries must not wait for it.
        """
        blobs = self._miner.blobs
        if not self._is_here(root):
            return None
        if root not in self._trees:
            self._trees[root] = asyncio.create_task(asyncio.to_thread(_hashed, blobs, root))
            while len(self._trees) > REMEMBERED_STATES:
                del self._trees[next(iter(self._trees))]
        try:
            return await asyncio.shield(self._trees[root])
        except StoreError:
            self._trees.pop(root, None)
            raise

    async def health(self, request: Incoming) -> Reply:
        """Whether this miner works, and on what."""
        return json_reply(self._miner.health())


def _part(request: Incoming, data: bytes) -> bytes:
    """What of the bytes was asked for."""
    if "start" not in request.query:
        return data
    start = _number(request, "start")
    return data[start : start + _number(request, "length")]


def _hashed(blobs: BlobStore, root: str) -> Tree:
    return Tree(merkle_leaves(blobs.get_range(root, 0, blobs.size(root))))


def _key(request: Incoming) -> Key:
    kind = request.query.get("kind", "")
    if kind not in ("activation", "gradient"):
        raise RefusedError(f"expected an activation or a gradient, found {kind[:20]!r}; check the sender's version")
    return _number(request, "round"), _number(request, "step"), _number(request, "microbatch"), kind


def _number(request: Incoming, name: str) -> int:
    text = request.query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise RefusedError(f"expected {name} as a whole number, found {text[:40]!r}; correct the request")
    return int(text)
