"""The case: what the ledger says about one segment, frozen, so that an audit can take its time.

Owns the join of the segment with its receipts, plans, public state and neighbours. Knows nothing of seeds or bytes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from subnet.ledger.state import RunState, Segment
from subnet.wire.delivery import LINE_BYTES, Key, inbound, sender_stage
from subnet.wire.messages import Plan, Receipt

Hop = tuple[int, int, str]  # position of the step in the segment, microbatch, "activation" or "gradient"


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The signed deliveries of one receipt: the blob's name and size, and who has to show it."""

    name: str
    size_bytes: int
    holder: str


@dataclass(frozen=True, kw_only=True)
class Dispute:
    """A hop of which the two ends say different things: the miner sent `stated`, its neighbour got `got`.

    Whose lie it is, line number `place` of the neighbour's deliveries shows: the miner's signature over `got`, or none.
    """

    key: Key
    stated: str
    got: str
    lines: Lines
    place: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """One segment under audit.

    receipts: its steps, and the close where it ends a round, oldest first, with their digests in `ids`. plans: by
    digest. disputes: what its neighbours say they got from it where that is not what it says it sent. tokens_before:
    tokens of the round that its earlier segments trained.
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
    disputes: tuple[Dispute, ...]
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
        disputes=disputes_of(state, receipts),
        tokens_before=_tokens_before(state, segment),
    )


def lines_of(receipt: Receipt) -> Lines | None:
    """The signed deliveries that a step's receipt names; None where nothing came in."""
    if not receipt.deliveries:
        return None
    size_bytes = LINE_BYTES * len(inbound(receipt))
    return Lines(name=receipt.deliveries, size_bytes=size_bytes, holder=receipt.hotkey)


def disputes_of(state: RunState, receipts: tuple[Receipt, ...]) -> tuple[Dispute, ...]:
    """The disputes of these steps with any receipt of the ledger."""
    names = (name for receipt in receipts for name in state.of_plan.get(receipt.plan, ()))
    return disputes_among(receipts, (state.receipts[name] for name in names))


def disputes_among(receipts: tuple[Receipt, ...], others: Iterable[Receipt]) -> tuple[Dispute, ...]:
    """Every hop out of these steps of which the receiver's receipt states another digest than the sender's."""
    sent = {receipt.plan: receipt for receipt in receipts if receipt.kind == "step"}
    found: list[Dispute] = []
    for other in others:
        own = sent.get(other.plan)
        if own is not None and abs(other.stage - own.stage) == 1:
            found.extend(_differing(own, other))
    return tuple(found)


def _differing(own: Receipt, other: Receipt) -> Iterator[Dispute]:
    """Where the receiver `other` says that it got something else than the sender `own` says it sent."""
    lines, works = lines_of(other), {work.index: work for work in own.work}
    for place, (key, got) in enumerate(inbound(other)):
        work = works.get(key[2])
        if lines is None or work is None or sender_stage(other.stage, key[3]) != own.stage:
            continue
        stated = work.output if key[3] == "activation" else work.gradient_out
        if stated != got:
            yield Dispute(key=key, stated=stated, got=got, lines=lines, place=place)


def _tokens_before(state: RunState, segment: Segment) -> int:
    parts = (
        part
        for other in state.segments.values()
        if other.hotkey == segment.hotkey and other.round == segment.round and other.event < segment.event
        for part in other.receipts
    )
    return sum(len(state.receipts[part].work) for part in parts) * state.config.microbatch_tokens
