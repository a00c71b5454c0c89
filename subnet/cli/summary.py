"""`summary.json`: what a run came to, for programs. A stable interface; its schema is docs/summary.schema.json.

Made of the board's facts, so that the two cannot disagree, plus what only the one who ran it knows: who was told to
cheat, where the checkpoint lies, how long it took.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from subnet.board.facts import Around, facts, plain_rows
from subnet.cli.console import write_whole
from subnet.incentive import leaderboard
from subnet.ledger.state import RunState
from template.values import ChainView, Hotkey, Uid

ROUND = ("round", "steps", "tokens", "train_loss", "heldout_loss", "seconds", "tokens_per_s", "bytes_activations")
MINER = ("uid", "hotkey", "stage", "cheat", "work_committed", "work_refuted", "score", "weight", "incentive")
AUDIT = ("id", "hotkey", "stage", "round", "verdict", "reason", "distance", "tolerance")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What stands outside ledger and chain: the network's name, the weights on the chain, who was told to cheat, the
    path of the last checkpoint (None without one), and the seconds from the command to the board."""

    network: str
    seconds: float
    checkpoint: str | None = None
    weights: Mapping[Uid, Mapping[Uid, float]] = field(default_factory=dict)
    cheats: Mapping[Hotkey, str] = field(default_factory=dict)


def summary(state: RunState, view: ChainView | None, now_ms: int, outcome: Outcome) -> dict[str, Any]:
    """The document. Work and scores are integers, losses nats per token."""
    around = Around(network=outcome.network, weights=outcome.weights, cheats=outcome.cheats)
    shown = facts(state, view, now_ms, around=around)
    stages = [stage["parameters"] for stage in shown["model"]["stages"]]
    return {
        "run_id": state.config.run_id,
        "config": msgspec.to_builtins(state.config),
        "model": {"parameters": shown["model"]["parameters"], "stages": len(stages)},
        "rounds": [_only(row, (*ROUND, "bytes_sync")) for row in shown["rounds"]],
        "miners": [_only(row, MINER) for row in shown["miners"]],
        "audits": [_only(row, AUDIT) for row in plain_rows(leaderboard.audits(state))],
        "chain": {
            "network": outcome.network,
            "netuid": state.netuid,
            "block": view.block if view else None,
            "weights_set": sum(1 for row in outcome.weights.values() if row),
        },
        "checkpoint": outcome.checkpoint,
        "seconds": round(outcome.seconds, 1),
    }


def _only(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def write_summary(path: Path, document: dict[str, Any]) -> None:
    """Write the document so that a reader finds the old one or all of the new one."""
    text = json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False)
    write_whole(path, text.encode() + b"\n")
