"""A state from sources that are cut off, stand still, lie or have it not: whole in the end, nothing fetched twice."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.edges.partial import Partial
from subnet.errors import EvidenceError, UnreachableError
from subnet.nodes.download import Pace, Source, Tally, Wanted, download_state
from subnet.wire.merkle import CHUNK_BYTES, merkle_leaves, merkle_root
from template.errors import PeerRefused, PeerUnreachable
from template.transport import Response

CHUNKS = 9
DATA = random.Random(5).randbytes((CHUNKS - 1) * CHUNK_BYTES + 777)
ROOT = merkle_root(DATA)
PACE = Pace(window_s=0.05, patience_s=30.0, piece_chunks=4, parallel=2)
STORE, PEER = Source(name="store", peer="store:1"), Source(name="peer", peer="peer:1")
PART_BYTES = 50_000  # no multiple of a chunk


@dataclass(kw_only=True)
class Server:
    """Serves the state, or what it makes of it."""

    data: bytes = DATA
    leaves: bytes = b"".join(merkle_leaves(DATA))
    cuts: list[int] = field(default_factory=list)  # after how many bytes each of the next ranges is cut off
    stalls: list[int] = field(default_factory=list)  # ... or stands still, with the connection open
    gone: bool = False
    ranges: list[tuple[int, int]] = field(default_factory=list)  # asked for
    sent: int = 0  # bytes of ranges

    async def answer(self, target: str) -> AsyncIterator[bytes]:
        if self.gone:
            raise PeerRefused("expected a blob, found none", status=404, word="not_found")
        path, _, query = target.partition("?")
        if path.endswith("/leaves"):
            yield self.leaves
            return
        start, length = (int(pair.split("=")[1]) for pair in query.split("&"))
        self.ranges.append((start, length))
        cut = self.cuts.pop(0) if self.cuts else None
        stall = self.stalls.pop(0) if self.stalls else None
        end = start + min(length, *(each for each in (cut, stall) if each is not None), length)
        for at in range(start, end, PART_BYTES):
            part = self.data[at : min(end, at + PART_BYTES)]
            self.sent += len(part)
            yield part
        if cut is not None and cut < length:
            raise PeerUnreachable("expected the rest, found the connection closed")
        if stall is not None and stall < length:
            await asyncio.Event().wait()


class Servers:
    """Implements transport.Transport over servers by address."""

    def __init__(self, **servers: Server) -> None:
        self.servers = {f"{name}:1": server for name, server in servers.items()}

    async def request(self, method: str, peer: str, target: str, **_: Any) -> Response:
        raise AssertionError("a download asks for nothing else")

    def download(self, peer: str, target: str, **_: Any) -> AsyncIterator[bytes]:
        return self.servers[peer].answer(target)

    async def close(self) -> None:
        return None


async def fetched(servers: Servers, *sources: Source, tally: Tally, partial: Partial | None = None) -> bytes:
    wanted = Wanted(root=ROOT, size_bytes=len(DATA), partial=partial)
    return await download_state(servers, sources or (STORE,), wanted, tally=tally, pace=PACE)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 4 * CHUNK_BYTES), max_size=6))
def test_wherever_the_connection_is_cut_only_chunks_that_did_not_come_are_asked_for_again(cuts: list[int]) -> None:
    """What is sent beyond the state is, for each cut, less than the chunk that it went through."""
    server, tally = Server(cuts=list(cuts)), Tally()
    assert asyncio.run(fetched(Servers(store=server), tally=tally)) == DATA
    assert tally.chunks == {"store": CHUNKS} and not tally.lied
    assert tally.failed["store"] <= len(cuts)
    assert server.sent < len(DATA) + (tally.failed["store"] or 1) * CHUNK_BYTES


async def test_a_source_that_stands_still_with_the_connection_open_is_left_for_another() -> None:
    still, other, tally = Server(stalls=[3 * CHUNK_BYTES + 5] * 99), Server(), Tally()
    assert await fetched(Servers(store=still, peer=other), STORE, PEER, tally=tally) == DATA
    assert tally.failed["store"] >= 1 and not tally.failed["peer"]
    assert tally.chunks["store"] + tally.chunks["peer"] == CHUNKS and tally.chunks["store"] >= 3


async def test_a_source_that_drips_a_byte_at_a_time_stands_still() -> None:
    """Each byte comes in time, but no chunk does."""

    class Drips(Server):
        async def answer(self, target: str) -> AsyncIterator[bytes]:
            async for part in super().answer(target):
                for byte in part if "start=" in target else ():
                    yield bytes([byte])
                    await asyncio.sleep(PACE.window_s / 4)
                if "start=" not in target:
                    yield part

    tally = Tally()
    assert await fetched(Servers(store=Drips(), peer=Server()), STORE, PEER, tally=tally) == DATA
    assert tally.failed["store"] >= 1 and tally.chunks == {"peer": CHUNKS}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("lie", [{"data": flipped(DATA, 5 * CHUNK_BYTES)}, {"leaves": flipped(Server().leaves, 40)}])
async def test_a_source_that_lies_is_named_and_asked_for_nothing_more(lie: dict[str, bytes]) -> None:
    liar, honest, tally = Server(**lie), Server(), Tally()
    assert await fetched(Servers(store=liar, peer=honest), STORE, PEER, tally=tally) == DATA
    assert tally.lied == {"store": 1} and not tally.failed
    assert tally.chunks["peer"] >= 1 and sum(tally.chunks.values()) == CHUNKS


async def test_where_every_source_lies_that_is_said() -> None:
    servers = Servers(store=Server(leaves=b""), peer=Server(leaves=Server().leaves[:-1]))
    with pytest.raises(EvidenceError, match="expected the hashes of its chunks of .* found something else"):
        await fetched(servers, STORE, PEER, tally=Tally())


async def test_a_source_without_the_state_is_not_asked_again_and_the_last_refusal_is_raised() -> None:
    gone, tally = Server(gone=True), Tally()
    assert await fetched(Servers(store=gone, peer=Server()), STORE, PEER, tally=tally) == DATA
    assert tally.failed == {"store": 1}
    with pytest.raises(PeerRefused, match="found none"):
        await fetched(Servers(store=gone), tally=Tally())


async def test_nothing_at_all_ends_after_the_patience() -> None:
    class Away(Server):
        async def answer(self, target: str) -> AsyncIterator[bytes]:
            raise PeerUnreachable("expected an answer, found nobody")
            yield b""

    wanted = Wanted(root=ROOT, size_bytes=len(DATA))
    with pytest.raises(UnreachableError, match="found nobody"):
        await download_state(Servers(store=Away()), (STORE,), wanted, tally=Tally(), pace=Pace(patience_s=0.1))


@pytest.mark.parametrize("harm", ["none", "one chunk", "cut short"])
async def test_what_came_before_a_restart_is_not_fetched_again(tmp_path: Path, harm: str) -> None:
    """A file that was harmed costs the chunk that was; one of another length, all that had come."""
    first, tally = Server(stalls=[2 * CHUNK_BYTES + 1] * 9), Tally()
    partial = Partial(tmp_path / "partial", ROOT)
    killed = asyncio.create_task(fetched(Servers(store=first), tally=tally, partial=partial))
    while tally.chunks["store"] < 4:
        await asyncio.sleep(0.001)
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    came = tally.chunks["store"]
    path = tmp_path / "partial" / ROOT
    kept = path.read_bytes()
    place = next(index for index, leaf in enumerate(merkle_leaves(kept)) if leaf == merkle_leaves(DATA)[index])
    spoilt = flipped(kept, place * CHUNK_BYTES)
    harmed, lost = {"none": (kept, 0), "one chunk": (spoilt, 1), "cut short": (kept[:-1], came)}[harm]
    path.write_bytes(harmed)
    counted, after = Tally(), Partial(tmp_path / "partial", ROOT)
    assert await fetched(Servers(store=Server()), tally=counted, partial=after) == DATA
    assert came >= 4 and counted.chunks["store"] == CHUNKS - came + lost
    assert path.read_bytes() == DATA
    after.drop()
    assert not path.exists()


async def test_a_download_that_is_given_up_leaves_no_task_behind() -> None:
    running = asyncio.create_task(fetched(Servers(store=Server(stalls=[0] * 99)), tally=Tally()))
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
