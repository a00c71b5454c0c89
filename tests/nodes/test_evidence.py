"""Fetching evidence: three ways to each byte, and only what the relay saw refused counts as refused."""

import asyncio
from pathlib import Path

import pytest

from subnet.cheats.base import Cheat
from subnet.errors import EvidenceError, UnreachableError
from subnet.nodes.evidence import Asked, NetworkSource, State, is_refusal
from subnet.wire.merkle import CHUNK_BYTES, merkle_root
from template.errors import BodyTooLarge, ClockSkew, DeadlineExceeded, PeerRefused, PeerUnreachable
from template.fake.transport import FakePeers
from tests.ledger.log import hotkey
from tests.nodes.served import served_miner
from tests.nodes.test_validator import client_of


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
        (Asked(later=2), True),
        (Asked(shown=9, later=1, untried=1), False),
    ],
    ids=repr,
)
def test_every_question_has_to_be_witnessed_and_dripping_is_refusing(seen: Asked, witnessed: bool) -> None:
    assert seen.witnessed is witnessed


class OneChunk(Cheat):
    """Shows another second chunk than it committed, in what is longer than a chunk."""

    def serve_blob(self, honest, digest):
        """A range with a byte changed; hashes of chunks are shorter, and stay."""
        data = honest(digest)
        at = CHUNK_BYTES + 5
        return data if data is None or len(data) < at else data[:at] + b"?" + data[at + 1 :]


@pytest.mark.parametrize(("cheat", "limit_s"), [(Cheat(0.0), 20.0), (OneChunk(1.0), 3.0)])
async def test_a_start_state_is_fetched_by_ranges_whose_chunks_are_checked(
    tmp_path: Path, cheat: Cheat, limit_s: float
) -> None:
    """One wrong chunk is noticed as such, before the rest has come; such bytes are never handed on. No relay brings
    them in its place, and it is asked until no time is left."""
    served, data = served_miner(tmp_path), bytes(range(251)) * 4000
    root = merkle_root(data)
    served.miner.blobs.put_named(root, data)
    served.miner.cheat = cheat
    peers = FakePeers()
    peers.apps["me:1"] = served.app
    client = client_of("validator-0", peers)
    end_s = asyncio.get_running_loop().time() + limit_s
    source = NetworkSource(client=client, addresses={hotkey("me"): "me:1"}, end_s=end_s)
    found = await source.whole(State(holder=hotkey("me"), root=root, size_bytes=len(data)))
    assert found == (data if type(cheat) is Cheat else None)
    assert client.tally.chunks[hotkey("me")] == (16 if found else 1)
    assert client.tally.lied[hotkey("me")] == (0 if found else 1)
