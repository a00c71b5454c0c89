"""One raw request to an application: whatever headers and bytes, and whether anything of the body was read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.types import Message


@dataclass(kw_only=True)
class Answer:
    """What came back, and how many times the application asked for a part of the body."""

    status: int
    body: bytes
    parts_read: int

    @property
    def word(self) -> str:
        """The word of a refusal."""
        return str(json.loads(self.body).get("error", ""))

    @property
    def sentence(self) -> str:
        """The sentence of a refusal."""
        return str(json.loads(self.body).get("message", ""))


async def ask(
    app: Starlette,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str] | None = None,
    parts: tuple[bytes, ...] = (b"",),
    length_bytes: int | None = None,
) -> Answer:
    """Send one request; `length_bytes` is what it announces, the true length unless said."""
    path, _, query = target.partition("?")
    announced = sum(map(len, parts)) if length_bytes is None else length_bytes
    pairs = {**(headers or {}), "content-length": str(announced)}
    scope: dict[str, Any] = {
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
    waiting, sent = list(parts), list[Message]()
    read = 0

    async def receive() -> Message:
        nonlocal read
        read += 1
        if not waiting:
            return {"type": "http.disconnect"}
        part = waiting.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return Answer(status=sent[0]["status"], body=body, parts_read=read)
