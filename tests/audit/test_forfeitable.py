"""What a hotkey has to lose, and its rate: exactly the score that a fail would void, under the head and for ever."""

from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.audit.draw import rate, rate_of
from subnet.audit.forfeitable import forfeitable, pay_of
from subnet.incentive.score import books
from subnet.ledger.closed import forfeit
from subnet.ledger.state import RunState, Segment
from subnet.ledger.trained import refute
from tests.audit.histories import STAKES, add_segment, audit_run, history, judged

MINERS = ("miner", "other")
LATE_MS = 10**12

acts = st.one_of(
    st.tuples(st.just("segment"), st.sampled_from(MINERS), st.integers(0, 50), st.integers(0, 50), st.booleans()),
    st.tuples(st.just("segment"), st.just("miner"), st.integers(1, 50), st.just(0), st.just(False)),
    st.tuples(st.just("round")),
    st.tuples(st.just("fail"), st.integers(0, 30), st.sampled_from(tuple(STAKES))),
    st.tuples(st.just("forfeit"), st.sampled_from(MINERS), st.integers(0, 3)),
)
histories = st.lists(acts, max_size=40)


def fresh_state() -> RunState:
    return history(audit_run(rate=0.05, window_segments=4, audit_window_s=0.0), MINERS)


def act(state: RunState, chosen: tuple) -> Segment | None:
    """Let one thing happen as the fold has it; the new segment, if it is one."""
    kind, *rest = chosen
    if kind == "round":
        state.round += 1
    elif kind == "forfeit":
        forfeit(state, rest[0], state.round - rest[1], "unclosed")
        state.count += 1
    elif kind == "fail" and state.segments:
        segment = list(state.segments.values())[rest[0] % len(state.segments)]
        if rest[1] not in segment.verdicts and segment.upheld_event is None:
            judged(state, segment, rest[1], "fail")
            if segment.upheld_event is not None:
                refute(state, segment, segment.upheld_event)
    elif kind == "segment":
        hotkey, work, unpaid, restarts = rest
        member = state.members[hotkey]
        if restarts:
            member.state_root, member.tainted = "", False
        made = add_segment(
            state, hotkey, round=state.round, work=work, unpaid=min(work, unpaid), start_root=member.state_root,
            tainted=member.tainted,
        )  # fmt: skip
        member.state_root = made.end_root
        return made
    return None


@settings(max_examples=80)
@given(histories)
def test_what_is_at_stake_is_the_score_that_an_upheld_fail_would_void(chosen):
    """When a segment is committed, forfeitable is its author's score in the neutral books with all windows closed."""
    state = fresh_state()
    for each in chosen:
        before = {hotkey: book.score for hotkey, book in books(state, now_ms=LATE_MS, own=None).items()}
        made = act(state, each)
        if made is not None:
            assert forfeitable(state, made, count=state.count) == before.get(made.hotkey, 0)


@given(histories)
def test_the_rate_under_a_head_is_the_same_for_ever(chosen):
    """Fails, taints and forfeits that come after the head do not reach back: a draw can be repeated at any time."""
    state, known = fresh_state(), []
    for each in chosen:
        act(state, each)
        known += [
            (name, state.count, rate(state, segment, count=state.count)) for name, segment in state.segments.items()
        ]
    for name, count, found in known:
        assert rate(state, state.segments[name], count=count) == found


@given(histories)
def test_a_rate_is_between_p_and_one(chosen):
    state = fresh_state()
    for each in chosen:
        act(state, each)
    for segment in state.segments.values():
        assert 0.05 <= rate(state, segment, count=state.count) <= 1.0


def test_the_rate_is_the_designs():
    """max(p, min(1, 2 w / forfeitable)), and 1 for who has nothing to lose."""
    assert [rate_of(0.05, 100, stake) for stake in (0, 100, 200, 300, 400, 1000, 4000, 51200)] == [
        1.0, 1.0, 1.0, 2 / 3, 0.5, 0.2, 0.05, 0.05,
    ]  # fmt: skip
    assert rate_of(0.05, 0, 0) == 1.0 and rate_of(0.05, 0, 1) == 0.05


def test_newcomers_are_audited_often_and_the_long_honest_at_p():
    """The first three segments always, the k-th with 2 / (k - 1), from the 41st on at p = 5 %."""
    state = history(audit_run(rate=0.05, window_segments=512))
    rates = []
    for number in range(60):
        made = add_segment(state, round=number // 2)
        rates.append(rate(state, made, count=state.count))
    assert rates[:5] == [1.0, 1.0, 1.0, 2 / 3, 0.5]
    assert rates[39] == 2 / 39 and rates[40] == 0.05 and rates[59] == 0.05


def test_a_caught_hotkey_starts_again_from_nothing():
    """Its voided score is no stake, and work on the failed state is none either, until a fresh start."""
    state = history(audit_run(rate=0.05, window_segments=512))
    chain = [add_segment(state, start_root="ab" * 32) for _ in range(50)]
    assert rate(state, chain[-1], count=state.count) == 0.05
    head = state.count
    for validator in STAKES:
        judged(state, chain[-1], validator, "fail")
    refute(state, chain[-1], chain[-1].upheld_event)
    tainted = [add_segment(state, start_root="ab" * 32, tainted=True) for _ in range(5)]
    assert rate(state, tainted[-1], count=state.count) == 1.0
    add_segment(state)
    late = add_segment(state, start_root="ab" * 32)
    assert forfeitable(state, late, count=state.count) == 100
    assert rate(state, chain[-1], count=head) == 0.05


def test_work_of_a_forfeited_round_is_no_stake_once_that_is_logged():
    state = history(audit_run(rate=0.05))
    first = add_segment(state)
    head = state.count
    forfeit(state, "miner", 0, "unclosed")
    state.count += 1
    second = add_segment(state, round=1)
    assert (pay_of(first, count=head), pay_of(first, count=state.count)) == (100, 0)
    assert forfeitable(state, second, count=state.count) == 0
