"""`strata chain`: the dev chain in the foreground, on the port that `--network local` means, or on a free one.

Owns the reading of its options. Everything about the chain itself is `template.devchain`'s.
"""

import asyncio
import dataclasses
import errno
import json
import math
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from subnet.cli.console import line
from template.devchain.chain import Chain
from template.devchain.genesis import Genesis, default_genesis, genesis_from_dict
from template.devchain.node import new_chain, serve_chain
from template.devchain.snapshot import load_chain, save_chain
from template.errors import PortError, UsageError
from template.web import port_holder

LOCAL_PORT = 9944  # where the SDK's and btcli's network "local" is


def chain(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port. Default: 9944, or a free one when that is taken.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    fund: Annotated[
        list[str] | None, typer.Option(metavar="SS58=TAO", help="Give an address coins at block 0; may be repeated.")
    ] = None,
    block_time: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time from block to block.")] = None,
    genesis: Annotated[Path | None, typer.Option(metavar="FILE", help="Start from this genesis, in JSON.")] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on from this file when it exists; write it at the end.")
    ] = None,
    dev_controls: Annotated[
        bool, typer.Option("--dev-controls", help="Serve the dev_* calls that pause, fork, delay: for tests.")
    ] = False,
) -> None:
    """Run the dev chain until Ctrl-C: subnet 1, and the real SDK and btcli work against it."""
    funds = tuple(read_fund(entry) for entry in fund or ())
    with closing(open_chain(state, genesis, funds=funds, block_time_s=block_time)) as opened:
        asyncio.run(_run(opened, host=host, port=port, dev_controls=dev_controls))
        if state is not None:
            save_chain(opened, state)


def open_chain(
    state: Path | None, genesis: Path | None, *, funds: tuple[tuple[str, float], ...], block_time_s: float | None
) -> Chain:
    """The chain of a saved file where there is one, else a new one. Raises UsageError for a file that is none."""
    if state is not None and not (state.parent.is_dir() and os.access(state.parent, os.W_OK)):
        raise UsageError(
            f"expected a folder at {state.parent} that can be written, found none; make it, or choose another --state"
        )
    if state is None or not state.exists():
        return new_chain(read_genesis(genesis, funds=funds, block_time_s=block_time_s))
    if funds or genesis is not None or block_time_s is not None:
        raise UsageError(
            f"expected {state} to say all of the chain it holds, found options for a new one; leave them out, or name "
            "another --state"
        )
    try:
        return load_chain(state)
    except ValueError as error:
        raise UsageError(f"expected a saved chain in {state}, found: {error}; name another file") from error


def read_fund(entry: str) -> tuple[str, float]:
    """An address and an amount from "SS58=TAO"."""
    address, _, amount = entry.partition("=")
    try:
        tao = float(amount)
    except ValueError:
        tao = math.nan
    if not address or not math.isfinite(tao) or tao < 0:
        raise UsageError(f"expected --fund ADDRESS=TAO such as 5Grwva...=1000, found {entry!r}; write it like that")
    return address, tao


def read_genesis(path: Path | None, *, funds: tuple[tuple[str, float], ...], block_time_s: float | None) -> Genesis:
    """The genesis from a file or the default one, with what the options add. Raises UsageError for what cannot be."""
    timing: dict[str, Any] = {} if block_time_s is None else {"block_time_s": block_time_s}
    try:
        if path is None:
            return default_genesis(funds_tao=funds, **timing)
        loaded = genesis_from_dict(_read_json(path))
        return dataclasses.replace(loaded, funds_tao=loaded.funds_tao + funds, **timing)
    except (ValueError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"expected a possible genesis, found: {error}; correct the option or the file") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"expected a genesis in JSON in {path}, found: {error}; correct the file") from error
    if not isinstance(value, dict):
        raise UsageError(f"expected a JSON object in {path}, found a {type(value).__name__}; correct the file")
    return value


async def _run(chain: Chain, *, host: str, port: int | None, dev_controls: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def announce(real_port: int) -> None:
        endpoint = f"ws://{host}:{real_port}"
        if port is None and real_port != LOCAL_PORT:
            line(f"port {LOCAL_PORT} is taken, so tell the other commands where this chain is:")
            line(f"BT_CHAIN_ENDPOINT={endpoint}")
        block_time_s = chain.genesis.block_time_s
        line(f"dev chain on {endpoint}, subnet 1, a block every {block_time_s:g} s; Ctrl-C ends it")

    async def listen(at: int) -> None:
        await serve_chain(chain, host=host, port=at, on_ready=announce, stop=stop, dev_controls=dev_controls)

    try:
        await listen(LOCAL_PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            await listen(0)
            return
        raise PortError(_port_fault(host, port, error)) from error


def _port_fault(host: str, port: int | None, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE and port is not None:
        holder = port_holder(port) or "another process"
        return f"expected port {port} on {host} to be free, found it held by {holder}; stop that or give another --port"
    reason = error.strerror or str(error)
    return f"expected to listen on {host}:{port or LOCAL_PORT}, found: {reason}; give another --host or --port"
