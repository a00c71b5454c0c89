"""A TCP proxy before a node that does what bad connections do, when a test asks for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

LIMIT_S = 120.0  # for what takes milliseconds, on a machine that does other things too
Ends = set[asyncio.StreamWriter]

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Passes everything on, as long as no fault is asked for."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.cut_on: bytes | None = None  # cut everything once the node answers a client that has sent this
        self.cut_after = 0  # cut each connection after so many pieces of what a client sends; 0: never
        self.silent = False  # take connections and bytes, and give none back
        self.refusing = False  # answer every new connection with HTTP 503
        self.swallowed: bytes | None = None  # do not deliver what the node sends with this in it
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self._sent = False  # that has been sent
        self._upstream = port
        self._writers: Ends = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        if self.refusing:
            writer.write(REFUSAL)
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        ends = {writer, up_writer}
        self._writers |= ends
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.gather(self._pump(reader, up_writer, ends), self._pump(up_reader, writer))
        self.open -= 1
        self._writers -= ends

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: Ends | None = None) -> None:
        """Pass one direction on; `ends` are both of a connection whose client this reads from."""
        pieces = 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**16):
                if self.silent or (ends is None and self.swallowed and self.swallowed in data):
                    continue
                if ends is None and self._sent:
                    self._sent, self.cut_on = False, None
                    self.cut()
                    break
                self._sent |= ends is not None and self.cut_on is not None and self.cut_on in unmasked(data)
                writer.write(data)
                await writer.drain()
                pieces += 1
                if ends is not None and pieces == self.cut_after:
                    self.cut(ends)
        writer.close()

    def cut(self, writers: Ends | None = None) -> None:
        """Cut these connections, by default all."""
        for writer in list(self._writers if writers is None else writers):
            writer.close()

    async def until_open(self, most: int) -> None:
        """Return once no more connections than so many are open; those that were left take a while to close."""
        async with asyncio.timeout(LIMIT_S):
            while self.open > most:
                await asyncio.sleep(0.01)

    async def until_tried(self, times: int) -> None:
        """Return once there were so many connections in all."""
        async with asyncio.timeout(LIMIT_S):
            while self.connections < times:
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Cut everything and wait until it is gone."""
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def unmasked(data: bytes) -> bytes:
    """A client's websocket frame without its mask; anything else as it is."""
    if len(data) < 14 or not data[1] & 0x80:
        return data
    start = {126: 4, 127: 10}.get(data[1] & 0x7F, 2)
    mask, rest = data[start : start + 4], data[start + 4 :]
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(rest))


@contextlib.asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy before the node on that port of this machine."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield proxy
    server.close()
    await proxy.close()
