"""The node: binds the socket, then makes a block every block time until it is told to stop.

Owns the clock and the loop. Binding comes before the first block, and the
real port is reported, so that a caller may ask for port 0.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from websockets.asyncio.server import serve as ws_serve

from template.devchain.chain import Chain
from template.devchain.genesis import Genesis
from template.devchain.methods import Methods
from template.devchain.rpc import Server

logger = logging.getLogger(__name__)

_MAX_REQUEST_BYTES = 16 * 1024 * 1024


class Clock:
    """The chain's time in milliseconds: the machine's, plus what a test has shifted it by."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000 + self.offset_ms


async def serve(
    genesis: Genesis,
    *,
    host: str = "127.0.0.1",
    port: int = 9944,
    on_ready: Callable[[int], None] | None = None,
    stop: asyncio.Event | None = None,
    dev_controls: bool = False,
) -> None:
    """Run a dev chain until `stop` is set. A busy port raises OSError before anything else happens."""
    clock, stopped = Clock(), stop or asyncio.Event()
    chain = Chain(genesis, start_ms=genesis.start_ms or clock.now_ms())
    server = Server(chain, Methods(chain))
    async with ws_serve(server.serve, host, port, max_size=_MAX_REQUEST_BYTES, compression=None) as listener:
        real_port = next(iter(listener.sockets)).getsockname()[1]
        logger.info("event=chain_started port=%d genesis=0x%s", real_port, chain.blocks.genesis.hash.hex())
        if on_ready is not None:
            on_ready(real_port)
        await _produce(chain, server, clock, stopped)


async def _produce(chain: Chain, server: Server, clock: Clock, stopped: asyncio.Event) -> None:
    """Make blocks on a steady beat; a late one does not push the others back."""
    loop = asyncio.get_running_loop()
    period = chain.genesis.block_time_s
    due = loop.time() + period
    while not stopped.is_set():
        try:
            await asyncio.wait_for(stopped.wait(), timeout=max(0.0, due - loop.time()))
        except TimeoutError:
            server.announce(chain.produce(clock.now_ms()))
            due = max(due + period, loop.time())
