"""Whether a process does its work: /readyz answers 200, or 503 with the reasons, for monitors and process managers.

A process that hangs or is refused everything still answers /healthz; here it says so. Owns the signs of life and when
they are too old. Knows nothing of what the signs stand for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from template.transport import Incoming, Reply, Route, json_reply

SILENT_S = 120.0  # several long polls, blocks and retries take less, on a slow chain too
REFUSED_IN_A_ROW = 3  # one may be late; so many say that nothing counts any more


@dataclass(kw_only=True)
class Readiness:
    """When each thing last went well, and how often in a row what this process says was refused."""

    clock: Callable[[], float] = time.monotonic
    refused: int = 0
    last_refusal: str = ""
    _alive_s: dict[str, float] = field(default_factory=dict)

    def went_well(self, what: str) -> None:
        """Note a sign of life: an answer, a block, a turn of a loop."""
        self._alive_s[what] = self.clock()

    def said(self, refusal: str = "") -> None:
        """Note that something was said, and how it was refused, if it was."""
        self.refused = self.refused + 1 if refusal else 0
        self.last_refusal = refusal

    def faults(self) -> list[str]:
        """A sentence for each thing that is wrong; none when the process is ready."""
        now_s = self.clock()
        silent = [(what, now_s - at_s) for what, at_s in self._alive_s.items() if now_s - at_s > SILENT_S]
        found = [f"expected {what} within {SILENT_S:.0f} s, found none for {age_s:.0f} s" for what, age_s in silent]
        if not self._alive_s:
            found.append("expected the work to have begun, found it still starting; ask again in a moment")
        if self.refused >= REFUSED_IN_A_ROW:
            found.append(
                f"expected what is sent to be taken, found the last {self.refused} refused: {self.last_refusal}"
            )
        return found


def ready_route(readiness: Readiness) -> Route:
    """The route that tells it."""

    async def ready(request: Incoming) -> Reply:
        faults = readiness.faults()
        return json_reply({"ready": not faults, "faults": faults}, status=503 if faults else 200)

    return Route(method="GET", path="/readyz", handler=ready, signed=False)
