"""The HTTP server and client where they differ from a direct call: ports, stopping, broken connections."""

import asyncio
import contextlib
import inspect
import logging
import os
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from template.errors import BodyMismatch, DeadlineExceeded, PeerRefused, PeerUnreachable, PortError, TransportError
from template.transport import Incoming, Reply, Route
from template.web import application, bind, port_holder, serve
from template.web_client import ERRORS, HttpTransport, our_error

LIMIT_S = 60.0  # for what takes milliseconds, on a machine that does other things too


def one_route(handler: object, method: str = "GET") -> object:
    return application([Route(method=method, path="/", handler=handler, signed=False)], None)


async def plain(request: Incoming) -> Reply:
    return Reply(body=b"here")


async def test_a_port_of_zero_takes_a_free_one_and_says_which() -> None:
    async with serve(one_route(plain)) as server:
        assert server.port > 0 and server.url == f"http://127.0.0.1:{server.port}"
        transport = HttpTransport(None)
        assert (await transport.request("GET", server.url, "/")).body == b"here"
        await transport.close()


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.1", "127.0.0.1")])
async def test_the_address_that_is_shown_can_be_opened(host: str, shown: str) -> None:
    async with serve(one_route(plain), host=host) as server:
        assert server.url == f"http://{shown}:{server.port}" and server.host == host
        transport = HttpTransport(None)
        assert (await transport.request("GET", server.url, "/")).body == b"here"
        await transport.close()


async def test_an_announced_address_is_mapped_to_the_bound_one() -> None:
    async with serve(one_route(plain)) as server:
        transport = HttpTransport(None, address_map={"198.18.0.1": "127.0.0.1"})
        assert (await transport.request("GET", f"198.18.0.1:{server.port}", "/")).body == b"here"
        await transport.close()


async def test_a_busy_port_is_named_with_its_holder() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=rf"expected port {port} on 127.0.0.1 to be free.*process \d+ \(.*--port"):
            serve(one_route(plain), port=port)


@pytest.mark.parametrize(
    ("host", "said"), [("192.0.2.1", "address of this machine"), ("no.such.host.invalid", "found")]
)
def test_an_address_that_is_not_ours_cannot_be_bound(host: str, said: str) -> None:
    with pytest.raises(PortError, match=said):
        bind(host, 0)


def test_nobody_holds_a_free_port() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert f"process {os.getpid()} (" in str(port_holder(port))
    assert port_holder(port) is None


async def test_stopping_answers_long_polls_and_ends_streams() -> None:
    polled, streamed = asyncio.Event(), asyncio.Event()

    async def forever(request: Incoming) -> Reply:
        polled.set()
        await asyncio.Event().wait()
        return Reply()

    async def endless(request: Incoming) -> Reply:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)

        return Reply(body=pieces())

    routes = [
        Route(method="GET", path="/poll", handler=forever, signed=False),
        Route(method="GET", path="/stream", handler=endless, signed=False),
    ]
    server = serve(application(routes, None))
    await server.started()
    transport = HttpTransport(None)

    async def read() -> int:
        length = 0
        async for piece in transport.download(server.url, "/stream", limit_bytes=10**6):
            length += len(piece)
            streamed.set()
        return length

    poll = asyncio.create_task(transport.request("GET", server.url, "/poll"))
    stream = asyncio.create_task(read())
    async with asyncio.timeout(LIMIT_S):
        await polled.wait()
        await streamed.wait()
        await server.stop()
    with pytest.raises(PeerRefused, match="stopping"):
        await poll
    assert await stream > 0
    with pytest.raises(PeerUnreachable):
        await transport.request("GET", server.url, "/poll")
    await server.stop()
    await transport.close()


async def test_a_fault_of_the_handler_is_logged_and_answered_with_500(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Incoming) -> Reply:
        raise ZeroDivisionError("our own fault")

    async with serve(one_route(broken)) as server:
        transport = HttpTransport(None)
        with caplog.at_level(logging.ERROR), pytest.raises(PeerRefused, match="internal") as caught:
            await transport.request("GET", server.url, "/")
        assert caught.value.status == 500 and "our own fault" not in str(caught.value)
        assert "our own fault" in caplog.text
        await transport.close()


async def test_a_sender_that_leaves_in_the_middle_is_noticed() -> None:
    seen: list[str] = []
    begun = asyncio.Event()

    async def take(request: Incoming) -> Reply:
        begun.set()
        try:
            await request.body(length_bytes=1000)
        except BodyMismatch as error:
            seen.append(str(error))
        return Reply()

    async with serve(one_route(take, "POST")) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        await writer.drain()
        async with asyncio.timeout(LIMIT_S):
            await begun.wait()
            writer.close()
            while not seen:
                await asyncio.sleep(0.01)
    assert "the connection ended after 3 bytes" in seen[0]


def aiohttp_errors() -> list[type[Exception]]:
    kinds = [kind for _, kind in inspect.getmembers(aiohttp.client_exceptions, inspect.isclass)]
    return [kind for kind in kinds if issubclass(kind, aiohttp.ClientError) and kind is not aiohttp.ClientError]


def test_every_error_of_aiohttps_client_has_a_place() -> None:
    assert len(aiohttp_errors()) > 20
    unplaced = [kind.__name__ for kind in aiohttp_errors() if not any(base in ERRORS for base in kind.__mro__)]
    assert unplaced == [], "place the class in ERRORS of template/web_client.py"


def test_an_error_that_nobody_placed_is_not_passed_off_as_another() -> None:
    class NewKind(aiohttp.ClientError):
        """One of a later version."""

    with pytest.raises(KeyError, match="NewKind"):
        our_error(NewKind(), "peer", "answer")


@contextlib.asynccontextmanager
async def raw_server(answer: bytes, *, hang: bool = False) -> AsyncIterator[str]:
    """A server that says these bytes to everybody."""

    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())
        await reader.read(1000)
        writer.write(answer)
        await writer.drain()
        if hang:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*talks, return_exceptions=True)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\n\xff\x00{",
        b"HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
async def test_a_broken_answer_is_one_of_our_errors(answer: bytes) -> None:
    transport = HttpTransport(None)
    async with raw_server(answer) as peer:
        with pytest.raises(TransportError) as caught:
            await transport.request("GET", peer, "/")
        assert peer in str(caught.value) and "\n" not in str(caught.value)
    await transport.close()


async def test_an_answer_that_stops_in_the_middle_costs_the_deadline() -> None:
    transport = HttpTransport(None)
    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", hang=True) as peer:
        with pytest.raises(DeadlineExceeded):
            await transport.request("GET", peer, "/", timeout_s=0.2)
        await transport.close()


def test_two_sockets_cannot_share_a_port() -> None:
    with bind("127.0.0.1", 0) as first, pytest.raises(PortError):
        bind("127.0.0.1", first.getsockname()[1])
    assert isinstance(first, socket.socket)
