"""The door for receipts, refusal by refusal, each with its sentence; an honest receipt passes unchanged."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from subnet.errors import RefusedError
from subnet.ledger.receiving import admit_receipt, delivery, tokens_trained
from subnet.wire.messages import Receipt, Work
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation, without
from tests.ledger.small import run_config

CLOSES = {"train": "do_step", "close": "do_close", "merge": "do_merge"}


@pytest.fixture(scope="module")
def begun() -> Simulation:
    """Six miners on three stages, in the first step."""
    sim = Simulation(run=run_config(stages=3, each=3))
    sim.start("ann", "ben", "cem", "dov", "eva", "fay")
    return sim


@pytest.fixture
def sim(begun: Simulation) -> Simulation:
    """A copy of it."""
    return deepcopy(begun)


def at(sim: Simulation, stage: int) -> str:
    """A member of a lane at this stage."""
    return next(n for n in sim.members() if sim.lane_of(n) and sim.state.members[hotkey(n)].stage == stage)


def refused(sim: Simulation, name: str, receipt: Receipt, sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        sim.say(name, receipt)


def until(sim: Simulation, phase: str) -> None:
    while sim.state.phase != phase:
        getattr(sim, CLOSES[sim.state.phase])()


def test_an_honest_receipt_of_every_stage_passes(sim: Simulation) -> None:
    for stage in range(3):
        name = at(sim, stage)
        sim.say(name, sim.step_receipt(name))
        assert sim.state.members[hotkey(name)].head


def test_a_receipt_of_fewer_microbatches_passes_and_an_empty_one_does_not(sim: Simulation) -> None:
    name = at(sim, 1)
    refused(sim, name, sim.step_receipt(name, done=()), "expected microbatches of the plan, in its order")
    plan, _ = sim.lane_of(name) or (None, "")
    assert plan is not None
    sim.say(name, sim.step_receipt(name, done=plan.microbatches[::2]))


def test_a_stranger_and_a_member_without_a_stage_give_no_receipts(sim: Simulation) -> None:
    name = at(sim, 0)
    sim.seat("joe")
    good = sim.step_receipt(name)
    refused(sim, "joe", sim.of(Receipt, **fields(good) | {"hotkey": hotkey("joe")}), "expected a receipt of a member")
    sim.join("joe")
    refused(sim, "joe", sim.of(Receipt, **fields(good) | {"hotkey": hotkey("joe")}), "expected a receipt of a member")


def test_who_left_gives_no_receipts(sim: Simulation) -> None:
    name = at(sim, 0)
    sim.leave(name)
    refused(sim, name, sim.step_receipt(name), "expected a receipt of a member with a stage")


def fields(receipt: Receipt) -> dict[str, Any]:
    """The receipt's own fields."""
    names = set(receipt.__struct_fields__) - {"version", "run_id"}
    return {name: getattr(receipt, name) for name in names}


Change = Callable[[Simulation, Receipt], dict[str, Any]]


def first_work(**changes: Any) -> Change:
    """A change of the receipt's first microbatch."""
    return lambda sim, receipt: {"work": (without(receipt.work[0], **changes), *receipt.work[1:])}


CHANGES: list[tuple[str, int, Change, str]] = [
    ("another stage", 1, lambda s, r: {"stage": 0}, "expected a receipt for stage 1 in round 0, found stage 0"),
    ("another round", 1, lambda s, r: {"round": 1}, "expected a receipt for stage 1 in round 0, found .* round 1"),
    ("not its next", 1, lambda s, r: {"previous": "0" * 64}, "expected the receipt after none, found 000000000000"),
    ("another kind", 1, lambda s, r: {"kind": "wish"}, "expected a step, close, rollback or fresh, found 'wish'"),
    ("another step", 1, lambda s, r: {"step": 5}, "expected a receipt for step 0, found step 5"),
    ("another plan", 1, lambda s, r: {"plan": "0" * 64}, "expected a plan of step 0, found 000000000000"),
    ("a lane that is none", 1, lambda s, r: {"lane": 9}, "expected a plan of step 0"),
    ("another's lane", 1, lambda s, r: other_lane(s, r), "expected one receipt of each member of lane"),
    ("no microbatch", 1, lambda s, r: {"work": ()}, "expected microbatches of the plan, in its order, each once"),
    ("another order", 1, lambda s, r: {"work": r.work[::-1]}, "expected microbatches of the plan, in its order"),
    ("one twice", 1, lambda s, r: {"work": (r.work[0], *r.work)}, "expected microbatches of the plan, in its order"),
    ("one unplanned", 1, first_work(index=999), "expected microbatches of the plan, in its order"),
    ("no norm", 1, lambda s, r: {"gradient_norm": None}, "expected a finite gradient norm"),
    ("a negative norm", 1, lambda s, r: {"gradient_norm": -1.0}, "expected a finite gradient norm"),
    ("a root too early", 1, lambda s, r: s.committed(at(s, 1), 1), "expected a state root after every 2 steps"),
    ("an early step", 1, lambda s, r: {"replica_steps": 2}, "expected the replica's step 1, found 2; count each once"),
    ("a loss of a middle stage", 1, first_work(loss=1.0), "expected a finite loss from the last stage and none from"),
    ("no loss of the last stage", 2, first_work(loss=None), "expected a finite loss from the last stage"),
    ("a negative loss", 2, first_work(loss=-1.0), "expected a finite loss from the last stage"),
    ("no input", 1, first_work(input=""), "expected the digests of every frame of microbatch 0|found a gap"),
    ("no output", 1, first_work(output="", output_ack=""), "expected the digests of every frame"),
    ("an output of the last stage", 2, first_work(output="0" * 64), "expected the digests of every frame"),
    ("no gradient in", 1, first_work(gradient_in=""), "expected the digests of every frame"),
    ("no gradient out", 1, first_work(gradient_out="", gradient_ack=""), "expected the digests of every frame"),
    ("a gradient out of the first stage", 0, first_work(gradient_out="0" * 64), "expected the digests of every frame"),
    ("a gradient into the last stage", 2, first_work(gradient_in="0" * 64), "expected the digests of every frame"),
    (
        "another output than acknowledged",
        1,
        first_work(output="0" * 64),
        "expected the neighbour's signature on the act",
    ),
    ("another gradient", 1, first_work(gradient_out="0" * 64), "expected the neighbour's signature on the gradient"),
    ("a made-up signature", 1, first_work(gradient_ack="00" * 64), "expected the neighbour's signature on the grad"),
    ("no hex at all", 1, first_work(output_ack="yes"), "expected the neighbour's signature on the activation"),
    ("no digest", 1, first_work(input="../../etc/passwd"), "expected digests of 64 lower-case hex digits, found '../"),
    ("an upper-case digest", 1, first_work(output="A" * 64), "expected digests of 64 lower-case hex digits"),
    ("a size without a root", 1, lambda s, r: {"state_bytes": 8}, "expected a state of [0-9]+ bytes where a root is"),
]


def other_lane(sim: Simulation, receipt: Receipt) -> dict[str, Any]:
    """The plan of another lane of the same step."""
    current = sim.state.current
    assert current is not None
    lane = next(number for number in current.plans if number != receipt.lane)
    return {"lane": lane, "plan": current.plan_digests[lane]}


@pytest.mark.parametrize(("stage", "change", "sentence"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_changed_receipt_is_refused(sim: Simulation, stage: int, change: Change, sentence: str) -> None:
    """Each change of an honest step receipt alone is enough; unchanged, it passes."""
    name = at(sim, stage)
    honest = sim.step_receipt(name)
    refused(sim, name, sim.of(Receipt, **fields(honest) | change(sim, honest)), sentence)
    sim.say(name, honest)


def test_a_step_is_stated_once(sim: Simulation) -> None:
    name = at(sim, 1)
    sim.say(name, sim.step_receipt(name))
    refused(sim, name, sim.step_receipt(name), "expected one receipt of each member of lane .*, found .*; send it once")


def test_a_backward_that_somebody_has_is_not_counted_again() -> None:
    """A rolled-back replica whose microbatch is in a receipt of its stage already may not state it anew."""
    sim = Simulation()
    sim.start("ann", "ben")
    receipt = sim.step_receipt("ann")
    stage = receipt.stage
    sim.state.microbatch_by[stage, receipt.work[0].index] = hotkey("somebody")
    with pytest.raises(RefusedError, match="expected microbatches that nobody's receipt has yet"):
        admit_receipt(sim.state, receipt, acknowledged=lambda *_: True)


def test_a_state_root_is_due_after_its_steps_and_has_the_stage_s_size(sim: Simulation) -> None:
    sim.do_step()
    name = at(sim, 1)
    honest = sim.step_receipt(name)
    assert honest.state_root
    missing = sim.of(Receipt, **fields(honest) | {"state_root": "", "state_bytes": 0})
    refused(sim, name, missing, "expected a state root after every 2 steps; commit it then")
    for size in (0, honest.state_bytes + 1, -1, 1 << 60):
        wrong = sim.of(Receipt, **fields(honest) | {"state_bytes": size})
        refused(sim, name, wrong, f"expected a state of {honest.state_bytes} bytes where a root is given, found {size}")
    sim.say(name, honest)


def test_an_acknowledgement_is_of_this_very_delivery(sim: Simulation) -> None:
    """The neighbour's signature over another microbatch of the same lane is none for this one."""
    name = at(sim, 1)
    honest = sim.step_receipt(name)
    first, second = honest.work[:2]
    swapped: tuple[Work, ...] = (
        without(first, output_ack=second.output_ack),
        without(second, output_ack=first.output_ack),
        *honest.work[2:],
    )
    changed = sim.of(Receipt, **fields(honest) | {"work": swapped})
    refused(sim, name, changed, "expected the neighbour's signature on the activation it got, found another")
    unacknowledged = tuple(without(work, output_ack="", gradient_ack="") for work in honest.work)
    sim.say(name, sim.of(Receipt, **fields(honest) | {"work": unacknowledged}))


def test_the_delivery_that_is_acknowledged_names_everything(sim: Simulation) -> None:
    name = at(sim, 1)
    receipt = sim.step_receipt(name)
    said = delivery(receipt, 7, "gradient", receiver="r", digest="d")
    assert (said.sender, said.receiver, said.round, said.step) == (hotkey(name), "r", 0, 0)
    assert (said.microbatch, said.kind, said.digest, said.run_id) == (7, "gradient", "d", sim.run.run_id)


def test_a_close_belongs_to_the_end_of_a_round(sim: Simulation) -> None:
    sim.do_step()
    name = sim.members()[0]
    refused(sim, name, sim.close_receipt(name), "expected a close while round 0 closes, and one")


CLOSING: list[tuple[dict[str, Any], str]] = [
    ({"tokens": 1}, "expected a close over [0-9]+ tokens, found 1; count what the receipts say"),
    ({"state_root": "", "state_bytes": 0}, "expected a close with a state root, and a contribution where it trained"),
    ({"contribution": ""}, "expected a close with a state root, and a contribution where it trained"),
    ({"contribution": "none"}, "expected digests of 64 lower-case hex digits, found 'none'"),
    ({"contribution_norm": None}, "expected a finite contribution norm"),
    ({"contribution_norm": -1.0}, "expected a finite contribution norm"),
    ({"state_bytes": 7}, "expected a state of [0-9]+ bytes where a root is given, found 7"),
    ({"replica_steps": 0}, "expected the replica's step 4, found 0"),
    ({"round": 1}, "expected a receipt for stage"),
]


@pytest.mark.parametrize(("changes", "sentence"), CLOSING, ids=[f"{k}" for c in CLOSING for k in list(c[0])[:1]])
def test_a_changed_close_is_refused(sim: Simulation, changes: dict[str, Any], sentence: str) -> None:
    until(sim, "close")
    name = sim.members()[0]
    honest = sim.close_receipt(name)
    refused(sim, name, sim.of(Receipt, **fields(honest) | changes), sentence)
    sim.say(name, honest)
    refused(sim, name, sim.close_receipt(name), "expected a close while round 0 closes, and one; found another")


def test_a_close_holds_no_microbatches(sim: Simulation) -> None:
    name = at(sim, 1)
    work = sim.step_receipt(name).work
    until(sim, "close")
    refused(sim, name, sim.close_receipt(name, work=work), "expected a close with a state root")


def test_a_replica_that_did_nothing_in_a_round_has_nothing_to_close() -> None:
    """Otherwise it could commit any state as the one that its next segment starts from."""
    sim = Simulation()
    sim.start("ann", "ben", "cem")
    alone = next(n for n in sim.members() if not sim.lane_of(n))
    sim.alive.discard(alone)
    sim.do_step()
    while sim.state.phase == "train":
        sim.do_step()
    refused(sim, alone, sim.close_receipt(alone), "expected a close of a replica that stepped in round 0")


def test_tokens_are_those_of_receipts_that_are_not_void(sim: Simulation) -> None:
    name = at(sim, 1)
    each = sim.run.train.microbatch_sequences * sim.run.data.sequence_tokens
    sim.say(name, sim.step_receipt(name))
    assert tokens_trained(sim.state, hotkey(name)) == 3 * each
    sim.say(name, sim.rollback_receipt(name))
    assert tokens_trained(sim.state, hotkey(name)) == 0


@pytest.mark.parametrize("changes", [{"state_root": "1" * 64}, {"contribution": "1" * 64}, {"state_root": ""}])
def test_a_rollback_never_crosses_a_root(sim: Simulation, changes: dict[str, Any]) -> None:
    """It repeats the last committed root, and states nothing else."""
    name = at(sim, 1)
    sim.do_step()
    sim.do_step()
    assert sim.state.members[hotkey(name)].state_root
    refused(
        sim, name, sim.rollback_receipt(name, **changes), "expected a rollback to the last committed state .*; never"
    )


def test_a_rollback_states_no_work(sim: Simulation) -> None:
    name = at(sim, 1)
    work = sim.step_receipt(name).work
    refused(sim, name, sim.rollback_receipt(name, work=work), "expected a rollback to the last committed state none")
