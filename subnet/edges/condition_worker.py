"""A process that computes under one set of environment variables: jobs in, answers out, one line of JSON each.

`python -m subnet.edges.condition_worker` reads where the corpus lies, then a `Perform` or `Audit` at a time. What goes
wrong with a job is its answer; a bug ends the process with a traceback. Segments lie in files, as MessagePack of known
types.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from subnet.audit.compare import compare, movements_apart
from subnet.audit.judge import with_most
from subnet.audit.replay import replay
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.conditions import MOVEMENT, Answer, Audit, Condition, CorpusFile, Perform
from subnet.edges.rehearsal import Rehearsal, Rehearsed
from subnet.errors import SubnetError
from subnet.stage.layout import ReplicaState
from subnet.stage.stage import Stage
from subnet.stage.state import Replica


class StageByRows(Stage):
    """A stage through which the rows of a microbatch go in parts, as a machine with little memory might do it."""

    def __init__(self, whole: Stage, parts: int) -> None:
        self.__dict__.update(whole.__dict__)
        self.parts = parts

    def forward(self, microbatch: int, inputs: Any) -> Any:
        """As the whole stage's."""
        rows = inputs.tensor_split(self.parts)
        return torch.cat([super(StageByRows, self).forward(self._key(microbatch, n), x) for n, x in enumerate(rows)])

    def loss(self, microbatch: int, inputs: Any, labels: Any) -> float:
        """As the whole stage's."""
        pairs = zip(inputs.tensor_split(self.parts), labels.tensor_split(self.parts), strict=True)
        return sum(super(StageByRows, self).loss(self._key(microbatch, n), x, y) for n, (x, y) in enumerate(pairs))

    def backward(self, microbatch: int, gradient: Any, planned_tokens: int) -> Any:
        """As the whole stage's."""
        given = [None] * self.parts if gradient is None else gradient.tensor_split(self.parts)
        results = [
            super(StageByRows, self).backward(self._key(microbatch, n), part, planned_tokens)
            for n, part in enumerate(given)
        ]
        return None if results[0] is None else torch.cat([result for result in results if result is not None])

    def _key(self, microbatch: int, part: int) -> int:
        return microbatch * self.parts + part


def make_replica(run: RunConfig, stage: int, condition: Condition) -> Replica:
    """A replica that computes under the condition, at the run's initial parameters."""
    other = {"sdpa": "eager", "eager": "sdpa"}[run.train.attention]
    train = msgspec.structs.replace(run.train, attention=other) if condition.other_attention else run.train
    replica = Replica(msgspec.structs.replace(run, train=train), stage, recompute=condition.recompute)
    parts = min(condition.row_parts, run.train.microbatch_sequences)
    if parts > 1:
        replica.stage = StageByRows(replica.stage, parts)
    return replica


def perform(job: Perform, corpus: Corpus) -> Answer:
    """Rehearse; the segments go into the job's folder."""
    run, setting = job.setting.run, job.setting
    lane = Rehearsal(run, corpus, make=lambda run, stage: make_replica(run, stage, job.condition))
    for _ in lane.segments(setting.skip_rounds):
        continue
    for number, rehearsed in enumerate(lane.segments(setting.rounds)):
        evidence = with_most(rehearsed.need, rehearsed.evidence)
        laid_out = Rehearsed(need=rehearsed.need, evidence=evidence)
        Path(job.folder, f"{number:06}").write_bytes(msgspec.msgpack.encode(laid_out))
    return Answer()


def audit(job: Audit, corpus: Corpus) -> Answer:
    """Replay and compare each segment in the job's folder."""
    run = job.setting.run
    replicas: dict[int, Replica] = {}

    def make(run: RunConfig, stage: int, state: ReplicaState) -> Replica:
        if stage not in replicas:
            replicas[stage] = make_replica(run, stage, job.condition)
        replicas[stage].start(state.parameters, state.moments)
        return replicas[stage]

    found = []
    for path in sorted(Path(job.folder).iterdir()):
        rehearsed = msgspec.msgpack.decode(path.read_bytes(), type=Rehearsed)
        case = rehearsed.need.case
        if not case.steps:
            continue
        replayed = replay(case, rehearsed.evidence, run, corpus, make=make)
        findings = compare(rehearsed.need, rehearsed.evidence, replayed, run)
        kinds = dict.fromkeys(finding.name for finding in findings)
        largest = {kind: max(f.distance for f in findings if f.name == kind) for kind in kinds}
        largest[MOVEMENT] = movements_apart(rehearsed.need, rehearsed.evidence, replayed, run)
        found.append((case.stage, case.round, largest))
    return Answer(segments=tuple(found))


def work(lines: Any, out: Any) -> None:
    """Answer each line until there are no more."""
    file = msgspec.json.decode(next(lines), type=CorpusFile)
    tokens = np.fromfile(file.path, dtype=file.dtype)
    for line in lines:
        job: Perform | Audit = msgspec.json.decode(line, type=Perform | Audit)
        digest = job.setting.run.data.corpus_digest
        corpus = Corpus(tokens=tokens, digest=digest, vocabulary=file.vocabulary)
        torch.set_num_threads(job.condition.threads)
        try:
            answer = perform(job, corpus) if isinstance(job, Perform) else audit(job, corpus)
        except SubnetError as error:
            answer = Answer(error=str(error))
        out.write(msgspec.json.encode(answer) + b"\n")
        out.flush()


if __name__ == "__main__":
    work(sys.stdin.buffer, sys.stdout.buffer)
