"""Trying again: what is temporary is tried again, what is final is said at once."""

import asyncio

import pytest

from subnet.errors import UnreachableError
from subnet.nodes.client import LATE_TRIES, retried
from template.errors import ClockSkew, PeerRefused, PeerUnreachable, TransportError


class Peer:
    """Fails in the given ways, one after the other, and then answers."""

    def __init__(self, *faults: TransportError) -> None:
        self.faults = list(faults)
        self.asked = 0

    async def __call__(self) -> str:
        self.asked += 1
        if self.faults:
            raise self.faults.pop(0)
        return "answer"


def late() -> ClockSkew:
    return ClockSkew("expected clocks within seconds of each other", word="expired", delta_s=-14.0)


async def test_what_is_temporary_is_tried_again():
    peer = Peer(PeerUnreachable("nobody"), PeerRefused("full", status=429, word="relay_full"))
    assert await retried(peer, what="an answer") == "answer" and peer.asked == 3


async def test_a_peer_is_left_alone_for_as_long_as_it_asks():
    """The first pause would be a fifth of a second; a wait beyond the patience ends it at once."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    peer = Peer(PeerRefused("too often", status=429, word="too_often", retry_after_s=0.5))
    assert await retried(peer, what="an answer") == "answer" and loop.time() - begun_s >= 0.5
    far = Peer(PeerRefused("too often", status=429, word="too_often", retry_after_s=1e9))
    with pytest.raises(UnreachableError, match="expected an answer within 60 s; too often"):
        await retried(far, what="an answer", patience_s=60.0)
    assert far.asked == 1


async def test_what_is_final_is_raised_at_once():
    peer = Peer(PeerRefused("no", status=409, word="refused"))
    with pytest.raises(PeerRefused, match="no"):
        await retried(peer, what="an answer")
    assert peer.asked == 1


async def test_a_request_that_was_held_up_is_signed_again_but_a_wrong_clock_is_said():
    peer = Peer(late())
    assert await retried(peer, what="an answer") == "answer"
    wrong = Peer(*(late() for _ in range(10)))
    with pytest.raises(ClockSkew):
        await retried(wrong, what="an answer")
    assert wrong.asked == LATE_TRIES + 1


async def test_patience_ends_with_the_last_reason():
    with pytest.raises(UnreachableError, match=r"expected the store to answer within 0 s; nobody"):
        await retried(Peer(PeerUnreachable("nobody")), what="the store to answer", patience_s=0.0)
