"""`strata leaderboard`: watch a run in the terminal, once or live, as JSON, or as a page of one's own.

Facts come from an orchestrator (`--run`), or are computed here from a copy of its ledger (`--ledger`), which nobody
has to be trusted for. Owns the choice between them; what is shown is `subnet.board`'s.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from subnet.board.facts import Around
from subnet.board.facts import facts as facts_of
from subnet.board.page import board_routes
from subnet.cli import flags
from subnet.cli.console import line, note, show_json
from subnet.cli.fetch import fetch_board
from subnet.cli.ledger import read_ledger
from subnet.cli.show import Screen, show_board
from subnet.errors import ConfigError
from subnet.scheduler.faults import fold_checked
from template.errors import PeerRefused, PeerUnreachable, TransportError, UsageError
from template.transport import Transport
from template.web import application, serve
from template.web_client import HttpTransport

Facts = dict[str, Any]
Source = Callable[[], Awaitable[Facts]]

EVERY_S = 2.0
SILENCE_S = 60.0
STARTING = 503  # a board without a run yet, or a server that stops
LOOK_S = 0.5
PATIENCE_S = 30.0  # an orchestrator that was started a moment ago answers by then


def leaderboard(
    run: Annotated[
        str | None, typer.Option("--run", metavar="URL", envvar="STRATA_RUN", help="The orchestrator's address.")
    ] = None,
    ledger: Annotated[str | None, typer.Option("--ledger", metavar="FILE", help="A copy of its ledger.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the board once and end.")] = False,
    web: Annotated[
        int | None, typer.Option("--web", min=0, max=65535, metavar="PORT", help="Serve the page on this port.")
    ] = None,
    host: flags.Host = "127.0.0.1",
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for an orchestrator that is just starting.")
    ] = PATIENCE_S,
    json: flags.Json = False,
) -> None:
    """Watch a run until it is done or Ctrl-C. With --ledger every number is recomputed here."""
    if (run is None) == (ledger is None):
        found = "neither" if run is None else "both"
        raise UsageError(f"expected either --run URL or --ledger FILE, found {found}; give one of them")
    transport = HttpTransport(None)
    source = from_run(transport, run, patience_s=patience) if run is not None else from_ledger(ledger or "")
    page = None if web is None else (host, web)
    asyncio.run(_show(source, transport, once=once or json, json=json, page=page))


async def _show(
    source: Source, transport: HttpTransport, *, once: bool, json: bool, page: tuple[str, int] | None
) -> None:
    try:
        if page is not None:
            await _serve(source, *page)
        elif once:
            facts = await source()
            show_json(facts) if json else show_board(facts)
        else:
            await _watch(source)
    finally:
        await transport.close()


def from_run(transport: Transport, run: str, *, patience_s: float = PATIENCE_S) -> Source:
    """What the orchestrator says. The first answer is waited for; later a short silence keeps the last facts."""
    url = (run if "://" in run else f"http://{run}").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"expected --run with an http:// address, found {run!r}; write http://HOST:PORT")
    last: dict[str, Any] = {"facts": None, "at_s": 0.0}

    async def ask() -> Facts:
        try:
            asking = fetch_board(transport, url) if last["facts"] else _first(transport, url, patience_s)
            last["facts"], last["at_s"] = await asking, time.monotonic()
        except TransportError as error:
            if not last["facts"] or not _may_answer(error) or time.monotonic() - last["at_s"] > SILENCE_S:
                raise
        facts: Facts = last["facts"]
        return facts

    return ask


async def _first(transport: Transport, url: str, patience_s: float) -> Facts:
    """The first facts of an orchestrator that may be just starting: says once that it waits, and not for ever."""
    end_s, said = time.monotonic() + patience_s, False
    while True:
        try:
            return await fetch_board(transport, url)
        except TransportError as error:
            if not _may_answer(error) or time.monotonic() + LOOK_S > end_s:
                raise
        if not said:
            note(f"waiting for the orchestrator at {url} for up to {patience_s:.0f} s; Ctrl-C ends it")
            said = True
        await asyncio.sleep(LOOK_S)


def _may_answer(error: TransportError) -> bool:
    """Whether an orchestrator that is starting, or starts again, could be behind this."""
    return isinstance(error, PeerUnreachable) or (isinstance(error, PeerRefused) and error.status == STARTING)


def from_ledger(path: str) -> Source:
    """What the log says, folded here; read again each time, so that a log that grows is followed."""

    async def compute() -> Facts:
        if path.startswith(("http://", "https://")):
            raise ConfigError(f"expected a file after --ledger, found {path}; use --run, or export the ledger first")
        events = await asyncio.to_thread(read_ledger, path)
        state, faults = fold_checked(events)
        return facts_of(state, None, time.time_ns() // 1_000_000, around=Around(faults=faults))

    return compute


async def _watch(source: Source) -> None:
    with Screen() as screen:
        while True:
            facts = await source()
            screen.update(facts)
            if facts["run"]["phase"] == "done":
                break
            await asyncio.sleep(EVERY_S)
    show_board(facts)


async def _serve(source: Source, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    facts = await source()
    async with serve(application(board_routes(lambda: facts), None), host=host, port=port) as server:
        line(f"board on {server.url}/  Ctrl-C ends it")
        while not stop.is_set():
            try:
                async with asyncio.timeout(EVERY_S):
                    await stop.wait()
            except TimeoutError:
                facts = await source()
