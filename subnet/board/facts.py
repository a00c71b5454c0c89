"""What the board shows, as one JSON document: computed from the ledger's fold, and from the chain where it is at hand.

The page, the terminal, `--json`, the metrics and the summary all show these facts, so they cannot disagree. A pure
function: it knows nothing of torch, clocks, HTTP or colours, and invents no number that the ledger does not give.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from subnet.audit.draw import rate
from subnet.board import held
from subnet.incentive import leaderboard
from subnet.ledger.accusing import records
from subnet.ledger.canary import measured_of
from subnet.ledger.state import Member, RunState
from subnet.model.cost import parameters, spans
from template.values import ChainView, Hotkey, PendingWeights, Uid

FACTS_VERSION = 1
CURVE_POINTS = 240
AUDITS_SHOWN = 200
COMMITMENTS_SHOWN = 20

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Around:
    """What stands outside the fold: the network's name, the weights now on the chain and those that it has still to
    reveal, who was told to cheat, and the orchestrator's faults as whoever folded the log found them.

    `cheats` is known only to whoever started the miners (`strata up`); a public board has none.
    """

    network: str = ""
    weights: Mapping[Uid, Mapping[Uid, float]] = field(default_factory=dict)
    pending: Sequence[PendingWeights] = ()
    cheats: Mapping[Hotkey, str] = field(default_factory=dict)
    faults: Sequence[str] = ()


NOTHING_AROUND = Around()


def facts(state: RunState, view: ChainView | None, now_ms: int, *, around: Around = NOTHING_AROUND) -> Facts:
    """Everything the board shows at `now_ms` (milliseconds since 1970)."""
    rounds = plain_rows(leaderboard.rounds(state))
    verdicts = plain_rows(leaderboard.audits(state))
    return {
        "version": FACTS_VERSION,
        "time_ms": now_ms,
        "run": _run(state, rounds, now_ms),
        "model": _model(state),
        "rounds": rounds,
        "curve": _curve(state),
        "heldout": _heldout(state),
        "miners": _miners(state, view, now_ms, around),
        "validators": _validators(state, view, around),
        "audit": _audit(state),
        "audits": verdicts[-AUDITS_SHOWN:],
        "audits_total": len(verdicts),
        "forfeits": held.forfeits(state),
        "dissents": held.dissents(state),
        "disputes": held.disputes(state),
        "orchestrator": held.orchestrator(around.faults),
        "ledger": _ledger(state),
        "chain": _chain(state, view, around, now_ms),
    }


def plain_rows(rows: Sequence[msgspec.Struct]) -> list[Facts]:
    """Rows of `subnet.incentive.leaderboard` as plain JSON values."""
    return [msgspec.to_builtins(row) for row in rows]


def _run(state: RunState, rounds: list[Facts], now_ms: int) -> Facts:
    train = state.config.train
    stats = state.rounds.get(state.round)
    seconds = max((stats.ended_ms or now_ms) - stats.begun_ms, 1) / 1000 if stats else 0.0
    newest = state.checkpoints.get(max(state.checkpoints, default=-1))
    losses = [entry["train_loss"] for entry in rounds if entry["train_loss"] is not None]
    return {
        "id": state.config.run_id,
        "netuid": state.netuid,
        "orchestrator": state.orchestrator,
        "phase": state.phase,
        "round": state.round,
        "rounds": train.rounds,
        "step": state.step,
        "steps": train.steps_per_round,
        "steps_done": state.global_step,
        "steps_total": train.rounds * train.steps_per_round,
        "tokens": sum(stats.tokens for stats in state.rounds.values()),
        "tokens_per_s": stats.tokens / seconds if stats else 0.0,
        "train_loss": losses[-1] if losses else None,
        "heldout_loss": newest.heldout_loss if newest else None,
        "begun_ms": min((stats.begun_ms for stats in state.rounds.values()), default=None),
        "stages": state.config.stages,
    }


def _model(state: RunState) -> Facts:
    run = state.config
    sizes = [parameters(run, span) for span in spans(run)]
    manifest = state.manifests.get(max(state.manifests, default=-1))
    return {
        "architecture": run.model.architecture,
        "parameters": sum(sizes),
        "stages": [
            {
                "stage": stage,
                "blocks": [span.first_block, span.end_block],
                "parameters": sizes[stage],
                "root": manifest.stages[stage].root if manifest else None,
                "members": [member.hotkey for member in _on_stage(state, stage)],
            }
            for stage, span in enumerate(spans(run))
        ],
    }


def _on_stage(state: RunState, stage: int) -> list[Member]:
    return [member for member in state.members.values() if member.stage == stage and member.active]


def _curve(state: RunState) -> list[list[int | float]]:
    """Training loss by global step, in nats per token; neighbouring steps are averaged when there are many."""
    last = state.config.stages - 1
    each = state.config.train.microbatch_sequences * state.config.data.sequence_tokens
    sums: dict[int, list[float]] = {}
    for receipt in state.receipts.values():
        if receipt.kind == "step" and receipt.stage == last and receipt.work:
            step = sums.setdefault(state.plans[receipt.plan].global_step, [0.0, 0.0])
            step[0] += sum(work.loss for work in receipt.work if work.loss is not None)
            step[1] += each * len(receipt.work)
    steps = sorted(sums)
    width = -(-len(steps) // CURVE_POINTS) or 1
    groups = [steps[i : i + width] for i in range(0, len(steps), width)]
    return [[group[-1], sum(sums[s][0] for s in group) / sum(sums[s][1] for s in group)] for group in groups]


def _heldout(state: RunState) -> list[list[int | float]]:
    """Held-out loss of each checkpoint, by the steps done before it; the first is of the untrained model."""
    return [
        [sum(stats.steps for stats in state.rounds.values() if stats.round < round), checkpoint.heldout_loss]
        for round, checkpoint in sorted(state.checkpoints.items())
    ]


def _miners(state: RunState, view: ChainView | None, now_ms: int, around: Around) -> list[Facts]:
    last_ms: dict[Hotkey, int] = {}
    void: Counter[Hotkey] = Counter()
    for segment in state.segments.values():
        last_ms[segment.hotkey] = segment.time_ms
        void[segment.hotkey] += bool(segment.verdicts) and not leaderboard.is_audited(segment)
    submitted = [vector for vector in around.weights.values() if vector]
    rows = leaderboard.rows(state, view, now_ms, submitted=submitted, cheats=around.cheats)
    return [
        {
            **row,
            "void": void[row["hotkey"]],
            "step_ms": round(state.members[row["hotkey"]].step_ms),
            "missed_steps": state.members[row["hotkey"]].missed_steps,
            "audit_rate": _audit_rate(state, row["hotkey"]),
            "last_ms": last_ms.get(row["hotkey"]),
        }
        for row in plain_rows(rows)
    ]


def _audit_rate(state: RunState, hotkey: Hotkey) -> float | None:
    """The rate with which the hotkey's last segment with work is drawn; None before the first."""
    worked = (state.segments[name] for name in reversed(state.chains.get(hotkey, [])) if state.segments[name].work)
    last = next(worked, None)
    return rate(state, last, count=state.count) if last else None


def _validators(state: RunState, view: ChainView | None, around: Around) -> list[Facts]:
    said: dict[Hotkey, Counter[str]] = {}
    for segment in state.segments.values():
        for verdict in segment.verdicts.values():
            said.setdefault(verdict.validator, Counter())[verdict.verdict] += 1
    rows, record = [], records(state)
    for hotkey, stake_rao in state.validators().items():
        measured = measured_of(state, hotkey)
        seen, counts = state.seen.get(hotkey), said.get(hotkey, Counter())
        rows.append(
            {
                "uid": state.roster[hotkey].uid,
                "hotkey": hotkey,
                "stake_rao": stake_rao,
                "passed": counts["pass"],
                "failed": counts["fail"],
                "void": counts["void"],
                "upheld": record[hotkey].upheld,
                "false": record[hotkey].false,
                "missed": record[hotkey].missed,
                "canaries": {"drawn": measured.drawn, "caught": measured.caught, "missed": measured.missed},
                "seen_events": seen[-1].count if seen else 0,
                "seen_block": seen[-1].block if seen else None,
                "pending": [_pending(each, view) for each in around.pending if each.hotkey == hotkey and view],
            }
        )
    return sorted(rows, key=lambda row: int(row["uid"]))


def _pending(commit: PendingWeights, view: ChainView) -> Facts:
    """A commit of weights that the chain has not revealed: since which block, and until about which one."""
    return {"block": commit.block, "reveal_block": commit.reveal_block(view), "reveal_round": commit.reveal_round}


def _audit(state: RunState) -> Facts:
    """How much is audited: a segment counts once a validator has judged it to pass or fail; void is unaudited."""
    segments = state.segments.values()
    judged = [segment for segment in segments if leaderboard.is_audited(segment)]
    failed = sum(map(state.upheld, segments))
    accused = sum(any(said.verdict == "fail" for said in segment.verdicts.values()) for segment in judged)
    return {
        "segments": len(segments),
        "audited": len(judged),
        "passed": len(judged) - accused,
        "failed": failed,
        "accused": accused - failed,
        "void": sum(1 for segment in segments if segment.verdicts and not leaderboard.is_audited(segment)),
        "audited_frac": leaderboard.audited_frac(state),
        "rate_frac": state.config.audit.rate_frac,
        "says": audited_sentence(len(judged), len(segments)),
    }


SHARES = ((0, "none"), (1 / 10, "a tenth"), (1 / 5, "a fifth"), (1 / 4, "a quarter"), (1 / 3, "a third"),
          (2 / 5, "two fifths"), (1 / 2, "half"), (3 / 5, "three fifths"), (2 / 3, "two thirds"),
          (3 / 4, "three quarters"), (9 / 10, "nine tenths"), (1, "all"))  # fmt: skip


def audited_sentence(audited: int, total: int) -> str:
    """The audited share in words, from the counts: "about a third of all segments are audited (31 of 96)"."""
    counts = f"({audited} of {total})"
    if total == 0:
        return "no segment is committed yet"
    if audited in (0, total):
        return f"{'all' if audited else 'none'} of the segments are audited {counts}"
    share = audited / total
    near = min(SHARES[1:-1], key=lambda entry: abs(entry[0] - share))
    if abs(near[0] - share) <= 0.05:
        return f"about {near[1]} of all segments are audited {counts}"
    return f"{100 * share:.0f} % of all segments are audited {counts}"


def _ledger(state: RunState) -> Facts:
    return {
        "events": state.count,
        "root": state.root,
        "time_ms": state.time_ms,
        "commitments": [
            {
                "round": each.round,
                "root": each.root,
                "events": each.count,
                "block": each.block,
                "extrinsic_index": each.extrinsic_index,
            }
            for each in state.commitments[-COMMITMENTS_SHOWN:]
        ],
    }


def _chain(state: RunState, view: ChainView | None, around: Around, now_ms: int) -> Facts | None:
    """The chain as last seen, with that view's age; None where no chain is at hand (a copy of the ledger)."""
    if view is None:
        return None
    return {
        "network": around.network,
        "netuid": view.netuid,
        "block": view.block,
        "age_s": round(view.age_s(now_ms / 1000), 1),
        "neurons": len(view.neurons),
        "weights_set": sum(1 for row in around.weights.values() if row),
        "next_epoch_block": view.next_epoch_block,
    }
