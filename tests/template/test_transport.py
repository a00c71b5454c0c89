"""Requests to peers: the same tests over HTTP and in memory, and every mutating route's refusals."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from blake3 import blake3

from template.auth import Signer
from template.clocks import Clocks
from template.errors import (
    BodyTooLarge,
    ClockSkew,
    DeadlineExceeded,
    NotRegistered,
    PeerRefused,
    PeerUnreachable,
    RefusedRequest,
)
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.transport import Incoming, Reply, Route, Transport, json_reply
from template.web import WebServer, application, serve
from template.web_client import HttpTransport, refusal

SERVER = FakeSigner("server").hotkey


@dataclass
class Room:
    """A server with a route of each kind, and ways to reach it."""

    peer: str
    connect: Callable[..., Transport]
    changes: list[str] = field(default_factory=list)
    server: WebServer | None = None


class Foreign(Exception):
    """An error of a layer that the base does not know."""


class Doors:
    """The handlers of a server with a route of each kind; what changes something is noted in the room."""

    def __init__(self, room: Room) -> None:
        self.room = room

    async def echo(self, request: Incoming) -> Reply:
        facts = {"path": dict(request.path), "query": dict(request.query), "who": str(request.caller)}
        return json_reply({"target": request.target, **facts})

    async def deliver(self, request: Incoming) -> Reply:
        body = await request.body(length_bytes=int(request.query["length"]), digest=request.query["digest"])
        assert request.caller is not None
        self.room.changes.append(f"deliver {request.caller.hotkey}")
        return Reply(body=blake3(body).hexdigest().encode(), headers={"X-Note": "ok"})

    async def note(self, request: Incoming) -> Reply:
        self.room.changes.append((await request.body_up_to(100)).decode())
        return Reply(status=201)

    async def refuse(self, request: Incoming) -> Reply:
        raise RefusedRequest("not planned for this lane; ask for a new plan", word="not_planned", status=409)

    async def busy(self, request: Incoming) -> Reply:
        raise RefusedRequest("too many; ask later", word="too_often", status=429, retry_after_s=2.1)

    async def foreign(self, request: Incoming) -> Reply:
        raise Foreign("outside the band")

    async def gone(self, request: Incoming) -> Reply:
        raise NotRegistered("not registered; register")

    async def chunks(self, request: Incoming) -> Reply:
        return Reply(body=pieces(int(request.query["n"])))

    async def forever(self, request: Incoming) -> Reply:
        await asyncio.Event().wait()
        return Reply()


async def pieces(number: int) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield b"x" * 1000


def routes(room: Room) -> list[Route]:
    doors = Doors(room)
    return [
        Route(method="GET", path="/v1/echo/{name}", handler=doors.echo, signed=False),
        Route(method="POST", path="/v1/deliver", handler=doors.deliver),
        Route(method="POST", path="/v1/note", handler=doors.note),
        Route(method="POST", path="/v1/refuse", handler=doors.refuse),
        Route(method="GET", path="/v1/foreign", handler=doors.foreign, signed=False),
        Route(method="GET", path="/v1/busy", handler=doors.busy, signed=False),
        Route(method="GET", path="/v1/gone", handler=doors.gone, signed=False),
        Route(method="GET", path="/v1/chunks", handler=doors.chunks, signed=False),
        Route(method="GET", path="/v1/forever", handler=doors.forever, signed=False),
    ]


@pytest.fixture(params=["http", "fake"])
async def room(request: pytest.FixtureRequest) -> AsyncIterator[Room]:
    opened: list[Transport] = []
    peers = FakePeers()

    def connect(signer: Signer | None = None) -> Transport:
        opened.append(HttpTransport(signer) if request.param == "http" else FakeTransport(peers, signer))
        return opened[-1]

    room = Room("198.18.0.1:8091", connect)
    app = application(routes(room), FakeVerifier(SERVER), refusals={Foreign: (422, "out_of_band")})
    if request.param == "http":
        async with serve(app) as room.server:
            room.peer = f"127.0.0.1:{room.server.port}"
            yield room
            for transport in opened:
                await transport.close()
    else:
        peers.apps[room.peer] = app
        room.peers = peers
        yield room


def deliver_target(body: bytes) -> str:
    return f"/v1/deliver?round=3&length={len(body)}&digest={blake3(body).hexdigest()}"


async def test_the_target_arrives_exactly_as_it_was_given(room: Room) -> None:
    answer = await room.connect().request("GET", room.peer, "/v1/echo/a%20b?x=1%2F2&y=%2B")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    expected = (
        b'{"path":{"name":"a b"},"query":{"x":"1/2","y":"+"},"target":"/v1/echo/a%20b?x=1%2F2&y=%2B","who":"None"}'
    )
    assert answer.body == expected


@pytest.mark.parametrize("size_bytes", [0, 1, 1000, 40_000, 3_000_000])
async def test_a_signed_body_arrives_whole(room: Room, size_bytes: int) -> None:
    body, alice = bytes(size_bytes), FakeSigner("alice")
    answer = await room.connect(alice).request(
        "POST", room.peer, deliver_target(body), body=memoryview(body), receiver=SERVER
    )
    assert answer.body.decode() == blake3(body).hexdigest() and answer.headers["x-note"] == "ok"
    assert room.changes == [f"deliver {alice.hotkey}"]


@pytest.mark.parametrize("route", ["/v1/deliver?length=3&digest=x", "/v1/note", "/v1/refuse"])
@pytest.mark.parametrize("size_bytes", [3, 100_000])
async def test_every_mutating_route_refuses_an_unsigned_request(room: Room, route: str, size_bytes: int) -> None:
    with pytest.raises(PeerRefused, match="malformed_auth") as caught:
        await room.connect().request("POST", room.peer, route, body=bytes(size_bytes))
    assert caught.value.status == 401 and room.changes == []


async def test_a_request_for_another_receiver_is_refused(room: Room) -> None:
    alice = FakeSigner("alice")
    with pytest.raises(PeerRefused, match="wrong_receiver"):
        await room.connect(alice).request("POST", room.peer, "/v1/note", body=b"x", receiver=alice.hotkey)
    assert room.changes == []


@pytest.mark.parametrize(("seconds", "word", "side"), [(-60, "expired", "behind"), (60, "future_dated", "ahead of")])
async def test_a_wrong_clock_is_named_with_the_difference(room: Room, seconds: float, word: str, side: str) -> None:
    late = FakeSigner("alice", now_ns=lambda: time.time_ns() + int(seconds * 1e9))
    with pytest.raises(ClockSkew, match=rf"{word}.*(59|60|61)\.\d s {side} the peer's") as caught:
        await room.connect(late).request("POST", room.peer, "/v1/note", body=b"x", receiver=SERVER)
    assert caught.value.delta_s == pytest.approx(seconds, abs=2)
    assert room.changes == []


@pytest.mark.parametrize("seconds", [-60.0, -12.0, 30.0, 60.0])
async def test_after_a_refusal_of_the_clock_requests_are_dated_by_the_receiver_s(
    room: Room, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    late = room.connect(FakeSigner("alice", now_ns=lambda: time.time_ns() + int(seconds * 1e9)))
    with pytest.raises(ClockSkew):
        await late.request("POST", room.peer, "/v1/note", body=b"x", receiver=SERVER)
    for _ in range(3):
        await late.request("POST", room.peer, "/v1/note", body=b"x", receiver=SERVER)
    assert room.changes == ["x"] * 3
    (said,) = (record.getMessage() for record in caplog.records if record.name == "template.clocks")
    side = "behind" if seconds < 0 else "ahead"
    assert f" s {side} receiver={SERVER}; " in said and said.endswith("set this machine's (timedatectl set-ntp true)")


async def test_a_receiver_s_word_on_the_clock_counts_for_requests_to_it_alone() -> None:
    clocks, skew = Clocks(), ClockSkew("no", word="expired", delta_s=-100.0)
    clocks.noted(skew, "liar", elapsed_s=0.1)
    assert (clocks.offset_s("liar"), clocks.offset_s("other")) == (100.0, 0.0)
    clocks.noted(skew, "slow", elapsed_s=99.0)
    assert clocks.offset_s("slow") == 0.0, "the request was held up, the clock is right"
    clocks.noted(ClockSkew("no", word="expired", delta_s=-1e9), "far", elapsed_s=0.1)
    assert clocks.offset_s("far") == 0.0, "that much is the user's to set"


async def test_a_refusal_says_when_to_come_again(room: Room) -> None:
    """In whole seconds, rounded up, as HTTP has it."""
    transport = room.connect()
    with pytest.raises(PeerRefused, match="too_often") as caught:
        await transport.request("GET", room.peer, "/v1/busy")
    with pytest.raises(PeerRefused) as downloading:
        [part async for part in transport.download(room.peer, "/v1/busy", limit_bytes=1000)]
    for refused in (caught.value, downloading.value):
        assert (refused.status, refused.retry_after_s) == (429, 3.0)
    with pytest.raises(PeerRefused) as plain:
        await transport.request("GET", room.peer, "/v1/gone")
    assert plain.value.retry_after_s is None


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("0", 0.0), ("7", 7.0), ("9" * 400, 999999999.0), ("-1", None), ("soon", None), ("", None), ("1.5", None),
     ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("\u0667", None), (None, None)],
)  # fmt: skip
def test_only_a_wait_in_seconds_is_understood(header: str | None, wait_s: float | None) -> None:
    assert refusal(429, b"{}", "peer", retry_after=header).retry_after_s == wait_s


async def test_another_body_than_the_signed_one_is_refused(room: Room) -> None:
    transport = room.connect(FakeSigner("alice"))
    for sent, said in ((b"abd", "body_mismatch"), (b"ab", "body_mismatch"), (b"abcd", "too_large")):
        with pytest.raises(PeerRefused, match=said):
            await transport.request("POST", room.peer, deliver_target(b"abc"), body=sent, receiver=SERVER)
    assert room.changes == []


async def test_a_body_over_the_limit_is_refused_unread(room: Room) -> None:
    with pytest.raises(PeerRefused, match="too_large") as caught:
        await room.connect(FakeSigner("alice")).request(
            "POST", room.peer, "/v1/note", body=bytes(5_000_000), receiver=SERVER
        )
    assert caught.value.status == 413 and room.changes == []


async def test_the_connection_serves_on_after_refusals(room: Room) -> None:
    transport = room.connect(FakeSigner("alice"))
    for size_bytes in (1000, 100_000, 5_000_000) * 3:
        with pytest.raises(PeerRefused):
            await transport.request("POST", room.peer, "/v1/note", body=bytes(size_bytes), receiver=SERVER)
        await transport.request("POST", room.peer, "/v1/note", body=b"good", receiver=SERVER)
    assert room.changes == ["good"] * 9


async def test_refusals_carry_status_word_and_sentence(room: Room) -> None:
    transport = room.connect(FakeSigner("alice"))
    cases = {
        ("POST", "/v1/refuse"): (409, "not_planned", "ask for a new plan"),
        ("GET", "/v1/foreign"): (422, "out_of_band", "outside the band"),
        ("GET", "/v1/gone"): (503, "unavailable", "register"),
        ("GET", "/v1/nothing"): (404, "not_found", "Not Found"),
        ("GET", "/v1/note"): (405, "method_not_allowed", "Method Not Allowed"),
    }
    for (method, target), (status, word, sentence) in cases.items():
        receiver = SERVER if method == "POST" else None
        with pytest.raises(PeerRefused, match=sentence) as caught:
            await transport.request(method, room.peer, target, receiver=receiver)
        assert (caught.value.status, caught.value.word) == (status, word)


async def test_a_download_comes_in_pieces_up_to_its_limit(room: Room) -> None:
    transport = room.connect()
    pieces = [piece async for piece in transport.download(room.peer, "/v1/chunks?n=50", limit_bytes=50_000)]
    assert sum(map(len, pieces)) == 50_000
    with pytest.raises(BodyTooLarge, match="at most 49999 bytes"):
        async for _ in transport.download(room.peer, "/v1/chunks?n=50", limit_bytes=49_999):
            pass
    with pytest.raises(PeerRefused, match="unavailable"):
        async for _ in transport.download(room.peer, "/v1/gone", limit_bytes=10):
            pass


async def test_a_peer_that_does_not_answer_costs_the_deadline(room: Room) -> None:
    transport = room.connect()
    with pytest.raises(DeadlineExceeded, match=r"within 0.1 s"):
        await transport.request("GET", room.peer, "/v1/forever", timeout_s=0.1)
    with pytest.raises(DeadlineExceeded):
        async for _ in transport.download(room.peer, "/v1/forever", limit_bytes=10, timeout_s=0.1):
            pass
    assert (await transport.request("GET", room.peer, "/v1/echo/x")).status == 200


async def test_a_peer_that_is_not_there_is_unreachable(room: Room) -> None:
    with pytest.raises(PeerUnreachable, match="check that it runs"):
        await room.connect().request("GET", "127.0.0.1:1", "/v1/echo/x")


async def test_a_replay_of_the_same_headers_is_refused(room: Room) -> None:
    class Repeater(FakeSigner):
        """Sends the headers of its first request again and again."""

        def sign_request(self, method: str, target: str, receiver: str, *, offset_s: float = 0.0) -> dict[str, str]:
            if not hasattr(self, "first"):
                self.first = super().sign_request(method, target, receiver)
            return self.first

    transport = room.connect(Repeater("alice"))
    await transport.request("POST", room.peer, "/v1/note", body=b"once", receiver=SERVER)
    with pytest.raises(PeerRefused, match="replayed"):
        await transport.request("POST", room.peer, "/v1/note", body=b"twice", receiver=SERVER)
    assert room.changes == ["once"]
