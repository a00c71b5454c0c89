"""Substrate JSON-RPC over websockets: framing, batches, subscriptions.

Owns connections and the life of a subscription. What a method answers is in
methods.py; when a block comes is the node's business, which calls `announce`.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from template.devchain.chain import Chain, Produced
from template.devchain.context import PoolError
from template.devchain.controls import Faults
from template.devchain.extrinsics import Extrinsic
from template.devchain.methods import Methods, RpcError

logger = logging.getLogger(__name__)

_MAX_OUTGOING = 8192  # frames a slow reader may be behind before it is cut off
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
_FEEDS = {
    "chain_subscribeNewHeads": ("new", "chain_newHead"),
    "chain_subscribeNewHead": ("new", "chain_newHead"),
    "chain_subscribeAllHeads": ("new", "chain_allHead"),
    "chain_subscribeFinalizedHeads": ("final", "chain_finalizedHead"),
}


class Connection:
    """One client: its outgoing frames and its subscriptions."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.outgoing: asyncio.Queue[str] = asyncio.Queue(_MAX_OUTGOING)
        self.feeds: dict[str, tuple[str, str]] = {}

    def push(self, frame: Any) -> None:
        """Queue a frame; a reader that is too far behind is cut off."""
        try:
            self.outgoing.put_nowait(json.dumps(frame))
        except asyncio.QueueFull:
            logger.warning("event=client_dropped reason=too_slow")
            self.socket.transport.abort()

    def notify(self, method: str, subscription: str, result: Any) -> None:
        """Queue one notification of a subscription."""
        self.push({"jsonrpc": "2.0", "method": method, "params": {"subscription": subscription, "result": result}})


class Server:
    """All clients of one chain."""

    def __init__(self, chain: Chain, methods: Methods, faults: Faults) -> None:
        self.chain, self.methods, self.faults = chain, methods, faults
        self._connections: set[Connection] = set()
        self._ids = itertools.count(1)
        self._watchers: dict[bytes, list[tuple[Connection, str]]] = {}
        self._unfinal: list[tuple[int, bytes, bytes]] = []
        self._final = chain.blocks.finalized

    async def serve(self, socket: ServerConnection) -> None:
        """Answer one client until it leaves."""
        connection = Connection(socket)
        self._connections.add(connection)
        writer = asyncio.create_task(self._write(connection))
        if self.faults.drop_after_s:
            asyncio.get_running_loop().call_later(self.faults.drop_after_s, socket.transport.abort)
        try:
            async for text in socket:
                if await self._is_lost(text):
                    continue
                answer = self._receive(connection, text)
                if answer is not None:
                    connection.push(answer)
        except ConnectionClosed:
            pass
        finally:
            self._connections.discard(connection)
            for watching in self._watchers.values():
                watching[:] = [each for each in watching if each[0] is not connection]
            writer.cancel()

    async def _is_lost(self, text: str | bytes) -> bool:
        """Wait as long as the node is told to be slow; true when it is told to be dumb. Controls always answer."""
        is_control = '"dev_' in text if isinstance(text, str) else b'"dev_' in text
        if self.faults.delay_s and not is_control:
            await asyncio.sleep(self.faults.delay_s)
        return self.faults.mute and not is_control

    async def _write(self, connection: Connection) -> None:
        try:
            while True:
                await connection.socket.send(await connection.outgoing.get())
        except ConnectionClosed:
            return

    def _receive(self, connection: Connection, text: str | bytes) -> Any:
        try:
            request = json.loads(text)
        except ValueError:
            return _failure(None, RpcError(_PARSE_ERROR, "Parse error"))
        if isinstance(request, list):
            return [self._answer(connection, each) for each in request]
        return self._answer(connection, request)

    def _answer(self, connection: Connection, request: Any) -> Any:
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _failure(None, RpcError(_INVALID_REQUEST, "Invalid request"))
        params = request.get("params") or []
        try:
            result = self._call(connection, request["method"], params)
        except (RpcError, PoolError) as error:
            return _failure(request.get("id"), error)
        return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}

    def _call(self, connection: Connection, method: str, params: Any) -> Any:
        if not isinstance(params, list):
            raise RpcError(-32602, "Invalid params", "expected the parameters as an array")
        special: dict[str, Callable[[Connection, list[Any]], Any]] = {
            "author_submitExtrinsic": self._submit,
            "author_submitAndWatchExtrinsic": self._watch,
            "author_unwatchExtrinsic": self._unwatch,
        }
        if method in special:
            return special[method](connection, params)
        if method in _FEEDS:
            return self._subscribe(connection, _FEEDS[method])
        if method.startswith("chain_unsubscribe"):
            return connection.feeds.pop(str(params[0]) if params else "", None) is not None
        return self.methods.call(method, params)

    def _subscribe(self, connection: Connection, feed: tuple[str, str]) -> str:
        subscription = f"{next(self._ids):016x}"
        connection.feeds[subscription] = feed
        number = self.chain.head.number if feed[0] == "new" else self.chain.blocks.finalized
        block = self.chain.blocks.by_number(number)
        assert block is not None
        asyncio.get_running_loop().call_soon(connection.notify, feed[1], subscription, block.header())
        return subscription

    def _submit(self, connection: Connection, params: list[Any]) -> str:
        extrinsic, replaced = self.chain.submit(self.methods.bytes_param(params, 0))
        self._tell_replaced(extrinsic, replaced)
        return "0x" + extrinsic.hash.hex()

    def _watch(self, connection: Connection, params: list[Any]) -> str:
        extrinsic, replaced = self.chain.submit(self.methods.bytes_param(params, 0))
        self._tell_replaced(extrinsic, replaced)
        subscription = f"{next(self._ids):016x}"
        self._watchers.setdefault(extrinsic.hash, []).append((connection, subscription))
        status = "ready" if self.chain.is_ready(extrinsic) else "future"
        loop = asyncio.get_running_loop()
        loop.call_soon(connection.notify, "author_extrinsicUpdate", subscription, status)
        return subscription

    def _unwatch(self, connection: Connection, params: list[Any]) -> bool:
        subscription = str(params[0]) if params else ""
        found = False
        for watching in self._watchers.values():
            kept = [each for each in watching if each != (connection, subscription)]
            found = found or len(kept) < len(watching)
            watching[:] = kept
        return found

    def _tell_replaced(self, extrinsic: Extrinsic, replaced: Extrinsic | None) -> None:
        if replaced is not None:
            self._tell(replaced.hash, {"usurped": "0x" + extrinsic.hash.hex()}, last=True)

    def _tell(self, extrinsic_hash: bytes, status: Any, *, last: bool = False) -> None:
        for connection, subscription in self._watchers.get(extrinsic_hash, ()):
            connection.notify("author_extrinsicUpdate", subscription, status)
        if last:
            self._watchers.pop(extrinsic_hash, None)

    def announce(self, produced: Produced) -> None:
        """Tell everyone of a new block: heads, inclusion, then finality."""
        block = produced.block
        self._feed("new", block.header())
        for extrinsic in produced.included:
            self._tell(extrinsic.hash, {"inBlock": "0x" + block.hash.hex()})
            self._unfinal.append((block.number, block.hash, extrinsic.hash))
        for extrinsic in produced.dropped:
            self._tell(extrinsic.hash, "invalid", last=True)
        self.announce_finality()

    def announce_finality(self) -> None:
        """Tell everyone of the blocks that became final."""
        self._final = min(self._final, self.chain.blocks.finalized)
        while self._final < self.chain.blocks.finalized:
            self._final += 1
            final = self.chain.blocks.by_number(self._final)
            assert final is not None
            self._feed("final", final.header())
        for number, block_hash, extrinsic_hash in self._unfinal:
            if number <= self._final:
                self._tell(extrinsic_hash, {"finalized": "0x" + block_hash.hex()}, last=True)
        self._unfinal = [each for each in self._unfinal if each[0] > self._final]

    def _feed(self, kind: str, header: dict[str, Any]) -> None:
        if self.faults.mute:
            return
        for connection in list(self._connections):
            for subscription, (wanted, method) in list(connection.feeds.items()):
                if wanted == kind:
                    connection.notify(method, subscription, header)


def _failure(request_id: Any, error: RpcError | PoolError) -> dict[str, Any]:
    content = {"code": error.code, "message": error.message}
    if error.data is not None:
        content["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": content}
