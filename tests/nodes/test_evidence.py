"""Fetching evidence: three ways to each byte, and only what the relay saw refused counts as refused."""

import pytest

from subnet.errors import EvidenceError, UnreachableError
from subnet.nodes.evidence import Asked, is_refusal
from template.errors import BodyTooLarge, ClockSkew, DeadlineExceeded, PeerRefused, PeerUnreachable


def refused(status: int, word: str) -> PeerRefused:
    return PeerRefused("expected evidence, found none", status=status, word=word)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refused(404, "not_found"), True),
        (refused(502, "internal"), True),
        (refused(503, "receiver_away"), True),
        (refused(504, "relay_expired"), True),
        (EvidenceError("expected bytes of this digest, found others; leave it"), True),
        (refused(429, "relay_full"), False),
        (refused(503, "stopping"), False),
        (refused(503, "unavailable"), False),
        (refused(504, "other"), False),
        (ClockSkew("this machine's clock is off", word="expired", delta_s=-60.0), False),
        (refused(409, "expired"), True),
        (PeerUnreachable("the orchestrator is away"), False),
        (DeadlineExceeded("the orchestrator is slow"), False),
        (UnreachableError("no answer"), False),
        (BodyTooLarge("more than was asked for"), True),
    ],
    ids=repr,
)
def test_a_relay_that_fails_is_no_witness_against_a_miner(error: Exception, expected: bool) -> None:
    """A miner cannot be flooded, or cut off from the relay, into a refusal; nor feign the relay's own words."""
    assert is_refusal(error) is expected


@pytest.mark.parametrize(
    ("seen", "witnessed"),
    [
        (Asked(), False),
        (Asked(refused=3), True),
        (Asked(refused=3, untried=1), False),
        (Asked(untried=2), False),
        (Asked(shown=5), False),
        (Asked(shown=1, late=4), True),
        (Asked(late=4), False),
    ],
    ids=repr,
)
def test_every_question_has_to_be_witnessed_and_dripping_is_refusing(seen: Asked, witnessed: bool) -> None:
    assert seen.witnessed is witnessed
