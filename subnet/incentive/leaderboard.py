"""The board's facts: one row per miner, verdict and round, each recomputable from the ledger by anyone.

The rows are the lists of `summary.json`, so the terminal, the page and the file say the same. Money is the chain's:
incentive is read from a view where one is given. Knows nothing of how a row is shown, nor of who cheats on purpose
(`strata up`, which starts its cheaters, fills that in).
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec

from subnet.canonical import digest_of
from subnet.incentive.score import Book, books
from subnet.incentive.weights import to_weights
from subnet.ledger.state import Member, RoundStats, RunState, Segment
from template.values import ChainView


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One miner. work and score are integers (FLOPs times the stage's price in thousandths).

    share: its part of all scores, i.e. the weight that follows from the ledger; weight: the mean of the vectors that
    validators submitted, or the share where none is known. audited, passed and failed count segments. status:
    "training", "waiting", "accused", "quarantined" or "left".
    """

    uid: int | None
    hotkey: str
    stage: int | None
    cheat: str | None
    work_committed: int
    work_refuted: int
    work_pending: int
    work_unpaid: int
    score: int
    share: float
    weight: float
    incentive: float
    segments: int
    audited: int
    passed: int
    failed: int
    reason: str  # of its last fail, else empty
    status: str


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict. id: the digest of the verdict; `drawn` is false for the recheck of a foreign fail."""

    id: str
    segment: str
    validator: str
    hotkey: str
    stage: int
    round: int
    verdict: str
    reason: str
    distance: float
    tolerance: float
    drawn: bool
    upheld: bool


class RoundRow(msgspec.Struct, frozen=True, kw_only=True):
    """One round. Losses in nats per token; None while unknown. seconds: from its begin to the next manifest, or now."""

    round: int
    steps: int
    tokens: int
    train_loss: float | None
    heldout_loss: float | None
    seconds: float
    tokens_per_s: float
    bytes_activations: int
    bytes_sync: int


def rows(
    state: RunState,
    view: ChainView | None,
    now_ms: int,
    *,
    submitted: Sequence[Mapping[int, float]] = (),
    cheats: Mapping[str, str] | None = None,
) -> list[Row]:
    """Every miner of the run, highest score first. submitted: the validators' weights on the chain, by uid."""
    ledger = books(state, now_ms=now_ms, own=None)
    shares = shares_of(ledger, view, state)
    vectors = [{hotkey: vector.get(uid, 0.0) for hotkey, uid in _uids(state, view).items()} for vector in submitted]
    made = []
    for hotkey, member in state.members.items():
        book = ledger.get(hotkey, Book(hotkey=hotkey))
        share = shares.get(hotkey, 0.0)
        neuron = view.neuron(hotkey) if view else None
        made.append(
            Row(
                uid=_uids(state, view).get(hotkey),
                hotkey=hotkey,
                stage=member.stage,
                cheat=(cheats or {}).get(hotkey),
                work_committed=book.committed,
                work_refuted=book.refuted,
                work_pending=book.pending,
                work_unpaid=book.unpaid,
                score=book.score,
                share=share,
                weight=sum(vector.get(hotkey, 0.0) for vector in vectors) / len(vectors) if vectors else share,
                incentive=neuron.incentive if neuron else 0.0,
                status=_status(state, member),
                **_judged([state.segments[name] for name in state.chains.get(hotkey, ())]),
            )
        )
    return sorted(made, key=lambda row: (-row.score, row.hotkey))


def _uids(state: RunState, view: ChainView | None) -> dict[str, int]:
    """Who holds which uid: by the chain's view, or else by the ledger's roster."""
    if view is not None:
        return {neuron.hotkey: neuron.uid for neuron in view.neurons}
    return {entry.hotkey: entry.uid for entry in state.roster.values()}


def shares_of(ledger: Mapping[str, Book], view: ChainView | None, state: RunState) -> dict[str, float]:
    """Each hotkey's weight as the ledger has it; without a view, its part of all scores."""
    if view is not None:
        weights = to_weights(ledger, view, state.config)
        return {hotkey: weights[uid] for hotkey, uid in _uids(state, view).items() if uid in weights}
    total = sum(book.score for book in ledger.values())
    return {hotkey: book.score / total for hotkey, book in ledger.items()} if total else {}


def _status(state: RunState, member: Member) -> str:
    if not member.active:
        return "left"
    if member.barred_until_round > state.round:
        return "quarantined"
    if state.accused(member.hotkey):
        return "accused"
    return "waiting" if member.stage is None or member.from_round > state.round else "training"


class Judged(TypedDict):
    """What verdicts say of one miner's segments."""

    segments: int
    audited: int
    passed: int
    failed: int
    reason: str


def _judged(chain: Sequence[Segment]) -> Judged:
    fails = [v for segment in chain for v in segment.verdicts.values() if v.verdict == "fail"]
    failed = sum(_has(segment, "fail") for segment in chain)
    return Judged(
        segments=len(chain),
        audited=sum(is_audited(segment) for segment in chain),
        passed=sum(_has(segment, "pass") and not _has(segment, "fail") for segment in chain),
        failed=failed,
        reason=max(fails, key=lambda verdict: verdict.time_ms).reason if fails else "",
    )


def _has(segment: Segment, verdict: str) -> bool:
    return any(given.verdict == verdict for given in segment.verdicts.values())


def is_audited(segment: Segment) -> bool:
    """Whether somebody came to a judgement; void is none."""
    return _has(segment, "pass") or _has(segment, "fail")


def audited_frac(state: RunState) -> float:
    """The true part of all segments that were judged, from 0 to 1; 0 without a segment."""
    return sum(map(is_audited, state.segments.values())) / len(state.segments) if state.segments else 0.0


def audits(state: RunState) -> list[AuditRow]:
    """The latest verdict of each validator on each segment, in ledger order of the segments."""
    return [
        AuditRow(
            id=digest_of(verdict),
            segment=segment.id,
            validator=verdict.validator,
            hotkey=segment.hotkey,
            stage=segment.stage,
            round=segment.round,
            verdict=verdict.verdict,
            reason=verdict.reason,
            distance=verdict.distance,
            tolerance=verdict.tolerance,
            drawn=verdict.draw is not None,
            upheld=state.upheld(segment),
        )
        for segment in state.segments.values()
        for verdict in segment.verdicts.values()
    ]


def rounds(state: RunState) -> list[RoundRow]:
    """Every round that began, oldest first; a round in progress is measured up to the ledger's last event."""
    return [_round(state, stats) for _, stats in sorted(state.rounds.items())]


def _round(state: RunState, stats: RoundStats) -> RoundRow:
    seconds = max(0, (stats.ended_ms or state.time_ms) - stats.begun_ms) / 1000
    checkpoint = state.checkpoints.get(stats.round + 1)  # what the round ended in
    return RoundRow(
        round=stats.round,
        steps=stats.steps,
        tokens=stats.tokens,
        train_loss=stats.loss_sum / stats.loss_tokens if stats.loss_tokens else None,
        heldout_loss=checkpoint.heldout_loss if checkpoint else None,
        seconds=seconds,
        tokens_per_s=stats.tokens / seconds if seconds else 0.0,
        bytes_activations=stats.bytes_activations,
        bytes_sync=stats.bytes_sync,
    )
