"""What is held against members of a run besides failed audits, as plain JSON values: work that is never paid, merges
that nobody else came to, frames of which two state different things, and what the orchestrator's own log proves against
it. Read from the fold; decides nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from subnet.ledger.state import RunState

Facts = dict[str, Any]

FAULTS_SHOWN = 50


def forfeits(state: RunState) -> list[Facts]:
    """Each round that a miner is not paid for, with the ledger's word for why; in ledger order."""
    found: dict[tuple[str, int, str], Facts] = {}
    for segment in state.segments.values():
        if segment.forfeit:
            key = (segment.hotkey, segment.round, segment.forfeit)
            row = {"hotkey": segment.hotkey, "stage": segment.stage, "round": segment.round, "reason": segment.forfeit}
            each = found.setdefault(key, {**row, "segments": 0, "work": 0})
            each["segments"] += 1
            each["work"] += segment.work
    return list(found.values())


def dissents(state: RunState) -> list[Facts]:
    """Who merged a stage to another state than the manifest of the round that it leads to; both roots."""
    return [
        {
            "hotkey": hotkey,
            "stage": stage,
            "round": number,
            "root": state.merged[number, stage][hotkey].root,
            "manifest_root": state.manifests[number].stages[stage].root,
        }
        for (number, stage), hotkeys in sorted(state.dissents.items())
        for hotkey in hotkeys
    ]


def disputes(state: RunState) -> list[Facts]:
    """Of which hops the two ends state different frames, by round, and how many frames: one of the two lies, their
    audits show which; in ledger order."""
    frames = Counter((each.sender, each.receiver, each.round) for each in state.disputes)
    return [
        {"sender": sender, "receiver": receiver, "round": number, "frames": count}
        for (sender, receiver, number), count in frames.items()
    ]


def orchestrator(faults: Sequence[str]) -> Facts:
    """The orchestrator's faults: how many, and the sentences of the newest."""
    return {"faults": len(faults), "says": list(faults[-FAULTS_SHOWN:])}
