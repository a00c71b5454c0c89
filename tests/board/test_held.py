"""What is held against members of a run: everybody sees it, in the JSON, the terminal and the metrics."""

from typing import Any

from msgspec.structs import replace

from subnet.board.facts import Around, facts
from subnet.board.metrics import metrics
from subnet.board.table import board, short
from subnet.ledger.state import RunState
from subnet.scheduler.faults import fold_checked
from tests.board.made_up import FAULT, made_up
from tests.board.small_run import small_run
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config
from tests.ledger.test_closed import dissent, merge_again, pass_deadline, trained


def shown(state: RunState, faults: list[str] | None = None) -> dict[str, Any]:
    return facts(state, None, state.time_ms, around=Around(faults=faults or ()))


def test_a_round_that_is_not_paid_is_shown_with_its_reason():
    sim = trained()
    sim.do_close(silent=("ann",))
    pass_deadline(sim)
    document = shown(sim.state)
    segments = sim.segments("ann")
    row = {"hotkey": hotkey("ann"), "stage": segments[0].stage, "round": 0, "reason": "unclosed"}
    assert document["forfeits"] == [row | {"segments": len(segments), "work": sum(each.work for each in segments)}]
    (line,) = [line for line in board(document).split("\n") if line.startswith("forfeited: ")]
    assert line.startswith(f"forfeited: round 0 of {short(hotkey('ann'))} (stage {segments[0].stage}), unclosed: ")
    assert line.endswith(f"work in {len(segments)} segments is never paid")
    assert 'strata_forfeits_total{reason="unclosed"} 1\n' in metrics(document)


def test_a_merge_that_is_not_the_manifest_s_is_shown_with_both_roots():
    sim = trained()
    sim.do_close()
    dissent(sim, "ann")
    sim.do_merge(silent=("ann",))
    merge_again(sim, sim.state.members[hotkey("ann")].stage or 0)
    document = shown(sim.state)
    (row,) = document["dissents"]
    assert (row["hotkey"], row["round"], row["root"]) == (hotkey("ann"), 1, "e" * 64)
    assert row["manifest_root"] == sim.state.manifests[1].stages[row["stage"]].root
    assert {each["reason"] for each in document["forfeits"]} == {"dissent"}
    assert f"dissent: {short(hotkey('ann'))} merged stage {row['stage']} into round 1 as eeee" in board(document)
    assert "strata_dissents_total 1\n" in metrics(document)


def test_a_hop_of_which_the_two_ends_state_different_frames_is_shown():
    sim = Simulation(run=run_config(rounds=1))
    sim.start("ann", "ben")
    first = next(name for name in sim.members() if sim.state.members[hotkey(name)].stage == 0)
    (last,) = {*sim.members()} - {first}
    honest = sim.step_receipt(last)
    sim.say(last, replace(honest, work=tuple(replace(work, input="ef" * 32) for work in honest.work)))
    sim.say(first, sim.step_receipt(first))
    document = shown(sim.state)
    row = {"sender": hotkey(first), "receiver": hotkey(last), "round": 0, "frames": len(honest.work)}
    assert document["disputes"] == [row] and row["frames"] > 0
    assert f"dispute: {short(hotkey(first))} and {short(hotkey(last))} state different frames" in board(document)
    assert f"strata_disputed_frames_total {row['frames']}\n" in metrics(document)


def test_what_the_log_proves_against_its_orchestrator_is_shown():
    """This log's plans are invented: its wirings give others."""
    state, faults = fold_checked(small_run().events)
    document = shown(state, faults)
    assert faults and document["orchestrator"] == {"faults": len(faults), "says": faults}
    text = board(document)
    assert f"the orchestrator's faults, by its own signed log: {len(faults)}\n  {faults[-3][:60]}" in text
    assert f"strata_orchestrator_faults_total {len(faults)}\n" in metrics(document)


def test_a_run_without_any_shows_none():
    sim = trained()
    sim.do_close()
    sim.do_merge()
    document = shown(sim.state)
    assert document["forfeits"] == document["dissents"] == document["disputes"] == []
    assert document["orchestrator"] == {"faults": 0, "says": []}
    assert not any(word in board(document) for word in ("forfeited", "dissent", "orchestrator's faults"))


def test_many_are_cut_short_in_the_terminal():
    document = made_up(5)
    document["forfeits"] *= 20
    document["orchestrator"] = {"faults": 80, "says": [FAULT] * 50}
    lines = board(document).split("\n")
    assert sum(line.startswith("forfeited: ") for line in lines) == 12
    assert "and 28 earlier of these; --json lists all" in lines
    assert sum(FAULT in line for line in lines) == 3
