"""Replay on real stages: honest segments come back bit for bit, whatever the stage, family, codec or round."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from subnet.audit.evidence import Evidence, needed
from subnet.audit.judge import audit, make_verdict
from subnet.audit.replay import replay
from subnet.canonical import canonical, digest
from subnet.cheats.base import Cheat
from subnet.merge.contribution import norm, read_contribution
from subnet.wire.messages import Receipt, Work
from tests.audit.lane import SEED, VERIFIER, Lane, lane_run, reasons
from tests.model.tiny import tiny_model

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def honest() -> Lane:
    """Three stages over two rounds of two whole segments each."""
    lane = Lane(lane_run(3))
    lane.round(0)
    lane.round(1)
    return lane


def ready(lane: Lane, stage: int, number: int = 0):
    """Segment `number` of a stage: what it needs, and all of it."""
    need = needed(lane.state, lane.segments(stage)[number], seed=SEED)
    return need, lane.evidence(need)


def judge_with(lane: Lane, need, evidence, *, refused: bool = False):
    return audit(need, evidence, lane.run, corpus=lane.corpus, verifier=VERIFIER, refused=refused)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_honest_segments_pass_bit_for_bit(stages):
    """First, middle, last and only stages; openings with and without moments, and closes: every distance is 0."""
    lane = Lane(lane_run(stages))
    lane.round(0)
    lane.round(1)
    for stage in range(stages):
        judgements = lane.judgements(stage)
        assert reasons(judgements) == ["ok"] * 6
        assert [check.distance for j in judgements for check in j.checks if check.distance] == []
        assert {check.name for check in judgements[0].checks} == kinds(stage, stages)


def kinds(stage: int, stages: int) -> set[str]:
    """What can be compared on a stage."""
    tensors = {"activation"} if stage < stages - 1 else {"loss"}
    return tensors | ({"gradient"} if stage > 0 else set()) | {"norm", "delta", "moment"}


@pytest.mark.parametrize(
    "options",
    [
        {"codec": "bf16"},
        {"attention": "eager"},
        {"model": tiny_model("Qwen3ForCausalLM")},
        {"model": tiny_model(tie_word_embeddings=True)},
        {"steps": 3},  # the close ends a segment with steps in it
        {"steps": 1},
    ],
    ids=["bf16", "eager", "qwen3", "tied", "partial", "single"],
)
def test_honest_segments_pass_in_every_kind_of_run(options):
    lane = Lane(lane_run(2, **options))
    lane.round(0)
    lane.round(1)
    judgements = lane.judgements(0) + lane.judgements(1)
    assert set(reasons(judgements)) == {"ok"}
    assert max(check.distance for judgement in judgements for check in judgement.checks) == 0.0


def test_a_one_stage_run_of_a_tied_model_passes():
    lane = Lane(lane_run(1, model=tiny_model(tie_word_embeddings=True)))
    lane.round(0)
    assert reasons(lane.judgements(0)) == ["ok"] * 3


def test_a_dropped_microbatch_contributes_nothing_and_passes():
    """The receipt leaves it out, the lane's planned tokens stay."""
    lane = Lane(lane_run(2), drop=1)
    lane.round(0)
    assert len(lane.state.receipts[lane.segments(0)[0].receipts[0]].work) == 3
    assert reasons(lane.judgements(0) + lane.judgements(1)) == ["ok"] * 6


def test_the_replay_gives_the_committed_end_state_itself(honest):
    need, evidence = ready(honest, 1, 1)
    replayed = replay(need.case, evidence, honest.run, honest.corpus)
    assert replayed.end[:] == honest.miners[1].states[need.end_root]


def freeze(lane_state: bytes, before: bytes) -> bytes:
    """Parameters as they were, moments as they should be."""
    third = (len(lane_state) - 8) // 3
    return before[:third] + lane_state[third:]


def test_parameters_that_did_not_move_fail_as_delta():
    """The distance of standing still is 1, less what rounding may hide."""
    first = Lane(lane_run(2))
    start = first.miners[0].replica.commit()
    lane = Lane(lane_run(2), alter={0: lambda data: freeze(data, start)})
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(0)[0])
    assert (judgement.verdict, judgement.reason) == ("fail", "delta")
    assert judgement.distance == pytest.approx(1.0, rel=1e-4)
    assert lane.judge(lane.segments(1)[0]).verdict == "pass"


@pytest.mark.parametrize("section", [1, 2], ids=["exp_avg", "exp_avg_sq"])
def test_moments_that_are_scaled_fail_as_moment(section):
    """One percent on one of the two moments."""

    def scaled(data: bytes) -> bytes:
        values, third = np.frombuffer(data[:-8], dtype="<f4").copy(), (len(data) - 8) // 12
        values[section * third : (section + 1) * third] *= np.float32(1.01)
        return values.tobytes() + data[-8:]

    lane = Lane(lane_run(2), alter={1: scaled})
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(1)[0])
    assert (judgement.verdict, judgement.reason) == ("fail", "moment")
    assert judgement.distance == pytest.approx(0.01, rel=1e-3)


def test_a_wrong_step_counter_fails_as_moment():
    lane = Lane(lane_run(2), alter={0: lambda data: data[:-8] + (7).to_bytes(8, "little")})
    lane.round(0, close=False)
    assert lane.judge(lane.segments(0)[0]).reason == "moment"


def test_a_state_with_a_nan_fails():
    """In the last parameter of the first chunk, which is drawn here."""

    def spoiled(data: bytes) -> bytes:
        return data[:4] + np.float32(np.nan).tobytes() + data[8:]

    lane = Lane(lane_run(2), alter={0: spoiled})
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(0)[0])
    assert (judgement.verdict, judgement.reason) == ("fail", "delta")
    canonical(make_verdict(ready(lane, 0)[0], judgement, run_id="r", validator="v", draw=None, time_ms=0))


def spoiling_once(change):
    """Changes the first state that is committed, and none after it."""
    altered: list[bytes] = []

    def alter(data: bytes) -> bytes:
        altered.append(change(data) if not altered else data)
        return altered[-1]

    return alter


def filled_with(value: float, section: int):
    """A state whose parameters (0), first (1) or second moments (2) all are this value."""

    def change(data: bytes) -> bytes:
        values, third = np.frombuffer(data[:-8], dtype="<f4").copy(), (len(data) - 8) // 12
        values[section * third : (section + 1) * third] = np.float32(value)
        return values.tobytes() + data[-8:]

    return change


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-8] + b"\xff" * 8,
        *(filled_with(np.nan, section) for section in range(3)),
        filled_with(np.inf, 1),
    ],
    ids=["counter", "parameters", "exp_avg", "exp_avg_sq", "infinite"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_start_from_which_nobody_can_compute_fails_and_is_no_fault_of_the_validator(change, optimizer):
    """Else whoever once committed such a state, and was not drawn, could never be judged again."""
    run = lane_run(2)
    run = msgspec.structs.replace(run, train=msgspec.structs.replace(run.train, optimizer=optimizer))
    lane = Lane(run, alter={0: spoiling_once(change)})
    lane.round(0, close=False)
    assert [judgement.verdict for judgement in lane.judgements(0)] == ["fail", "fail"]


def test_a_state_of_another_length_is_unbound():
    lane = Lane(lane_run(2), alter={0: lambda data: data + b"\0" * 4}, stated_bytes={0: 4})
    lane.round(0, close=False)
    first, second = lane.segments(0)
    for segment in (first, second):
        judgement = lane.judge(segment)
        assert (judgement.verdict, judgement.reason) == ("fail", "unbound-state")
    assert second.start_root and not needed(lane.state, second, seed=SEED).start_root, "it may have any length"


class Restated(Cheat):
    """Changes a field of every receipt of a kind."""

    def __init__(self, kind: str, **change: object) -> None:
        super().__init__(0.0)
        self.kind, self.change = kind, change

    def receipt(self, honest, receipt: Receipt) -> Receipt:
        return msgspec.structs.replace(receipt, **self.change) if receipt.kind == self.kind else receipt


class Reworked(Cheat):
    """Changes a field of every microbatch in the receipts."""

    def __init__(self, **change: object) -> None:
        super().__init__(0.0)
        self.change = change

    def receipt(self, honest, receipt: Receipt) -> Receipt:
        work: tuple[Work, ...] = tuple(msgspec.structs.replace(item, **self.change) for item in receipt.work)
        return msgspec.structs.replace(receipt, work=work)


@pytest.mark.parametrize(
    ("stage", "cheat", "reason"),
    [
        (1, Reworked(loss=1.0), "loss"),
        (0, Restated("step", gradient_norm=1.0), "norm"),
        (0, Reworked(input="ab" * 32), "bookkeeping"),
        (0, Restated("step", replica_steps=9), "bookkeeping"),
    ],
    ids=["loss", "norm", "tokens", "counter"],
)
def test_a_receipt_that_says_something_else_fails_with_its_reason(stage, cheat, reason):
    lane = Lane(lane_run(2), {stage: cheat})
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(stage)[0])
    assert (judgement.verdict, judgement.reason) == ("fail", reason)
    assert reasons(lane.judgements(1 - stage)) == ["ok", "ok"]


def test_receipts_that_do_not_follow_each_other_fail(honest):
    """No fold takes such a receipt in; an audit of a case from elsewhere does not rely on that."""
    need, evidence = ready(honest, 0)
    before, last = need.case.receipts
    torn = replace(need.case, receipts=(before, msgspec.structs.replace(last, previous="ab" * 32)))
    judgement = judge_with(honest, replace(need, case=torn), evidence)
    assert (judgement.verdict, judgement.reason) == ("fail", "bookkeeping")


@pytest.mark.parametrize(
    "change",
    [{"tokens": 1}, {"contribution": "ab" * 32}, {"contribution_norm": 1.0}, {"replica_steps": 9}],
    ids=["tokens", "contribution", "norm", "counter"],
)
@pytest.mark.parametrize("steps", [2, 3], ids=["bare", "with-steps"])
def test_a_close_that_says_something_else_fails_as_bookkeeping(change, steps):
    lane = Lane(lane_run(2, steps=steps), {0: Restated("close", **change)})
    lane.round(0)
    if steps == 2 and "replica_steps" in change:
        return  # a close without steps has no receipt before it to count from
    judgement = lane.judge(lane.segments(0)[-1])
    assert (judgement.verdict, judgement.reason) == ("fail", "bookkeeping")


def test_a_close_that_changes_the_state_without_a_step_fails():
    """The contribution is the changed state's own, so only the missing step tells."""
    calls = []

    def at_close(data: bytes) -> bytes:
        calls.append(data)
        return np.float32(0.5).tobytes() + data[4:] if len(calls) == 2 else data

    lane = Lane(lane_run(2, steps=2), alter={0: at_close})
    lane.round(0)
    judgement = lane.judge(lane.segments(0)[-1])
    assert "no step was taken, and the committed state changed" in judgement.details


def test_microbatches_out_of_the_plans_order_fail():
    """The order of backwards is the order of the sums."""

    class Backwards(Cheat):
        def receipt(self, honest, receipt: Receipt) -> Receipt:
            return msgspec.structs.replace(receipt, work=receipt.work[::-1])

    lane = Lane(lane_run(2), {0: Backwards(0.0)})
    lane.round(0, close=False)
    assert "lists other work than its plan" in lane.judge(lane.segments(0)[0]).details[0]


def test_an_input_that_it_did_not_acknowledge_fails():
    """A middle stage that computes rightly, but on an input of its own invention."""

    class Inventor(Cheat):
        def receipt(self, honest, receipt: Receipt) -> Receipt:
            if receipt.kind != "step":
                return receipt
            first = receipt.work[0]
            other = msgspec.structs.replace(first, input=receipt.work[1].input)
            return msgspec.structs.replace(receipt, work=(other, *receipt.work[1:]))

    lane = Lane(lane_run(3), {1: Inventor(0.0)})
    lane.round(0, close=False)
    judgement = lane.judge(lane.segments(1)[0])
    assert (judgement.verdict, judgement.reason) == ("fail", "bookkeeping")
    assert judgement.details[0] == "the activation of microbatch 0 is no frame that may be used"


def test_what_the_miner_does_not_show_is_void_in_the_grace_and_a_fail_after_it(honest):
    """Start state, inbound frame or leaves: each alone is enough."""
    need, evidence = ready(honest, 1, 1)
    less = [
        changed(evidence, start=None),
        changed(evidence, frames=without(evidence.frames, need.inbound[0])),
        changed(evidence, leaves=None),
    ]
    for part in less:
        early, late = judge_with(honest, need, part), judge_with(honest, need, part, refused=True)
        assert (early.verdict, early.reason) == ("void", "withheld")
        assert (late.verdict, late.reason) == ("fail", "withheld")


def changed(evidence: Evidence, **change: object) -> Evidence:
    """The evidence with something replaced."""
    return replace(evidence, **change)


def without(mapping, key):
    return {name: value for name, value in mapping.items() if name != key}


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def test_other_bytes_are_as_good_as_none(honest):
    """A flipped bit in anything the miner serves is not the thing that was asked for."""
    need, evidence = ready(honest, 1, 1)
    name = need.inbound[0]
    bad = [
        changed(evidence, start=flipped(evidence.start)),
        changed(evidence, frames={**evidence.frames, name: flipped(evidence.frames[name])}),
        changed(evidence, leaves=flipped(evidence.leaves)),
    ]
    for part in bad:
        assert judge_with(honest, need, part).reason == "withheld"


def test_a_store_without_the_public_state_is_not_the_miners_fault(honest):
    need, evidence = ready(honest, 0)
    judgement = judge_with(honest, need, changed(evidence, public=None), refused=True)
    assert (judgement.verdict, judgement.reason) == ("void", "validator-fault")


def test_a_neighbour_that_shows_nothing_costs_the_miner_nothing(honest):
    """What the replay gives has the very digest that the receipt names: nobody needs to show it."""
    need, evidence = ready(honest, 1)
    kept = {name: evidence.frames[name] for name in need.inbound}
    assert judge_with(honest, need, changed(evidence, frames=kept)).verdict == "pass"


def test_a_neighbour_that_shows_nothing_of_a_wrong_frame_makes_a_void(honest):
    """Digests differ, and the bytes that could tell how far are missing: no fail, and no pass."""

    class Touched(Cheat):
        def forward(self, honest, microbatch, inputs):
            return honest(microbatch, inputs) * (1 + 1e-6)

    lane = Lane(lane_run(2), {0: Touched(0.0)})
    lane.round(0, close=False)
    need, evidence = ready(lane, 0)
    assert judge_with(lane, need, evidence).verdict == "pass"
    kept = {name: evidence.frames[name] for name in need.inbound}
    judgement = judge_with(lane, need, changed(evidence, frames=kept))
    assert (judgement.verdict, judgement.reason) == ("void", "neighbour-missing")


def test_the_contribution_is_recomputed_from_the_committed_end(honest):
    """The receipt's digest and norm are those of round-start parameters less the committed ones."""
    close = honest.state.closes[1]["miner-2"]
    values = read_contribution(honest.miners[2].contribution, honest.miners[2].replica.layout.num_parameters)
    assert (close.contribution, close.contribution_norm) == (digest(honest.miners[2].contribution), norm(values))


def test_the_verdict_is_canonical_and_names_its_segment(honest):
    need, evidence = ready(honest, 1)
    judgement = judge_with(honest, need, evidence)
    verdict = make_verdict(need, judgement, run_id=honest.run.run_id, validator="v", draw=None, time_ms=5)
    assert (verdict.segment, verdict.hotkey, verdict.stage) == (need.case.id, "miner-1", 1)
    assert canonical(verdict)
    named = {*(frame.digest for frame in need.outbound), *(lines.name for lines in need.deliveries)}
    assert set(verdict.evidence) <= {need.public_root, need.end_root, *named}
