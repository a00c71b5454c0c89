"""`strata ledger verify` and `strata ledger export`: check a run's log, or copy it.

A log is read from an orchestrator (`http://...`), from its database, or from an export: one event's canonical JSON a
line. Owns these three readers and what "verified" means; the hash chain and the fold are `subnet.ledger`'s.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from subnet.canonical import canonical, parse
from subnet.cli import flags
from subnet.cli.console import line, show_json, write_whole
from subnet.cli.fetch import fetch_ledger
from subnet.edges.ledger import SqlLedger
from subnet.errors import ConfigError, LedgerError, MessageError, StoreError
from subnet.ledger.events import Begin, Commitment, Event, Said, check_chain
from subnet.ledger.record import read_record
from subnet.scheduler.watch import fold_watched
from template.auth import Verifier
from template.chain import Chain
from template.errors import UsageError

SQLITE_MAGIC = b"SQLite format 3\0"

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Check a run's ledger, or copy it. SOURCE is an orchestrator's URL, its database, or an export.",
)

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="http://..., a database file, or an export.")]


@app.command(epilog="Example: strata ledger verify out/demo/ledger.sqlite --network local")
def verify(
    source: Source,
    network: Annotated[
        str | None, typer.Option("--network", "-n", help="Also look up each commitment on this chain.")
    ] = None,
    wallet: flags.Wallet = "default",
    hotkey: flags.Hotkey = "default",
    wallet_path: flags.WalletPath = flags.WALLET_PATH,
    json: flags.Json = False,
) -> None:
    """Check the hash chain, every signature, the fold, what the orchestrator did, and the roots on the chain.

    Ends with 0 only when all of it holds; with 1 also where the log is whole and proves faults of the orchestrator.
    """
    # Imported here: signatures need the SDK's keys, and the SDK takes a second to load.
    from template.sdk import HotkeyVerifier, SdkChain, load_wallet

    events = read_ledger(source)
    facts = verify_events(events, HotkeyVerifier(""))
    if network is not None:
        begun = events[0].body
        assert isinstance(begun, Begin)  # the fold has checked it
        chain = SdkChain(network, begun.netuid, load_wallet(wallet, hotkey, wallet_path))
        facts["commitments_on_chain"] = asyncio.run(_look_up(chain, events, begun.orchestrator))
    show_json(facts) if json else _show(facts, network)
    if count := len(facts["orchestrator_faults"]):
        raise LedgerError(
            f"expected a log with nothing that the rules do not give, found {count} fault{'s' if count > 1 else ''} of "
            "its orchestrator; keep a copy (strata ledger export) as the proof, and do not rely on this run"
        )


def _show(facts: dict[str, Any], network: str | None) -> None:
    line(f"{facts['events']} events, root {facts['root']}")
    line(f"run {facts['run_id']}: hash chain, {facts['signatures']} signatures and the fold hold")
    for fault in facts["orchestrator_faults"]:
        line(f"the orchestrator's fault, by its own signed log: {fault}")
    found = f"; {facts['commitments_on_chain']} of them looked up on {network}" if network else ""
    line(f"{facts['commitments']} committed roots agree with the log{found}")


@app.command(epilog="Example: strata ledger export http://127.0.0.1:8080 ledger.jsonl")
def export(source: Source, target: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write.")]) -> None:
    """Copy the log to a file, one event's canonical JSON a line, after checking its hash chain."""
    events = read_ledger(source)
    root = check_chain(events)
    if target.is_dir():
        raise UsageError(f"expected a file to write, found the folder {target}; name a file in it")
    write_whole(target, b"".join(canonical(event) + b"\n" for event in events))
    line(f"{len(events)} events with root {root} are in {target}")


def read_ledger(source: str) -> list[Event]:
    """All events of a source. Raises ConfigError for what is not a ledger, LedgerError for a damaged one."""
    if source.startswith(("http://", "https://")):
        return asyncio.run(fetch_ledger(source))
    path = Path(source)
    with path.open("rb") as file:
        magic = file.read(len(SQLITE_MAGIC))
    events = _from_database(path) if magic == SQLITE_MAGIC else _from_export(path)
    if not events:
        raise ConfigError(f"expected a run's ledger in {path}, found no event; name another file")
    return events


def _from_database(path: Path) -> list[Event]:
    try:
        ledger = SqlLedger(f"sqlite:///file:{path.resolve()}?mode=ro&uri=true")
    except StoreError as error:
        raise ConfigError(f"expected a run's ledger in {path}, found another database; name the run's own") from error
    try:
        return ledger.events()
    except MessageError as error:
        raise LedgerError(f"expected whole events in {path}; {error}") from error
    finally:
        ledger.close()


def _from_export(path: Path) -> list[Event]:
    events = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            events.append(parse(text, Event))
        except MessageError as error:
            if number == 1:
                raise ConfigError(f"expected a database or an export in {path}, found neither; name another") from error
            raise LedgerError(f"expected an event in line {number} of {path}; {error}") from error
    return events


def verify_events(events: list[Event], verifier: Verifier) -> dict[str, Any]:
    """Check chain, signatures, fold and committed roots. Raises LedgerError (or MessageError) at the first fault."""
    root = check_chain(events)
    state, faults = fold_watched(events, verifier)
    return {
        "run_id": state.config.run_id,
        "events": len(events),
        "root": root,
        "signatures": sum(isinstance(event.body, Said) for event in events),
        "commitments": _check_roots(events),
        "orchestrator_faults": faults,
    }


def _commitments(events: Iterable[Event]) -> list[Commitment]:
    return [event.body for event in events if isinstance(event.body, Commitment)]


def _check_roots(events: list[Event]) -> int:
    commitments = _commitments(events)
    for each in commitments:
        root = events[each.count - 1].digest if 0 < each.count <= len(events) else "no such event"
        if root != each.root:
            raise LedgerError(
                f"expected the root {each.root[:12]} over {each.count} events, as committed at block {each.block}, "
                f"found {root[:13]}; the log was changed since"
            )
    return len(commitments)


async def _look_up(chain: Chain, events: list[Event], orchestrator: str) -> int:
    try:
        return await look_up(chain, events, orchestrator)
    finally:
        await chain.close()


async def look_up(chain: Chain, events: list[Event], orchestrator: str) -> int:
    """Find each commitment of the log on the chain; how many there are. Raises LedgerError at one that differs."""
    last = {each.count: each for each in _commitments(events)}  # one that the chain lost was committed again
    commitments = list(last.values())
    for each in commitments:
        record = await chain.commit_at(each.block, each.extrinsic_index)
        said = read_record(record.data) if record is not None and record.hotkey == orchestrator else None
        if said is None or (said.root, said.count) != (each.root, each.count):
            raise LedgerError(
                f"expected the root {each.root[:12]} in extrinsic {each.extrinsic_index} of block {each.block}, found "
                f"{said.root[:12] if said else 'no record of the orchestrator'}; the log and the chain disagree"
            )
    return len(commitments)
