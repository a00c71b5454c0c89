"""One request, one answer: the client's protocol, and what a server's route is. Knows no HTTP library.

Implemented by `template.web` over HTTP and by `template.fake` in memory. A route says whether it is signed; then
its handler runs only for an authenticated caller, before any byte of the body is read. Retries are the caller's.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from template.auth import Caller
from template.values import Hotkey

Body = bytes | bytearray | memoryview

DIGEST_CHARS = 64


@dataclass(frozen=True, kw_only=True)
class Response:
    """A peer's answer with a status below 400; others are raised as PeerRefused. Header names are lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Transport(Protocol):
    """The client side. `peer` is "ip:port" as announced on the chain, or a base URL such as "http://host:port"."""

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
        """Send one request, signed when `receiver` is given, and read the whole answer within the deadline.

        `target` is path and query, percent-encoded by the caller; it is sent and signed exactly as given.
        Raises TransportError kinds; an answer of status 400 and above is PeerRefused (ClockSkew for a wrong clock).
        """
        ...

    def download(
        self,
        peer: str,
        target: str,
        *,
        receiver: Hotkey | None = None,
        limit_bytes: int,
        timeout_s: float = 60.0,
    ) -> AsyncIterator[bytes]:
        """GET in chunks. Raises BodyTooLarge past the limit; `timeout_s` bounds each wait for the next chunk."""
        ...

    async def close(self) -> None:
        """Close pooled connections."""
        ...


@runtime_checkable
class Incoming(Protocol):
    """One request as its handler sees it. `caller` is set on signed routes and None on others."""

    method: str
    target: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    caller: Caller | None

    async def body(self, *, length_bytes: int, digest: str | None = None) -> bytes:
        """Read exactly `length_bytes`, hashing on the way.

        Raises BodyTooLarge at the first byte in excess, BodyMismatch when fewer come or blake3 differs from `digest`.
        """
        ...

    async def body_up_to(self, limit_bytes: int) -> bytes:
        """Read a body of unknown length. Raises BodyTooLarge past the limit."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a handler answers: bytes, or chunks as they come."""

    body: bytes | AsyncIterable[bytes] = b""
    status: int = 200
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(value: Any, *, status: int = 200) -> Reply:
    """A JSON answer with sorted keys and no spaces. Raises ValueError on NaN or infinity, our own bug."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Reply(body=text.encode(), status=status, content_type="application/json")


Handler = Callable[[Incoming], Awaitable[Reply]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One door of a server: `path` may hold `{name}` parts. Everything that changes something must be `signed`."""

    method: str
    path: str
    handler: Handler
    signed: bool = True
