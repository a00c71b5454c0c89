"""Peers in memory: each address is an application, and a request is a direct call of it, signed like a real one.

An address can be taken down or made to hang, so that a node's handling of faults is tested without a network.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.types import Message

from template.auth import Signer
from template.clocks import Clocks
from template.errors import BodyTooLarge, DeadlineExceeded, PeerUnreachable
from template.transport import Body, Response
from template.values import Hotkey
from template.web_client import refusal


class FakePeers:
    """Who can be reached at which address ("ip:port" or base URL)."""

    def __init__(self) -> None:
        self.apps: dict[str, Starlette] = {}
        self.down: set[str] = set()
        self.hanging: set[str] = set()


class FakeTransport:
    """Implements transport.Transport over a FakePeers."""

    def __init__(self, peers: FakePeers, signer: Signer | None) -> None:
        self._peers = peers
        self._signer = signer
        self._clocks = Clocks()

    async def request(
        self,
        method: str,
        peer: str,
        target: str,
        *,
        body: Body | None = None,
        receiver: Hotkey | None = None,
        timeout_s: float = 10.0,
    ) -> Response:
        status, headers, parts = 0, {}, []
        call = _Call(method, target, b"" if body is None else bytes(body), self._headers(method, target, receiver))
        async for message in self._exchange(call, peer, timeout_s):
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            else:
                parts.append(message.get("body", b""))
        if status >= 400:
            refused = refusal(status, b"".join(parts), peer, retry_after=headers.get("retry-after"))
            raise self._clocks.noted(refused, receiver, elapsed_s=0.0)
        return Response(status=status, body=b"".join(parts), headers=headers)

    async def download(
        self,
        peer: str,
        target: str,
        *,
        receiver: Hotkey | None = None,
        limit_bytes: int,
        timeout_s: float = 60.0,
    ) -> AsyncIterator[bytes]:
        status, received, retry_after = 0, 0, None
        call = _Call("GET", target, b"", self._headers("GET", target, receiver))
        async for message in self._exchange(call, peer, timeout_s):
            if message["type"] == "http.response.start":
                status = message["status"]
                retry_after = dict(message["headers"]).get(b"retry-after", b"").decode("latin-1")
                continue
            chunk: bytes = message.get("body", b"")
            if status >= 400:
                refused = refusal(status, chunk, peer, retry_after=retry_after)
                raise self._clocks.noted(refused, receiver, elapsed_s=0.0)
            received += len(chunk)
            if received > limit_bytes:
                raise BodyTooLarge(f"expected at most {limit_bytes} bytes from {peer}, found more; ask for less")
            if chunk:
                yield chunk

    async def close(self) -> None:
        return None

    def _headers(self, method: str, target: str, receiver: Hotkey | None) -> Mapping[str, str]:
        if receiver is None:
            return {}
        assert self._signer is not None, "a signed request needs a signer"
        return self._signer.sign_request(method, target, receiver, offset_s=self._clocks.offset_s(receiver))

    async def _exchange(self, call: "_Call", peer: str, timeout_s: float) -> AsyncIterator[Message]:
        app = self._peers.apps.get(peer)
        if app is None or peer in self._peers.down:
            raise PeerUnreachable(f"expected {peer} to answer, found: nobody listens; check that it runs")
        running = asyncio.create_task(call.run(app)) if peer not in self._peers.hanging else None
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                while (message := await call.answered.get()) is not None:
                    deadline.reschedule(None)
                    yield message
                    deadline.reschedule(asyncio.get_running_loop().time() + timeout_s)
        except TimeoutError as error:
            raise DeadlineExceeded(f"expected an answer from {peer} within {timeout_s:g} s, found none") from error
        finally:
            if running is not None:
                await call.leave(running)


class _Call:
    """One request against an ASGI application."""

    def __init__(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> None:
        path, _, query = target.partition("?")
        pairs = {**headers, "content-length": str(len(body))} if body else headers
        self.answered: asyncio.Queue[Message | None] = asyncio.Queue()
        self._left = asyncio.Event()
        self._body: list[bytes] = [body]
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs.items()],
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
        }

    async def run(self, app: Starlette) -> None:
        """Call the application and mark the end of its answer, also when it fails."""
        try:
            await app(self._scope, self._receive, self.answered.put)
        finally:
            await self.answered.put(None)

    async def leave(self, running: "asyncio.Task[None]") -> None:
        """The client goes: tell the application, end it, and let a fault of its own be seen."""
        self._left.set()
        if not running.done():
            await asyncio.sleep(0)
            running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()

    async def _receive(self) -> Message:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}
