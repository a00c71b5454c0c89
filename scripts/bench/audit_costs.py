"""What an audit costs: compute against the audited segment, memory against training, bytes against traffic.

Compute is CPU time of this process, training and audit by turns; memory is the kernel's figure for a process that does
one of the two (`audit_stage.py`); bytes are those of the evidence itself.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from scripts.bench import audit_stage
from subnet.audit.judge import before_replay, with_most
from subnet.audit.tensors import frame_bytes
from subnet.config import RunConfig
from subnet.edges.presets import PRESETS, RunOptions, build_run
from subnet.edges.rehearsal import Rehearsal, Rehearsed
from subnet.sim.segment import judged, segment_corpus
from subnet.stage.layout import StateLayout

STAGES = 3
SEGMENT_STEPS = 4
LARGER = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 9, "head_dim": 64}
MEMORY_SEGMENT = 1  # of a stage, counted from its first: one that starts where another ended


def cost_run(*, larger: bool, segments: int, folder: Path) -> RunConfig:
    """Three stages of the default model, or of one with about two and a half million parameters in each."""
    model = "tiny"
    if larger:
        path = folder / "config.json"
        path.write_text(json.dumps(PRESETS["tiny"] | LARGER))
        model = str(path)
    return build_run(RunOptions(model=model, stages=STAGES, rounds=10, steps=SEGMENT_STEPS * segments))


@dataclass(frozen=True, kw_only=True)
class Compute:
    """CPU seconds of a lane's three segments and of their three audits, each time they ended; and the segments."""

    trained_s: tuple[float, ...]
    audited_s: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of audit over training."""
        return statistics.median(
            audited / trained for audited, trained in zip(self.audited_s, self.trained_s, strict=True)
        )


def compute(run: RunConfig, *, rounds: int = 1) -> tuple[Compute, list[Rehearsed]]:
    """Train so many rounds and audit every segment as it ends. The first turn, in which everything is warmed up, is
    left out when there are others."""
    corpus = segment_corpus(run)
    trained, audited, segments = [], [], []
    lane, at_s = Rehearsal(run, corpus), time.process_time()
    for number, rehearsed in enumerate(lane.segments(rounds)):
        segments.append(rehearsed)
        if number % run.stages == run.stages - 1:
            trained.append(time.process_time() - at_s)
            at_s = time.process_time()
            for each in segments[-run.stages :]:
                judged(run, each.need, each.evidence, corpus=corpus)
            audited.append(time.process_time() - at_s)
            at_s = time.process_time()
    first = min(1, len(trained) - 1)
    return Compute(trained_s=tuple(trained[first:]), audited_s=tuple(audited[first:])), segments


def memory_ratio(run: RunConfig, segments: list[Rehearsed], stage: int) -> float:
    """Peak memory of the audit of one segment of this stage over that of training it."""
    own = [each for each in segments if each.need.case.stage == stage]
    with tempfile.TemporaryDirectory() as folder:
        chosen = own[min(MEMORY_SEGMENT, len(own) - 1)]
        audit_stage.save(Path(folder), run, chosen.need, chosen.evidence)
        train, audit = (_peak_bytes(what, folder) for what in ("train", "audit"))
    return audit / train


def _peak_bytes(what: str, folder: str) -> int:
    command = [sys.executable, str(Path(audit_stage.__file__)), what, folder]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The bytes of an audit and of what it audits."""

    evidence: int
    traffic: int
    start: int  # one start state
    end: int  # one end state
    plain: bool  # neither opens nor closes a round

    @property
    def traffic_frac(self) -> float:
        """What is fetched besides one start state and a quarter of an end state, over the segment's traffic."""
        return (self.evidence - self.start - self.end / 4) / self.traffic


def fetched(run: RunConfig, rehearsed: Rehearsed, *, alike: bool) -> Fetched:
    """Count the bytes of one segment's evidence. alike: as it is on a machine like the miner's, where nothing that an
    honest miner computed has to be shown; else as it is where everything differs in its last bits."""
    need, whole = rehearsed.need, rehearsed.evidence
    evidence = before_replay(need, whole) if alike else with_most(need, whole)
    case, state_bytes = need.case, StateLayout(run, need.case.stage).state_bytes
    chunks = sum(len(chunk.data) + sum(len(step) // 2 for step in chunk.proof) for chunk in evidence.chunks.values())
    blobs = sum(len(data) for part in (evidence.frames, evidence.deliveries) for data in part.values())
    public = (evidence.public.data, evidence.public.leaves) if evidence.public is not None else ()
    hops = sum(
        bool(name)
        for receipt in case.steps
        for work in receipt.work
        for name in (work.input if case.stage else "", work.output, work.gradient_in, work.gradient_out)
    )
    return Fetched(
        evidence=sum(map(len, (*public, evidence.start or b"", evidence.leaves or b""))) + blobs + chunks,
        traffic=hops * frame_bytes(run),
        start=state_bytes,
        end=state_bytes,
        plain=not case.opens_round and case.close is None,
    )
