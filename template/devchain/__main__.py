"""Run a dev chain by itself: `python -m template.devchain --genesis FILE --port N`."""

import argparse
import asyncio
import json
import signal
import sys
from contextlib import closing
from pathlib import Path

from template.devchain.genesis import Genesis, default_genesis, genesis_from_dict
from template.devchain.node import new_chain, serve_chain
from template.devchain.snapshot import load_chain, save_chain


def main() -> None:
    """Parse, run, and end at SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m template.devchain", description=__doc__)
    parser.add_argument("--genesis", type=Path, help="a genesis as JSON; without it well-known development keys")
    parser.add_argument("--host", default="127.0.0.1", help="the address to bind (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=9944, help="the port to bind; 0 takes a free one (default 9944)")
    parser.add_argument("--dev-controls", action="store_true", help="serve the dev_* test controls")
    parser.add_argument("--state", type=Path, help="go on from this file when it exists, and write it at the end")
    options = parser.parse_args()
    genesis = default_genesis()
    if options.genesis is not None:
        genesis = genesis_from_dict(json.loads(options.genesis.read_text()))
    asyncio.run(_run(genesis, options))


async def _run(genesis: Genesis, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def ready(port: int) -> None:
        sys.stdout.write(f"BT_CHAIN_ENDPOINT=ws://{options.host}:{port}\n")
        sys.stdout.flush()

    state: Path | None = options.state
    with closing(load_chain(state) if state and state.exists() else new_chain(genesis)) as chain:
        await serve_chain(
            chain, host=options.host, port=options.port, on_ready=ready, stop=stop, dev_controls=options.dev_controls
        )
        if state is not None:
            save_chain(chain, state)


if __name__ == "__main__":
    main()
