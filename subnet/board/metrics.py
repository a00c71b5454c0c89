"""The board's facts in Prometheus' text format (version 0.0.4). Knows nothing of HTTP."""

from collections.abc import Iterator
from typing import Any

Facts = dict[str, Any]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(facts: Facts) -> str:
    """Every number of the board that changes while a run goes on. A value that is unknown is left out."""
    lines = []
    for name, kind, says, samples in _families(facts):
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            lines += [f"# HELP {name} {says}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value}" for labels, value in known]
    return "\n".join(lines) + "\n"


Samples = list[tuple[dict[str, object], int | float | None]]


def _families(facts: Facts) -> Iterator[tuple[str, str, str, Samples]]:
    run, audit, chain = facts["run"], facts["audit"], facts["chain"] or {}
    yield "strata_run_info", "gauge", "The run and its phase.", [({"run_id": run["id"], "phase": run["phase"]}, 1)]
    yield "strata_round", "gauge", "The current round, from 0.", [({}, run["round"])]
    yield "strata_steps_total", "counter", "Steps done since the run began.", [({}, run["steps_done"])]
    yield "strata_tokens_total", "counter", "Tokens trained on since the run began.", [({}, run["tokens"])]
    yield "strata_tokens_per_second", "gauge", "Tokens per second in the current round.", [({}, run["tokens_per_s"])]
    yield "strata_train_loss", "gauge", "Training loss of the newest round, nats per token.", [({}, run["train_loss"])]
    yield "strata_heldout_loss", "gauge", "Newest held-out loss, nats per token.", [({}, run["heldout_loss"])]
    yield "strata_ledger_events_total", "counter", "Events in the ledger.", [({}, facts["ledger"]["events"])]
    yield "strata_segments_total", "counter", "Segments committed.", [({}, audit["segments"])]
    yield (
        "strata_segments_audited_total",
        "counter",
        "Segments by what their audits came to; void ones are unaudited.",
        [({"verdict": word}, audit[name]) for word, name in _WORDS],
    )
    yield "strata_audited_fraction", "gauge", "Audited part of all segments, 0 to 1.", [({}, audit["audited_frac"])]
    faults, dissents = facts["orchestrator"]["faults"], len(facts["dissents"])
    yield "strata_orchestrator_faults_total", "counter", "What the log proves against its orchestrator.", [({}, faults)]
    yield "strata_dissents_total", "counter", "Merges that are not the manifest's.", [({}, dissents)]
    disputed = sum(each["frames"] for each in facts["disputes"])
    yield "strata_disputed_frames_total", "counter", "Frames of which the two ends differ.", [({}, disputed)]
    words = sorted({each["reason"] for each in facts["forfeits"]})
    forfeits: Samples = [({"reason": w}, sum(each["reason"] == w for each in facts["forfeits"])) for w in words]
    yield "strata_forfeits_total", "counter", "Rounds of a miner that are not paid, by why.", forfeits
    yield "strata_chain_block", "gauge", "Block of the last view of the chain.", [({}, chain.get("block"))]
    yield "strata_chain_view_age_seconds", "gauge", "Age of that view.", [({}, chain.get("age_s"))]
    yield from _miner_families(facts)


_WORDS = (("pass", "passed"), ("fail", "failed"), ("void", "void"))


def _miner_families(facts: Facts) -> Iterator[tuple[str, str, str, Samples]]:
    miners = facts["miners"]
    states = sorted({row["status"] for row in miners})
    counts: Samples = [({"status": word}, sum(row["status"] == word for row in miners)) for word in states]
    yield "strata_miners", "gauge", "Miners by what they do.", counts
    for name, kind, says, column in (
        ("strata_miner_work_committed_total", "counter", "Work a miner committed, priced FLOPs.", "work_committed"),
        ("strata_miner_work_refuted_total", "counter", "Work of a miner that was refuted.", "work_refuted"),
        ("strata_miner_score", "gauge", "Payable work of a miner in the window.", "score"),
        ("strata_miner_weight", "gauge", "Share of a miner in all scores, or its mean weight on the chain.", "weight"),
    ):
        yield name, kind, says, [({"hotkey": row["hotkey"]}, row[column]) for row in miners]


def _labels(labels: dict[str, object]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
