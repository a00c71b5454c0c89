"""The live page and its routes: the page itself, the facts as JSON and as server-sent events, health and metrics.

Public and read-only: nothing here changes anything. Facts are computed at most once a second however many watch,
and rarer when they are costly. Knows nothing of where facts come from, and of HTTP only `template.transport`.
"""

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from subnet.board.metrics import CONTENT_TYPE, metrics
from template.errors import RefusedRequest
from template.transport import Incoming, Reply, Route, json_reply

Facts = dict[str, Any]
GetFacts = Callable[[], Facts | None]

REFRESH_S = 1.0
COST_FACTOR = 20  # computing facts takes at most a twentieth of the process's time
HEARTBEAT_S = 8.0
WATCHERS_LIMIT = 256

PLAIN_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "access-control-allow-origin": "*"}


class Feed:
    """The latest facts as JSON bytes, recomputed when they are asked for and old enough."""

    def __init__(self, get_facts: GetFacts, *, refresh_s: float = REFRESH_S) -> None:
        self.refresh_s = refresh_s
        self.watchers = 0
        self._get_facts = get_facts
        self._facts: Facts | None = None
        self._due_s = 0.0

    def facts(self) -> Facts:
        """The facts now. Raises RefusedRequest while there are none."""
        begun_s = time.monotonic()
        if self._facts is None or begun_s >= self._due_s:
            self._facts = self._get_facts()
            ended_s = time.monotonic()
            self._due_s = ended_s + max(self.refresh_s, COST_FACTOR * (ended_s - begun_s))
        if self._facts is None:
            raise RefusedRequest("expected a run, found none yet; ask again in a moment", word="starting", status=503)
        return self._facts

    async def events(self) -> AsyncIterator[bytes]:
        """The facts as server-sent events: at once, then whenever the ledger or the chain has moved on."""
        self.watchers += 1
        try:
            sent, silent_s = None, HEARTBEAT_S
            while True:
                try:
                    facts = self.facts()
                except RefusedRequest:
                    facts = {}
                if facts and (key := _version_of(facts)) != sent:
                    sent, silent_s = key, 0.0
                    yield b"retry: 2000\ndata: " + _json(facts) + b"\n\n"
                elif silent_s >= HEARTBEAT_S:
                    silent_s = 0.0
                    yield b"event: same\ndata: \n\n"
                await asyncio.sleep(self.refresh_s)
                silent_s += self.refresh_s
        finally:
            self.watchers -= 1


def _json(facts: Facts) -> bytes:
    """One line, as an event's data must be; everything beyond ASCII is escaped."""
    return json.dumps(facts, separators=(",", ":"), allow_nan=False).encode()


def _version_of(facts: Facts) -> tuple[object, ...]:
    chain = facts["chain"] or {}
    return facts["ledger"]["root"], chain.get("block"), chain.get("weights_set")


def page() -> tuple[bytes, Mapping[str, str]]:
    """The HTML page and its headers: only its own style and script run, and it may ask only where it came from."""
    html = Path(__file__).with_name("index.html").read_text(encoding="utf-8")
    hashes = {}
    for tag in ("style", "script"):
        part = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert part is not None, f"index.html has no <{tag}>"
        hashes[tag] = base64.b64encode(hashlib.sha256(part[1].encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return html.encode(), headers


def board_routes(
    get_facts: GetFacts, *, refresh_s: float = REFRESH_S, watchers_limit: int = WATCHERS_LIMIT
) -> list[Route]:
    """The board's routes, all unsigned GETs. `get_facts` gives the document of `subnet.board.facts`, or None before a
    run exists; it is called in the server's own event loop."""
    feed = Feed(get_facts, refresh_s=refresh_s)
    html, headers = page()

    async def show_page(_: Incoming) -> Reply:
        return Reply(body=html, content_type="text/html; charset=utf-8", headers=headers)

    async def show_facts(_: Incoming) -> Reply:
        return Reply(body=_json(feed.facts()), content_type="application/json", headers=PLAIN_HEADERS)

    async def show_events(_: Incoming) -> Reply:
        if feed.watchers >= watchers_limit:
            raise RefusedRequest(
                f"expected at most {watchers_limit} live watchers, found as many; ask /v1/board now and then",
                word="busy",
                status=503,
            )
        return Reply(body=feed.events(), content_type="text/event-stream", headers=PLAIN_HEADERS)

    async def show_health(_: Incoming) -> Reply:
        facts = feed.facts()
        return json_reply({"status": "ok", "phase": facts["run"]["phase"], "events": facts["ledger"]["events"]})

    async def show_metrics(_: Incoming) -> Reply:
        return Reply(body=metrics(feed.facts()).encode(), content_type=CONTENT_TYPE)

    doors = {
        "/": show_page,
        "/v1/board": show_facts,
        "/v1/board/events": show_events,
        "/healthz": show_health,
        "/metrics": show_metrics,
    }
    return [Route(method="GET", path=path, handler=handler, signed=False) for path, handler in doors.items()]
