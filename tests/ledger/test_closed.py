"""Laws of a round's end: who does not deliver its contribution, or lies about the merge, is not paid for the round."""

import pytest

from subnet.errors import RefusedError
from subnet.incentive.score import books
from subnet.ledger.closed import DISSENT, UNCLOSED, is_unconfirmed
from subnet.ledger.events import Assign
from subnet.ledger.trained import receipt_work
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

LATER_MS = 10_000_000
MINERS = ("ann", "ben", "cem", "dov")


def trained(*names: str, rounds: int = 9) -> Simulation:
    """A run whose first round is trained and closes now."""
    sim = Simulation(run=run_config(rounds=rounds))
    sim.start(*(names or ("ann", "ben", "cem", "dov")))
    train(sim)
    return sim


def train(sim: Simulation) -> None:
    while sim.state.phase == "train":
        sim.do_step()


def pass_deadline(sim: Simulation) -> None:
    sim.pass_time(sim.state.close_deadline_ms + 1 - sim.now_ms)
    sim.decide()


def paid(sim: Simulation, name: str) -> int:
    """What a miner is paid for in the end."""
    return books(sim.state, now_ms=sim.now_ms + LATER_MS, own=None)[hotkey(name)].payable


def forfeits(sim: Simulation, name: str) -> list[str]:
    return [segment.forfeit for segment in sim.segments(name)]


def test_who_answers_and_does_not_close_is_not_paid_for_the_round() -> None:
    """Its segments are committed and nobody refutes them; but nothing of them reaches the model."""
    sim = trained()
    sim.do_close(silent=("ann",))
    pass_deadline(sim)
    assert set(forfeits(sim, "ann")) == {UNCLOSED} and paid(sim, "ann") == 0
    for name in ("ben", "cem", "dov"):
        assert set(forfeits(sim, name)) == {""} and paid(sim, name) > 0
    book = books(sim.state, now_ms=sim.now_ms + LATER_MS, own=None)[hotkey("ann")]
    assert book.committed == book.unpaid > 0 and book.refuted == 0


def test_a_contribution_that_is_committed_and_cannot_be_read_pays_nothing() -> None:
    sim = trained()
    sim.do_close(silent=("ann",))
    sim.say("ann", sim.close_receipt("ann"))
    pass_deadline(sim)
    assert set(forfeits(sim, "ann")) == {UNCLOSED} and paid(sim, "ann") == 0


def test_where_nobody_s_contribution_can_be_read_the_store_is_at_fault() -> None:
    sim = trained()
    for name in sim.members():
        sim.say(name, sim.close_receipt(name))
    pass_deadline(sim)
    assert sim.state.phase == "merge"
    for name in sim.members():
        assert set(forfeits(sim, name)) == {""} and paid(sim, name) > 0


def test_who_died_before_the_close_is_paid_as_far_as_it_committed_but_not_again_and_again() -> None:
    """Dying at a round's end saves the upload: it is forgiven once in a pay window, not as a habit."""
    sim = trained()
    for number, reason in ((0, ""), (1, UNCLOSED)):
        train(sim)
        sim.alive.discard("ann")
        sim.do_close()
        sim.do_merge()
        pass_deadline(sim)
        root = sim.state.members[hotkey("ann")].state_root
        sim.join("ann", root=root)
        assert {s.forfeit for s in sim.segments("ann") if s.round == number} == {reason}
    assert paid(sim, "ann") == sum(s.work for s in sim.segments("ann") if s.round == 0) > 0


def test_steps_without_a_committed_root_are_unpaid() -> None:
    sim = Simulation(run=run_config(steps=3, segment_steps=2))
    sim.start("ann", "ben", "cem", "dov")
    train(sim)
    sim.alive.discard("ann")
    sim.do_close()
    sim.do_merge()
    pass_deadline(sim)
    mine = [receipt for receipt in sim.state.receipts.values() if receipt.hotkey == hotkey("ann")]
    assert len(mine) == 3
    assert paid(sim, "ann") == sum(receipt_work(sim.state, receipt)[0] for receipt in mine[:2]) > 0


def test_a_quarantined_replica_is_left_out_and_not_forfeited_twice() -> None:
    """An upheld fail refutes; whose own replay disagrees with it may still pay the work."""
    sim = trained()
    sim.judge("ann")
    sim.do_close(silent=("ann",))
    assert set(forfeits(sim, "ann")) == {""}


def dissent(sim: Simulation, name: str) -> None:
    stage = sim.state.members[hotkey(name)].stage or 0
    sim.say(name, sim.merged(name, stage, round_number=1, root="e" * 64))


def merge_again(sim: Simulation, stage: int, *names: str, root: str = "") -> None:
    """What the validators say of a stage where somebody dissents: the manifest's, unless told otherwise."""
    for name in names or ("validator-0", "validator-1"):
        sim.say(name, sim.merged(name, stage, round_number=1, root=root))


@pytest.mark.parametrize("late", [False, True])
def test_a_dissenting_merge_is_on_record_whenever_it_comes_and_costs_the_round(late: bool) -> None:
    """Before the manifest it is named there; after it, it is an event all the same."""
    sim = trained()
    sim.do_close()
    if not late:
        dissent(sim, "ann")
    sim.do_merge(silent=("ann",))
    if late:
        pass_deadline(sim)
        dissent(sim, "ann")
    stage = sim.state.members[hotkey("ann")].stage or 0
    assert sim.state.manifests[1].dissenting == (() if late else (hotkey("ann"),))
    assert sim.state.dissents == {(1, stage): [hotkey("ann")]}
    merge_again(sim, stage)
    assert {s.forfeit for s in sim.segments("ann") if s.round == 0} == {DISSENT}
    assert all(not segment.forfeit for name in ("ben", "cem", "dov") for segment in sim.segments(name))


@pytest.mark.parametrize("late", [False, True])
def test_replicas_that_agree_with_the_manifest_take_no_pay_of_one_that_does_not(late: bool) -> None:
    """They may be the orchestrator's own: a wrong manifest and a miner on each stage would take all honest pay."""
    sim = trained("ann", "ben", "cem", "dov", "eve", "fay")
    sim.do_close()
    stage = sim.state.members[hotkey("ann")].stage or 0
    if not late:
        dissent(sim, "ann")
    sim.do_merge(silent=("ann",))
    if late:
        pass_deadline(sim)
        dissent(sim, "ann")
    root = sim.state.manifests[1].stages[stage].root
    agreeing = [who for who, said in sim.state.merged[1, stage].items() if said.root == root]
    assert len(agreeing) == 3 and is_unconfirmed(sim.state, 1, stage)
    assert set(forfeits(sim, "ann")) == {""} and paid(sim, "ann") > 0
    merge_again(sim, stage, root="e" * 64)
    assert set(forfeits(sim, "ann")) == {""} and is_unconfirmed(sim.state, 1, stage)


@pytest.mark.parametrize("permit", [False, True])
def test_a_replica_with_a_validator_s_coldkey_or_a_permit_of_its_own_does_not_judge_its_stage(permit: bool) -> None:
    """Its merge was its own task; the validators' are those who had nothing to do with the stage."""
    sim = trained()
    sim.do_close()
    stage = sim.state.members[hotkey("ann")].stage or 0
    (peer,) = (name for name in ("ben", "cem", "dov") if sim.state.members[hotkey(name)].stage == stage)
    if permit:
        sim.validators = (*sim.validators, peer)
    else:
        sim.seats[peer] = sim.seats["validator-1"]
    sim.log_roster()
    dissent(sim, "ann")
    sim.do_merge(silent=("ann",))
    merge_again(sim, stage, "validator-0")
    assert set(forfeits(sim, "ann")) == {""}, "of two validators one has merged again"
    merge_again(sim, stage, "validator-1")
    assert {s.forfeit for s in sim.segments("ann") if s.round == 0} == {DISSENT}


def test_the_orchestrator_s_word_alone_takes_nobody_s_pay() -> None:
    """With one replica per stage nobody else can say who merged right: it is seen, and costs nothing yet."""
    sim = trained("ann", "ben")
    sim.do_close()
    dissent(sim, "ann")
    sim.do_merge(silent=("ann",))
    assert list(sim.state.dissents.values()) == [[hotkey("ann")]]
    assert set(forfeits(sim, "ann")) == {""}


def test_a_contributor_that_took_another_stage_meanwhile_may_still_report_its_merge() -> None:
    """Its report is evidence about the stage that it merged."""
    sim = trained("ann", "ben", "cem", "dov")
    sim.do_close()
    sim.append([Assign(hotkey=hotkey("ann"), stage=1 - (sim.state.members[hotkey("ann")].stage or 0), round=1)])
    stage = sim.state.members[hotkey("ann")].stage or 0
    sim.say("ann", sim.merged("ann", 1 - stage, round_number=1))
    assert hotkey("ann") in sim.state.merged[1, 1 - stage]


def lying_alike(*validators: str, miners: tuple[str, ...] = MINERS) -> tuple[Simulation, set[str]]:
    """All replicas of Ann's stage merged to the same wrong state; the publisher did not."""
    sim = Simulation(validators=validators)
    sim.start(*miners)
    train(sim)
    sim.do_close()
    stage = sim.state.members[hotkey("ann")].stage
    liars = {name for name in sim.members() if sim.state.members[hotkey(name)].stage == stage}
    for name in sorted(liars):
        dissent(sim, name)
    sim.do_merge(silent=liars)
    return sim, liars


def test_a_lie_of_all_replicas_of_a_stage_costs_them_the_round_once_two_validators_merged_again() -> None:
    """Nobody else on the stage can say who is right, and the orchestrator's word takes nobody's pay."""
    sim, liars = lying_alike("validator-0", "validator-1", "validator-2")
    stage = sim.state.members[hotkey("ann")].stage or 0
    assert len(liars) == 2 and is_unconfirmed(sim.state, 1, stage) and not is_unconfirmed(sim.state, 1, 1 - stage)
    sim.say("validator-0", sim.merged("validator-0", stage, round_number=1))
    assert {reason for name in liars for reason in forfeits(sim, name)} == {""}, "one word is not enough"
    sim.say("validator-1", sim.merged("validator-1", stage, round_number=1))
    assert {s.forfeit for name in liars for s in sim.segments(name) if s.round == 0} == {DISSENT}
    assert all(not s.forfeit for name in set(sim.members()) - liars for s in sim.segments(name))
    assert not is_unconfirmed(sim.state, 1, stage)


def test_the_only_validator_confirms_alone_and_two_of_the_orchestrators_do_not() -> None:
    sim, liars = lying_alike("validator-0", miners=("ann", "ben"))
    stage = sim.state.members[hotkey("ann")].stage or 0
    sim.say("validator-0", sim.merged("validator-0", stage, round_number=1))
    assert liars == {"ann"} and {s.forfeit for s in sim.segments("ann") if s.round == 0} == {DISSENT}
    sim, _ = lying_alike("validator-0", "validator-1", "validator-2", miners=("ann", "ben"))
    for name in ("validator-0", "validator-1"):
        sim.seats[name] = "owner/coldkey"
    sim.log_roster()
    for name in ("validator-0", "validator-1"):
        sim.say(name, sim.merged(name, stage, round_number=1))
    assert set(forfeits(sim, "ann")) == {""} and is_unconfirmed(sim.state, 1, stage)


def test_replicas_that_are_right_against_the_manifest_lose_nothing() -> None:
    """Validators that come to the replicas' state stand beside them: it is the manifest that is wrong."""
    sim, liars = lying_alike("validator-0", "validator-1")
    stage = sim.state.members[hotkey("ann")].stage or 0
    for name in ("validator-0", "validator-1"):
        sim.say(name, sim.merged(name, stage, round_number=1, root="e" * 64))
    assert {reason for name in liars for reason in forfeits(sim, name)} == {""}
    assert set(sim.state.dissents[1, stage]) == {hotkey(name) for name in (*liars, "validator-0", "validator-1")}


def test_a_validator_merges_only_where_replicas_disagree_with_the_manifest() -> None:
    sim, _ = lying_alike("validator-0", "validator-1")
    stage = sim.state.members[hotkey("ann")].stage or 0
    with pytest.raises(RefusedError, match="or a validator where replicas disagree"):
        sim.say("validator-0", sim.merged("validator-0", 1 - stage, round_number=1))
