"""Laws of the closed set: first commitments, in time, with work, readable by all; arrival moves nothing."""

from hypothesis import given
from hypothesis import strategies as st

from subnet.merge.closed import Offer, Share, check_closed_set, close_set

EVERYTHING = frozenset("abcdef")


def offer(hotkey: str, digest: str, position: int, *, tokens: int = 100, norm: float = 1.0) -> Offer:
    return Offer(hotkey=hotkey, digest=digest, tokens=tokens, norm=norm, position=position)


def share(hotkey: str, digest: str, *, tokens: int = 100, factor: float = 1.0) -> Share:
    return Share(hotkey=hotkey, digest=digest, tokens=tokens, factor=factor)


def test_the_set_is_ordered_by_digest_with_tokens_as_weights():
    offers = [offer("ann", "b", 1, tokens=300), offer("bob", "a", 2, tokens=200, norm=4.0)]
    assert close_set(offers, last_position=9, readable=EVERYTHING) == (
        share("bob", "a", tokens=200, factor=0.25),
        share("ann", "b", tokens=300),
    )


def test_what_is_late_unreadable_or_without_work_is_left_out():
    offers = [offer("ann", "a", 1), offer("bob", "b", 10), offer("cat", "c", 2), offer("dan", "d", 3, tokens=0)]
    assert close_set(offers, last_position=9, readable=frozenset("abd")) == (share("ann", "a"),)


def test_a_copied_digest_belongs_to_the_first_who_committed_it():
    offers = [offer("thief", "a", 5), offer("ann", "a", 4)]
    assert close_set(offers, last_position=9, readable=EVERYTHING) == (share("ann", "a"),)


def test_one_hotkey_has_one_contribution_its_first():
    offers = [offer("ann", "b", 1), offer("ann", "a", 2)]
    assert close_set(offers, last_position=9, readable=EVERYTHING) == (share("ann", "b"),)
    assert close_set(offers, last_position=9, readable=frozenset("a")) == ()


def test_norms_are_clipped_to_the_median_of_the_tokens():
    """Two names that share ten tokens do not outvote the one that trained a thousand."""
    offers = [offer("ann", "a", 1, tokens=1000), *(offer(name, name, 2, tokens=5, norm=50.0) for name in "bc")]
    closed = close_set(offers, last_position=9, readable=EVERYTHING)
    assert [entry.factor for entry in closed] == [1.0, 0.02, 0.02]


class Counted(str):
    """A digest that counts how often digests are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_copies_are_found_without_comparing_everybody_with_everybody():
    """3,000 hotkeys with 30 contributions among them: the first of each counts, after about one comparison a copy."""
    offers = [offer(f"hotkey {place}", Counted(f"digest {place % 30}"), place) for place in range(3000)]
    Counted.compared = 0
    closed = close_set(offers[::-1], last_position=3000, readable={f"digest {place}" for place in range(30)})
    assert sorted(entry.hotkey for entry in closed) == sorted(f"hotkey {place}" for place in range(30))
    assert Counted.compared < 2 * len(offers)


def test_what_is_left_out_does_not_clip_the_others():
    offers = [offer("ann", "a", 1, norm=2.0), offer("bob", "b", 2, norm=2.0), offer("cat", "c", 10, norm=0.1)]
    assert {entry.factor for entry in close_set(offers, last_position=9, readable=EVERYTHING)} == {1.0}


def test_a_stage_without_contributions_has_an_empty_set():
    assert close_set([], last_position=9, readable=EVERYTHING) == ()


OFFERS = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from("abcdef"), st.integers(0, 20), st.floats(0, 10)),
    max_size=8,
    unique_by=lambda fields: fields[2],
)


@given(fields=OFFERS, draw=st.data())
def test_the_order_of_arrival_of_the_records_moves_nothing(fields: list[tuple], draw: st.DataObject):
    offers = [offer(hotkey, digest, position, norm=norm) for hotkey, digest, position, norm in fields]
    closed = close_set(offers, last_position=15, readable=frozenset("abcd"))
    shuffled = draw.draw(st.permutations(offers))
    assert close_set(shuffled, last_position=15, readable=frozenset("abcd")) == closed
    assert check_closed_set(closed, shuffled, last_position=15, readable=frozenset("abcd"))
    assert len({entry.hotkey for entry in closed}) == len({entry.digest for entry in closed}) == len(closed)


def test_a_claimed_set_that_differs_in_anything_is_refused():
    offers = [offer("ann", "a", 1), offer("bob", "b", 2)]
    honest = close_set(offers, last_position=9, readable=EVERYTHING)
    changed = (share("ann", "a", tokens=101), honest[1])
    for claimed in (honest[:1], honest[::-1], changed, (honest[0], share("bob", "b", factor=0.5)), ()):
        assert not check_closed_set(claimed, offers, last_position=9, readable=EVERYTHING)
