"""`copy`: trains, and at the round's end hands in another replica's contribution instead of its own.

It reads in the public ledger which contribution another replica of its stage has committed, waits until the store
shows it, and takes it: as it is, or with noise so that it has another digest. Strength: the noise's part; 0 is a plain
copy. Where nobody has committed one in time it hands in its own.
"""

import asyncio
import threading
from collections.abc import Callable

import numpy as np

from subnet.cheats.base import Cheat, Line
from subnet.cheats.poison import SEED
from subnet.ledger.events import Said
from subnet.wire.messages import Receipt, read_signed

PATIENCE_S = 3.0
PAUSE_S = 0.1


class Copy(Cheat):
    """Lives on another's work."""

    default_strength = 0.0

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self._generator = np.random.default_rng(SEED)
        self._of: dict[int, bytes] = {}  # another's contribution, by its size in bytes: that tells the stage
        self._there = threading.Condition()

    async def beside(self, line: Line) -> None:
        """Read the ledger, and fetch what others contribute."""
        first = 0
        while True:
            events = await line.ledger(first)
            for event in events:
                signed = event.body.signed if isinstance(event.body, Said) else None
                if signed and signed.kind == "receipt" and signed.hotkey != line.hotkey:
                    await self._take(line, read_signed(signed, Receipt))
            first += len(events)
            if not events:
                await asyncio.sleep(PAUSE_S)

    async def _take(self, line: Line, receipt: Receipt) -> None:
        if not receipt.contribution:
            return
        for _ in range(int(PATIENCE_S / PAUSE_S)):
            data = await line.fetch(receipt.contribution, receipt.state_bytes)
            if data is not None:
                self.offer(data)
                return
            await asyncio.sleep(PAUSE_S)

    def offer(self, data: bytes) -> None:
        """Another replica's contribution, come by somehow."""
        with self._there:
            self._of[len(data)] = data
            self._there.notify_all()

    def contribution(
        self, honest: Callable[[np.ndarray, np.ndarray], bytes], start: np.ndarray, end: np.ndarray
    ) -> bytes:
        """Another's, where there is one."""
        own = honest(start, end)
        with self._there:
            self._there.wait_for(lambda: len(own) in self._of, timeout=PATIENCE_S)
            other = self._of.pop(len(own), None)
        if other is None:
            return own
        values = np.frombuffer(other, dtype="<f4")
        size = float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
        noise = self._generator.standard_normal(values.shape) * (self.strength * size)
        return (values + noise).astype("<f4").tobytes() if self.strength else other
