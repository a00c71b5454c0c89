"""The due list: what comes first, what comes again, and when a miner's grace is over."""

import pytest

from subnet.nodes.dues import KEPT, LEAST_TRIES, RETRY_S, Due, Dues, first_of
from subnet.wire.messages import Draw

DRAW = Draw(block=4, block_hash="00", root="ab", count=3)
GRACE_S = 20.0


def due_of(dues: Dues, segment: str = "a", draw: Draw | None = DRAW) -> Due:
    dues.put(segment, draw)
    return dues.waiting[segment]


def tried(dues: Dues, due: Due, clock_s: float, *, withheld: bool = True) -> bool:
    return dues.tried(due, clock_s, withheld=withheld, grace_s=GRACE_S)


def test_a_segment_is_due_once_and_never_again_once_judged() -> None:
    dues = Dues()
    due = due_of(dues)
    dues.put("a", None)
    assert dues.waiting == {"a": due} and due.draw == DRAW
    dues.done(due, 1.0, judged=True)
    dues.put("a", DRAW)
    assert dues.waiting == {}


def test_what_a_try_came_to_is_kept_for_the_next_one_of_the_newest_few() -> None:
    """A miner that withholds in many segments cannot fill a validator's memory."""
    dues = Dues()
    for number in range(KEPT + 3):
        dues.keep(due_of(dues, f"segment-{number}"), f"replay {number}")
    assert [due.begun for due in dues.waiting.values()] == [None] * 3 + [f"replay {n}" for n in range(3, KEPT + 3)]
    last = dues.waiting[f"segment-{KEPT + 2}"]
    dues.keep(last, "the same with more")
    assert sum(due.begun is not None for due in dues.waiting.values()) == KEPT and last.begun == "the same with more"


def test_the_grace_is_over_after_enough_tries_and_enough_time() -> None:
    dues = Dues()
    due = due_of(dues)
    assert [tried(dues, due, clock_s) for clock_s in (100.0, 110.0, 120.0, 120.1)] == [False, False, False, True]
    hasty = due_of(dues, "b")
    assert [tried(dues, hasty, clock_s) for clock_s in (0.0, 1000.0, 1001.0)] == [False, False, True]
    assert hasty.tries == LEAST_TRIES


def test_the_grace_counts_from_the_first_miss_of_the_miner_and_not_from_another_s_fault() -> None:
    """A store that was away for an hour does not use up the miner's grace."""
    dues = Dues()
    due = due_of(dues)
    assert [tried(dues, due, clock_s, withheld=False) for clock_s in (0.0, 10.0, 19.0)] == [False] * 3
    assert not tried(dues, due, 3600.0) and not tried(dues, due, 3619.0)
    assert tried(dues, due, 3621.0)


def test_a_miner_that_showed_everything_meanwhile_gets_the_whole_grace_again() -> None:
    dues = Dues()
    due = due_of(dues)
    tried(dues, due, 0.0)
    tried(dues, due, 15.0, withheld=False)
    assert not tried(dues, due, 30.0) and not tried(dues, due, 49.0) and tried(dues, due, 51.0)


def test_a_fault_that_is_nobody_s_is_said_after_the_same_time() -> None:
    dues = Dues()
    due = due_of(dues)
    assert [tried(dues, due, clock_s, withheld=False) for clock_s in (5.0, 15.0, 24.0, 26.0)] == [False] * 3 + [True]


def test_a_segment_that_comes_up_again_does_not_start_the_grace_anew() -> None:
    """The first verdict was void; when another validator misses it too, nobody waits for the whole grace again."""
    dues = Dues()
    due = due_of(dues)
    for clock_s in (0.0, 10.0, 21.0):
        tried(dues, due, clock_s)
    dues.done(due, 21.0, judged=False)
    again = due_of(dues, draw=None)
    assert [tried(dues, again, clock_s) for clock_s in (50.0, 52.0, 54.0)] == [False, False, True]


def test_a_try_is_followed_by_a_pause() -> None:
    dues = Dues()
    due = due_of(dues)
    assert dues.ready(0.0) == [due]
    tried(dues, due, 10.0)
    assert dues.ready(10.0 + RETRY_S - 0.01) == [] and dues.ready(10.0 + RETRY_S) == [due]


def test_a_recheck_that_came_to_nothing_rests_before_it_comes_again_and_a_draw_does_not() -> None:
    dues = Dues(rest_s=30.0)
    dues.done(due_of(dues, draw=None), 100.0, judged=False)
    recheck = due_of(dues, draw=None)
    assert dues.ready(129.0) == [] and dues.ready(130.0) == [recheck]
    dues.done(recheck, 130.0, judged=False)
    assert dues.ready(131.0) == [] and due_of(dues) in dues.ready(131.0)


@pytest.mark.parametrize(
    ("kinds", "accused", "first"),
    [
        ({"a": DRAW, "b": None}, "", "b"),
        ({"a": DRAW, "b": DRAW}, "b", "b"),
        ({"a": DRAW, "b": DRAW}, "", "a"),
        ({"a": DRAW, "b": None}, "a", "b"),
    ],
    ids=["a recheck first", "then the accused", "then the oldest", "a recheck before the accused"],
)
def test_what_comes_first(kinds: dict[str, Draw | None], accused: str, first: str) -> None:
    ready = [Due(segment=segment, draw=draw) for segment, draw in reversed(kinds.items())]
    chosen = first_of(ready, is_accused=lambda segment: segment == accused, event_of={"a": 1, "b": 2}.__getitem__)
    assert chosen.segment == first
