"""Pinned evidence: what an accuser puts where everybody can read it, so that anyone can repeat its verdict.

The chunks of the end state, with their proofs, travel as one blob, the *pack*: its digest is the last of a fail's
`evidence`. Everything else has the name that the ledger gives it. Knows nothing of stores or transport.

A pack is, per chunk, index, length of the data, number of hashes of the proof (u32, little-endian each), the data, and
the hashes (32 bytes each).
"""

import struct
from collections.abc import Mapping

from subnet.audit.case import disputes_of, lines_of
from subnet.audit.evidence import Chunk, Evidence, Needed, verified
from subnet.audit.tensors import frame_bytes
from subnet.canonical import digest
from subnet.errors import EvidenceError
from subnet.ledger.accusing import FALSE, outcome
from subnet.ledger.state import RunState, Segment
from subnet.wire.messages import Verdict

PINNED_FAILS = 16  # of one validator: the newest ones that are not known to be false
PACK_SLACK_BYTES = 4096
_HEAD = struct.Struct("<III")
_HASH_BYTES = 32


def pack_chunks(chunks: Mapping[int, Chunk]) -> bytes:
    """The chunks of a state as one blob, by index."""
    parts: list[bytes] = []
    for index, chunk in sorted(chunks.items()):
        parts += [_HEAD.pack(index, len(chunk.data), len(chunk.proof)), chunk.data, *map(bytes.fromhex, chunk.proof)]
    return b"".join(parts)


def unpack_chunks(pack: bytes) -> dict[int, Chunk]:
    """The chunks of a pack; whether they belong to a state, their proofs show. Raises EvidenceError when it is none."""
    chunks: dict[int, Chunk] = {}
    at = 0
    while at < len(pack):
        if len(pack) - at < _HEAD.size:
            raise EvidenceError("expected a pack of chunks, found one that is cut off; fetch it again")
        index, size, hashes = _HEAD.unpack_from(pack, at)
        start, end = at + _HEAD.size, at + _HEAD.size + size
        at = end + hashes * _HASH_BYTES
        if at > len(pack):
            raise EvidenceError("expected a pack of chunks, found one that is cut off; fetch it again")
        proof = tuple(pack[end + i * _HASH_BYTES : end + (i + 1) * _HASH_BYTES].hex() for i in range(hashes))
        chunks[index] = Chunk(data=pack[start:end], proof=proof)
    return chunks


def to_pin(need: Needed, evidence: Evidence) -> dict[str, bytes]:
    """What an accuser pins of the evidence, by name. The public state is in the run's store as it is."""
    kept = verified(need, evidence)
    pinned = {**kept.deliveries, **kept.frames}
    if kept.start is not None:
        pinned[need.start_root] = kept.start
    if kept.chunks:
        pack = pack_chunks(kept.chunks)
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
    """All that a validator may keep in the run's store for its fails, and at most how many bytes of each."""
    failed = [
        (segment, said)
        for segment in state.segments.values()
        if (said := segment.verdicts.get(validator)) is not None and said.verdict == "fail"
    ]
    open_fails = [pair for pair in failed if outcome(state, pair[0]) != FALSE]
    allowed: dict[str, int] = {}
    for segment, said in open_fails[-PINNED_FAILS:]:
        allowed |= pinnable(state, segment, said)
    return allowed
