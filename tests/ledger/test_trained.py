"""Laws of what receipts add up to: microbatches counted once, work in segments once, and what a fail undoes."""

from collections import Counter, defaultdict

import pytest
from msgspec.structs import replace

from subnet.ledger.events import Said, StepEnd
from subnet.ledger.state import RunState
from subnet.ledger.trained import receipt_work
from subnet.wire.messages import Plan, Receipt, Wiring, read_signed
from tests.ledger.chaos import SEEDS, shaken
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation, without
from tests.ledger.small import run_config

HISTORIES = pytest.mark.parametrize("seed", range(SEEDS))


def plans_and_ends(sim: Simulation) -> list[tuple[Wiring, list[Plan], StepEnd | None]]:
    """The steps of a log: wiring, plans, and how it ended (None for the one in progress)."""
    steps: list[tuple[Wiring, list[Plan], StepEnd | None]] = []
    for event in sim.events:
        body = event.body
        if isinstance(body, StepEnd):
            steps[-1] = (*steps[-1][:2], body)
        elif isinstance(body, Said) and body.signed.kind == "wiring":
            steps.append((read_signed(body.signed, Wiring), [], None))
        elif isinstance(body, Said) and body.signed.kind == "plan":
            steps[-1][1].append(read_signed(body.signed, Plan))
    return steps


def receipts(sim: Simulation) -> list[Receipt]:
    """All receipts of a log."""
    bodies = (event.body for event in sim.events)
    said = [body.signed for body in bodies if isinstance(body, Said) and body.signed.kind == "receipt"]
    return [read_signed(signed, Receipt) for signed in said]


@pytest.mark.parametrize("stages", [2, 3])
@HISTORIES
def test_a_microbatch_counts_once(seed: int, stages: int) -> None:
    """Per (stage, microbatch), over random deaths, late comers and restarts: one backward at most; planned again only
    when no stage has its backward; where it ended on some stages only it is logged partial and never planned again."""
    sim = shaken(seed, stages=stages)
    counted = Counter((receipt.stage, work.index) for receipt in receipts(sim) for work in receipt.work)
    assert counted and set(counted.values()) == {1}
    stages_of: dict[tuple[int, int, int], set[int]] = defaultdict(set)  # (round, step, microbatch) -> stages
    for receipt in receipts(sim):
        for work in receipt.work:
            stages_of[receipt.round, receipt.step, work.index].add(receipt.stage)
    started: set[int] = set()
    waiting: set[int] = set()
    partial: list[int] = []
    for wiring, plans, end in plans_and_ends(sim):
        planned = [index for plan in plans for index in plan.microbatches]
        assert len(planned) == len(set(planned))
        assert not started & set(planned), "planned again after some stage had its backward"
        waiting -= set(planned)
        for index in planned if end else ():
            count = len(stages_of[wiring.round, wiring.step, index])
            where = end.requeued if count == 0 else end.done if count == stages else end.partial
            assert index in where
            (started if count else waiting).add(index)
        partial += end.partial if end else ()
    assert set(sim.state.requeued) == waiting
    assert sim.state.partial == partial


@HISTORIES
def test_microbatches_are_taken_in_order_and_without_gaps(seed: int) -> None:
    """Every index that is planned for the first time is the run's next one."""
    sim = shaken(seed)
    fresh = 0
    for wiring, plans, _ in plans_and_ends(sim):
        assert wiring.first_microbatch == fresh
        taken = [index for plan in plans for index in plan.microbatches]
        asked = list(wiring.requeued[: len(taken)])
        assert taken == asked + list(range(fresh, fresh + len(taken) - len(asked)))
        fresh += len(taken) - len(asked)
    assert sim.state.next_microbatch == fresh > 0


@HISTORIES
def test_a_receipt_is_in_one_segment_at_most_and_its_work_is_counted_there(seed: int) -> None:
    """Segments are made of receipts of one hotkey, stage and round; their work is the sum of their receipts'."""
    sim = shaken(seed)
    state: RunState = sim.state
    parts = Counter(part for segment in state.segments.values() for part in segment.receipts)
    assert set(parts.values()) <= {1}
    for segment in state.segments.values():
        chain = [state.receipts[part] for part in segment.receipts]
        assert {(r.hotkey, r.stage, r.round) for r in chain} == {(segment.hotkey, segment.stage, segment.round)}
        assert all(later.previous == earlier for earlier, later in zip(segment.receipts, chain[1:], strict=False))
        worked = [receipt_work(state, receipt) for receipt in chain]
        assert segment.work == sum(w for w, _ in worked)
        assert segment.unpaid == (segment.work if segment.forfeit else sum(u for _, u in worked))
        assert len([r for r in chain if r.kind == "step"]) <= sim.run.train.segment_steps
        assert segment.id == segment.receipts[-1] and chain[-1].state_root == segment.end_root


@HISTORIES
def test_a_segment_starts_where_the_last_one_ended_or_fresh(seed: int) -> None:
    """Custody: a replica's segments are a chain of roots; a fresh start opens a round."""
    sim = shaken(seed)
    last: dict[str, tuple[int, str]] = {}
    for segment in sim.state.segments.values():
        before = last.get(segment.hotkey)
        assert segment.start_root in {"", before[1] if before else ""}
        assert segment.opens_round == (before is None or before[0] != segment.round)
        assert segment.opens_round or segment.start_root
        last[segment.hotkey] = (segment.round, segment.end_root)


def test_a_segment_ends_after_its_steps_and_at_the_round_s_end() -> None:
    """Four steps in segments of three: one whole segment, and the last step with the close in another."""
    sim = Simulation(run=run_config(steps=4, segment_steps=3))
    sim.start("ann", "ben")
    sim.do_round()
    for name in ("ann", "ben"):
        whole, rest = sim.segments(name)
        kinds = [[sim.state.receipts[part].kind for part in segment.receipts] for segment in (whole, rest)]
        assert kinds == [["step"] * 3, ["step", "close"]]
        assert whole.opens_round and not whole.start_root and not rest.opens_round
        assert rest.start_root == whole.end_root


def test_a_close_right_after_a_committed_state_is_a_segment_without_work() -> None:
    sim = Simulation(run=run_config(steps=4, segment_steps=2))
    sim.start("ann", "ben")
    sim.do_round()
    last = sim.segments("ann")[-1]
    assert (len(last.receipts), last.work, sim.state.receipts[last.id].kind) == (1, 0, "close")


def test_work_that_nobody_acknowledged_is_committed_but_never_payable() -> None:
    """All stages but the first need the upstream neighbour's signature on the gradient."""
    sim = Simulation(run=run_config(segment_steps=1, each=3))
    sim.start("ann", "ben")
    for name in ("ann", "ben"):
        receipt = sim.step_receipt(name)
        work = (without(receipt.work[0], gradient_ack=""), *receipt.work[1:])
        sim.say(name, sim.step_receipt(name, work=work))
    by_stage = {segment.stage: segment for segment in sim.state.segments.values()}
    assert by_stage[0].unpaid == 0
    assert by_stage[1].unpaid * 3 == by_stage[1].work > 0


def test_a_rollback_voids_the_steps_since_the_last_root_and_never_crosses_it() -> None:
    sim = Simulation(run=run_config(segment_steps=2))
    sim.start("ann", "ben")
    for _ in range(3):
        sim.do_step()
    key = hotkey("ann")
    root = sim.state.members[key].state_root
    assert len(sim.state.pending[key]) == 1
    before = [segment.id for segment in sim.segments("ann")]
    sim.say("ann", sim.rollback_receipt("ann"))
    assert key not in sim.state.pending
    assert sim.state.members[key].state_root == root
    assert [segment.id for segment in sim.segments("ann")] == before
    assert sim.close_receipt("ann").tokens < sim.close_receipt("ben").tokens


@pytest.mark.parametrize("judges", [("validator-0", "validator-1"), ("validator-1", "validator-0")])
def test_a_fail_is_upheld_by_a_second_coldkey(judges: tuple[str, str]) -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    segment = sim.judge("ann", validators=judges[:1])
    assert segment.upheld_event is None and sim.state.accused(hotkey("ann"))
    assert hotkey("ann") not in sim.state.voided
    sim.judge("ann", validators=judges[1:])
    assert segment.upheld_event == sim.state.voided[hotkey("ann")] == sim.state.count - 1
    assert not sim.state.accused(hotkey("ann"))


def test_two_validators_of_one_coldkey_are_one() -> None:
    sim = Simulation(validators=("validator-0", "validator-1", "validator-2"))
    sim.start("ann", "ben", "cem", "dov")
    sim.seat("validator-1", coldkey="validator-0/coldkey")
    sim.do_step()
    sim.do_step()
    segment = sim.judge("ann", validators=("validator-0", "validator-1"))
    assert segment.upheld_event is None
    sim.judge("ann", validators=("validator-2",))
    assert segment.upheld_event is not None


def test_where_there_is_one_validator_its_own_fail_stands() -> None:
    sim = Simulation(validators=("validator-0",))
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    assert sim.judge("ann").upheld_event is not None


def test_a_validator_of_the_miner_s_own_coldkey_does_not_keep_a_fail_from_standing() -> None:
    sim = Simulation()
    sim.seat("ann", coldkey="validator-1/coldkey")
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    assert sim.judge("ann", validators=("validator-0",)).upheld_event is not None


def test_a_pass_or_a_void_never_upholds() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    segment = sim.judge("ann", "fail", validators=("validator-0",))
    sim.judge("ann", "void", validators=("validator-1",))
    sim.judge("ann", "pass", validators=("validator-1",))
    assert segment.upheld_event is None


def test_a_failed_segment_taints_all_that_was_built_on_it() -> None:
    """Later segments and the state itself, until the miner starts afresh from zeros."""
    sim = Simulation(run=run_config(steps=6))
    sim.start("ann", "ben", "cem", "dov")
    for _ in range(4):
        sim.do_step()
    first, second = sim.segments("ann")
    for validator in sim.validators:
        sim.say(validator, sim.verdict(validator, first, draw=sim.some_draw()))
    member = sim.state.members[hotkey("ann")]
    assert (first.tainted, second.tainted, member.tainted) == (False, True, True)
    assert not any(segment.tainted for segment in sim.segments("cem"))
    sim.join("ann", root=member.state_root)
    assert member.tainted, "the same state is as bad as it was"
    sim.join("ann", root="")
    assert not member.tainted


def test_a_fresh_start_that_came_before_the_fail_is_not_tainted_by_it() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    sim.join("ann", root="")
    sim.judge("ann")
    assert not sim.state.members[hotkey("ann")].tainted


def test_a_refuted_miner_is_out_of_the_next_lanes_for_the_quarantine() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov", "eva", "fay")
    sim.do_step()
    sim.do_step()
    name = next(name for name in sim.members() if sim.segments(name))
    sim.judge(name)
    sim.do_step(silent=(name,))
    if sim.state.current and sim.lane_of(name):
        sim.time_out_step()
    while sim.state.phase == "train":
        assert not sim.lane_of(name)
        sim.do_step()
    sim.do_close()
    contributors = {e.hotkey for closed in sim.state.closed.values() for e in closed.contributions}
    assert contributors and hotkey(name) not in contributors


@HISTORIES
def test_honest_hops_are_never_in_dispute(seed: int) -> None:
    assert shaken(seed, stages=3).state.disputes == []


@pytest.mark.parametrize(("kind", "liar"), [("activation", 0), ("activation", 1), ("gradient", 1), ("gradient", 2)])
def test_two_ends_that_state_different_frames_are_in_dispute_at_once(kind: str, liar: int) -> None:
    """Whichever of them lies, in whatever order their receipts come."""
    for order in (1, -1):
        sim = Simulation(run=run_config(stages=3))
        sim.start("ann", "ben", "cem")
        assert sim.state.current is not None
        path = [sim.names[member] for member in next(iter(sim.state.current.plans.values())).path]
        sender, receiver = ("output", "input") if kind == "activation" else ("gradient_out", "gradient_in")
        ends = (0, 1) if kind == "activation" else ((1, 0) if liar == 1 else (2, 1))
        field = sender if liar == ends[0] else receiver
        for name in path[::order]:
            receipt = sim.step_receipt(name)
            if name == path[liar]:
                first, *others = receipt.work
                lie = without(first, **{field: "0" * 64, "output_ack": "", "gradient_ack": ""})
                receipt = replace(receipt, work=(lie, *others))
            sim.say(name, receipt)
        (dispute,) = sim.state.disputes
        assert (dispute.kind, dispute.microbatch) == (kind, lie.index)
        assert (dispute.sender, dispute.receiver) == tuple(hotkey(path[end]) for end in ends)
        assert "0" * 64 in (dispute.stated, dispute.got) and dispute.event < sim.state.count
        assert sim.state.disputing(0) == {dispute.sender, dispute.receiver} and sim.state.disputing(1) == set()
