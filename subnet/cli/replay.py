"""`strata replay`: recompute a validator's verdict from public bytes, and say whether it agrees.

Owns the words and exit codes: 0 when the recomputed verdict is the claimed one, 1 when not or when bytes are gone.
"""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from subnet.cli import flags
from subnet.cli.console import line, note, show_json
from subnet.cli.ledger import read_ledger
from template.config import LOCAL_ADDRESS_MAP
from template.errors import UsageError

T = TypeVar("T")

QUIET_S = 2.0  # nothing is said of what takes no longer


def replay(
    verdict: Annotated[str, typer.Argument(metavar="VERDICT", help="The verdict's id, or how it begins.")],
    run: Annotated[
        str | None, typer.Option("--run", metavar="URL", help="The run's orchestrator: its ledger, its store.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option("--ledger", metavar="FILE", help="A copy of the ledger: a database or an export.")
    ] = None,
    blobs: Annotated[
        list[Path] | None, typer.Option("--blobs", metavar="DIR", help="A folder with evidence; may be given again.")
    ] = None,
    json: flags.Json = False,
) -> None:
    """Recompute a verdict from public evidence: exit code 0 when it agrees, 1 when it does not."""
    if run is None and ledger is None:
        raise UsageError("expected --run URL or --ledger FILE, found neither; say where the run's ledger is")
    outcome = asyncio.run(_replay(verdict, run, ledger, blobs or []))
    facts = facts_of(outcome)
    if json:
        show_json(facts)
    else:
        line("\n".join(lines_of(facts)))
    if not facts["agrees"]:
        raise typer.Exit(1)


async def _replay(prefix: str, run: str | None, ledger: str | None, blobs: list[Path]) -> Any:
    # Imported here: what computes loads torch, and what checks signatures the SDK.
    from subnet.edges.data import load_corpus
    from subnet.nodes.processes import load_torch
    from subnet.nodes.replaying import Folders, find_verdict, replay_verdict, source_of
    from template.sdk import HotkeyVerifier
    from template.web_client import HttpTransport

    source = ledger if ledger is not None else run
    assert source is not None
    transport = HttpTransport(None, address_map=map_for(run)) if run is not None else None
    got = [0]

    def told(size_bytes: int) -> None:
        got[0] += size_bytes

    try:
        events = await shown("reading the ledger", asyncio.to_thread(read_ledger, source), got)
        claim = await shown("reading the ledger", asyncio.to_thread(find_verdict, events, prefix), got)
        await load_torch()
        corpus = await shown("loading the data", asyncio.to_thread(load_corpus, claim.state.config.data), got)
        where = source_of(claim, Folders(blobs), transport, run or "", told=told)
        work = replay_verdict(claim, where, corpus, HotkeyVerifier(""))
        return await shown("fetching and replaying", work, got)
    finally:
        if transport is not None:
            await transport.close()


def map_for(run: str) -> dict[str, str]:
    """Where addresses of the ledger are to be reached: of a network on this machine they stand for a loopback one."""
    host = urlsplit(run).hostname or ""
    return dict(LOCAL_ADDRESS_MAP) if host in ("localhost", "::1") or host.startswith("127.") else {}


async def shown(doing: str, work: Awaitable[T], got: list[int]) -> T:
    """Wait for the work, and say every two seconds that it goes on."""
    task, begun_s = asyncio.ensure_future(work), time.monotonic()
    while True:
        done, _ = await asyncio.wait({task}, timeout=QUIET_S)
        if done:
            return task.result()
        note(f"{doing}: {time.monotonic() - begun_s:.0f} s, {got[0] / 1e6:.1f} MB fetched")


def facts_of(outcome: Any) -> dict[str, Any]:
    """The outcome as plain values."""
    said, judgement, claim = outcome.claim.verdict, outcome.judgement, outcome.claim
    return {
        "id": claim.id,
        "segment": said.segment,
        "validator": said.validator,
        "hotkey": said.hotkey,
        "stage": said.stage,
        "round": said.round,
        "claimed": {"verdict": said.verdict, "reason": said.reason, "distance": said.distance},
        "recomputed": {
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "distance": judgement.distance,
            "tolerance": judgement.tolerance,
        },
        "checks": [asdict(each) for each in outcome.lines],
        "details": list(judgement.details),
        "agrees": outcome.agrees,
    }


def lines_of(facts: dict[str, Any]) -> list[str]:
    """The same for people, a check a line."""
    claimed, found = facts["claimed"], facts["recomputed"]
    lines = [
        f"verdict {facts['id'][:12]} by {facts['validator']} on segment {facts['segment'][:12]} "
        f"(stage {facts['stage']}, round {facts['round']}) of {facts['hotkey']}",
        f"{'check':<14} {'claimed':>10} {'recomputed':>11} {'tolerance':>10}",
    ]
    for check in facts["checks"]:
        lines.append(
            f"{check['name']:<14} {_number(check['claimed']):>10} {_number(check['recomputed']):>11} "
            f"{_number(check['tolerance']):>10}"
        )
    lines += [f"  {detail}" for detail in facts["details"]]
    lines.append(
        f"claimed {claimed['verdict']} ({claimed['reason']}), recomputed {found['verdict']} ({found['reason']}): "
        f"{'agrees' if facts['agrees'] else 'DOES NOT AGREE'}"
    )
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
