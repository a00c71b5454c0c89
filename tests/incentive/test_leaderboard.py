"""The board's rows: what a summary says, from the ledger alone or with the chain's view."""

from subnet.canonical import canonical
from subnet.incentive.leaderboard import audited_frac, audits, rounds, rows
from subnet.ledger.state import RoundStats
from subnet.wire.messages import WIRE_VERSION, Checkpoint, Draw
from tests.audit.histories import add_segment, audit_run, history, judged
from tests.incentive.views import view_of

VALIDATORS = {"validator-a": 1, "validator-b": 1}
SUMMARY_MINER = {
    *("uid", "hotkey", "stage", "cheat", "work_committed", "work_refuted", "score", "weight", "incentive"),
}
SUMMARY_AUDIT = {"id", "hotkey", "stage", "round", "verdict", "reason", "distance", "tolerance"}
SUMMARY_ROUND = {
    *("round", "steps", "tokens", "train_loss", "heldout_loss", "seconds", "tokens_per_s"),
    *("bytes_activations", "bytes_sync"),
}
DRAW = Draw(block=4, block_hash="00", root="00", count=1)


def small_history():
    """Two miners with two segments each; one of the second's was caught by both validators."""
    state = history(audit_run(audit_window_s=0.0), ("good", "bad"), VALIDATORS)
    first, _ = add_segment(state, "good"), add_segment(state, "good")
    caught, _ = add_segment(state, "bad"), add_segment(state, "bad", tainted=True)
    judged(state, first, "validator-a", "pass", draw=DRAW)
    judged(state, caught, "validator-a", "fail", draw=DRAW)
    judged(state, caught, "validator-b", "fail")
    state.members["bad"].barred_until_round = 5
    return state


def test_rows_say_who_did_what_and_why_not():
    good, bad = rows(small_history(), None, now_ms=10**9)
    assert (good.hotkey, good.work_committed, good.work_refuted, good.score, good.share) == ("good", 200, 0, 200, 1.0)
    assert (good.segments, good.audited, good.passed, good.failed, good.reason) == (2, 1, 1, 0, "")
    assert (bad.work_refuted, bad.score, bad.weight, bad.failed, bad.reason) == (200, 0, 0.0, 1, "activation")
    assert (good.status, bad.status) == ("training", "quarantined")


def test_rows_take_the_chain_where_it_is_known():
    """Uids from the view, weights as the mean of the submitted vectors."""
    view = view_of(("bad", "good"))
    good, bad = rows(small_history(), view, now_ms=10**9, submitted=[{1: 0.75, 0: 0.25}, {1: 1.0}])
    assert (good.uid, good.weight, good.share) == (1, 0.875, 1.0)
    assert (bad.uid, bad.weight) == (0, 0.125)


def test_who_is_known_to_cheat_is_filled_in():
    assert [row.cheat for row in rows(small_history(), None, now_ms=0, cheats={"bad": "scale"})] == [None, "scale"]


def test_a_miner_without_a_segment_has_a_row_of_zeros():
    state = history(audit_run(), ("new",))
    state.members["new"].stage = None
    (row,) = rows(state, view_of(("other",)), now_ms=0)
    assert (row.uid, row.stage, row.score, row.weight, row.status) == (None, None, 0, 0.0, "waiting")


def test_status_tells_the_accused_and_the_gone():
    state = history(audit_run(), ("miner", "gone"), VALIDATORS)
    judged(state, add_segment(state), "validator-a", "fail", draw=DRAW)
    state.members["gone"].active = False
    assert {row.hotkey: row.status for row in rows(state, None, now_ms=0)} == {"miner": "accused", "gone": "left"}


def test_audits_list_every_verdict_under_its_own_id():
    found = audits(small_history())
    assert [(row.hotkey, row.verdict, row.drawn, row.upheld) for row in found] == [
        ("good", "pass", True, False),
        ("bad", "fail", True, True),
        ("bad", "fail", False, True),
    ]
    assert len({row.id for row in found}) == 3


def test_the_audited_part_counts_judgements_and_not_voids():
    state = small_history()
    assert audited_frac(state) == 0.5
    state.segments[list(state.segments)[1]].verdicts.update(
        {"validator-a": judged(state, add_segment(state, "good"), "validator-a", "void", draw=DRAW)}
    )
    assert audited_frac(state) == 2 / 5
    assert audited_frac(history(audit_run())) == 0.0


def test_rounds_give_rates_and_losses_per_token():
    """The checkpoint of a round's end is the next round's public state."""
    state = history(audit_run())
    state.rounds[0] = RoundStats(
        round=0, begun_ms=1000, ended_ms=5000, steps=4, tokens=400, loss_sum=800.0, loss_tokens=400
    )
    state.rounds[1] = RoundStats(round=1, begun_ms=5000)
    state.time_ms = 7000
    state.checkpoints[1] = Checkpoint(version=WIRE_VERSION, run_id="r", round=1, heldout_loss=1.5, files=(), time_ms=0)
    first, second = rounds(state)
    assert (first.train_loss, first.heldout_loss, first.seconds, first.tokens_per_s) == (2.0, 1.5, 4.0, 100.0)
    assert (second.train_loss, second.heldout_loss, second.seconds, second.tokens_per_s) == (None, None, 2.0, 0.0)


def test_rows_have_every_field_of_the_summary():
    state = small_history()
    state.rounds[0] = RoundStats(round=0)
    for made, expected in (
        (rows(state, None, now_ms=0), SUMMARY_MINER),
        (audits(state), SUMMARY_AUDIT),
        (rounds(state), SUMMARY_ROUND),
    ):
        assert expected <= set(made[0].__struct_fields__)
        assert canonical(made)
