"""The replay: a segment computed again from its start state and what the miner received.

Microbatches are taken one after the other, each forward and then backward, in the receipt's order. That gives the
miner's 1F1B results bit for bit: parameters stand still within a step, and gradients add up in the order of the
backwards, which both orders share. It is handed verified evidence of a case whose bookkeeping holds,
and the maker of its replica, for calibration and machines with other means. Knows nothing of tolerances.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from subnet.audit.case import Case
from subnet.audit.evidence import Evidence
from subnet.audit.replayed import Replayed, StepReplay
from subnet.audit.tensors import Activation, frame_header, make_frame, read_frame
from subnet.audit.weights import Divisors, Roots
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.data.pack import Corpus, microbatch
from subnet.errors import InputError
from subnet.stage.layout import (
    ReplicaState,
    StateLayout,
    parameters_from_leading,
    state_from_bytes,
)
from subnet.stage.optim import inverse_root
from subnet.stage.state import Replica
from subnet.stage.view import view_of
from subnet.wire.messages import Receipt, Work

MakeReplica = Callable[[RunConfig, int, ReplicaState], Replica]


def start_state(case: Case, evidence: Evidence, layout: StateLayout) -> ReplicaState:
    """Where the segment starts: the miner's own last state; in a round's first segment the public parameters with
    that state's moments, or with zeros where it has none. Raises EvidenceError on bytes of another length."""
    own = state_from_bytes(layout, evidence.start) if evidence.start is not None else None
    if not case.opens_round:
        assert own is not None, f"segment {case.id[:12]} does not open a round, and its start state is missing"
        return own
    assert evidence.public is not None, f"segment {case.id[:12]} opens a round, and the public state is missing"
    parameters = parameters_from_leading(layout, evidence.public.data)
    return ReplicaState(parameters=parameters, moments=own.moments if own else layout.zeros())


def make_replica(run: RunConfig, stage: int, state: ReplicaState) -> Replica:
    """A replica in this state."""
    replica = Replica(run, stage, parameters=state.parameters)
    replica.optimizer.load(state.moments)
    return replica


def replay(
    case: Case, evidence: Evidence, run: RunConfig, corpus: Corpus, *, make: MakeReplica = make_replica
) -> Replayed:
    """Compute the segment again. Raises FrameError or InputError for an inbound frame that is none."""
    layout = StateLayout(run, case.stage)
    start = start_state(case, evidence, layout)
    if not case.steps:
        return Replayed(start=start, steps=(), end=view_of(layout, start))
    replica = make(run, case.stage, start)
    divisors = Divisors(layout.num_parameters, beta2=run.train.beta2, eps=run.train.eps)
    roots = Roots()
    steps: list[StepReplay] = []
    for receipt in case.steps:
        step = _Step(replica=replica, case=case, evidence=evidence, run=run, corpus=corpus)
        steps.append(step.replay(receipt))
        if math.isnan(steps[-1].norm):
            return Replayed(start=start, steps=tuple(steps), end=None)
        optimizer = replica.optimizer
        first, second = optimizer.memory()
        divisors.add(((layout.slices[name], values.numpy()) for name, values in second.items()), optimizer.steps)
        hidden, damping = sorted(optimizer.orthogonal), run.train.muon_damping
        roots.add((name, inverse_root(first[name], damping=damping)) for name in hidden)
    mean = divisors.mean()
    return Replayed(start=start, steps=tuple(steps), end=replica.view(), divisors=mean, roots=roots.mean())


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One inner step on the replica."""

    replica: Replica
    case: Case
    evidence: Evidence
    run: RunConfig
    corpus: Corpus

    def replay(self, receipt: Receipt) -> StepReplay:
        plan = self.case.plans[receipt.plan]
        planned_tokens = len(plan.microbatches) * self.run.microbatch_tokens
        outbound: dict[tuple[int, str], Activation] = {}
        losses: dict[int, float] = {}
        for work in receipt.work:
            loss = self._forward(receipt, work, outbound)
            if loss is not None:
                losses[work.index] = loss
            self._backward(receipt, work, planned_tokens, outbound)
        try:
            norm = self.replica.step(plan.global_step)
        except InputError:  # gradients that are not finite: no honest miner signs such a step
            norm = math.nan
        return StepReplay(outbound=outbound, losses=losses, norm=norm)

    def _forward(self, receipt: Receipt, work: Work, outbound: dict[tuple[int, str], Activation]) -> float | None:
        stage = self.replica.stage
        tokens, labels = microbatch(self.run, self.corpus, work.index)
        first = stage.span.embedding
        inputs = torch.from_numpy(tokens) if first else self._inbound(receipt, work, "activation", work.input)
        if stage.span.head:
            return stage.loss(work.index, inputs, torch.from_numpy(labels))
        self._sent(receipt, work, "activation", stage.forward(work.index, inputs), outbound)
        return None

    def _backward(
        self, receipt: Receipt, work: Work, planned_tokens: int, outbound: dict[tuple[int, str], Activation]
    ) -> None:
        stage = self.replica.stage
        gradient = None if stage.span.head else self._inbound(receipt, work, "gradient", work.gradient_in)
        result = stage.backward(work.index, gradient, planned_tokens)
        if result is not None:
            self._sent(receipt, work, "gradient", result, outbound)

    def _sent(
        self, receipt: Receipt, work: Work, kind: str, values: Tensor, outbound: dict[tuple[int, str], Activation]
    ) -> None:
        """Keep what goes out unless it is what the receipt names: of honest work on a like machine nothing is kept."""
        name = work.output if kind == "activation" else work.gradient_out
        header = frame_header(self.run, round=receipt.round, step=receipt.step, microbatch=work.index, kind=kind)
        try:
            same = digest(make_frame(header, values.numpy())) == name
        except InputError:  # values that are not finite make no frame
            same = False
        if not same:
            outbound[work.index, kind] = values.numpy()

    def _inbound(self, receipt: Receipt, work: Work, kind: str, name: str) -> Tensor:
        header = frame_header(self.run, round=receipt.round, step=receipt.step, microbatch=work.index, kind=kind)
        return torch.from_numpy(read_frame(header, self.evidence.frames[name]))
