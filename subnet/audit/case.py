"""The case: what the ledger says about one segment, frozen, so that an audit can take its time.

Owns the join of the segment with its receipts, plans, public state and neighbours. Knows nothing of seeds or bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from subnet.ledger.state import RunState, Segment
from subnet.wire.messages import Plan, Receipt, Work

Hop = tuple[int, int, str]  # position of the step in the segment, microbatch, "activation" or "gradient"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One segment under audit.

    receipts: its steps, and the close where it ends a round, oldest first, with their digests in `ids`. plans: by
    digest. acknowledged: what the miner signed to a neighbour that it received, by hop; its own receipt must agree.
    tokens_before: tokens of the round that its earlier segments trained.
    """

    id: str
    hotkey: str
    stage: int
    round: int
    opens_round: bool
    start_root: str
    start_bytes: int
    end_root: str
    end_bytes: int
    public_root: str
    public_bytes: int
    ids: tuple[str, ...]
    receipts: tuple[Receipt, ...]
    plans: Mapping[str, Plan]
    acknowledged: Mapping[Hop, str]
    tokens_before: int

    @property
    def steps(self) -> tuple[Receipt, ...]:
        """The receipts of inner steps."""
        return tuple(receipt for receipt in self.receipts if receipt.kind == "step")

    @property
    def close(self) -> Receipt | None:
        """The receipt that ends the round, where this segment has it."""
        return self.receipts[-1] if self.receipts and self.receipts[-1].kind == "close" else None


def case_of(state: RunState, segment: Segment) -> Case:
    """The case of a segment of this ledger."""
    manifest = state.manifests.get(segment.round)
    public = manifest.stages[segment.stage] if manifest else None
    receipts = tuple(state.receipts[part] for part in segment.receipts)
    plans = {receipt.plan: state.plans[receipt.plan] for receipt in receipts if receipt.plan in state.plans}
    return Case(
        id=segment.id,
        hotkey=segment.hotkey,
        stage=segment.stage,
        round=segment.round,
        opens_round=segment.opens_round,
        start_root=segment.start_root,
        start_bytes=segment.start_bytes,
        end_root=segment.end_root,
        end_bytes=segment.end_bytes,
        public_root=public.root if public else "",
        public_bytes=public.state_bytes if public else 0,
        ids=segment.receipts,
        receipts=receipts,
        plans=plans,
        acknowledged=_acknowledged(state, segment.stage, receipts),
        tokens_before=_tokens_before(state, segment),
    )


def _acknowledged(state: RunState, stage: int, receipts: tuple[Receipt, ...]) -> dict[Hop, str]:
    """What neighbours delivered to this miner and hold its signature for: their own receipts say so."""
    position = {receipt.plan: number for number, receipt in enumerate(receipts) if receipt.kind == "step"}
    found: dict[Hop, str] = {}
    for other in state.receipts.values():
        if other.plan not in position or abs(other.stage - stage) != 1:
            continue
        for work in other.work:
            sent = _sent(work, downstream=other.stage > stage)
            if sent is not None:
                found[position[other.plan], work.index, sent[0]] = sent[1]
    return found


def _sent(work: Work, *, downstream: bool) -> tuple[str, str] | None:
    """What the author of this work sent to us, and only what we acknowledged: kind and digest."""
    if downstream:
        return ("gradient", work.gradient_out) if work.gradient_ack else None
    return ("activation", work.output) if work.output_ack else None


def _tokens_before(state: RunState, segment: Segment) -> int:
    parts = (
        part
        for other in state.segments.values()
        if other.hotkey == segment.hotkey and other.round == segment.round and other.event < segment.event
        for part in other.receipts
    )
    return sum(len(state.receipts[part].work) for part in parts) * state.config.microbatch_tokens
