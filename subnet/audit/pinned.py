"""Pinned evidence: what an accuser puts where everybody can read it, so that anyone can repeat its verdict.

What is known of the end state, its leaf hashes and chunks with their proofs, travels as one blob, the *pack*: its
digest is the last of a fail's `evidence`. Everything else has the name that the ledger gives it. Knows nothing of
stores or transport.

A pack is the number of leaves (u32, little-endian), the leaves (32 bytes each), and then per chunk index, length of the
data, number of hashes of the proof (u32, little-endian each), the data, and the hashes (32 bytes each).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from subnet.audit.case import disputes_of, lines_of
from subnet.audit.chunks import known_chunks
from subnet.audit.evidence import Chunk, Evidence, Needed, verified
from subnet.audit.replayed import Replayed
from subnet.audit.tensors import frame_bytes
from subnet.canonical import digest
from subnet.errors import EvidenceError
from subnet.ledger.accusing import FALSE, outcome
from subnet.ledger.state import RunState, Segment
from subnet.wire.merkle import HASH_BYTES, split_leaves
from subnet.wire.messages import Verdict

PINNED_FAILS = 16  # of one validator: the newest ones that are not known to be false
LOOKED_AT_FAILS = 4 * PINNED_FAILS  # the newest, whatever became of them
PACK_SLACK_BYTES = 4096
_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<III")


@dataclass(frozen=True, kw_only=True)
class Pack:
    """What is known of one state: its leaves, one after the other (empty when they are not known), and chunks."""

    leaves: bytes = b""
    chunks: Mapping[int, Chunk] = field(default_factory=dict)


def make_pack(pack: Pack) -> bytes:
    """The bytes of a pack, its chunks by index."""
    parts: list[bytes] = [_COUNT.pack(len(pack.leaves) // HASH_BYTES), pack.leaves]
    for index, chunk in sorted(pack.chunks.items()):
        parts += [_HEAD.pack(index, len(chunk.data), len(chunk.proof)), chunk.data, *map(bytes.fromhex, chunk.proof)]
    return b"".join(parts)


def read_pack(data: bytes) -> Pack:
    """A pack; whether its parts belong to a state, the root shows. Raises EvidenceError when it is none."""
    whole = _Cut(data)
    (count,) = _COUNT.unpack(whole.take(_COUNT.size))
    leaves = whole.take(count * HASH_BYTES)
    chunks: dict[int, Chunk] = {}
    while whole.at < len(data):
        index, size, hashes = _HEAD.unpack(whole.take(_HEAD.size))
        chunk, proof = whole.take(size), split_leaves(whole.take(hashes * HASH_BYTES))
        chunks[index] = Chunk(data=chunk, proof=tuple(each.hex() for each in proof))
    return Pack(leaves=leaves, chunks=chunks)


@dataclass(kw_only=False)
class _Cut:
    """Bytes that are taken from front to back."""

    data: bytes
    at: int = 0

    def take(self, size_bytes: int) -> bytes:
        """The next ones. Raises EvidenceError where there are not so many."""
        start, self.at = self.at, self.at + size_bytes
        if self.at > len(self.data):
            raise EvidenceError("expected a pack of chunks, found one that is cut off; fetch it again")
        return self.data[start : self.at]


def to_pin(need: Needed, evidence: Evidence, replayed: Replayed | None = None) -> dict[str, bytes]:
    """What an accuser pins of the evidence, by name. The public state is in the run's store as it is.

    replayed: the accuser's replay, where it came so far. It has the chunks that nobody had to show.
    """
    kept = verified(need, evidence)
    pinned = {**kept.deliveries, **kept.frames}
    if kept.start is not None:
        pinned[need.start_root] = kept.start
    if kept.leaves is not None:
        chunks = known_chunks(need, kept, replayed) if replayed else kept.chunks
        pack = make_pack(Pack(leaves=kept.leaves, chunks=chunks))
        pinned[digest(pack)] = pack
    return pinned


def pinnable(state: RunState, segment: Segment, verdict: Verdict) -> dict[str, int]:
    """What the author of a fail may put into the run's store: each name, and how many bytes at most."""
    run, receipts = state.config, tuple(state.receipts[part] for part in segment.receipts)
    size = frame_bytes(run)
    allowed: dict[str, int] = {}
    if verdict.evidence:
        allowed[verdict.evidence[-1]] = segment.end_bytes + segment.end_bytes // 8 + PACK_SLACK_BYTES
    if segment.start_root:
        allowed[segment.start_root] = segment.start_bytes
    for receipt in receipts:
        for work in receipt.work:
            sent = [work.output, work.gradient_out, work.gradient_in, work.input if receipt.stage > 0 else ""]
            allowed |= {name: size for name in sent if name}
    lines = [lines_of(receipt) for receipt in receipts]
    lines += [dispute.lines for dispute in disputes_of(state, receipts)]
    return allowed | {each.name: each.size_bytes for each in lines if each is not None}


def pinned_by(state: RunState, validator: str) -> dict[str, int]:
    """All that a validator may keep in the run's store for its fails, and at most how many bytes of each.

    Its newest fails alone are looked at, however many it has said: this is asked for at every upload.
    """
    newest = [state.segments[name] for name in state.fails.get(validator, ())[-LOOKED_AT_FAILS:]]
    open_fails = [segment for segment in newest if outcome(state, segment) != FALSE]
    allowed: dict[str, int] = {}
    for segment in open_fails[-PINNED_FAILS:]:
        allowed |= pinnable(state, segment, segment.verdicts[validator])
    return allowed
