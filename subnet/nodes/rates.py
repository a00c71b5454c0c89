"""How often one hotkey may say what costs everybody room for ever: each of these messages stays in the ledger.

A bucket per hotkey and kind that fills at a steady rate. Only messages that would be logged count; the same message
again does not. Knows nothing of what the messages mean.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from template.errors import RefusedRequest


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """So many at once, and then one every so many seconds."""

    burst: int
    every_s: float


ALLOWED = {
    "join": Allowance(burst=6, every_s=10.0),  # a restart is one join: a process manager that restarts at once, a while
    "leave": Allowance(burst=6, every_s=10.0),  # as joins
    "rollback": Allowance(burst=6, every_s=2.0),  # one per step that came too late: it lasted its deadline
}


class Rates:
    """What each hotkey may still say. Full buckets are forgotten, so strangers that come once leave nothing."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_s: dict[tuple[str, str], float] = {}  # when the bucket will be full again

    def take(self, hotkey: str, kind: str) -> None:
        """Count one more message of this kind. Raises RefusedRequest (429, with the wait) when that is too many."""
        allowance = ALLOWED.get(kind)
        if allowance is None:
            return
        now_s = self._clock()
        full_s = max(self._full_s.get((hotkey, kind), now_s), now_s) + allowance.every_s
        wait_s = full_s - now_s - allowance.burst * allowance.every_s
        if wait_s > 0:
            raise RefusedRequest(
                f"expected at most {allowance.burst} {kind}s of a hotkey at once and then one every "
                f"{allowance.every_s:.0f} s, found one more; send it again in {math.ceil(wait_s)} s",
                word="too_often",
                status=429,
                retry_after_s=wait_s,
            )
        self._full_s = {key: at_s for key, at_s in self._full_s.items() if at_s > now_s}
        self._full_s[hotkey, kind] = full_s
