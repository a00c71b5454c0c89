"""The comparison: what the miner committed to against what the replay gives, piece by piece.

Frames are compared sequence by sequence, so that one corrupted sequence is seen; the end state tensor by tensor on
each chunk that was shown, so that a norm's few values do not hide among a matrix' many (a chunk whose leaf hash is the
replay's is equal without looking); losses and gradient norms one by one.
Outbound tensors go through the run's codec on both sides, and one whose recomputed frame has the stated digest is
equal without looking. What a distance is, `distance.py` says. Knows nothing of verdicts, nor of why this segment was
drawn.

Moments are compared as they are, not as their change: of the first moment's norm at least a third is new after four
steps at the default betas, of the second a fifth, so a deviation of 1 % in a segment's gradients moves them a thousand
times as far as honest work differs. Their start needs no comparison: it is a state committed before, under its own
root, so invented ones are another root.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from subnet.audit.chunks import differing
from subnet.audit.distance import (
    CHUNK_ELEMENTS,
    MAX_DISTANCE,
    delta_distance,
    distance,
    loss_distance,
    sequence_distance,
    share,
)
from subnet.audit.evidence import Chunk, Evidence, Needed, Outbound
from subnet.audit.replayed import Replayed
from subnet.audit.sent import recomputed
from subnet.audit.tensors import frame_header, make_frame, read_frame
from subnet.audit.weights import ByElement, Weights, weights_by_row, weights_of
from subnet.config import AuditConfig, RunConfig
from subnet.errors import FrameError, InputError
from subnet.model.shapes import geometry
from subnet.stage.layout import COUNTER_BYTES, FLOAT, Flat, StateLayout
from subnet.wire.messages import Receipt

KINDS = ("activation", "gradient", "loss", "norm", "delta", "moment")  # of comparisons, each with its tolerance
END = -1  # the position of findings about the end state


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One comparison: what (a reason word), at which step of the segment (END: its end state), how far apart."""

    name: str
    position: int
    distance: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the distance is within the tolerance; NaN is not."""
        return self.distance <= self.tolerance


def tolerance_of(config: AuditConfig, name: str) -> float:
    """The run's tolerance for a kind of comparison."""
    return {
        "activation": config.tolerance_activation,
        "gradient": config.tolerance_gradient,
        "norm": config.tolerance_gradient if config.tolerance_norm is None else config.tolerance_norm,
        "loss": config.tolerance_loss,
        "delta": config.tolerance_delta,
        "moment": config.tolerance_moment,
    }[name]


def compare(need: Needed, evidence: Evidence, replayed: Replayed, run: RunConfig) -> list[Finding]:
    """Every comparison that the evidence allows."""
    found: list[tuple[str, int, float]] = []
    for frame in need.outbound:
        apart = _frame_distance(frame, need.case.steps[frame.hop[0]], evidence, replayed, run)
        if apart is not None:
            found.append((frame.hop[2], frame.hop[0], apart))
    for position, receipt in enumerate(need.case.steps):
        found += [(name, position, apart) for name, apart in _step_distances(receipt, position, replayed, run)]
    if need.order:
        found += [(name, END, apart) for name, apart in _end_distances(need, evidence, replayed, run)]
    return [
        Finding(name=name, position=position, distance=apart, tolerance=tolerance_of(run.audit, name))
        for name, position, apart in found
    ]


def _frame_distance(
    frame: Outbound, receipt: Receipt, evidence: Evidence, replayed: Replayed, run: RunConfig
) -> float | None:
    """How far the frame that the neighbour got is from the recomputed one; None when it was not shown."""
    position, index, kind = frame.hop
    header = frame_header(run, round=receipt.round, step=receipt.step, microbatch=index, kind=kind)
    if position >= len(replayed.steps):
        return MAX_DISTANCE
    if recomputed(frame, replayed):
        return 0.0
    if frame.digest not in evidence.frames:
        return None
    try:
        values = read_frame(header, make_frame(header, replayed.steps[position].outbound[index, kind]))
        return sequence_distance(read_frame(header, evidence.frames[frame.digest]), values)
    except (FrameError, InputError):  # not a frame of this hop, or values that are not finite
        return MAX_DISTANCE


def _step_distances(receipt: Receipt, position: int, replayed: Replayed, run: RunConfig) -> Iterator[tuple[str, float]]:
    """Losses and the gradient norm of one step."""
    if position >= len(replayed.steps):
        yield "norm", MAX_DISTANCE
        return
    step, vocabulary = replayed.steps[position], geometry(run.model).vocabulary
    for work in receipt.work:
        if work.index in step.losses:
            claimed = math.nan if work.loss is None else work.loss
            recomputed = step.losses[work.index]
            yield "loss", loss_distance(claimed, recomputed, tokens=run.microbatch_tokens, vocabulary=vocabulary)
    yield "norm", distance(math.nan if receipt.gradient_norm is None else receipt.gradient_norm, step.norm)


def _end_distances(need: Needed, evidence: Evidence, replayed: Replayed, run: RunConfig) -> Iterator[tuple[str, float]]:
    """The step counter, and what each tensor has of each section in each chunk of the end state that was shown."""
    layout = StateLayout(run, need.case.stage)
    if replayed.end is None or replayed.divisors is None:
        yield "delta", MAX_DISTANCE
        return
    differ, last = differing(need, evidence, replayed), evidence.chunks.get(len(need.order) - 1)
    if last is not None:
        yield "moment", distance(int.from_bytes(last.data[-COUNTER_BYTES:], "little"), replayed.end.step)
    steps = len(replayed.steps)
    for number, (low, high) in enumerate(need.sections):
        if len(differ.intersection(range(low, high))) < high - low:  # some of its chunks are the replay's
            yield "moment" if number else "delta", 0.0
        for name, within in layout.slices.items():
            first = number * layout.num_parameters + within.start
            pieces = _pieces(evidence.chunks, first, first + within.stop - within.start)
            recomputed = replayed.end.tensor(number, name)
            if pieces and number == 0:
                weights = _weights(name, replayed.divisors[within], replayed, run)
                yield from _deltas(pieces, recomputed, replayed.start.parameters[within], weights, steps=steps)
            elif pieces:
                floor = share(recomputed.astype(np.float64))
                yield from (("moment", distance(claimed, recomputed[part], floor=floor)) for part, claimed in pieces)


def movements_apart(need: Needed, evidence: Evidence, replayed: Replayed, run: RunConfig) -> float:
    """The largest distance of how a tensor's part of a chunk moved, as it is: nothing allowed, nothing weighed.

    It judges nobody; it says what a deviation of a movement is to be compared with.
    """
    layout, found = StateLayout(run, need.case.stage), [0.0]
    assert replayed.end is not None
    for name, within in layout.slices.items():
        start, end = replayed.start.parameters[within].astype(np.float64), replayed.end.tensor(0, name)
        floor = share(end - start)
        for part, claimed in _pieces(evidence.chunks, within.start, within.stop):
            found.append(distance(claimed - start[part], end[part] - start[part], floor=floor))
    return max(found)


def _pieces(chunks: Mapping[int, Chunk], first: int, end: int) -> list[tuple[slice, Flat]]:
    """Of elements `first` to `end - 1` of the state those in these chunks: where in the tensor, and their values."""
    found = []
    for index, chunk in sorted(chunks.items()):
        begins = index * CHUNK_ELEMENTS
        low, high = max(first, begins), min(end, begins + CHUNK_ELEMENTS)
        if low < high:
            values = np.frombuffer(chunk.data, dtype=FLOAT, count=high - low, offset=(low - begins) * FLOAT.itemsize)
            found.append((slice(low - first, high - first), values))
    return found


def _weights(name: str, divisors: Flat, replayed: Replayed, run: RunConfig) -> Weights:
    """By how much each direction of a tensor counts in its movement."""
    if name in replayed.roots:
        return weights_by_row(replayed.roots[name])
    return ByElement(weights=weights_of(divisors, dtype=run.train.dtype))


def _deltas(
    pieces: list[tuple[slice, Flat]], recomputed: Flat, start: Flat, weights: Weights, *, steps: int
) -> Iterator[tuple[str, float]]:
    """How each piece of a tensor moved."""
    floor = share(weights.weigh(recomputed.astype(np.float64) - start, slice(0, recomputed.size)))
    for part, claimed in pieces:
        weigh = partial(weights.weigh, part=part)
        yield "delta", delta_distance(claimed, recomputed[part], start[part], weigh=weigh, floor=floor, steps=steps)
