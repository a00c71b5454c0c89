"""One percent of any one tensor of a stage is noticed wherever it is, at the packaged tolerances."""

from collections.abc import Iterator
from dataclasses import replace as replaced

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.audit.compare import END, Finding, compare
from subnet.audit.evidence import Chunk, Evidence
from subnet.audit.replay import replay
from subnet.audit.replayed import Replayed
from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.edges.presets import RunOptions, build_run
from subnet.sim.segment import cheat_segment, segment_corpus
from subnet.stage.layout import COUNTER_BYTES, FLOAT, SECTIONS, StateLayout
from subnet.wire.merkle import chunk_span

pytestmark = pytest.mark.flow

FIRST, MIDDLE, LAST = 0, 1, 2
KIND = dict(zip(SECTIONS, ("delta", "moment", "moment"), strict=True))


def small_run(optimizer: str, dtype: str = "float32"):
    """The preset `nano` in three stages: two steps a segment, all of the end state drawn."""
    schedule = RunOptions(model="nano", stages=3, steps=4, segment_steps=2, microbatches=2)
    run = build_run(replaced(schedule, optimizer=optimizer, dtype=dtype))
    return replace(run, audit=replace(run.audit, chunk_frac=1.0, outbound_frac=1.0))


def deviating(layout: StateLayout, replayed: Replayed, by: float) -> Iterator[tuple[str, str, bytes]]:
    """The end state with one tensor of one section too far, or too large, by this part."""
    end = np.frombuffer(replayed.end[:], dtype=FLOAT, count=len(SECTIONS) * layout.num_parameters)
    for number, section in enumerate(SECTIONS):
        for name, within in layout.slices.items():
            place = slice(number * layout.num_parameters + within.start, number * layout.num_parameters + within.stop)
            wrong = end.copy()
            moved = end[place] - replayed.start.parameters[within] if number == 0 else end[place]
            if not moved.any():  # a second moment that Muon does not keep
                continue
            wrong[place] += np.float32(by) * moved
            yield section, name, wrong.tobytes() + replayed.end[-COUNTER_BYTES:]


def shown(evidence: Evidence, state: bytes) -> Evidence:
    """The evidence with another end state."""
    chunks = {}
    for index, chunk in evidence.chunks.items():
        first, last = chunk_span(len(state), index)
        chunks[index] = Chunk(data=state[first:last], proof=chunk.proof)
    return Evidence(public=evidence.public, start=evidence.start, frames=evidence.frames, chunks=chunks)


@pytest.mark.parametrize("stage", [FIRST, MIDDLE, LAST])
@pytest.mark.parametrize("number", [0, 3], ids=["opening", "later"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_one_percent_of_any_tensor_fails_and_nothing_else_does(stage, number, optimizer):
    """Of its movement, of its first moment, of its second. It shows as what it is, or as 0.7 of that where a chunk's
    edge cuts the tensor in two halves, less the last places that rounding may hide."""
    check(small_run(optimizer), stage, number, by=0.01)


@pytest.mark.parametrize("stage", [FIRST, MIDDLE, LAST])
def test_five_percent_of_any_tensor_fails_in_bfloat16(stage):
    check(small_run("adamw", "bfloat16"), stage, 3, by=0.05)


def check(run: RunConfig, stage: int, number: int, *, by: float) -> None:
    """Spoil one tensor after another of a segment that passes as it is."""
    need, evidence = cheat_segment(run, stage, Cheat(0.0), seed=1, number=number)
    replayed = replay(need.case, evidence, run, segment_corpus(run))
    layout = StateLayout(run, stage)
    assert failing(compare(need, shown(evidence, replayed.end[:]), replayed, run)) == []
    for section, name, state in deviating(layout, replayed, by):
        failed = failing(compare(need, shown(evidence, state), replayed, run))
        assert {finding.name for finding in failed} == {KIND[section]}, f"{section} of {name}"
        assert 0.65 * by < max(finding.distance for finding in failed) < 1.01 * by, f"{section} of {name}"
        assert {finding.position for finding in failed} == {END}


def failing(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.holds]
