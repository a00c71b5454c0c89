"""What validators said of a miner's segments, as the miner is told: logged with the reason and the way to check it.

Keeps the last ones for the health page. Knows nothing of what follows from a verdict.
"""

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from subnet.canonical import digest_of
from subnet.wire.messages import Verdict

log = logging.getLogger("strata.miner")

SHOWN = 20
ID_CHARS = 12


@dataclass(kw_only=True)
class Told:
    """The verdicts on one miner's segments, the newest last."""

    counts: dict[str, int] = field(default_factory=lambda: {"pass": 0, "fail": 0, "void": 0})
    last: deque[Verdict] = field(default_factory=lambda: deque(maxlen=SHOWN))

    def take(self, verdict: Verdict) -> None:
        """Note a verdict and say it: in one line, with how far off what was, and how to repeat it."""
        self.counts[verdict.verdict] += 1
        self.last.append(verdict)
        level = logging.WARNING if verdict.verdict == "fail" else logging.INFO
        log.log(
            level,
            "verdict=%s reason=%s segment=%s round=%d stage=%d distance=%.3g tolerance=%.3g checks=%s by=%s check=%r",
            verdict.verdict, verdict.reason, verdict.segment[:ID_CHARS], verdict.round, verdict.stage,
            verdict.distance, verdict.tolerance, _checks(verdict) or "none", verdict.validator, how_to_check(verdict),
        )  # fmt: skip

    def health(self) -> dict[str, Any]:
        """Counts and the last verdicts, for the health page."""
        return {
            "verdicts": self.counts,
            "last_verdicts": [
                {
                    "id": digest_of(verdict),
                    "segment": verdict.segment,
                    "round": verdict.round,
                    "stage": verdict.stage,
                    "verdict": verdict.verdict,
                    "reason": verdict.reason,
                    "distance": verdict.distance,
                    "tolerance": verdict.tolerance,
                    "checks": {check.name: [check.distance, check.tolerance] for check in verdict.checks},
                    "validator": verdict.validator,
                    "check": how_to_check(verdict),
                }
                for verdict in self.last
            ],
        }


def _checks(verdict: Verdict) -> str:
    return ",".join(f"{check.name}:{check.distance:.3g}/{check.tolerance:.3g}" for check in verdict.checks)


def how_to_check(verdict: Verdict) -> str:
    """The command that repeats this verdict; a void has nothing to repeat."""
    return "" if verdict.verdict == "void" else f"strata replay {digest_of(verdict)[:ID_CHARS]} --run URL"
