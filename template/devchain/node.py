"""The node: binds the socket, then makes a block every block time until it is told to stop.

Owns the clock and the loop. Binding comes before the first block, and the
real port is reported, so that a caller may ask for port 0.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from websockets.asyncio.server import serve as ws_serve

from template.devchain.chain import Chain, Produced
from template.devchain.controls import Controls, Faults
from template.devchain.genesis import Genesis
from template.devchain.methods import Methods
from template.devchain.rpc import Server

logger = logging.getLogger(__name__)

# No pings of our own: a client that trains a model in the same process may not answer for longer than they allow.
_SOCKET: dict[str, Any] = {
    "max_size": 16 * 1024 * 1024,
    "compression": None,
    "ping_interval": None,
    "close_timeout": 1.0,
}


async def serve(
    genesis: Genesis,
    *,
    host: str = "127.0.0.1",
    port: int = 9944,
    on_ready: Callable[[int], None] | None = None,
    stop: asyncio.Event | None = None,
    dev_controls: bool = False,
) -> None:
    """Run a new dev chain until `stop` is set. A busy port raises OSError before any block is made."""
    with closing(new_chain(genesis)) as chain:
        await serve_chain(chain, host=host, port=port, on_ready=on_ready, stop=stop, dev_controls=dev_controls)


def new_chain(genesis: Genesis) -> Chain:
    """A chain at block 0, on the machine's clock unless genesis has its own."""
    return Chain(genesis, start_ms=genesis.start_ms or _now_ms())


async def serve_chain(
    chain: Chain,
    *,
    host: str = "127.0.0.1",
    port: int = 9944,
    on_ready: Callable[[int], None] | None = None,
    stop: asyncio.Event | None = None,
    dev_controls: bool = False,
) -> None:
    """Run a chain, new or loaded, until `stop` is set."""
    node = Node(chain, stop or asyncio.Event(), dev_controls=dev_controls)
    async with ws_serve(node.server.serve, host, port, **_SOCKET) as listener:
        real_port = next(iter(listener.sockets)).getsockname()[1]
        logger.info("event=chain_started port=%d genesis=0x%s", real_port, chain.blocks.genesis.hash.hex())
        if on_ready is not None:
            on_ready(real_port)
        await node.run()


def _now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Node:
    """One chain, its server, and the beat that makes its blocks."""

    def __init__(self, chain: Chain, stopped: asyncio.Event, *, dev_controls: bool) -> None:
        self.chain, self.stopped, self.faults = chain, stopped, Faults()
        methods = Methods(chain)
        self.server = Server(chain, methods, self.faults)
        if dev_controls:
            for name, method in Controls(chain, self.faults, self.produce).methods().items():
                methods.add(name, method)

    def produce(self) -> Produced:
        """Make a block now and tell everyone."""
        produced = self.chain.produce(_now_ms() + self.faults.clock_offset_ms)
        self.server.announce(produced)
        return produced

    async def run(self) -> None:
        """Make blocks on a steady beat; a late one does not push the others back."""
        loop, period = asyncio.get_running_loop(), self.chain.genesis.block_time_s
        due = loop.time() + period
        while not self.stopped.is_set():
            try:
                async with asyncio.timeout_at(due):
                    await self.stopped.wait()
            except TimeoutError:
                if not self.faults.paused:
                    self.produce()
                due = max(due + period, loop.time())
