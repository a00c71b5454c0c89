"""An event loop whose clock jumps to the next timer when nothing else is to be done: hours of waiting in a moment."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Skipping(selectors.DefaultSelector):
    """Waits for nothing: what it was to wait is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Those ready now; without any, the time that was to be waited has passed."""
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self.skipped_s += max(0.0, timeout)
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop over such a selector."""

    def __init__(self) -> None:
        self.skipping = Skipping()
        super().__init__(self.skipping)

    def time(self) -> float:
        """The real clock, and what was skipped."""
        return super().time() + self.skipping.skipped_s


def skipping(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario to its end on such a loop."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(scenario)
