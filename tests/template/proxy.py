"""A TCP proxy before a node that does what bad connections do, when a test asks for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Passes everything on, as long as no fault is asked for."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.cut_on: bytes | None = None  # cut everything once a client has sent this
        self.cut_after_s = 0.0  # cut each connection after so long
        self.silent = False  # take connections and bytes, and give none back
        self.refusing = False  # answer every new connection with HTTP 503
        self.swallowed: bytes | None = None  # do not deliver what the node sends with this in it
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self._upstream = port
        self._writers: set[asyncio.StreamWriter] = set()
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
        if self.cut_after_s:
            asyncio.get_running_loop().call_later(self.cut_after_s, self.cut, ends)
        await asyncio.gather(self._pump(reader, up_writer, True), self._pump(up_reader, writer, False))
        self.open -= 1
        self._writers -= ends

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outbound: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**16):
                if self.silent or (not outbound and self.swallowed and self.swallowed in data):
                    continue
                writer.write(data)
                await writer.drain()
                if outbound and self.cut_on and self.cut_on in unmasked(data):
                    self.cut_on = None
                    await asyncio.sleep(0.3)
                    self.cut()
        writer.close()

    def cut(self, writers: set[asyncio.StreamWriter] | None = None) -> None:
        """Cut these connections, by default all."""
        for writer in list(self._writers if writers is None else writers):
            writer.close()

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
