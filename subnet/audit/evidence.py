"""Evidence: which bytes an audit needs, who owes them, and whether what came is what was asked for.

The audited miner owes its start state, what it received with its senders' signatures over it, and of its end state
first the leaf hashes and, after the replay, those chunks that `chunks.py` wants. Of what it sent, the frames that
`sent.py` wants are fetched from the neighbour that received them, so that it cannot show the auditor other bytes. The
run's store owes the public state. Knows nothing of transport: bytes are named by blake3 or by Merkle root and may come
from anywhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from subnet.audit.case import Case, Hop, Lines, case_of, lines_of
from subnet.audit.draw import lot
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.ledger.state import RunState, Segment
from subnet.stage.layout import SECTIONS, StateLayout
from subnet.wire.merkle import (
    CHUNK_BYTES,
    check_chunk,
    check_leaves,
    merkle_leaves,
    merkle_root,
    num_chunks,
    split_leaves,
)
from subnet.wire.messages import Receipt


@dataclass(frozen=True, kw_only=True)
class Outbound:
    """A frame that the miner sent, and the neighbour that received it and serves it."""

    hop: Hop
    digest: str
    receiver: str


@dataclass(frozen=True, kw_only=True)
class Needed:
    """What must be fetched. An empty root means that nothing of that kind is needed: nor is a state of another length
    than its stage's, which nobody could hold in memory, and which fails as it is.

    public_root: from the run's store, its first `parameter_bytes`. start_root, inbound, and the leaves of the state
    `end_root` (where `order` is not empty): from the audited miner. deliveries: the signed lines of its inbound frames,
    from itself, and those of neighbours who say that they got something else from it. contribution: its digest; it is
    recomputed, not fetched.

    Of what it sent: `outbound` has all frames as the draw's lots have them, each to be had from its receiver (or from
    anybody who has bytes of that digest), and `most_outbound` is how many that differ from the replay are looked at.
    Of the end state: `order` has all chunks as the draw's lots have them, `most_chunks` is how many that differ from
    the replay are looked at, and `sections` is where each section has its chunks: from, and up to below.
    """

    case: Case
    public_root: str
    public_bytes: int
    parameter_bytes: int
    start_root: str
    start_bytes: int
    inbound: tuple[str, ...]
    deliveries: tuple[Lines, ...]
    outbound: tuple[Outbound, ...]
    most_outbound: int
    end_root: str
    end_bytes: int
    order: tuple[int, ...]
    most_chunks: int
    sections: tuple[tuple[int, int], ...]
    contribution: str


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What more has to be shown once the replay is done: chunks of the end state, and frames that the miner sent."""

    chunks: tuple[int, ...] = ()
    frames: tuple[Outbound, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One chunk of the end state with its Merkle proof."""

    data: bytes
    proof: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Leading:
    """The first chunks of a state, and the leaf hashes of all its chunks, which its root binds: 32 bytes each."""

    data: bytes
    leaves: bytes


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The bytes that were fetched; what could not be had is None or left out. Frames and deliveries are by digest,
    chunks by index; leaves are the end state's, 32 bytes for each chunk. Of the public state it is the chunks that hold
    parameters: no audit looks at the outer momentum."""

    public: Leading | None = None
    start: bytes | None = None
    leaves: bytes | None = None
    frames: Mapping[str, bytes] = field(default_factory=dict)
    deliveries: Mapping[str, bytes] = field(default_factory=dict)
    chunks: Mapping[int, Chunk] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What is not there, by who owes it: the store, the audited miner, its neighbours."""

    public: bool
    miner: tuple[str, ...]
    neighbours: tuple[Outbound, ...]


def needed(state: RunState, segment: Segment, *, seed: bytes) -> Needed:
    """What the audit of a segment needs. `seed` chooses among outbound frames and chunks (`draw.seed_of`).

    Once somebody fails the segment, nothing that differs is left out: what the accuser's machine saw must be looked at
    on every other machine too.
    """
    need = needed_of(case_of(state, segment), state.config, seed=seed)
    failed = any(said.verdict == "fail" for said in segment.verdicts.values())
    return replace(need, most_chunks=len(need.order), most_outbound=len(need.outbound)) if failed else need


def needed_of(case: Case, run: RunConfig, *, seed: bytes) -> Needed:
    """What the audit of a case needs."""
    layout, audit = StateLayout(run, case.stage), run.audit
    close = case.close
    contribution = close.contribution if close else ""
    public = case.opens_round or bool(contribution)
    bound = case.end_bytes == layout.state_bytes
    order = chunk_order(layout, seed, case.id) if case.steps and bound else ()
    outbound = outbound_order(case, seed)
    return Needed(
        case=case,
        public_root=case.public_root if public else "",
        public_bytes=case.public_bytes if public else 0,
        parameter_bytes=layout.section_bytes,
        start_root=case.start_root if case.start_bytes == layout.state_bytes else "",
        start_bytes=case.start_bytes,
        inbound=_inbound(case),
        deliveries=_deliveries(case),
        outbound=outbound,
        most_outbound=int(audit.outbound_frac * len(outbound)),
        end_root=case.end_root,
        end_bytes=case.end_bytes,
        order=order,
        most_chunks=int(audit.chunk_frac * len(order)),
        sections=tuple(_section_chunks(layout, number) for number in range(len(SECTIONS))),
        contribution=contribution,
    )


def _inbound(case: Case) -> tuple[str, ...]:
    """Digests of the frames that the miner received. A first stage's input is not fetched: tokens are rederived."""
    inputs = (work.input for receipt in case.steps for work in receipt.work if case.stage > 0)
    gradients = (work.gradient_in for receipt in case.steps for work in receipt.work)
    return tuple(dict.fromkeys(name for name in (*inputs, *gradients) if name))


def _deliveries(case: Case) -> tuple[Lines, ...]:
    """The signed lines of what the miner received, and of what its neighbours say they got from it instead."""
    own = (lines_of(receipt) for receipt in case.steps)
    disputed = (dispute.lines for dispute in case.disputes)
    return tuple(dict.fromkeys(lines for lines in (*own, *disputed) if lines is not None))


def outbound_order(case: Case, seed: bytes) -> tuple[Outbound, ...]:
    """All frames that the miner sent in the order of their lots: nobody knows it before the draw."""
    sent = [frame for position, receipt in enumerate(case.steps) for frame in _sent(case, position, receipt)]
    return tuple(sorted(sent, key=lambda frame: lot(seed, case.id, "outbound", *frame.hop)))


def _sent(case: Case, position: int, receipt: Receipt) -> Iterator[Outbound]:
    """What the miner sent in a step."""
    path = case.plans[receipt.plan].path if receipt.plan in case.plans else ()
    for work in receipt.work:
        for kind, name, to in (
            ("activation", work.output, case.stage + 1),
            ("gradient", work.gradient_out, case.stage - 1),
        ):
            if name and 0 <= to < len(path):
                yield Outbound(hop=(position, work.index, kind), digest=name, receiver=path[to])


def chunk_order(layout: StateLayout, seed: bytes, segment: str) -> tuple[int, ...]:
    """All chunks of a state in the order of their lots: nobody knows it before the draw."""
    return tuple(sorted(range(num_chunks(layout.state_bytes)), key=lambda index: lot(seed, segment, "chunk", index)))


def _section_chunks(layout: StateLayout, number: int) -> tuple[int, int]:
    """The chunks that hold bytes of section `number`: from, and up to below."""
    start, end = number * layout.section_bytes, (number + 1) * layout.section_bytes
    return start // CHUNK_BYTES, -(-end // CHUNK_BYTES)


def verified(need: Needed, evidence: Evidence) -> Evidence:
    """Only the bytes that are what they were asked for as; bytes of another digest or root are as good as none."""
    fits = evidence.leaves is not None and check_leaves(need.end_root, need.end_bytes, evidence.leaves)
    frames = {name: data for name, data in evidence.frames.items() if digest(data) == name}
    deliveries = {name: data for name, data in evidence.deliveries.items() if digest(data) == name}
    chunks = {
        index: chunk
        for index, chunk in evidence.chunks.items()
        if check_chunk(need.end_root, need.end_bytes, index, chunk.data, chunk.proof)
    }
    return Evidence(
        public=_public(need, evidence.public),
        start=_of_root(evidence.start, need.start_root, need.start_bytes),
        leaves=evidence.leaves if fits else None,
        frames=frames,
        deliveries=deliveries,
        chunks=chunks,
    )


def _of_root(data: bytes | None, root: str, length_bytes: int) -> bytes | None:
    fits = data is not None and root != "" and len(data) == length_bytes and merkle_root(data) == root
    return data if fits else None


def _public(need: Needed, leading: Leading | None) -> Leading | None:
    fits = (
        leading is not None
        and need.public_root != ""
        and check_leaves(need.public_root, need.public_bytes, leading.leaves)
    )
    if leading is None or not fits or len(leading.data) != leading_bytes(need.public_bytes, need.parameter_bytes):
        return None
    found = merkle_leaves(leading.data)
    return leading if tuple(found) == split_leaves(leading.leaves)[: len(found)] else None


def leading_bytes(size_bytes: int, wanted_bytes: int) -> int:
    """How long the first whole chunks are that hold the first `wanted_bytes` of a state of `size_bytes`."""
    return min(size_bytes, -(-wanted_bytes // CHUNK_BYTES) * CHUNK_BYTES)


def leading_of(data: bytes, wanted_bytes: int) -> Leading:
    """The leading chunks of a whole state that hold its first `wanted_bytes`."""
    return Leading(data=data[: leading_bytes(len(data), wanted_bytes)], leaves=b"".join(merkle_leaves(data)))


def joined(evidence: Evidence, more: Evidence) -> Evidence:
    """Both together."""
    return Evidence(
        public=evidence.public if more.public is None else more.public,
        start=evidence.start if more.start is None else more.start,
        leaves=evidence.leaves if more.leaves is None else more.leaves,
        frames={**evidence.frames, **more.frames},
        deliveries={**evidence.deliveries, **more.deliveries},
        chunks={**evidence.chunks, **more.chunks},
    )


def missing(need: Needed, evidence: Evidence, wanted: Wanted | None = None) -> Missing:
    """What of the needed bytes, and of what is wanted after the replay, is not there. Give it verified evidence."""
    wanted = wanted or Wanted()
    owed = [f"chunk {index}" for index in wanted.chunks if index not in evidence.chunks]
    if need.order and evidence.leaves is None:
        owed.append(f"the leaves of {need.end_root}")
    owed += [name for name in need.inbound if name not in evidence.frames]
    own = [lines.name for lines in need.deliveries if lines.holder == need.case.hotkey]
    owed += [name for name in own if name not in evidence.deliveries]
    if need.start_root and evidence.start is None:
        owed.append(need.start_root)
    return Missing(
        public=bool(need.public_root) and evidence.public is None,
        miner=tuple(owed),
        neighbours=tuple(frame for frame in wanted.frames if frame.digest not in evidence.frames),
    )
