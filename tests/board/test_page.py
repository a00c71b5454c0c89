"""Laws of the page: public, read-only, self-contained, and safe whatever names the ledger holds."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import subnet.board.page as page_module
from subnet.board.metrics import metrics
from subnet.board.page import Feed, board_routes, page
from template.errors import PeerRefused
from template.fake.transport import FakePeers, FakeTransport
from template.web import application
from tests.board.made_up import HOSTILE, made_up

PEER = "board:1"
SAMPLE = re.compile(r'^[a-z_]+(\{([a-z_]+="(\\.|[^"\\\n])*",?)+\})? -?[0-9.e+-]+$')


def browser(document: dict[str, Any] | None) -> FakeTransport:
    """A client of a server that shows this document."""
    peers = FakePeers()
    peers.apps[PEER] = application(board_routes(lambda: document), None)
    return FakeTransport(peers, None)


def html() -> str:
    return page()[0].decode()


async def test_the_routes_answer_with_the_same_facts():
    document = made_up(5)
    client = browser(document)
    assert json.loads((await client.request("GET", PEER, "/v1/board")).body) == document
    assert json.loads((await client.request("GET", PEER, "/healthz")).body) == {
        "status": "ok",
        "phase": "train",
        "events": 1234,
    }
    shown = await client.request("GET", PEER, "/")
    assert shown.headers["content-type"].startswith("text/html")
    text = (await client.request("GET", PEER, "/metrics")).body.decode()
    assert "strata_ledger_events_total 1234\n" in text


@pytest.mark.parametrize("target", ["/v1/board", "/healthz", "/metrics"])
async def test_before_a_run_the_answer_is_503_starting(target: str):
    with pytest.raises(Exception, match="expected a run, found none yet") as caught:
        await browser(None).request("GET", PEER, target)
    assert caught.value.status == 503


def test_every_route_is_a_get():
    assert {route.method for route in board_routes(lambda: None)} == {"GET"}


def test_the_page_asks_nobody_else_and_runs_only_its_own_script():
    policy = page()[1]["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    outside = re.findall(r"""(?:https?:)?//[\w.-]+""", html().replace("http://www.w3.org/2000/svg", ""))
    assert [found for found in outside if not found.startswith("// ")] == []
    assert re.findall(r"""<[^>]*\s(?:src|href|style|on\w+)=""", html()) == []


def test_the_page_never_makes_markup_of_data():
    script = html().split("<script>")[1]
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser"):
        assert way not in script, way


def test_the_page_uses_only_columns_that_the_facts_have():
    """A renamed column would show as a dash on the page and fail nothing else."""
    script = html().split("<script>")[1]
    document = made_up(3)
    letters = {"m": "miners", "a": "audits", "r": "rounds", "v": "validators", "f": "forfeits", "d": "dissents"}
    for letter, name in letters.items():
        used = set(re.findall(rf"\b{letter}\.([a-z_]+)\b", script))
        assert used, letter
        assert used <= document[name][0].keys(), (name, used - document[name][0].keys())
    for part in ("run", "audit", "ledger", "model", "orchestrator"):
        used = set(re.findall(rf"\b{part}\.([a-z_]+)\b", script)) - {"stages"}
        assert used <= document[part].keys(), (part, used - document[part].keys())


async def read_events(body: AsyncIterator[bytes], number: int) -> list[bytes]:
    events = []
    async for event in body:
        events.append(event)
        if len(events) == number:
            break
    await body.aclose()
    return events


async def test_events_come_at_once_and_then_only_when_the_ledger_moved():
    document = made_up(2)
    feed = Feed(lambda: document, refresh_s=0.0)
    stream = feed.events()
    first = await anext(stream)
    assert json.loads(first.split(b"data: ")[1]) == document
    assert first.endswith(b"\n\n")
    waiting = asyncio.ensure_future(anext(stream))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    document["ledger"] = {**document["ledger"], "root": "99" * 32}
    assert b"99" * 32 in await waiting
    assert feed.watchers == 1
    await stream.aclose()
    assert feed.watchers == 0


async def test_an_event_is_one_line_whatever_the_names():
    document = made_up(3, hostile=True)
    (event,) = await read_events(Feed(lambda: document).events(), 1)
    lines = event.rstrip(b"\n").split(b"\n")
    assert [line.split(b": ")[0] for line in lines] == [b"retry", b"data"]
    assert event.isascii()
    assert json.loads(lines[1][len(b"data: ") :])["chain"]["network"] == HOSTILE


def test_facts_are_computed_once_for_everybody_who_asks_within_the_refresh_time():
    asked = []

    def get_facts() -> dict[str, Any]:
        asked.append(1)
        return made_up(1)

    feed = Feed(get_facts, refresh_s=3600.0)
    for _ in range(10):
        feed.facts()
    assert len(asked) == 1


async def test_one_more_watcher_than_the_limit_is_told_to_ask_now_and_then():
    peers = FakePeers()
    peers.apps["board:1"] = application(board_routes(lambda: made_up(1), watchers_limit=1), None)
    watcher, another = (
        FakeTransport(peers, None).download("board:1", "/v1/board/events", limit_bytes=1 << 20) for _ in range(2)
    )
    assert b"data: " in await anext(watcher)
    with pytest.raises(PeerRefused, match="expected at most 1 live watchers") as refused:
        await anext(another)
    assert (refused.value.status, refused.value.word) == (503, "busy")
    await watcher.aclose()


@pytest.mark.parametrize(("miners", "hostile"), [(0, False), (5, False), (5, True), (256, False)])
def test_metrics_are_prometheus_text(miners: int, hostile: bool):
    names = set()
    for line in metrics(made_up(miners, hostile=hostile)).rstrip("\n").split("\n"):
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in names, f"{name} is declared twice"
            names.add(name)
        elif not line.startswith("# HELP "):
            assert SAMPLE.match(line), line
            assert re.split(r"[{ ]", line)[0] in names
    assert "strata_miners" in names or miners == 0


def test_the_page_is_one_file_beside_its_module():
    assert (Path(page_module.__file__).parent / "index.html").is_file()
