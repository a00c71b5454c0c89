"""The HTTP server: turns a list of routes into an application, and serves it on a socket that is bound first.

A signed route's handler runs only for an authenticated caller, before any byte of the body is read. Every refusal is
JSON, `{"error": word, "message": sentence}`. It knows no route by name and nothing of what travels in a body.
"""

import asyncio
import contextlib
import errno
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import blake3
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response as StarletteResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import Message, Receive, Scope, Send

from template.auth import Caller, Verifier
from template.errors import (
    AuthError,
    BaseNeuronError,
    BodyMismatch,
    BodyTooLarge,
    ClockFault,
    PortError,
    RefusedRequest,
)
from template.transport import Reply, Route, json_reply

log = logging.getLogger("template.web")

BODY_SILENCE_S = 30.0
"""A sender that is silent for this long inside a body is given up."""

STOP_GRACE_S = 0.5

IDLE_S = 75
"""Idle connections are kept for longer than any client keeps them, so that nobody writes into a closing one."""

Refusals = Mapping[type[Exception], tuple[int, str]]


def target_of(scope: Scope) -> str:
    """Path and query exactly as they came in: what the sender signed."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (raw_path + b"?" + query if query else raw_path).decode("latin-1")


class IncomingRequest:
    """Implements transport.Incoming on a Starlette request."""

    def __init__(self, request: Request, caller: Caller | None) -> None:
        self.method: str = request.method
        self.target: str = target_of(request.scope)
        self.path: Mapping[str, str] = request.path_params
        self.query: Mapping[str, str] = request.query_params
        self.headers: Mapping[str, str] = request.headers
        self.caller = caller
        self._request = request

    async def body(self, *, length_bytes: int, digest: str | None = None) -> bytes:
        """Read exactly `length_bytes`, hashing on the way."""
        hasher = blake3.blake3() if digest is not None else None
        data = bytearray()
        async for chunk in self._chunks(length_bytes):
            data += chunk
            if hasher is not None:
                hasher.update(chunk)
        if len(data) != length_bytes:
            raise BodyMismatch(f"expected a body of {length_bytes} bytes, found {len(data)}; send it again in full")
        if hasher is not None and hasher.hexdigest() != digest:
            raise BodyMismatch(
                f"expected a body with digest {digest}, found {hasher.hexdigest()}; sign the digest of what you send"
            )
        return bytes(data)

    async def body_up_to(self, limit_bytes: int) -> bytes:
        """Read a body of unknown length, up to the limit."""
        return b"".join([chunk async for chunk in self._chunks(limit_bytes)])

    async def _chunks(self, limit_bytes: int) -> AsyncIterator[bytes]:
        announced = self.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > limit_bytes:
            raise BodyTooLarge(f"expected at most {limit_bytes} bytes, found {announced} announced; send less")
        stream = self._request.stream()
        received = 0
        while True:
            try:
                async with asyncio.timeout(BODY_SILENCE_S):
                    chunk = await anext(stream, None)
            except ClientDisconnect as error:
                raise BodyMismatch(
                    f"expected the whole body, the connection ended after {received} bytes; send it again"
                ) from error
            except TimeoutError as error:
                raise BodyMismatch(
                    f"expected the whole body, nothing came for {BODY_SILENCE_S:.0f} s after {received} bytes; "
                    "send it again"
                ) from error
            if chunk is None:
                return
            received += len(chunk)
            if received > limit_bytes:
                raise BodyTooLarge(f"expected at most {limit_bytes} bytes, found more; send less")
            yield chunk


def refusal_reply(error: Exception, refusals: Refusals) -> Reply | None:
    """The answer for an error that is the sender's to know, or None for one that is a fault of ours."""
    facts: dict[str, Any] = {"message": str(error)}
    headers: dict[str, str] = {}
    if isinstance(error, AuthError | RefusedRequest | BodyTooLarge | BodyMismatch):
        status, facts["error"] = error.status, error.word
        if isinstance(error, ClockFault):
            facts["delta_s"], facts["server_time_s"] = error.delta_s, time.time()
        if isinstance(error, RefusedRequest) and error.retry_after_s is not None:
            headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    else:
        known = next((refusals[kind] for kind in type(error).__mro__ if kind in refusals), None)
        if known is None:
            return None
        status, facts["error"] = known
    return replace(json_reply(facts, status=status), headers=headers)


class _Door:
    """One route as an ASGI application: authenticate, handle, answer; answers 503 when the server stops meanwhile."""

    def __init__(self, route: Route, verifier: Verifier | None, refusals: Refusals, busy: set[asyncio.Task[Any]]):
        self._route = route
        self._verifier = verifier
        self._refusals: dict[type[Exception], tuple[int, str]] = {BaseNeuronError: (503, "unavailable"), **refusals}
        self._expected: tuple[type[Exception], ...] = tuple(self._refusals)
        self._busy = busy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        started = False

        async def noted_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await _send_reply(await self._answer(request), request, noted_send)
        except asyncio.CancelledError:
            if task in self._busy:
                raise
            task.uncancel()  # the server is stopping: a long poll is told so, a stream just ends
            await (send(_END_OF_BODY) if started else _send_reply(_STOPPING, request, send))
        finally:
            self._busy.discard(task)

    async def _answer(self, request: Request) -> Reply:
        try:
            caller = None
            if self._route.signed:
                assert self._verifier is not None
                caller = self._verifier.verify_request(request.method, target_of(request.scope), request.headers)
            return await self._route.handler(IncomingRequest(request, caller))
        except self._expected as error:
            reply = refusal_reply(error, self._refusals)
            assert reply is not None
            log.debug("refused method=%s path=%s error=%s", request.method, request.url.path, error)
            return reply


_STOPPING = json_reply({"error": "stopping", "message": "the server is stopping; ask again later"}, status=503)

_END_OF_BODY: Message = {"type": "http.response.body", "body": b""}


async def _send_reply(reply: Reply, request: Request, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    headers.append((b"content-type", reply.content_type.encode("latin-1")))
    if reply.status >= 400 and "content-length" in request.headers:
        headers.append((b"connection", b"close"))  # the refused body may still be on its way
    whole = None if isinstance(reply.body, AsyncIterable) else reply.body
    if whole is not None:
        headers.append((b"content-length", str(len(whole)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if whole is not None:
        await send({"type": "http.response.body", "body": whole})
        return
    assert isinstance(reply.body, AsyncIterable)
    async for chunk in reply.body:
        if await request.is_disconnected():
            return
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send(_END_OF_BODY)


async def _http_fault(_: Request, error: Exception) -> StarletteResponse:
    assert isinstance(error, HTTPException)
    reply = json_reply({"error": str(error.detail).lower().replace(" ", "_"), "message": f"{error.detail}."})
    return StarletteResponse(reply.body, error.status_code, media_type=reply.content_type)


async def _own_fault(_: Request, __: Exception) -> StarletteResponse:
    reply = json_reply({"error": "internal", "message": "the server failed on this request; its log has the reason"})
    return StarletteResponse(reply.body, 500, {"connection": "close"}, media_type=reply.content_type)


def application(routes: Sequence[Route], verifier: Verifier | None, *, refusals: Refusals | None = None) -> Starlette:
    """Build the ASGI application. `refusals` maps the caller's own errors to (status, word).

    An error that nobody maps is answered with 500 and logged with its traceback.
    """
    if verifier is None and any(route.signed for route in routes):
        raise AssertionError("a signed route needs a verifier")
    busy: set[asyncio.Task[Any]] = set()
    doors = [
        StarletteRoute(route.path, _Door(route, verifier, refusals or {}, busy), methods=[route.method])
        for route in routes
    ]
    app = Starlette(routes=doors, exception_handlers={HTTPException: _http_fault, 500: _own_fault})
    app.state.busy = busy
    return app


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises PortError, naming the holder where that can be seen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # asyncio sets TCP_NODELAY only with the protocol named
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(256)
    except OSError as error:
        sock.close()
        raise PortError(_port_fault(host, port, error)) from error
    sock.setblocking(False)
    return sock


def _port_fault(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = port_holder(port)
        held = f"held by {holder}" if holder else "held by another process"
        return f"expected port {port} on {host} to be free, found it {held}; stop that or give another --port"
    if error.errno == errno.EACCES:
        return f"expected to be allowed to bind port {port} on {host}, found that this user may not; take one over 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"expected {host} to be an address of this machine, found that it is not; bind 0.0.0.0 or a local one"
    return f"expected to bind port {port} on {host}, found: {error.strerror or error}; give another --host or --port"


def port_holder(port: int) -> str | None:
    """ "pid N (command)" of the process that listens on a TCP port of this machine, where /proc shows it."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
            for line in list(lines)[1:]:
                parts = line.split()
                if parts[3] == "0A" and int(parts[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{parts[9]}]")
    for pid in filter(str.isdecimal, os.listdir("/proc") if inodes else ()):
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{number}") in inodes:
                    with open(f"/proc/{pid}/cmdline", "rb") as file:
                        command = " ".join(file.read().replace(b"\0", b" ").decode(errors="replace").split())
                    return f"process {pid} ({command[:80]})"
    return None


class _QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: who stops is decided by the neuron's supervisor."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class WebServer:
    """A running server. `port` is the real one. `async with serve(...)` stops it at the end."""

    def __init__(self, app: Starlette, sock: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=IDLE_S,
        )
        self.host: str = sock.getsockname()[0]
        self.port: int = sock.getsockname()[1]
        self._busy: set[asyncio.Task[Any]] = app.state.busy
        self._server = _QuietServer(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]), name=f"web:{self.port}")

    @property
    def url(self) -> str:
        """The base URL on this machine: one that can be opened, also where the server listens at all addresses."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"

    async def started(self) -> None:
        """Return once connections are answered."""
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Stop within a second: what runs may finish for half of it, then it is answered with 503."""
        if self._task.done():
            return
        self._server.should_exit = True
        deadline = time.monotonic() + STOP_GRACE_S
        while self._busy and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for task in list(self._busy):
            self._busy.discard(task)
            task.cancel()
        await self._task

    async def __aenter__(self) -> "WebServer":
        await self.started()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def serve(app: Starlette, *, host: str = "127.0.0.1", port: int = 0) -> WebServer:
    """Bind now, answer from the next turn of the loop on. Raises PortError before anything has started."""
    return WebServer(app, bind(host, port))
