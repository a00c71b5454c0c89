"""The draw: after the commit, unforeseeable, checkable by anyone, each segment once, and as often as the run says."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.audit.draw import (
    chance,
    check_draw,
    done_until,
    draw,
    draw_point,
    draw_points,
    draw_seed,
    is_drawn,
    point_of,
    rate,
    seed_of,
    share,
)
from subnet.errors import RefusedError
from subnet.ledger.events import RosterEntry
from subnet.ledger.state import RunState, Segment
from subnet.wire.messages import Draw, Verdict
from tests.audit.histories import STAKES, add_segment, audit_run, block_hash, history, judged, see

A, B = STAKES

heads = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=8)
cadence = st.tuples(st.integers(1, 6), st.integers(2, 5))


def seen_state(steps: list[tuple[int, int]], *, every: int = 4, delay: int = 2, p: float = 0.5) -> RunState:
    """A state in which validator A countersigned heads at growing blocks over growing counts of segments."""
    state = history(audit_run(rate=p, every=every, delay=delay))
    block, count = 5, 0
    for blocks, events in steps:
        block, count = block + blocks, count + events
        see(state, A, block=block, count=count)
    for event in range(count):
        add_segment(state, event=event)
    return state


def drawn_at(state: RunState, block: int, validator: str = A) -> tuple[Draw, tuple[str, ...]]:
    return draw(state, validator, block, block_hash(block))


def verdicts_of(state: RunState, last_block: int = 40, validator: str = A) -> list[Verdict]:
    """Everything the validator draws up to a block, judged in a copy of no consequence."""
    config, made = state.config.audit, []
    for point in draw_points(config, state.seen[validator], last_block):
        used, ids = drawn_at(state, point.block, validator)
        for name in ids:
            segment = state.segments[name]
            made.append(judged(state, segment, validator, "pass", draw=used))
            segment.verdicts.clear()
    return made


@settings(max_examples=50)
@given(heads, cadence)
def test_the_draw_is_after_the_commit(steps, cadence):
    """What is drawn at block B stood in a head countersigned `delay` blocks before B, and the seed holds B's hash."""
    every, delay = cadence
    state = seen_state(steps, every=every, delay=delay, p=1.0)
    for verdict in verdicts_of(state):
        used, segment = verdict.draw, state.segments[verdict.segment]
        head = next(item for item in state.seen[A] if (item.root, item.count) == (used.root, used.count))
        assert segment.event < head.count
        assert head.block <= used.block - delay
        check_draw(state, verdict, block_hash)


def test_a_head_countersigned_too_late_is_not_drawn_from():
    """One block later than the delay allows, and the head is left to the next draw."""
    state = history(audit_run(rate=1.0, every=4, delay=2), stakes={A: 1000})  # alone it draws whatever there is
    see(state, A, block=10, count=1)
    see(state, A, block=11, count=2)
    add_segment(state, event=0)
    late = add_segment(state, event=1)
    assert late.id not in drawn_at(state, 12)[1]
    assert drawn_at(state, 16)[1] == (late.id,)


def test_a_verdict_that_claims_a_draw_before_the_commit_is_refused():
    """The segment ends in event 1; the draw of block 12 knew only event 0."""
    state = history(audit_run(rate=1.0, every=4, delay=2))
    see(state, A, block=10, count=1)
    see(state, A, block=14, count=2)
    add_segment(state, event=0)
    segment = add_segment(state, event=1)
    used, _ = drawn_at(state, 12)
    with pytest.raises(RefusedError, match="the draw came before the commit"):
        check_draw(state, judged(state, segment, A, "pass", draw=used), block_hash)


def test_nobody_can_foresee_the_draw_without_the_block_hash():
    """Over 64 segments at one half, two hashes give the same draw with chance 2^-64."""
    state = seen_state([(0, 64)])
    assert draw(state, A, 8, block_hash(8))[1] != draw(state, A, 8, block_hash(9))[1]


@given(heads, cadence)
def test_each_segment_is_considered_at_exactly_one_draw(steps, cadence):
    """The windows of a validator's draws follow each other without gap or overlap."""
    every, delay = cadence
    state = seen_state(steps, every=every, delay=delay)
    config, seen = state.config.audit, state.seen[A]
    points = draw_points(config, seen, 80)
    assert [point.start for point in points] == [0, *(point.count for point in points[:-1])]
    for event in range(seen[-1].count):
        containing = [point for point in points if point.start <= event < point.count]
        assert containing == [point_of(config, seen, event)]
    assert point_of(config, seen, seen[-1].count) is None


@settings(max_examples=50)
@given(heads)
def test_anyone_can_check_a_draw_afterwards(steps):
    """Every honest verdict passes; the same verdict with one thing changed is refused."""
    state = seen_state(steps)
    for verdict in verdicts_of(state):
        check_draw(state, verdict, block_hash)
        used = verdict.draw
        for change in (
            {"block": used.block + 4},
            {"block_hash": block_hash(used.block + 1)},
            {"root": "00" * 32},
            {"count": used.count + 1},
        ):
            forged = msgspec.structs.replace(verdict, draw=msgspec.structs.replace(used, **change))
            with pytest.raises(RefusedError, match="expected the draw of block"):
                check_draw(state, forged, block_hash)


def test_a_verdict_on_a_segment_that_was_not_drawn_is_refused():
    """A validator cannot choose whom to judge."""
    state = seen_state([(0, 40)])
    used, ids = drawn_at(state, 8)
    spared = next(segment for segment in state.segments.values() if segment.id not in ids)
    with pytest.raises(RefusedError, match="which was not"):
        check_draw(state, judged(state, spared, A, "fail", draw=used), block_hash)


def test_a_recheck_needs_a_foreign_fail():
    """Without a draw, only somebody else's fail gives the right to judge."""
    state = seen_state([(0, 1)])
    (segment,) = state.segments.values()
    own = judged(state, segment, A, "fail")
    with pytest.raises(RefusedError, match="expected a foreign fail"):
        check_draw(state, own, block_hash)
    judged(state, segment, B, "fail", draw=drawn_at(state, 8)[0])
    check_draw(state, own, block_hash)


def test_a_void_segment_is_drawn_again_until_it_is_judged():
    """No luck is needed the second time, and the second draw can be checked as well."""
    state = seen_state([(0, 40)])
    used, ids = drawn_at(state, 8)
    segment = state.segments[ids[0]]
    judged(state, segment, A, "void", draw=used)
    again, redrawn = drawn_at(state, 12)
    assert redrawn == (segment.id,)
    check_draw(state, judged(state, segment, A, "pass", draw=again), block_hash)
    assert drawn_at(state, 16)[1] == ()


def test_one_identity_never_faces_itself_in_an_audit():
    """A validator under the miner's coldkey neither draws nor judges; the other one takes its part of the rate."""
    state = seen_state([(0, 40)], p=1.0)
    state.roster[A] = msgspec.structs.replace(state.roster[A], coldkey="cold-miner")
    see(state, B, block=5, count=40)
    used, ids = drawn_at(state, 8)
    assert ids == ()
    assert len(drawn_at(state, 8, B)[1]) == 40
    (segment, *_) = state.segments.values()
    with pytest.raises(RefusedError, match="another coldkey"):
        check_draw(state, judged(state, segment, A, "pass", draw=used), block_hash)


def test_tainted_segments_are_not_drawn():
    """They are unpaid as they are."""
    state = seen_state([(0, 3)], p=1.0)
    for segment in state.segments.values():
        segment.tainted = True
    assert drawn_at(state, 8)[1] == ()


def test_the_shares_of_the_stake_add_up_to_the_rate():
    """Each validator draws with its part; without any stake the parts are equal."""
    state = history(audit_run(rate=0.4))
    assert share(state, A) == 0.75
    for _ in range(60):
        segment = add_segment(state)
    for each in state.segments.values():
        whole = rate(state, each, count=state.count)
        assert math.isclose(sum(chance(state, name, each, count=state.count) for name in STAKES), whole)
    assert rate(state, segment, count=state.count) == 0.4
    assert share(state, "miner") == 0.0
    poor = history(audit_run(), stakes={A: 0, B: 0})
    assert share(poor, A) == share(poor, B) == 0.5


def test_segments_are_drawn_as_often_as_the_stake_says():
    """4000 segments at p = 1/3 with 3/4 of the stake: 1000 expected, standard deviation 27.4.

    A right draw is outside of 5 deviations (137) by luck once in 1.7 million seeds.
    """
    state = seen_state([(0, 4000)], p=1 / 3)
    drawn = drawn_at(state, 8)[1]
    assert abs(len(drawn) - 1000) < 137


def test_two_validators_draw_independently():
    """At p = 1 and shares 3/4 and 1/4 they share 3/16 of 4000 segments: 750, deviation 24.7; 5 are 124 (1 in 1.7e6)."""
    state = seen_state([(0, 4000)], p=1.0)
    see(state, B, block=5, count=4000)
    both = set(drawn_at(state, 8)[1]) & set(drawn_at(state, 8, B)[1])
    assert abs(len(both) - 750) < 124


def test_the_seed_is_pinned():
    """Other implementations must find the same draw: changes only together with the domain's number."""
    seed = draw_seed("aa" * 32, "bb" * 32, "0x" + "cc" * 32, "5Validator")
    assert seed == draw_seed("aa" * 32, "bb" * 32, "cc" * 32, "5Validator")
    assert seed.hex() == "b4349611e2eaefded6d3f80acfa9aa5e4028848c5c141be8e4d8b4c1d9be2d57"
    assert [is_drawn(seed, f"{number:02d}", 0.5) for number in range(8)] == [
        True,
        True,
        True,
        False,
        True,
        True,
        False,
        True,
    ]
    assert is_drawn(seed, "any", 1.0) and not is_drawn(seed, "any", 0.0)


def test_a_recheck_looks_where_the_accuser_looked():
    """The second validator's seed for tensors and chunks is the first one's."""
    state = seen_state([(0, 1)], p=1.0)
    (segment,) = state.segments.values()
    used, _ = drawn_at(state, 8)
    judged(state, segment, A, "fail", draw=used)
    assert seed_of(state, segment, None, B) == seed_of(state, segment, used, A)
    assert seed_of(state, segment, used, B) != seed_of(state, segment, used, A)


def test_before_any_head_nothing_is_drawn():
    """A validator that has countersigned nothing draws from the empty log."""
    state = history(audit_run())
    add_segment(state)
    used, ids = drawn_at(state, 8)
    assert ids == () and used.count == 0
    assert draw_points(state.config.audit, [], 100) == []
    assert draw_point(state.config.audit, [], 8).count == 0


events = st.one_of(
    st.tuples(st.just("segment"), st.sampled_from(("miner", "other"))),
    st.tuples(st.just("segment"), st.just("miner")),
    st.tuples(st.just("seen"), st.sampled_from(tuple(STAKES))),
    st.tuples(st.just("fail"), st.integers(0, 20), st.sampled_from(tuple(STAKES))),
    st.tuples(st.just("stake"), st.integers(0, 9), st.integers(0, 9)),
)


def happen(state: RunState, act: tuple, block: int) -> None:
    """Let one thing happen as the fold has it."""
    if act[0] == "segment":
        add_segment(state, act[1])
    elif act[0] == "seen":
        see(state, act[1], block=block, count=state.count)
    elif act[0] == "fail" and state.segments:
        segment = list(state.segments.values())[act[1] % len(state.segments)]
        if act[2] not in segment.verdicts:
            judged(state, segment, act[2], "fail")
    elif act[0] == "stake":
        stakes = dict(zip(STAKES, act[1:], strict=True))
        state.roster = {
            name: msgspec.structs.replace(entry, stake_rao=stakes.get(name, 0)) for name, entry in state.roster.items()
        }
        state.rosters.append((state.count, state.roster))
        state.count += 1


def outcome(state: RunState, segment: Segment, validator: str, used: Draw) -> str:
    """What the check says of a verdict that claims this draw; the verdict leaves no trace."""
    kept = dict(segment.verdicts)
    claim = judged(state, segment, validator, "pass", draw=used)
    segment.verdicts.clear()
    segment.verdicts.update(kept)
    try:
        check_draw(state, claim, block_hash)
    except RefusedError as refused:
        assert "which was not" in str(refused)
        return "refused"
    return "drawn"


@settings(max_examples=60)
@given(st.lists(events, min_size=10, max_size=60))
def test_a_draw_and_its_check_agree_over_any_history(chosen):
    """Draws done as the run goes on, checked when it is over, by when stakes have changed and fails were upheld:
    everything drawn passes the check, and everything else that was considered is refused."""
    state = history(audit_run(rate=0.3, every=2, delay=2), ("miner", "other"))
    state.rosters.append((0, dict(state.roster)))
    state.count, done, claims = 1, dict.fromkeys(STAKES, 0), []
    for block, act in enumerate(chosen, start=10):
        happen(state, act, block)
        for validator in STAKES:
            points = draw_points(state.config.audit, state.seen.get(validator, []), block)
            for point in (point for point in points if point.block > done[validator]):
                used, ids = drawn_at(state, point.block, validator)
                new = [each for each in state.segments.values() if point.start <= each.event < point.count]
                claims += [(each, validator, used, each.id in ids) for each in new]
                done[validator] = point.block
    for segment, validator, used, drawn in claims:
        assert outcome(state, segment, validator, used) == ("drawn" if drawn else "refused")


@given(heads, cadence, st.integers(0, 60))
def test_the_draws_after_a_block_are_the_rest_of_all_draws(
    steps: list[tuple[int, int]], rhythm: tuple[int, int], after_block: int
) -> None:
    """Who has done some does not look at them again, however long the run is."""
    every, delay = rhythm
    state = seen_state(steps, every=every, delay=delay)
    config, seen = state.config.audit, state.seen[A]
    rest = draw_points(config, seen, 60, after_block=after_block)
    assert rest == [point for point in draw_points(config, seen, 60) if point.block > after_block]


def without_permit(state: RunState, name: str) -> dict[str, RosterEntry]:
    """The roster once a validator has lost its permit and its stake."""
    lost = msgspec.structs.replace(state.roster[name], permit=False, stake_rao=0)
    return {**state.roster, name: lost}


def test_a_verdict_stays_right_when_its_author_loses_its_permit():
    """The roster under the draw's head decides who may judge, whoever asks later; and who had no permit then gains
    none afterwards."""
    state = seen_state([(0, 40)])
    state.rosters.append((0, state.roster))
    verdict = verdicts_of(state, 8)[0]
    before = state.roster
    state.roster = without_permit(state, A)
    state.rosters.append((verdict.draw.count, state.roster))
    check_draw(state, verdict, block_hash)
    state.rosters = [(0, without_permit(state, A)), (verdict.draw.count, before)]
    state.roster = before
    with pytest.raises(RefusedError, match="expected a judge with a permit"):
        check_draw(state, verdict, block_hash)


def test_a_validator_that_starts_again_draws_what_it_has_not_finished_and_no_more():
    """Ten segments of old rounds, ten of the last two; each considered at some draw, all judged but one."""
    state = history(audit_run(rate=1.0, every=4, delay=2))
    for number in range(20):
        add_segment(state, event=number, round=number // 5)
        see(state, A, block=10 + 4 * number, count=number + 1)
    state.round = 3
    segments = list(state.segments.values())
    last = point_of(state.config.audit, state.seen[A], 19)
    assert last is not None
    for segment in segments[10:]:
        judged(state, segment, A, "pass")
    assert done_until(state, A) == last.block and done_until(state, B) == -1
    for unfinished in (17, 12):
        del segments[unfinished].verdicts[A]
        first = point_of(state.config.audit, state.seen[A], unfinished)
        assert first is not None and done_until(state, A) == first.block - 1
        points = draw_points(state.config.audit, state.seen[A], last.block, after_block=done_until(state, A))
        assert points[0].start <= segments[unfinished].event < points[0].count
    judged(state, segments[12], A, "void")
    assert done_until(state, A) < points[0].block, "void is not finished"
    judged(state, segments[12], A, "pass")
    judged(state, segments[17], A, "pass")
    assert segments[9].verdicts == {}
    assert done_until(state, A) == last.block, "what is no longer owed is not looked at"
