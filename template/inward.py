"""A request that came by another way than this process's socket, put to an application as if it had come by HTTP.

So it meets the same checks as every other request. Knows nothing of how it came, nor of where its answer goes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.types import Message

from template.errors import BodyTooLarge


@dataclass(frozen=True, kw_only=True)
class Inward:
    """One request: `target` is path and query as they were signed."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the application answered."""

    status: int
    body: bytes


async def answered(app: Starlette, request: Inward, *, limit_bytes: int) -> Outcome:
    """The application's whole answer. Raises BodyTooLarge past the limit; what the application raises passes."""
    path, _, query = request.target.partition("?")
    headers = {**request.headers, "content-length": str(len(request.body))} if request.body else request.headers
    scope: dict[str, Any] = {
        "type": "http",
        "method": request.method,
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    left = asyncio.Event()
    waiting, parts, status, size = [request.body], [], 0, 0

    async def receive() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, size
        if message["type"] == "http.response.start":
            status = message["status"]
            return
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise BodyTooLarge(f"expected an answer of at most {limit_bytes} bytes, found more; ask for less")
        parts.append(part)

    try:
        await app(scope, receive, send)
    finally:
        left.set()
    return Outcome(status=status, body=b"".join(parts))
