"""What a cheat may do next to its miner's work: read the ledger, and speak under the miner's key.

An honest miner never uses it. A refusal is an answer here, not an error. Knows nothing of what is said.
"""

import asyncio
import logging

from subnet.config import RunConfig
from subnet.errors import SubnetError
from subnet.ledger.events import Event
from subnet.nodes.miner import Miner
from subnet.nodes.reach import Peer
from subnet.wire.messages import Message
from template.errors import TransportError

log = logging.getLogger("strata.miner")

WAIT_S = 1.0
PATIENCE_S = 2.0


class MinersLine:
    """A miner's connections, as `subnet.cheats.base.Line`."""

    def __init__(self, miner: Miner) -> None:
        self._miner = miner

    @property
    def run(self) -> RunConfig:
        """The run."""
        return self._miner.run

    @property
    def hotkey(self) -> str:
        """The miner's hotkey."""
        return self._miner.signer.hotkey

    async def ledger(self, first: int) -> tuple[Event, ...]:
        """The public ledger's events from `first` on."""
        return (await self._miner.client.ledger(first, wait_s=WAIT_S))[1]

    async def fetch(self, name: str, limit_bytes: int) -> bytes | None:
        """Bytes from the run's store."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._miner.client.get(name, limit_bytes=limit_bytes)
        except (TransportError, SubnetError, TimeoutError):
            return None

    async def say(self, message: Message) -> bool:
        """Send a message to the orchestrator."""
        try:
            await self._miner.client.say(message, patience_s=PATIENCE_S)
        except (TransportError, SubnetError) as refused:
            log.debug("beside refused=%r", str(refused))
            return False
        return True

    async def post(self, hotkey: str, target: str, body: bytes) -> bool:
        """Send a request to a neighbour."""
        try:
            await self._miner.reach.deliver(Peer(hotkey=hotkey, address=self._miner.peers[hotkey]), target, body)
        except (TransportError, SubnetError) as refused:
            log.debug("beside refused=%r", str(refused))
            return False
        return True

    def neighbours(self) -> tuple[str, ...]:
        """The replicas in the miner's plans so far."""
        return tuple(hotkey for hotkey in self._miner.peers if hotkey != self.hotkey)


async def work(miner: Miner) -> None:
    """The miner's work, and next to it whatever its cheat does until that ends."""
    beside = asyncio.create_task(miner.cheat.beside(MinersLine(miner)))
    try:
        await miner.work()
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)  # how it ended is the cheat's own affair
