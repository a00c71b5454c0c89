"""Laws of the fold: the state is the log, whatever happened; and what joining, leaving and losing a state mean."""

import msgspec
import pytest

from subnet.canonical import canonical, parse
from subnet.errors import LedgerError, RefusedError
from subnet.ledger.events import Begin, Event, Manifest, Said, StepEnd, make_event
from subnet.ledger.fold import apply, begin, fold
from subnet.ledger.state import state_digest
from subnet.wire.messages import make_signed
from tests.ledger.chaos import SEEDS, shaken
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

HISTORIES = pytest.mark.parametrize("seed", range(SEEDS))


@HISTORIES
def test_the_state_is_the_log(seed: int) -> None:
    """Whatever happened, the fold of the log as it was written down is the orchestrator's state, to the digest."""
    sim = shaken(seed)
    written = [parse(canonical(event), Event) for event in sim.events]
    assert state_digest(fold(written)) == state_digest(sim.state)


@HISTORIES
def test_killed_at_any_transition_the_orchestrator_goes_on_the_same(seed: int) -> None:
    """After every append: fold what is on disk, decide again, and say the same as the one that was not killed."""
    sim = Simulation(run=run_config(rounds=2))
    sim.start("ann", "ben", "cem", "dov")
    for name in ("ann", "ben"):
        sim.join(name, root="")
    sim.do_step(silent=sim.members()[seed % 4])
    sim.time_out_step()
    sim.do_round()
    cut = sim.commits[seed % len(sim.commits)]
    restarted = fold(sim.events[:cut])
    assert restarted.count == cut
    for event in sim.events[cut:]:
        apply(restarted, event)
    assert state_digest(restarted) == state_digest(sim.state)


def test_a_restart_at_every_step_of_a_run_changes_nothing_of_it() -> None:
    """Two runs, one of which forgets everything but its log after each message: the same log comes out."""
    straight, restarted = Simulation(run=run_config(rounds=1)), Simulation(run=run_config(rounds=1))
    for sim in (straight, restarted):
        sim.start("ann", "ben", "cem", "dov")
    while straight.state.phase != "done":
        for sim in (straight, restarted):
            if sim is restarted:
                sim.restart()
            {"train": sim.do_step, "close": sim.do_close, "merge": sim.do_merge}[sim.state.phase]()
    assert [event.digest for event in straight.events] == [event.digest for event in restarted.events]


def test_a_changed_state_has_another_digest() -> None:
    """The digest covers members, segments and steps, or `the_state_is_the_log` could not fail."""
    sim = Simulation()
    sim.start("ann", "ben")
    sim.do_step()
    sim.do_step()
    before = state_digest(sim.state)
    sim.segments("ann")[0].tainted = True
    changed = state_digest(sim.state)
    sim.state.members[hotkey("ben")].waited_steps += 1
    assert len({before, changed, state_digest(sim.state)}) == 3


def test_an_event_of_another_place_or_log_is_refused() -> None:
    sim = Simulation()
    sim.start("ann", "ben")
    events = sim.events
    with pytest.raises(LedgerError, match="expected event 3 of this log, found event 4 of another"):
        fold([*events[:3], *events[4:]])
    other = make_event(events[3].body, n=3, previous="f" * 64, time_ms=events[3].time_ms)
    with pytest.raises(LedgerError, match="expected event 3 of this log"):
        fold([*events[:3], other])
    with pytest.raises(LedgerError, match="expected event 0 with the run's configuration, found event 1"):
        begin(events[1])
    with pytest.raises(LedgerError, match="found an empty one"):
        fold([])


def test_a_changed_configuration_is_another_log() -> None:
    sim = Simulation()
    body = sim.events[0].body
    assert isinstance(body, Begin)
    config = canonical(msgspec.structs.replace(sim.run, seed=2)).decode()
    forged = make_event(
        msgspec.structs.replace(body, config=config),
        n=0,
        previous=sim.events[0].previous,
        time_ms=sim.events[0].time_ms,
    )
    with pytest.raises(LedgerError, match="found event 1 of another"):
        fold([forged, *sim.events[1:]])


def test_a_step_cannot_end_that_did_not_begin() -> None:
    sim = Simulation()
    end = StepEnd(round=0, step=0, done=(), partial=(), requeued=(), missing=())
    event = make_event(end, n=sim.state.count, previous=sim.state.root, time_ms=sim.now_ms)
    with pytest.raises(LedgerError, match="expected a step in progress"):
        apply(sim.state, event)


def test_a_miner_that_restarts_inside_a_round_goes_on_from_its_last_committed_state() -> None:
    """Join with the same root: its uncommitted steps are void, its stage and round stay, it is planned at once."""
    sim = Simulation(run=run_config(segment_steps=3))
    sim.start("ann", "ben")
    for _ in range(4 - 1):
        sim.do_step()
    member = sim.state.members[hotkey("ann")]
    root, stage = member.state_root, member.stage
    assert root and not sim.state.pending.get(hotkey("ann"))
    sim.join("ann", root=root)
    assert (member.state_root, member.stage, member.from_round, member.root_steps) == (root, stage, 0, 3)
    sim.do_step()
    assert sim.state.phase == "close"
    assert len(sim.state.pending[hotkey("ann")]) == 1


def test_a_restart_voids_the_steps_since_the_last_committed_state() -> None:
    sim = Simulation(run=run_config(segment_steps=3))
    sim.start("ann", "ben")
    sim.do_step()
    assert len(sim.state.pending[hotkey("ann")]) == 1
    sim.join("ann", root=sim.state.members[hotkey("ann")].state_root)
    assert hotkey("ann") not in sim.state.pending
    assert sim.step_receipt("ann").replica_steps == 1
    sim.do_step()
    sim.do_step()
    assert not sim.segments("ann") and len(sim.segments("ben")) == 1


@pytest.mark.parametrize("phase", ["train", "close", "merge"])
def test_a_miner_that_lost_its_state_starts_fresh_in_the_next_round_whatever_the_phase(phase: str) -> None:
    """It has a segment of this round, so it may not enter the round a second time."""
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    while sim.state.phase != phase:
        {"train": sim.do_step, "close": sim.do_close}[sim.state.phase]()
    sim.join("ann", root="")
    member = sim.state.members[hotkey("ann")]
    assert (member.state_root, member.root_steps, member.from_round) == ("", 0, 1)


def test_a_miner_that_lost_its_state_is_not_waited_for_at_the_round_s_end() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    sim.join("ann", root="")
    sim.do_step(silent=("ann",))
    sim.time_out_step()
    while sim.state.phase == "train":
        sim.do_step()
    with pytest.raises(RefusedError, match="expected a receipt from round 1 on"):
        sim.say("ann", sim.close_receipt("ann"))
    sim.do_close(silent=("ann",))
    assert sim.state.phase == "merge"


def test_a_joiner_trains_from_the_next_round_s_first_step_with_zeros() -> None:
    sim = Simulation()
    sim.start("ann", "ben")
    sim.do_step()
    sim.seat("joe")
    sim.join("joe")
    sim.do_step()
    member = sim.state.members[hotkey("joe")]
    assert (member.stage is not None, member.from_round) == (True, 1)
    while sim.state.round == 0:
        assert not sim.lane_of("joe")
        {"train": sim.do_step, "close": sim.do_close, "merge": sim.do_merge}[sim.state.phase]()
    assert sim.state.step == 0
    sim.seat("kim")
    sim.join("kim")
    sim.do_round()
    assert sim.lane_of("joe") or sim.lane_of("kim")
    first = (sim.segments("joe") or [None])[0]
    assert first is None or (first.start_root == "" and first.opens_round)


def test_uncommitted_steps_of_a_round_do_not_reach_into_the_next() -> None:
    """A replica that gave no close begins the next round from its last committed state, as everybody does."""
    sim = Simulation(run=run_config(segment_steps=3))
    sim.start("ann", "ben", "cem", "dov")
    while sim.state.phase == "train":
        sim.do_step()
    assert sim.state.pending[hotkey("ann")]
    sim.do_close(silent=("ann",))
    sim.pass_time(sim.state.close_deadline_ms + 1 - sim.now_ms)
    sim.decide()
    sim.do_merge()
    assert (sim.state.round, sim.state.pending) == (1, {})
    assert sim.step_receipt("ann").replica_steps == sim.state.members[hotkey("ann")].root_steps + 1
    sim.do_step()


def test_a_hotkey_that_moves_to_another_coldkey_is_known_by_that_one() -> None:
    sim = Simulation()
    sim.start("ann", "ben")
    sim.seat("ben", coldkey="ann/coldkey")
    assert sim.state.members[hotkey("ben")].coldkey == sim.state.members[hotkey("ann")].coldkey


def test_who_is_deregistered_is_out_and_may_come_back_with_its_state() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.do_step()
    sim.do_step()
    root = sim.state.members[hotkey("cem")].state_root
    assert root
    sim.unseat("cem")
    sim.do_step(silent=("cem",))
    sim.time_out_step()
    assert not sim.state.members[hotkey("cem")].active
    assert not sim.lane_of("cem")
    with pytest.raises(RefusedError, match="expected a hotkey registered on subnet 1"):
        sim.join("cem", root=root)
    sim.seat("cem")
    sim.join("cem", root=root)
    sim.do_step()
    assert sim.state.members[hotkey("cem")].state_root == root
    assert sim.lane_of("cem") or sim.state.phase == "close"


def test_who_leaves_is_not_planned_until_it_joins_again() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    sim.leave("dov")
    sim.alive.add("dov")
    sim.do_step(silent=("dov",))
    sim.time_out_step()
    assert not sim.lane_of("dov")
    sim.join("dov", root=sim.state.members[hotkey("dov")].state_root)
    sim.do_step()
    assert sim.lane_of("dov")


def test_the_manifest_names_the_replicas_that_merged_to_another_root() -> None:
    sim = Simulation()
    sim.start("ann", "ben", "cem", "dov")
    while sim.state.phase != "merge":
        {"train": sim.do_step, "close": sim.do_close}[sim.state.phase]()
    stage = sim.state.members[hotkey("ann")].stage
    assert stage is not None
    sim.say("ann", sim.merged("ann", stage, root="e" * 64))
    sim.do_merge(silent=("ann",))
    manifest = sim.state.manifests[1]
    assert isinstance(manifest, Manifest)
    assert manifest.dissenting == (hotkey("ann"),)
    assert "e" * 64 not in {public.root for public in manifest.stages}


def test_a_head_that_is_logged_out_of_order_changes_no_draw() -> None:
    """The door refuses it; an orchestrator that lets it in all the same gains nothing by it."""
    sim = Simulation()
    sim.start("ann", "ben")
    early = sim.seen("validator-0", block=sim.block + 1)
    sim.do_step()
    sim.pass_time(5000)
    sim.say("validator-0", sim.seen("validator-0"))
    sim.pass_time(5000)
    later_block = sim.seen("validator-0", root=early.root, count=early.count)
    kept = list(sim.state.seen[hotkey("validator-0")])
    for old in (early, later_block):
        sim._log(Said(signed=make_signed(old, signer("validator-0"))))
    assert sim.state.seen[hotkey("validator-0")] == kept
    sim.say("validator-0", sim.seen("validator-0"))
    assert len(sim.state.seen[hotkey("validator-0")]) == len(kept) + 1


def test_every_step_is_found_by_its_plan() -> None:
    """By that an audit finds what its neighbours say, however long the run is."""
    sim = Simulation(run=run_config(rounds=1))
    sim.start("ann", "ben", "cem", "dov")
    sim.do_round()
    state = sim.state
    steps = {name: receipt.plan for name, receipt in state.receipts.items() if receipt.kind == "step"}
    assert {name: plan for plan, names in state.of_plan.items() for name in names} == steps
    assert steps and all(len(names) == state.config.stages for names in state.of_plan.values())
