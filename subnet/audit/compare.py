"""The comparison: claimed against recomputed, as distances in float64.

A distance is the L2 norm of the difference over the L2 norm of the recomputed value; zero against zero is zero. What
is not finite, or differs from a recomputed zero, has the largest distance there is, so it never passes. Outbound
tensors go through the run's codec on both sides, and one whose recomputed frame has the claimed digest is equal
without looking. Knows nothing of verdicts, nor of why this segment was drawn.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from subnet.audit.evidence import Evidence, Needed, Outbound
from subnet.audit.replay import Replayed
from subnet.audit.tensors import frame_header, make_frame, read_frame
from subnet.canonical import digest
from subnet.config import AuditConfig, RunConfig
from subnet.errors import FrameError, InputError
from subnet.stage.layout import COUNTER_BYTES, FLOAT, SECTIONS, StateLayout, state_to_bytes
from subnet.wire.merkle import chunk_span
from subnet.wire.messages import Receipt

MAX_DISTANCE = 1e9
END = -1  # the position of findings about the end state

Numbers = (
    int | float | np.ndarray[tuple[int, ...], np.dtype[np.float32]] | np.ndarray[tuple[int, ...], np.dtype[np.float64]]
)


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


def distance(claimed: Numbers, recomputed: Numbers) -> float:
    """The relative L2 distance, from 0 to MAX_DISTANCE, never NaN."""
    left, right = np.asarray(claimed, dtype=np.float64).ravel(), np.asarray(recomputed, dtype=np.float64).ravel()
    if left.size != right.size or not (np.isfinite(left).all() and np.isfinite(right).all()):
        return MAX_DISTANCE
    apart, size = float(np.linalg.norm(left - right)), float(np.linalg.norm(right))
    if apart == 0.0:
        return 0.0
    return min(MAX_DISTANCE, apart / size) if size > 0.0 and math.isfinite(apart) else MAX_DISTANCE


def tolerance_of(config: AuditConfig, name: str) -> float:
    """The run's tolerance for a kind of comparison. A gradient's norm has the gradient's."""
    return {
        "activation": config.tolerance_activation,
        "gradient": config.tolerance_gradient,
        "norm": config.tolerance_gradient,
        "loss": config.tolerance_loss,
        "delta": config.tolerance_delta,
        "moment": config.tolerance_moment,
    }[name]


def compare(
    need: Needed, evidence: Evidence, replayed: Replayed, run: RunConfig
) -> tuple[list[Finding], list[Outbound]]:
    """Every comparison that the evidence allows, and the drawn outbound frames that nobody could show."""
    found: list[tuple[str, int, float]] = []
    unseen: list[Outbound] = []
    for frame in need.outbound:
        apart = _frame_distance(frame, need.case.steps[frame.hop[0]], evidence, replayed, run)
        if apart is None:
            unseen.append(frame)
        else:
            found.append((frame.hop[2], frame.hop[0], apart))
    for position, receipt in enumerate(need.case.steps):
        found += [(name, position, apart) for name, apart in _step_distances(receipt, position, replayed)]
    if need.chunks:
        found += [(name, END, apart) for name, apart in _end_distances(need, evidence, replayed, run)]
    return [
        Finding(name=name, position=position, distance=apart, tolerance=tolerance_of(run.audit, name))
        for name, position, apart in found
    ], unseen


def _frame_distance(
    frame: Outbound, receipt: Receipt, evidence: Evidence, replayed: Replayed, run: RunConfig
) -> float | None:
    """How far the frame that the neighbour got is from the recomputed one; None when nobody shows it."""
    position, index, kind = frame.hop
    header = frame_header(run, round=receipt.round, step=receipt.step, microbatch=index, kind=kind)
    if position >= len(replayed.steps):
        return MAX_DISTANCE
    try:
        recomputed = make_frame(header, replayed.steps[position].outbound[index, kind])
        if digest(recomputed) == frame.digest:
            return 0.0
        if frame.digest not in evidence.frames:
            return None
        return distance(read_frame(header, evidence.frames[frame.digest]), read_frame(header, recomputed))
    except (FrameError, InputError):  # not a frame of this hop, or values that are not finite
        return MAX_DISTANCE


def _step_distances(receipt: Receipt, position: int, replayed: Replayed) -> Iterator[tuple[str, float]]:
    """Losses and the gradient norm of one step."""
    if position >= len(replayed.steps):
        yield "norm", MAX_DISTANCE
        return
    step = replayed.steps[position]
    for work in receipt.work:
        if work.index in step.losses:
            claimed = math.nan if work.loss is None else work.loss
            yield "loss", distance(claimed, step.losses[work.index])
    yield "norm", distance(math.nan if receipt.gradient_norm is None else receipt.gradient_norm, step.norm)


def _end_distances(need: Needed, evidence: Evidence, replayed: Replayed, run: RunConfig) -> Iterator[tuple[str, float]]:
    """The step counter, and parameter deltas and moments on the drawn chunks of the end state, chunk by chunk."""
    layout = StateLayout(run, need.case.stage)
    if replayed.end is None:
        yield "delta", MAX_DISTANCE
        return
    start = np.frombuffer(state_to_bytes(layout, replayed.start), dtype=FLOAT, count=layout.num_parameters)
    end = np.frombuffer(replayed.end, dtype=FLOAT, count=len(SECTIONS) * layout.num_parameters)
    counters = [data[-COUNTER_BYTES:] for data in (evidence.chunks[max(need.chunks)].data, replayed.end)]
    yield "moment", distance(*(int.from_bytes(counter, "little") for counter in counters))
    for index in need.chunks:
        first, last = (byte // FLOAT.itemsize for byte in chunk_span(layout.state_bytes, index))
        chunk = np.frombuffer(evidence.chunks[index].data, dtype=FLOAT)
        for number in range(len(SECTIONS)):
            low = max(first, number * layout.num_parameters)
            high = min(last, (number + 1) * layout.num_parameters)
            if low >= high:
                continue
            claimed, recomputed = chunk[low - first : high - first], end[low:high]
            if number == 0:
                before = start[low:high].astype(np.float64)
                yield "delta", distance(claimed - before, recomputed - before)
            else:
                yield "moment", distance(claimed, recomputed)
