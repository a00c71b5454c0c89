#!/usr/bin/env python3
"""One stage alone in a process, so that the kernel can say how much memory its work takes.

    scripts/bench/audit_stage.py train FOLDER     # what a miner does with one segment
    scripts/bench/audit_stage.py audit FOLDER     # what a validator does with it

FOLDER holds the run, what the audit needs and the evidence; prints by how many bytes the peak passed what the process
had with everything imported. A miner takes inbound frames one by one, a validator has them all.
"""

import sys
from pathlib import Path

import msgspec
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from subnet.audit.evidence import Evidence, Needed  # noqa: E402
from subnet.audit.judge import Judgement, before_replay, conclude, examine, with_most  # noqa: E402
from subnet.audit.tensors import frame_header, make_frame, read_frame  # noqa: E402
from subnet.canonical import digest  # noqa: E402
from subnet.config import RunConfig  # noqa: E402
from subnet.data.pack import microbatch  # noqa: E402
from subnet.model.partition import check_model  # noqa: E402
from subnet.sim.segment import VERIFIER, segment_corpus  # noqa: E402
from subnet.stage.pipeline import one_forward_one_backward  # noqa: E402
from subnet.stage.state import Replica  # noqa: E402
from subnet.wire.merkle import merkle_root  # noqa: E402
from subnet.wire.messages import Receipt, Work  # noqa: E402


def save(folder: Path, run: RunConfig, need: Needed, evidence: Evidence) -> None:
    """Lay a segment out for both kinds of process; with what is wanted after the replay where nothing is alike."""
    (folder / "run").write_bytes(msgspec.json.encode(run))
    (folder / "need").write_bytes(msgspec.msgpack.encode(need))
    most = with_most(need, evidence)
    before = before_replay(need, evidence)
    after = Evidence(
        frames={name: data for name, data in most.frames.items() if name not in before.frames}, chunks=most.chunks
    )
    (folder / "before").write_bytes(msgspec.msgpack.encode(before))
    (folder / "after").write_bytes(msgspec.msgpack.encode(after))
    (folder / "start").write_bytes(evidence.start or b"")
    for name, data in evidence.frames.items():
        (folder / name).write_bytes(data)


class Trainer:
    """The audited segment as its miner computed it: 1F1B, one frame at a time, a committed state at its end."""

    def __init__(self, folder: Path, run: RunConfig, need: Needed) -> None:
        self.folder, self.run, self.need = folder, run, need
        self.corpus = segment_corpus(run)
        self.replica = Replica(run, need.case.stage)
        self.public = bytes([1]) * self.replica.layout.public_bytes  # a miner keeps it for its contribution

    def train(self) -> str:
        """The end state's root, which has to be the committed one."""
        self.replica.restore((self.folder / "start").read_bytes())
        for receipt in self.need.case.steps:
            order = one_forward_one_backward(self.need.case.stage, self.run.stages, len(receipt.work))
            for action in order:
                work = receipt.work[action.position]
                self._forward(receipt, work) if action.kind == "F" else self._backward(receipt, work)
            self.replica.step(self.need.case.plans[receipt.plan].global_step)
        return merkle_root(self.replica.commit())

    def _forward(self, receipt: Receipt, work: Work) -> None:
        stage = self.replica.stage
        tokens, labels = (torch.from_numpy(part) for part in microbatch(self.run, self.corpus, work.index))
        inputs = tokens if stage.span.embedding else self._take(receipt, work, "activation", work.input)
        if stage.span.head:
            stage.loss(work.index, inputs, labels)
        else:
            self._give(receipt, work, "activation", stage.forward(work.index, inputs))

    def _backward(self, receipt: Receipt, work: Work) -> None:
        stage = self.replica.stage
        gradient = None if stage.span.head else self._take(receipt, work, "gradient", work.gradient_in)
        planned = len(self.need.case.plans[receipt.plan].microbatches) * self.run.microbatch_tokens
        result = stage.backward(work.index, gradient, planned)
        if result is not None:
            self._give(receipt, work, "gradient", result)

    def _take(self, receipt: Receipt, work: Work, kind: str, name: str) -> torch.Tensor:
        header = frame_header(self.run, round=receipt.round, step=receipt.step, microbatch=work.index, kind=kind)
        return torch.from_numpy(read_frame(header, (self.folder / name).read_bytes()))

    def _give(self, receipt: Receipt, work: Work, kind: str, values: torch.Tensor) -> None:
        header = frame_header(self.run, round=receipt.round, step=receipt.step, microbatch=work.index, kind=kind)
        digest(make_frame(header, values.numpy()))


def audit(folder: Path, run: RunConfig, need: Needed) -> Judgement:
    """What a validator does, in its two parts; the second as it is where nothing is alike."""
    evidence = msgspec.msgpack.decode((folder / "before").read_bytes(), type=Evidence)
    begun = examine(need, evidence, run, corpus=segment_corpus(run), verifier=VERIFIER)
    if isinstance(begun, Judgement):
        return begun
    more = msgspec.msgpack.decode((folder / "after").read_bytes(), type=Evidence)
    return conclude(need, begun.with_more(need, more), run, wanted=begun.wanted(need))


def main() -> None:
    """Do one of the two, once, and say the bytes."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    run = msgspec.json.decode((folder / "run").read_bytes(), type=RunConfig)
    need = msgspec.msgpack.decode((folder / "need").read_bytes(), type=Needed)
    check_model(run)  # imports what is only imported when it is needed
    before_bytes = _memory_bytes("VmRSS")
    if what == "train":
        right = Trainer(folder, run, need).train() == need.end_root
    else:
        right = audit(folder, run, need).verdict == "pass"
    if not right:
        raise SystemExit(f"expected the committed segment again, found another one while it should {what}")
    sys.stdout.write(f"{_memory_bytes('VmHWM') - before_bytes}\n")


def _memory_bytes(name: str) -> int:
    """What Linux says of this program alone; getrusage would count the process that started it too."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
