"""Laws of the board's facts: everything follows from the ledger, audited shares are counted, nothing is hard-coded."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from subnet.board.facts import Around, audited_sentence, facts
from subnet.model.cost import parameters, spans
from template.values import DRAND_GENESIS_S, DRAND_PERIOD_S, PendingWeights
from tests.board.made_up import made_up
from tests.board.small_run import CHEATER, MINERS, NAMES, STEPS, T0_MS, Log, hotkey, small_run
from tests.incentive.views import view_of

LATER_MS = T0_MS + 10**6


def rows_by_hotkey(document: dict) -> dict[str, dict]:
    return {row["hotkey"]: row for row in document["miners"]}


def test_the_facts_of_a_run_are_those_of_its_ledger():
    log = small_run()
    document = facts(log.fold(), None, LATER_MS)
    assert document["ledger"]["events"] == len(log.events)
    assert document["ledger"]["root"] == log.events[-1].digest
    assert document["run"]["id"] == log.run.run_id
    assert document["run"]["phase"] == "done"
    assert document["run"]["steps_done"] == STEPS
    assert document["run"]["tokens"] == STEPS * 2 * 2 * 16
    assert document["run"]["heldout_loss"] == 2.5
    assert document["model"]["parameters"] == sum(parameters(log.run, span) for span in spans(log.run))
    assert [stage["members"] for stage in document["model"]["stages"]] == [
        [hotkey("miner-0"), hotkey("miner-2")],
        [hotkey("miner-1"), hotkey("miner-3")],
    ]
    assert document["ledger"]["commitments"][0]["root"] == log.events[-2].previous
    assert document["chain"] is None


def test_the_loss_curve_has_a_point_per_step_in_nats_per_token():
    curve = facts(small_run().fold(), None, LATER_MS)["curve"]
    assert curve == [[0, 5.0], [1, 4.0], [2, 3.0], [3, 2.0]]


def test_held_out_losses_stand_at_the_steps_that_were_done_before_them():
    assert facts(small_run().fold(), None, LATER_MS)["heldout"] == [[0, 5.5], [STEPS, 2.5]]


def test_the_cheater_has_its_work_refuted_with_the_reason_and_the_honest_have_none():
    rows = rows_by_hotkey(facts(small_run().fold(), None, LATER_MS, around=Around(cheats={hotkey(CHEATER): "scale"})))
    cheater = rows[hotkey(CHEATER)]
    assert cheater["cheat"] == "scale"
    assert cheater["reason"] == "activation"
    assert cheater["work_refuted"] == cheater["work_committed"] > 0
    assert cheater["weight"] == 0
    for name in MINERS[:-1]:
        honest = rows[hotkey(name)]
        assert honest["work_refuted"] == 0
        assert honest["cheat"] is None
        assert honest["weight"] > cheater["weight"]
    assert rows[hotkey("miner-1")]["void"] == 1


def test_weights_are_the_mean_of_the_vectors_on_the_chain():
    uid = NAMES.index("miner-0")
    weights = {1: {uid: 0.5}, 2: {uid: 0.25}, 3: {}}
    rows = rows_by_hotkey(facts(small_run().fold(), None, LATER_MS, around=Around(weights=weights)))
    assert rows[hotkey("miner-0")]["weight"] == 0.375


def test_void_is_not_counted_as_audited():
    audit = facts(small_run().fold(), None, LATER_MS)["audit"]
    assert audit["segments"] == 4 * (STEPS // 2)
    assert (audit["audited"], audit["passed"], audit["failed"], audit["accused"], audit["void"]) == (2, 1, 1, 0, 1)
    assert audit["audited_frac"] == 2 / 8
    assert audit["says"] == "about a quarter of all segments are audited (2 of 8)"


def test_the_sentence_follows_the_counts():
    assert audited_sentence(31, 96) == "about a third of all segments are audited (31 of 96)"
    assert audited_sentence(0, 9) == "none of the segments are audited (0 of 9)"
    assert audited_sentence(9, 9) == "all of the segments are audited (9 of 9)"
    assert audited_sentence(0, 0) == "no segment is committed yet"
    assert audited_sentence(82, 100) == "82 % of all segments are audited (82 of 100)"


@given(st.integers(1, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_the_sentence_always_names_both_counts(counts: tuple[int, int]):
    audited, total = counts
    said = audited_sentence(audited, total)
    assert f"({audited} of {total})" in said
    assert ("none" in said) == (audited == 0)
    assert said.startswith("all ") == (audited == total)


def test_a_run_that_has_just_begun_has_facts():
    log = Log()
    log.begin()
    document = facts(log.fold(), None, LATER_MS)
    assert document["rounds"] == []
    assert document["curve"] == []
    assert document["run"]["train_loss"] is None
    assert document["run"]["tokens_per_s"] == 0
    assert {row["work_committed"] for row in document["miners"]} == {0}
    json.dumps(document, allow_nan=False)


def test_weights_that_are_not_revealed_yet_stand_with_their_validator():
    """Committed at a block, and revealed at about the block at which the round's signature is out."""
    view = replace(view_of([hotkey(name) for name in NAMES]), block=300, time_s=1_790_000_000.0, block_time_s=12.0)
    soon = round_at(view.time_s + 121)
    commits = [
        PendingWeights(hotkey=hotkey("validator-1"), block=290, epoch=7, reveal_round=soon),
        PendingWeights(hotkey=hotkey("validator-1"), block=298, epoch=8, reveal_round=round_at(view.time_s - 50)),
        PendingWeights(hotkey=hotkey("nobody"), block=298, epoch=8, reveal_round=soon),
    ]
    document = facts(small_run().fold(), view, LATER_MS, around=Around(pending=commits))
    found = {row["hotkey"]: row["pending"] for row in document["validators"]}
    assert found[hotkey("validator-0")] == []
    assert [(each["block"], each["reveal_block"]) for each in found[hotkey("validator-1")]] == [(290, 311), (298, 300)]
    without = facts(small_run().fold(), None, LATER_MS, around=Around(pending=commits))
    assert all(row["pending"] == [] for row in without["validators"]), "no view, no guess of a block"


def round_at(time_s: float) -> int:
    """The first drand round whose signature is out at this time."""
    return math.ceil((time_s - DRAND_GENESIS_S) / DRAND_PERIOD_S) + 1


def test_invented_facts_have_the_same_shape_as_real_ones():
    """What the page and the tables are tested on must not drift from what they are given."""
    real, invented = facts(small_run().fold(), None, LATER_MS), made_up()
    assert real.keys() == invented.keys()
    for name in ("run", "model", "audit", "ledger", "orchestrator"):
        assert real[name].keys() == invented[name].keys(), name
    for name in ("rounds", "miners", "audits", "validators"):
        assert real[name][0].keys() == invented[name][0].keys(), name


def test_the_board_loads_neither_torch_nor_the_sdk(repository: Path):
    code = (
        "import sys; import subnet.board.facts, subnet.board.page, subnet.board.table, subnet.board.metrics; "
        "print(sorted({'torch', 'transformers', 'bittensor', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
