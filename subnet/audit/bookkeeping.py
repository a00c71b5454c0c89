"""Bookkeeping: what a miner states without any arithmetic of floats, checked byte for byte.

Receipts that follow each other, microbatches in the plan's order, the run's own tokens, inputs that the neighbours in
the plan signed, a step counter that counts, a contribution that is the committed end state's. Each fault is a sentence
for people; one is enough to fail. Knows nothing of tolerances.
"""

from collections.abc import Iterator

import numpy as np

from subnet.audit.case import Case
from subnet.audit.chunks import end_parameters
from subnet.audit.evidence import Evidence, Needed
from subnet.audit.replay import start_state
from subnet.audit.replayed import Replayed
from subnet.audit.tensors import frame_bytes, frame_header, read_frame, tokens_digest
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.data.pack import Corpus, microbatch
from subnet.errors import FrameError, InputError
from subnet.merge.contribution import make_contribution, norm
from subnet.stage.layout import (
    COUNTER_BYTES,
    FLOAT,
    StateLayout,
    parameters_from_leading,
    state_from_bytes,
    state_to_bytes,
)
from subnet.wire.delivery import LINE_BYTES, deliver_target, inbound, line_holds, sender_stage
from subnet.wire.merkle import merkle_root
from subnet.wire.messages import Receipt, Work
from template.auth import Verifier


def faults(need: Needed, evidence: Evidence, run: RunConfig, corpus: Corpus, *, verifier: Verifier) -> list[str]:
    """Every fault of the case that needs no replay; empty when its books are right. Needs all that the miner and the
    store owe before it."""
    case, layout = need.case, StateLayout(run, need.case.stage)
    found = [*_chain(case), *_order(case), *_counted(case), *_inputs(case, evidence, run, corpus)]
    found += [*_start_counted(case, evidence, layout)]
    found += _deliveries(case, evidence, run, verifier)
    if case.close is not None:
        found += _closing(case, run, case.close)
    if not case.steps:
        found += _idle(case, evidence, layout)
    return found


def unbound(case: Case, layout: StateLayout) -> str | None:
    """Why the committed roots cannot be those of this stage's states, or None."""
    if case.end_bytes != layout.state_bytes:
        return f"the end state has {case.end_bytes} bytes, not {layout.state_bytes}"
    if case.start_root and case.start_bytes != layout.state_bytes:
        return f"the start state has {case.start_bytes} bytes, not {layout.state_bytes}"
    return None


def _chain(case: Case) -> Iterator[str]:
    for before, receipt in zip(case.ids, case.receipts[1:], strict=False):
        if receipt.previous != before:
            yield f"the receipt of step {receipt.step} does not follow the one before it"


def _order(case: Case) -> Iterator[str]:
    for receipt in case.steps:
        plan = case.plans.get(receipt.plan)
        listed = [work.index for work in receipt.work]
        planned = [index for index in plan.microbatches if index in listed] if plan else []
        if plan is None or listed != planned or plan.path[case.stage] != case.hotkey:
            yield f"the receipt of step {receipt.step} lists other work than its plan"


def _inputs(case: Case, evidence: Evidence, run: RunConfig, corpus: Corpus) -> Iterator[str]:
    """Tokens are the run's; frames are readable."""
    for receipt in case.steps:
        for work in receipt.work:
            if case.stage == 0 and work.input != tokens_digest(microbatch(run, corpus, work.index)[0]):
                yield f"the tokens of microbatch {work.index} are not the run's"
            for kind, name in _received(case, work):
                if not _readable(receipt, work, kind, evidence.frames[name], run):
                    yield f"the {kind} of microbatch {work.index} is no frame that may be used"


def _deliveries(case: Case, evidence: Evidence, run: RunConfig, verifier: Verifier) -> Iterator[str]:
    """Of every frame that came in there is the signature of the neighbour in the plan, so none is invented.

    What that neighbour's own receipt says of it is the neighbour's affair (`equivocations`).
    """
    for receipt in case.steps:
        came, plan = inbound(receipt), case.plans.get(receipt.plan)
        if plan is None or not came:
            continue
        lines = evidence.deliveries.get(receipt.deliveries, b"")
        if len(lines) != LINE_BYTES * len(came):
            yield f"the signed deliveries of step {receipt.step} have {len(lines)} bytes, {len(came)} frames came in"
            continue
        for place, (key, name) in enumerate(came):
            target = deliver_target(run.run_id, key, name, frame_bytes(run))
            sender = plan.path[sender_stage(case.stage, key[3])]
            line = lines[place * LINE_BYTES : (place + 1) * LINE_BYTES]
            if not line_holds(line, target, sender=sender, receiver=case.hotkey, verifier=verifier):
                yield f"the {key[3]} of microbatch {key[2]} is not one that {sender} signed"


def equivocations(case: Case, evidence: Evidence, run: RunConfig, *, verifier: Verifier) -> list[str]:
    """What the miner delivered under its signature, and states otherwise: the neighbour's lines prove each.

    A neighbour that says so without a signature to show proves nothing.
    """
    found = []
    for dispute in case.disputes:
        lines = evidence.deliveries.get(dispute.lines.name, b"")
        line = lines[dispute.place * LINE_BYTES : (dispute.place + 1) * LINE_BYTES]
        target = deliver_target(run.run_id, dispute.key, dispute.got, frame_bytes(run))
        if line_holds(line, target, sender=case.hotkey, receiver=dispute.lines.holder, verifier=verifier):
            found.append(
                f"the {dispute.key[3]} of microbatch {dispute.key[2]} went out as {dispute.got[:12]} and is stated as "
                f"{dispute.stated[:12]}"
            )
    return found


def _received(case: Case, work: Work) -> Iterator[tuple[str, str]]:
    if case.stage > 0:
        yield "activation", work.input
    if work.gradient_in:
        yield "gradient", work.gradient_in


def _readable(receipt: Receipt, work: Work, kind: str, data: bytes, run: RunConfig) -> bool:
    header = frame_header(run, round=receipt.round, step=receipt.step, microbatch=work.index, kind=kind)
    try:
        read_frame(header, data)
    except (FrameError, InputError):
        return False
    return True


def _counted(case: Case) -> Iterator[str]:
    """Step by step; that the state itself counts them is compared with the replay."""
    counts = [receipt.replica_steps for receipt in case.receipts]
    for before, receipt in zip(counts, case.receipts[1:], strict=False):
        if receipt.replica_steps != before + (receipt.kind == "step"):
            yield f"the receipt after the replica's step {before} counts {receipt.replica_steps}"


def _start_counted(case: Case, evidence: Evidence, layout: StateLayout) -> Iterator[str]:
    """The state that the segment starts from leaves room to count on; how far it has come, the replay compares."""
    if evidence.start is None:
        return
    found = state_from_bytes(layout, evidence.start).moments.step
    if found + len(case.steps) >= 1 << 8 * COUNTER_BYTES:
        yield f"the start state counts {found} steps, after which no state can be written down"


def _closing(case: Case, run: RunConfig, close: Receipt) -> Iterator[str]:
    """The contribution weighs its tokens, and is there when there are any."""
    trained = sum(len(receipt.work) for receipt in case.steps) * run.microbatch_tokens + case.tokens_before
    if close.tokens != trained:
        yield f"the close weighs {close.tokens} tokens, its receipts {trained}"
    if bool(close.contribution) != bool(trained):
        yield "there is a contribution without work, or work without a contribution"


def contribution_faults(need: Needed, evidence: Evidence, replayed: Replayed, run: RunConfig) -> list[str]:
    """How a close's contribution is not round-start parameters less the committed end state's.

    Needs the chunks that were wanted after this replay.
    """
    close, layout = need.case.close, StateLayout(run, need.case.stage)
    if close is None or not close.contribution or evidence.public is None or replayed.end is None:
        return []
    end = end_parameters(need, evidence, replayed, layout)
    try:
        data = make_contribution(parameters_from_leading(layout, evidence.public.data), end)
    except InputError:
        return ["the committed end state is not finite"]
    found = []
    if digest(data) != close.contribution:
        found.append("the contribution is not that of the committed end state")
    if close.contribution_norm != norm(np.frombuffer(data, dtype=FLOAT)):
        found.append("the stated norm is not the contribution's")
    return found


def _idle(case: Case, evidence: Evidence, layout: StateLayout) -> Iterator[str]:
    """Without a step the end state is the start state, to the last bit."""
    if merkle_root(state_to_bytes(layout, start_state(case, evidence, layout))) != case.end_root:
        yield "no step was taken, and the committed state changed"
