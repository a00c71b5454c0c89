"""The books over any history: exact, paid once, and never on a verdict that was not given."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.incentive.score import Book, books, entries_of
from subnet.ledger.state import RunState
from subnet.ledger.window import in_window, window_rounds
from tests.audit.histories import add_segment, audit_run, history, judged

VALIDATORS = {"validator-a": 3, "validator-b": 1, "validator-c": 1}
MINERS = ("miner", "other")
READERS = (None, *VALIDATORS)

acts = st.one_of(
    st.tuples(st.just("segment"), st.sampled_from(MINERS), st.integers(0, 50), st.integers(0, 50), st.booleans()),
    st.tuples(st.just("round")),
    st.tuples(
        st.just("verdict"),
        st.integers(0, 30),
        st.sampled_from(tuple(VALIDATORS)),
        st.sampled_from(("pass", "fail", "void")),
    ),
)
histories = st.lists(acts, max_size=40)
ages = st.integers(0, 100_000)


def replayed(chosen: list[tuple], *, window: int = 4) -> RunState:
    """A state that went through these acts; taints follow an upheld fail until a segment with a fresh start."""
    state = history(audit_run(window_segments=window, audit_window_s=20.0), MINERS, VALIDATORS)
    for act in chosen:
        if act[0] == "round":
            state.round += 1
        elif act[0] == "segment":
            _, hotkey, work, unpaid, fresh = act
            tainted = False if fresh else any(tainting(state, hotkey))
            root = "" if fresh else "ab" * 32
            add_segment(
                state, hotkey, round=state.round, work=work, unpaid=min(work, unpaid), start_root=root, tainted=tainted
            )
        elif state.segments:
            _, number, validator, verdict = act
            segment = list(state.segments.values())[number % len(state.segments)]
            judged(state, segment, validator, verdict)
            if segment.upheld_event is not None:
                taint(state, segment)
    return state


def tainting(state: RunState, hotkey: str) -> list[bool]:
    """Whether the hotkey's last segment is failed or tainted."""
    return [s.tainted or s.upheld_event is not None for s in list(state.segments.values())[::-1] if s.hotkey == hotkey][
        :1
    ]


def taint(state: RunState, failed) -> None:
    for later in state.segments.values():
        if later.hotkey == failed.hotkey and later.event > failed.event:
            if not later.start_root:
                return
            later.tainted = True


@settings(max_examples=100)
@given(histories, ages, st.sampled_from(READERS))
def test_work_is_paid_once(chosen, now_ms, own):
    """Every segment's work is in exactly one of refuted, pending, payable and unpaid, whole or in two known parts; the
    books add up to what was committed, and no score exceeds its payable work."""
    state = replayed(chosen)
    entries = entries_of(state, now_ms=now_ms, own=own)
    ledger = books(state, now_ms=now_ms, own=own)
    assert sum(len(chain) for chain in entries.values()) == len(state.segments)
    for chain in entries.values():
        for entry in chain:
            assert entry.segment.work == entry.refuted + entry.pending + entry.payable + entry.unpaid
            assert min(entry.refuted, entry.pending, entry.payable, entry.unpaid) >= 0
            assert entry.unpaid == (0 if entry.refuted else entry.segment.unpaid) or entry.segment.work == 0
            assert not (entry.payable and entry.pending) and not (entry.refuted and entry.payable)
    for book in ledger.values():
        assert book.committed == book.refuted + book.pending + book.payable + book.unpaid
        assert 0 <= book.score <= book.payable
    committed = sum(segment.work for segment in state.segments.values())
    assert sum(book.committed for book in ledger.values()) == committed
    paid = sum(entry.payable for chain in entries.values() for entry in chain)
    assert paid == sum(book.payable for book in ledger.values())


@given(histories, ages)
def test_no_verdict_is_not_a_pass(chosen, now_ms):
    """Before its window closes a segment is payable to no reader, whatever was said of it: silence, a void and a pass
    alike leave it pending."""
    state = replayed(chosen)
    for own in READERS:
        for chain in entries_of(state, now_ms=now_ms, own=own).values():
            for entry in chain:
                assert entry.payable == 0 or now_ms - entry.segment.time_ms >= 20_000


@given(histories, ages)
def test_two_validators_that_judge_alike_have_the_same_books(chosen, now_ms):
    """Passes and voids move nobody's pay, so validators differ only by the fails that they have not rechecked."""
    calm = [act for act in chosen if act[0] != "verdict" or act[3] != "fail"]
    state = replayed(calm)
    seen = [books(state, now_ms=now_ms, own=own) for own in READERS]
    assert all(each == seen[0] for each in seen)


@given(histories, st.integers(0, 3))
def test_a_fault_of_the_validator_costs_the_miner_nothing(chosen, silent):
    """Silence and void verdicts pay like no verdict at all once the window is closed: everything that is
    acknowledged."""
    honest = [act for act in chosen if act[0] != "verdict"]
    voids = [("verdict", number, name, "void") for number in range(silent * 3) for name in VALIDATORS]
    state = replayed([*honest, *voids])
    late = 10**9
    for own in READERS:
        for book in books(state, now_ms=late, own=own).values():
            assert book.refuted == book.pending == 0
            assert book.payable == book.committed - book.unpaid


@given(histories, ages)
def test_a_lone_accuser_neither_voids_nor_refutes(chosen, now_ms):
    """A fail that no second identity replayed takes nothing from the neutral books."""
    one = [act if act[0] != "verdict" else (*act[:2], "validator-a", act[3]) for act in chosen]
    assert all(book.refuted == 0 for book in books(replayed(one), now_ms=now_ms, own=None).values())


@given(histories)
def test_nobody_is_paid_for_what_failed_its_own_replay(chosen):
    """However late, and whether upheld or not."""
    state = replayed(chosen)
    for own in VALIDATORS:
        for chain in entries_of(state, now_ms=10**9, own=own).values():
            for entry in chain:
                mine = entry.segment.verdicts.get(own)
                if mine is not None and mine.verdict == "fail":
                    assert entry.payable == 0


def test_an_upheld_fail_voids_the_whole_unexpired_score():
    """Four open segments of 100 each, the third fails: all four are refuted; those that left the window stay paid."""
    state = history(audit_run(window_segments=4, audit_window_s=0.0), MINERS, VALIDATORS)
    segments = [add_segment(state) for _ in range(6)]
    for name in ("validator-a", "validator-b"):
        judged(state, segments[4], name, "fail")
    book = books(state, now_ms=10**9, own=None)["miner"]
    assert book == Book(hotkey="miner", committed=600, refuted=400, payable=200, score=0)


def test_work_after_the_fail_counts_again():
    """The void reaches what was committed before the fail was upheld, and nothing later."""
    state = history(audit_run(window_segments=4, audit_window_s=0.0), MINERS, VALIDATORS)
    failed = add_segment(state)
    for name in ("validator-a", "validator-b"):
        judged(state, failed, name, "fail")
    add_segment(state)
    assert books(state, now_ms=10**9, own=None)["miner"].score == 100


def test_tainted_work_is_refuted():
    state = history(audit_run(audit_window_s=0.0))
    add_segment(state, tainted=True)
    assert books(state, now_ms=10**9, own=None)["miner"] == Book(hotkey="miner", committed=100, refuted=100)


def test_unacknowledged_work_is_committed_and_never_payable():
    state = history(audit_run(audit_window_s=0.0))
    add_segment(state, unpaid=30)
    book = books(state, now_ms=10**9, own=None)["miner"]
    assert (book.payable, book.unpaid, book.score) == (70, 30, 70)


def test_a_validator_acts_on_a_foreign_fail_after_its_own_replay():
    """Until then the work is held; a pass of its own pays it; a fail of its own refutes it."""
    state = history(audit_run(audit_window_s=0.0), MINERS, VALIDATORS)
    segment = add_segment(state)
    judged(state, segment, "validator-a", "fail")
    judged(state, segment, "validator-b", "fail")

    def seen_by(own):
        book = books(state, now_ms=10**9, own=own)["miner"]
        return book.refuted, book.pending, book.payable

    assert seen_by(None) == seen_by("validator-a") == (100, 0, 0)
    assert seen_by("validator-c") == (0, 100, 0)
    judged(state, segment, "validator-c", "pass")
    assert seen_by("validator-c") == (0, 0, 100)


def test_a_pass_of_its_own_pays_nothing_early():
    """Else two honest validators, who draw different segments, would set different weights."""
    state = history(audit_run(audit_window_s=100.0))
    judged(state, add_segment(state), "validator-a", "pass")
    for own in ("validator-a", "validator-b", None):
        assert books(state, now_ms=99_999, own=own)["miner"].pending == 100
        assert books(state, now_ms=100_000, own=own)["miner"].score == 100


def test_who_has_not_rechecked_an_upheld_fail_holds_back_all_that_it_would_void():
    """No validator pays a caught cheat while others do not; one that could not recheck pays what came before."""
    state = history(audit_run(audit_window_s=0.0), MINERS, VALIDATORS)
    segments = [add_segment(state) for _ in range(3)]
    for name in ("validator-a", "validator-b"):
        judged(state, segments[2], name, "fail")
    assert books(state, now_ms=10**9, own="validator-a")["miner"].score == 0
    waiting = books(state, now_ms=10**9, own="validator-c")["miner"]
    assert (waiting.pending, waiting.refuted, waiting.score) == (300, 0, 0)
    judged(state, segments[2], "validator-c", "void")
    unsure = books(state, now_ms=10**9, own="validator-c")["miner"]
    assert (unsure.pending, unsure.refuted, unsure.score) == (100, 0, 200)


def test_the_window_counts_segments_with_work_and_ends_after_its_rounds():
    """Expired work leaves the score, not the books; a miner that left is not paid for ever."""
    run = audit_run(window_segments=4, audit_window_s=0.0)  # rounds of 4 steps, segments of 2: 2 rounds
    assert window_rounds(run) == 2
    state = history(run)
    for number in range(6):
        add_segment(state, work=0 if number == 5 else 100)
    assert [segment.event for segment in in_window(state.segments.values(), run)] == [1, 2, 3, 4]
    assert books(state, now_ms=10**9, own=None)["miner"].score == 400
    state.round = 1
    assert books(state, now_ms=10**9, own=None)["miner"].score == 400
    state.round = 2
    assert books(state, now_ms=10**9, own=None)["miner"] == Book(hotkey="miner", committed=500, payable=500, score=0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_splitting_a_machine_into_two_hotkeys_gains_nothing(works):
    """As long as the window in rounds ends before the window in segments, which is how it is derived: a replica has
    at most ceil(H / C) whole segments in a round. Two hotkeys that share the segments have together what one has."""
    run = audit_run(window_segments=4, audit_window_s=0.0)
    one, two = history(run), history(run, MINERS)
    for number, work in enumerate(works):
        one.round = two.round = number // 2
        add_segment(one, "miner", round=one.round, work=work, event=number)
        add_segment(two, MINERS[number % 2], round=two.round, work=work, event=number)
    alone = books(one, now_ms=10**9, own=None)["miner"].score
    assert sum(book.score for book in books(two, now_ms=10**9, own=None).values()) == alone


def test_a_replaced_uid_inherits_nothing():
    """The books know hotkeys only: who takes over the roster's seat starts with nothing."""
    state = history(audit_run(audit_window_s=0.0), MINERS)
    add_segment(state, "miner")
    seat = state.roster.pop("miner")
    state.roster["newcomer"] = msgspec.structs.replace(seat, hotkey="newcomer", coldkey="cold-newcomer")
    ledger = books(state, now_ms=10**9, own=None)
    assert ledger["miner"].score == 100
    assert "newcomer" not in ledger
