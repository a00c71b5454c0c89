"""Which chunks of a committed end state an audit looks at, once it has replayed the segment.

The miner shows the leaf hashes of its end state first; the root that it committed to binds them. A chunk whose leaf is
the replay's is the replay's to the last bit, and nobody has to show it. Of those that differ, bytes are asked for in
the order of the draw's lots, up to the run's part of all chunks. So on like machines whatever deviates is looked at, be
it a single tensor of many; where honest work differs everywhere in its last bits, an audit costs what the drawn part
costs. Knows nothing of transport or verdicts.
"""

from collections.abc import Collection, Iterator, Mapping, Set

import numpy as np

from subnet.audit.evidence import Chunk, Evidence, Needed
from subnet.audit.replayed import Replayed
from subnet.stage.layout import FLOAT, Flat, StateLayout
from subnet.wire.merkle import CHUNK_BYTES, chunk_proofs, chunk_span, merkle_leaves, split_leaves

PARAMETERS = 0  # the first section


def differing(need: Needed, evidence: Evidence, replayed: Replayed) -> frozenset[int]:
    """The chunks of the committed end state that are not the replay's, by their leaves; all, where those are missing.

    Give it verified evidence.
    """
    if evidence.leaves is None or not replayed.leaves:
        return frozenset(need.order)
    claimed = split_leaves(evidence.leaves)
    return frozenset(index for index in need.order if claimed[index] != replayed.leaves[index])


def chosen(need: Needed, differ: Set[int]) -> tuple[int, ...]:
    """Of the chunks that differ those to look at: the first by lot, with one in each section and the last among them.

    The last holds the step counter. Where a contribution must be recomputed, every one with parameters is taken.
    """
    ranked = [index for index in need.order if index in differ]
    taken = {len(need.order) - 1} & differ
    for first, end in need.sections:
        taken.update([index for index in ranked if first <= index < end][:1])
    others = [index for index in ranked if index not in taken]
    taken.update(others[: max(0, need.most_chunks - len(taken))])
    if need.contribution:
        first, end = need.sections[PARAMETERS]
        taken.update(index for index in ranked if first <= index < end)
    return tuple(sorted(taken))


def chunks_wanted(need: Needed, evidence: Evidence, replayed: Replayed) -> tuple[int, ...]:
    """The chunks that the miner has to show after this replay; none where no end state could be computed.

    Give it verified evidence.
    """
    return chosen(need, differing(need, evidence, replayed)) if replayed.end is not None else ()


def chunks_to_repeat(need: Needed, evidence: Evidence, replayed: Replayed, pinned: Collection[int]) -> tuple[int, ...]:
    """The chunks that repeating a fail takes: those that its author pinned, for one of them has to show it, and to
    recompute a contribution what has parameters and differs here."""
    if replayed.end is None:
        return ()
    first, end = need.sections[PARAMETERS] if need.contribution else (0, 0)
    parameters = {index for index in differing(need, evidence, replayed) if first <= index < end}
    return tuple(sorted(parameters.union(pinned)))


def end_parameters(need: Needed, evidence: Evidence, replayed: Replayed, layout: StateLayout) -> Flat:
    """The committed parameters at the end of a segment: the replay's, but for the chunks that differ.

    Needs each of these that holds parameters.
    """
    if not need.case.steps:
        return replayed.start.parameters
    assert replayed.end is not None, f"segment {need.case.id[:12]} has no replayed end state"
    first, end = need.sections[PARAMETERS]
    others = sorted(index for index in differing(need, evidence, replayed) if first <= index < end)
    if not others:
        return np.frombuffer(replayed.end[: layout.section_bytes], dtype=FLOAT)
    data = bytearray(replayed.end[: end * CHUNK_BYTES])
    for index in others:
        start, stop = chunk_span(len(replayed.end), index)
        data[start:stop] = evidence.chunks[index].data
    return np.frombuffer(data, dtype=FLOAT, count=layout.num_parameters)


def known_chunks(need: Needed, evidence: Evidence, replayed: Replayed) -> dict[int, Chunk]:
    """What an accuser can show of the end state, with proofs: the chunks that it fetched, and of those that are its
    replay's as many as somebody could want on whose machine all differ."""
    known = dict(evidence.chunks)
    if evidence.leaves is None or replayed.end is None:
        return known
    equal = set(chosen(need, frozenset(need.order))) - differing(need, evidence, replayed)
    proofs = chunk_proofs(split_leaves(evidence.leaves), equal)
    for index in equal:
        start, end = chunk_span(len(replayed.end), index)
        known[index] = Chunk(data=replayed.end[start:end], proof=tuple(proofs[index]))
    return known


class CutChunks(Mapping[int, Chunk]):
    """The chunks of a whole state, each cut when it is asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._leaves = merkle_leaves(data)

    @property
    def leaves(self) -> bytes:
        """The leaf hashes, one after the other."""
        return b"".join(self._leaves)

    def __getitem__(self, index: int) -> Chunk:
        if not 0 <= index < len(self._leaves):
            raise KeyError(index)
        start, end = chunk_span(len(self._data), index)
        return Chunk(data=self._data[start:end], proof=tuple(chunk_proofs(self._leaves, (index,))[index]))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._leaves)))

    def __len__(self) -> int:
        return len(self._leaves)
