"""Laws of the tick: the state, the time and who is alive give what to log next, and a run never stands still."""

import pytest
from msgspec.structs import replace

from subnet.errors import RefusedError
from subnet.ledger.events import Assign, ClosedSet, Done, Manifest, RoundBegin, RoundClose, Said, StepEnd
from subnet.ledger.fold import apply, begin
from subnet.scheduler.tick import tick, waits_for
from subnet.wire.messages import Plan, Wiring, read_signed
from tests.ledger.chaos import SEEDS, shaken
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config


def started(*names: str, **options: int) -> Simulation:
    sim = Simulation(run=run_config(**options))
    sim.start(*(names or ("ann", "ben", "cem", "dov")))
    return sim


def of_stage(sim: Simulation, stage: int) -> list[str]:
    """Names of the living members that hold a stage."""
    return [name for name in sim.members() if sim.state.members[hotkey(name)].stage == stage]


def close(sim: Simulation) -> None:
    """Train until the round closes."""
    while sim.state.phase == "train":
        sim.do_step()


def pass_close_deadline(sim: Simulation) -> None:
    sim.pass_time(sim.state.close_deadline_ms + 1 - sim.now_ms)
    sim.decide()


def test_an_honest_run_goes_from_begin_to_done() -> None:
    """Every round: its steps, one closed set per stage, one manifest; then done, and nothing more is decided."""
    sim = started(rounds=3, steps=4)
    while sim.state.phase != "done":
        sim.do_round()
    bodies = [event.body for event in sim.events]
    assert [body.round for body in bodies if isinstance(body, RoundBegin)] == [0, 1, 2]
    assert sum(isinstance(body, StepEnd) for body in bodies) == 3 * 4
    assert [(b.round, b.stage) for b in bodies if isinstance(b, ClosedSet)] == [
        (r, s) for r in range(3) for s in (0, 1)
    ]
    assert [body.round for body in bodies if isinstance(body, Manifest)] == [0, 1, 2, 3]
    assert bodies[-1] == Done(rounds=3)
    assert sim.state.global_step == 12 and not sim.state.partial and not sim.state.requeued
    assert tick(sim.state, sim.outside()) == []


def test_the_tick_changes_nothing_and_says_the_same_again() -> None:
    sim = started()
    sim.time_out_step()
    count, root = sim.state.count, sim.state.root
    assert tick(sim.state, sim.outside()) == tick(sim.state, sim.outside())
    assert (sim.state.count, sim.state.root) == (count, root)


def test_training_waits_for_the_manifest_and_for_every_stage() -> None:
    sim = Simulation()
    sim.seat("ann")
    sim.join("ann")
    sim.decide()
    assert (sim.state.phase, sim.state.manifests) == ("waiting", {})
    for stage in range(2):
        sim.say("owner", sim.merged("owner", stage, round_number=0))
    sim.decide()
    assert sim.state.phase == "waiting" and 0 in sim.state.manifests
    sim.seat("ben")
    sim.join("ben")
    sim.decide()
    assert sim.state.phase == "train"


def test_a_step_ends_as_soon_as_every_member_has_given_its_receipt() -> None:
    sim = started("ann", "ben")
    sim.say("ann", sim.step_receipt("ann"))
    assert sim.decide() == 0
    sim.say("ben", sim.step_receipt("ben"))
    sim.decide()
    assert (sim.state.step, sim.state.global_step) == (1, 1)


def test_a_dead_miner_costs_one_step_and_its_lane_s_microbatches_are_done_elsewhere() -> None:
    """Until the deadline nothing is lost; then what no stage finished is planned again, in the next step."""
    sim = started()
    dead = "ann"
    lane = sim.lane_of(dead)
    assert lane is not None
    for name in sim.members():
        other = sim.lane_of(name)
        if other and other[0].lane != lane[0].lane:
            sim.say(name, sim.step_receipt(name))
    sim.alive.discard(dead)
    assert sim.decide() == 0
    sim.time_out_step()
    end = next(event.body for event in reversed(sim.events) if isinstance(event.body, StepEnd))
    assert set(end.requeued) == set(lane[0].microbatches) and hotkey(dead) in end.missing
    assert sim.state.current is not None and sim.state.step == 1
    again = [index for plan in sim.state.current.plans.values() for index in plan.microbatches]
    assert again == sorted(lane[0].microbatches)
    assert dead not in {name for name in sim.members() if sim.lane_of(name)}


def test_what_ended_on_some_stages_only_is_partial_and_is_not_planned_again() -> None:
    sim = started("ann", "ben")
    last = of_stage(sim, 1)[0]
    plan = sim.lane_of(last)
    assert plan is not None
    sim.say(last, sim.step_receipt(last))
    sim.time_out_step()
    assert set(sim.state.partial) == set(plan[0].microbatches) and sim.state.requeued == ()
    now = sim.lane_of(last)
    assert now is not None and not set(now[0].microbatches) & set(plan[0].microbatches)


def test_a_receipt_that_comes_after_its_step_is_refused() -> None:
    sim = started("ann", "ben")
    late = sim.step_receipt("ann")
    sim.time_out_step()
    with pytest.raises(RefusedError, match="expected a receipt for step 1, found step 0, which is over; roll back"):
        sim.say("ann", late)
    sim.say("ann", sim.rollback_receipt("ann"))
    sim.do_step()


def test_a_waiting_replica_runs_next() -> None:
    """Three replicas for two places: whoever was left over in one step is in a lane of the next."""
    sim = started("ann", "ben", "cem", "dov", "eva", steps=8)
    fuller = max((0, 1), key=lambda stage: len(of_stage(sim, stage)))
    names = of_stage(sim, fuller)
    left_over: set[str] = set()
    while sim.state.phase == "train":
        running = {name for name in names if sim.lane_of(name)}
        assert left_over <= running
        left_over = set(names) - running
        assert len(left_over) == 1
        sim.do_step()


def test_the_inactive_the_silent_and_the_quarantined_are_never_planned() -> None:
    """Over random histories: whoever is wired was active, alive, of that stage, and not in quarantine."""
    for seed in range(SEEDS):
        sim = shaken(seed)
        state = begin(sim.events[0])
        for event in sim.events[1:]:
            body = event.body
            if isinstance(body, Said) and body.signed.kind == "wiring":
                wiring = read_signed(body.signed, Wiring)
                for stage, row in enumerate(wiring.free):
                    for free in row:
                        member = state.members[free.hotkey]
                        assert member.active and member.stage == stage and member.from_round <= wiring.round
                        assert member.barred_until_round <= wiring.round and free.hotkey in state.roster
                        assert free.coldkey == state.coldkey(free.hotkey)
                        assert state.accused(free.hotkey) == (free.waited_steps == -1)
            apply(state, event)


def test_a_lane_s_deadline_follows_the_measured_steps_of_its_members() -> None:
    sim = started("ann", "ben")
    floor_ms = int(1000 * sim.run.lanes.deadline_s)
    plan, _ = sim.lane_of("ann") or (None, "")
    assert isinstance(plan, Plan) and plan.deadline_ms == sim.now_ms + floor_ms
    sim.state.members[hotkey("ben")].step_ms = 15_000.0
    sim.do_step()
    plan, _ = sim.lane_of("ann") or (None, "")
    slow_ms = sim.state.members[hotkey("ben")].step_ms
    assert isinstance(plan, Plan) and plan.deadline_ms == sim.now_ms + int(4 * slow_ms) > sim.now_ms + floor_ms


def test_missing_the_deadline_twice_moves_a_miner_to_a_slower_class() -> None:
    sim = started("ann", "ben", steps=8)
    before = sim.state.current.wiring.free if sim.state.current else ()
    for _ in range(2):
        sim.time_out_step()
    after = sim.state.current.wiring.free if sim.state.current else ()
    assert after[0][0].speed_class == before[0][0].speed_class + 2


def test_a_stage_that_lost_its_last_replica_gets_one_within_one_round() -> None:
    """The dead one's step runs out, a replica of the other stage takes the stage from the next round on, and this
    round, in which nothing more can be done, ends early."""
    sim = started("ann", "ben", "cem", steps=50)
    poor = min((0, 1), key=lambda stage: len(of_stage(sim, stage)))
    (last,) = of_stage(sim, poor)
    sim.do_step()
    sim.alive.discard(last)
    sim.time_out_step()
    assert sim.state.phase == "close"
    sim.do_close()
    if sim.state.phase == "close":
        pass_close_deadline(sim)
    sim.do_merge()
    assert (sim.state.phase, sim.state.round) == ("train", 1)
    assert len(of_stage(sim, poor)) == 1 and sim.state.current is not None
    sim.do_step()
    assert sim.state.step == 1


def test_a_stage_whose_only_replica_died_waits_for_it_where_nobody_can_be_spared() -> None:
    sim = started("ann", "ben")
    sim.alive.discard("ann")
    sim.time_out_step()
    assert (sim.state.phase, sim.state.current) == ("train", None)
    sim.join("ann", root="")
    sim.decide()
    assert sim.lane_of("ann")


def test_a_replica_that_takes_another_stage_commits_its_round_first() -> None:
    """It is moved between the merge and the next round: its steps are closed, contributed and paid."""
    sim = started("ann", "ben", "cem", steps=5)
    poor = min((0, 1), key=lambda stage: len(of_stage(sim, stage)))
    (last,) = of_stage(sim, poor)
    sim.do_step()
    trained = {name for name in of_stage(sim, 1 - poor) if sim.state.pending.get(hotkey(name))}
    assert len(trained) == 1, "one lane: one of the two waits"
    sim.alive.discard(last)
    sim.time_out_step()
    assert not any(isinstance(event.body, Assign) and event.body.round == 1 for event in sim.events)
    assert sim.state.phase == "close"
    sim.do_close()
    sim.do_merge()
    (order,) = [event.body for event in sim.events if isinstance(event.body, Assign) and event.body.round == 1]
    assert order.stage == poor and sim.state.phase == "train"
    contributors = {entry.hotkey for entry in sim.state.closed[0, 1 - poor].contributions}
    assert contributors == {hotkey(name) for name in trained}
    for name in trained:
        assert not sim.segments(name)[-1].forfeit and sim.segments(name)[-1].work > 0


def test_a_round_in_which_the_only_replica_of_a_stage_was_refuted_ends_early_if_it_is_back_in_the_next() -> None:
    """Otherwise a short quarantine would stop the run for good."""
    run = run_config(steps=50)
    sim = Simulation(run=replace(run, pay=replace(run.pay, quarantine_rounds=1)))
    sim.start("ann", "ben")
    sim.do_step()
    sim.do_step()
    sim.judge("ann")
    sim.do_step(silent=("ann",))
    sim.time_out_step()
    assert sim.state.phase == "close"
    sim.do_close()
    sim.do_merge()
    assert (sim.state.phase, sim.state.round, sim.state.current) == ("train", 1, None), "it has not started afresh"
    sim.say("ann", sim.fresh_receipt("ann"))
    sim.decide()
    assert sim.lane_of("ann")


def broken_off(quarantine_rounds: int = 1000) -> Simulation:
    """A run of one replica a stage, of which one is refuted in the middle of round 0 and stays away for long."""
    run = run_config(steps=50)
    sim = Simulation(run=replace(run, pay=replace(run.pay, quarantine_rounds=quarantine_rounds)))
    sim.start("ann", "ben")
    sim.do_step()
    sim.do_step()
    sim.judge("ann")
    sim.do_step(silent=("ann",))
    assert waits_for(sim.state, sim.outside()) == "", "a step is in progress"
    sim.time_out_step()
    return sim


@pytest.mark.parametrize("quarantine_rounds", [2, 1000])
def test_a_round_that_lost_a_stage_for_good_ends_and_the_next_waits_for_a_newcomer(quarantine_rounds: int) -> None:
    """What was trained until then is merged and paid, and no round passes empty."""
    sim = broken_off(quarantine_rounds)
    stage = sim.state.members[hotkey("ann")].stage
    assert sim.state.phase == "close"
    sim.do_close()
    sim.do_merge()
    assert (sim.state.phase, sim.state.round, sorted(sim.state.manifests)) == ("merge", 0, [0, 1])
    assert not sim.segments("ben")[-1].forfeit and sim.state.closed[0, 1 - (stage or 0)].contributions
    said = waits_for(sim.state, sim.outside())
    assert said.startswith(f"stage {stage} has nobody to train it in round 1: of 1 replicas 1 are in quarantine, 0")
    sim.pass_time(10**7)
    assert sim.decide() == 0
    sim.seat("cem")
    sim.join("cem")
    sim.decide()
    assert (sim.state.phase, sim.state.round, sim.state.members[hotkey("cem")].stage) == ("train", 1, stage)
    assert sim.lane_of("cem") and waits_for(sim.state, sim.outside()) == ""
    sim.do_step()
    assert sim.state.step == 1


def test_a_round_in_which_only_one_coldkey_is_left_ends_and_says_so() -> None:
    """There is somebody on every stage, but no lane may have one coldkey twice."""
    names = ("ann", "ben", "cem", "dov")
    like = Simulation(run=run_config(steps=50))
    like.start(*names)
    stage = {name: like.state.members[hotkey(name)].stage for name in names}
    one = ("ann", next(name for name in names if stage[name] != stage["ann"]))
    sim = Simulation(run=run_config(steps=50))
    for name in names:
        sim.seat(name, coldkey="one" if name in one else "two")
    sim.start(*names)
    sim.do_step()
    sim.do_step()
    for name in set(names) - set(one):
        sim.state.members[hotkey(name)].barred_until_round = 1000
    left = {sim.state.members[hotkey(name)].stage for name in one}
    sim.do_step()
    assert left == {0, 1} and sim.state.phase == "close"
    sim.do_close()
    sim.do_merge()
    assert sim.state.phase == "merge" and waits_for(sim.state, sim.outside()).startswith("a miner of another coldkey")


def test_a_round_is_not_ended_for_a_miner_that_is_only_away() -> None:
    sim = started("ann", "ben")
    sim.do_step()
    sim.alive.discard("ann")
    sim.time_out_step()
    sim.pass_time(10**7)
    assert (sim.decide(), sim.state.phase, sim.state.current) == (0, "train", None)
    assert "1 do not answer" in waits_for(sim.state, sim.outside())


def late(sim: Simulation) -> set[str]:
    """Names of those whom the last step waited for."""
    ends = [event.body for event in sim.events if isinstance(event.body, StepEnd)]
    assert set(ends[-1].late) <= set(ends[-1].missing)
    return {sim.names[hotkey] for hotkey in ends[-1].late}


def test_the_neighbours_of_a_dead_miner_did_not_miss_the_deadline() -> None:
    sim = started("ann", "ben", "cem", stages=3, steps=8)
    sim.alive.discard(dead := of_stage(sim, 1)[0])
    sim.time_out_step()
    assert late(sim) == {dead}
    assert [sim.state.members[hotkey(name)].missed_steps for name in sorted({"ann", "ben", "cem"} - {dead})] == [0, 0]


def test_whoever_had_its_gradient_and_did_not_finish_kept_the_others_waiting() -> None:
    """Gradients run from the last stage to the first."""
    sim = started("ann", "ben", "cem", stages=3, steps=8)
    first, middle, last = (of_stage(sim, stage)[0] for stage in range(3))
    sim.say(last, sim.step_receipt(last))
    sim.time_out_step()
    assert late(sim) == {middle}
    assert sim.state.members[hotkey(first)].missed_steps == 0
    for name in (last, middle):
        sim.say(name, sim.step_receipt(name))
    sim.time_out_step()
    assert late(sim) == {first}


def test_where_the_lane_s_end_is_silent_nobody_can_be_told_apart() -> None:
    sim = started("ann", "ben", "cem", stages=3, steps=8)
    sim.time_out_step()
    assert late(sim) == {"ann", "ben", "cem"}


def test_the_round_closes_with_a_deadline_and_waits_for_those_that_trained() -> None:
    sim = started()
    close(sim)
    (body,) = [event.body for event in sim.events if isinstance(event.body, RoundClose)]
    assert body.deadline_ms > sim.now_ms
    for name in sim.members()[:-1]:
        receipt = sim.close_receipt(name)
        sim.say(name, receipt)
        sim.stored.add(receipt.contribution)
    sim.decide()
    assert sim.state.phase == "close"
    receipt = sim.close_receipt("dov")
    sim.say("dov", receipt)
    sim.decide()
    assert sim.state.phase == "close", "its contribution is not in the store yet"
    sim.stored.add(receipt.contribution)
    sim.decide()
    assert sim.state.phase == "merge"


def test_a_dead_member_is_not_waited_for_at_the_round_s_end() -> None:
    sim = started()
    close(sim)
    sim.alive.discard("ann")
    sim.do_close()
    assert sim.state.phase == "merge"
    assert hotkey("ann") not in {e.hotkey for closed in sim.state.closed.values() for e in closed.contributions}


@pytest.mark.parametrize("fault", ["late", "unreadable"])
def test_a_late_or_unreadable_contribution_is_left_out(fault: str) -> None:
    sim = started()
    close(sim)
    stage = sim.state.members[hotkey("ann")].stage
    sim.do_close(silent=("ann",))
    if fault == "unreadable":
        sim.say("ann", sim.close_receipt("ann"))
    pass_close_deadline(sim)
    assert sim.state.phase == "merge"
    assert [e.hotkey for e in sim.state.closed[0, stage or 0].contributions] == [
        hotkey(name) for name in of_stage(sim, stage or 0) if name != "ann"
    ]
    if fault == "late":
        with pytest.raises(RefusedError, match="expected a close while round 0 closes"):
            sim.say("ann", sim.close_receipt("ann"))


def test_a_copied_contribution_counts_for_whoever_committed_it_first() -> None:
    sim = started()
    close(sim)
    first, copier = of_stage(sim, 0)
    original = sim.close_receipt(first)
    for name, receipt in ((first, original), (copier, sim.close_receipt(copier, contribution=original.contribution))):
        sim.say(name, receipt)
        sim.stored.add(receipt.contribution)
    sim.do_close()
    assert [entry.hotkey for entry in sim.state.closed[0, 0].contributions] == [hotkey(first)]


def test_a_closed_set_is_ordered_by_digest_and_weighs_by_tokens() -> None:
    sim = started("ann", "ben", "cem", "dov", "eva", "fay")
    close(sim)
    sim.do_close()
    for closed in sim.state.closed.values():
        digests = [entry.digest for entry in closed.contributions]
        assert digests == sorted(digests) and len(digests) == 3
        for entry in closed.contributions:
            assert entry.tokens == sim.state.closes[0][entry.hotkey].tokens > 0
            assert entry.factor == 1.0


def test_merging_ends_once_the_publisher_and_the_living_contributors_have_reported() -> None:
    sim = started()
    close(sim)
    sim.do_close()
    for stage in range(2):
        for name in of_stage(sim, stage):
            sim.say(name, sim.merged(name, stage))
    sim.decide()
    assert 1 not in sim.state.manifests, "the publisher has not merged"
    for stage in range(2):
        sim.say("owner", sim.merged("owner", stage))
    sim.decide()
    assert sim.state.manifests[1].dissenting == () and sim.state.round == 1


def test_a_silent_contributor_delays_the_merge_only_until_the_deadline() -> None:
    sim = started()
    close(sim)
    sim.do_close()
    sim.do_merge(silent=("ann",))
    assert sim.state.phase == "merge" and 1 not in sim.state.manifests
    pass_close_deadline(sim)
    assert (sim.state.phase, sim.state.round) == ("train", 1)


def test_a_round_in_which_a_stage_did_nothing_leaves_its_parameters_as_they_are() -> None:
    """An empty closed set is a closed set."""
    sim = started("ann", "ben", "cem", steps=50)
    poor = min((0, 1), key=lambda stage: len(of_stage(sim, stage)))
    sim.alive.discard(of_stage(sim, poor)[0])
    sim.time_out_step()
    sim.do_close()
    assert sim.state.closed[0, poor].contributions == ()


def test_a_quick_history_with_short_deadlines_stays_within_its_configuration() -> None:
    run = run_config()
    sim = Simulation(run=replace(run, lanes=replace(run.lanes, deadline_s=0.5)))
    sim.start("ann", "ben")
    plan, _ = sim.lane_of("ann") or (None, "")
    assert isinstance(plan, Plan) and plan.deadline_ms - sim.now_ms == 500
    assert signer("ann").hotkey in plan.path
