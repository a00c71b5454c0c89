"""Downloading a state: piece by piece from whoever has it, every chunk checked as it comes, none fetched twice.

First the hashes of all chunks, which the root proves; then ranges, few at a time. A source that is cut off, stands
still or sends something else costs only the chunks that did not come: they are asked for again, where that goes best.
Knows nothing of who the sources are, or of what the bytes mean.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from subnet.edges.partial import Partial
from subnet.errors import EvidenceError, UnreachableError
from subnet.wire.merkle import CHUNK_BYTES, HASH_BYTES, chunk_span, merkle_leaves, num_chunks, root_of_leaves
from template.errors import BadResponse, BodyTooLarge, DeadlineExceeded, PeerRefused, TransportError
from template.transport import Transport

log = logging.getLogger("strata.download")

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 3.0
LEAST_REFUSAL_OF_NOW = 500  # from here on, and for 429, a source may have it later


@dataclass(frozen=True, kw_only=True)
class Source:
    """Somebody who serves states: a name to count it by, and an address."""

    name: str
    peer: str


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A state by its root and length, how many chunks of it (None: all), and where to keep what has come of it."""

    root: str
    size_bytes: int
    chunks: int | None = None
    partial: Partial | None = None


@dataclass(kw_only=True)
class Tally:
    """By source: chunks that came from it, requests that it failed, and how often it sent something else."""

    chunks: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    lied: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a download goes: a source sends a chunk in every window or fails; a patience without any chunk ends it."""

    window_s: float = 10.0
    patience_s: float = 120.0
    piece_chunks: int = 64
    parallel: int = 3


async def download_state(
    transport: Transport,
    sources: Sequence[Source],
    wanted: Wanted,
    *,
    tally: Tally,
    pace: Pace | None = None,
) -> bytes:
    """The bytes of a state, verified. What `partial` has is not fetched again; it is the caller's to drop.

    Raises EvidenceError when every source sent something else, the last TransportError when all refuse for good, and
    UnreachableError when nothing came for as long as the pace allows.
    """
    return (await download_leading(transport, sources, wanted, tally=tally, pace=pace))[0]


async def download_leading(
    transport: Transport,
    sources: Sequence[Source],
    wanted: Wanted,
    *,
    tally: Tally,
    pace: Pace | None = None,
) -> tuple[bytes, bytes]:
    """The first chunks of a state, as many as are wanted, and the hashes of all its chunks. Raises as that does."""
    return await _Download(transport, sources, wanted, tally=tally, pace=pace or Pace()).run()


class _Download:
    """One state on its way."""

    def __init__(
        self, transport: Transport, sources: Sequence[Source], wanted: Wanted, *, tally: Tally, pace: Pace
    ) -> None:
        self._transport, self._tally, self._pace = transport, tally, pace
        self._root, self._length, self._partial = wanted.root, wanted.size_bytes, wanted.partial
        self._upto = num_chunks(self._length) if wanted.chunks is None else wanted.chunks
        self._sources = list(sources)  # those that may still have it
        self._in_a_row: Counter[str] = Counter()  # failures since the last chunk
        self._busy: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(pace.parallel)
        self._leaves: list[bytes] = []
        self._data = bytearray()
        self._missing: set[int] = set()
        self._progress_s = asyncio.get_running_loop().time()
        self._last: Exception = EvidenceError(
            f"expected somebody to ask for {wanted.root[:12]}, found nobody; name a source"
        )

    async def run(self) -> tuple[bytes, bytes]:
        """Fetch what is missing until nothing is; with the leaves."""
        await self._until(lambda: bool(self._leaves), lambda: self._asked(self._fetch_leaves))
        await self._start()
        await self._until(lambda: not self._missing, self._round)
        return bytes(self._data), b"".join(self._leaves)

    async def _until(self, done: Callable[[], bool], attempt: Callable[[], Awaitable[None]]) -> None:
        """Try, with growing pauses while nothing comes."""
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while not done():
            before_s = self._progress_s
            await attempt()
            if done():
                return
            if not self._sources:
                raise self._last
            if self._progress_s > before_s:
                pause_s = FIRST_PAUSE_S
            elif loop.time() + pause_s - self._progress_s > self._pace.patience_s:
                raise UnreachableError(
                    f"expected bytes of {self._root[:12]} within {self._pace.patience_s:.0f} s; {self._last}"
                ) from self._last
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _start(self) -> None:
        """Take over what an earlier download left; chunks of zeros need no download either."""
        kept = self._partial.read(self._length) if self._partial is not None else b""
        self._data = bytearray(kept or min(self._length, self._upto * CHUNK_BYTES))
        del self._data[self._upto * CHUNK_BYTES :]
        found = await asyncio.to_thread(merkle_leaves, self._data)
        self._missing = {index for index, leaf in enumerate(self._leaves[: self._upto]) if leaf != found[index]}
        if kept and len(self._missing) < len(self._leaves):
            log.info("state=%s missing=%d of=%d", self._root[:12], len(self._missing), len(self._leaves))

    async def _round(self) -> None:
        """Ask once for every missing chunk."""
        tasks = [
            asyncio.create_task(self._asked(lambda source, run=run: self._fetch(source, run)))  # type: ignore[misc]
            for run in self._runs()
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _runs(self) -> list[range]:
        """The missing chunks as runs of neighbours, none longer than a piece."""
        runs: list[range] = []
        for index in sorted(self._missing):
            if runs and runs[-1].stop == index and len(runs[-1]) < self._pace.piece_chunks:
                runs[-1] = range(runs[-1].start, index + 1)
            else:
                runs.append(range(index, index + 1))
        return runs

    async def _asked(self, request: Callable[[Source], Awaitable[None]]) -> None:
        """Ask the source that does best now, and count what it does."""
        async with self._slots:
            if not self._sources:
                return
            source = min(self._sources, key=lambda each: (self._in_a_row[each.name], self._busy[each.name]))
            self._busy[source.name] += 1
            try:
                await request(source)
            except (TransportError, TimeoutError) as error:
                self._failed(source, error)
            except EvidenceError as error:
                self._tally.lied[source.name] += 1
                self._leave(source, error)
            finally:
                self._busy[source.name] -= 1

    def _failed(self, source: Source, error: Exception) -> None:
        self._tally.failed[source.name] += 1
        self._in_a_row[source.name] += 1
        if isinstance(error, TimeoutError):
            error = DeadlineExceeded(
                f"expected a chunk of {self._root[:12]} from {source.name} every {self._pace.window_s:g} s, found it "
                "standing still; ask another source"
            )
        self._last = error
        for_now = not isinstance(error, PeerRefused) or error.status >= LEAST_REFUSAL_OF_NOW or error.status == 429
        if for_now and not isinstance(error, BodyTooLarge):
            log.warning("state=%s source=%s failed=%r", self._root[:12], source.name, str(error))
        else:
            self._leave(source, error)

    def _leave(self, source: Source, error: Exception) -> None:
        """Ask this source for nothing more of this state."""
        self._last = error
        if source in self._sources:
            self._sources.remove(source)
            log.warning("state=%s source=%s left=%r", self._root[:12], source.name, str(error))

    async def _fetch_leaves(self, source: Source) -> None:
        size_bytes, window_s, found = HASH_BYTES * num_chunks(self._length), self._pace.window_s, bytearray()
        target = f"/v1/states/{self._root}/leaves"
        async with self._answer(source, target, size_bytes) as parts, asyncio.timeout(window_s) as deadline:
            async for part in parts:
                found += part
                deadline.reschedule(asyncio.get_running_loop().time() + window_s)
        leaves = [bytes(found[at : at + HASH_BYTES]) for at in range(0, len(found), HASH_BYTES)]
        if len(found) != size_bytes or root_of_leaves(leaves, self._length) != self._root:
            raise self._lie(source, "the hashes of its chunks")
        self._leaves = leaves
        self._came(source)

    async def _fetch(self, source: Source, run: range) -> None:
        """Download a run of chunks, keeping each as soon as it is complete."""
        window_s, clock, held, index = self._pace.window_s, asyncio.get_running_loop().time, bytearray(), run.start
        start, end = run.start * CHUNK_BYTES, chunk_span(self._length, run.stop - 1)[1]
        target = f"/v1/blobs/{self._root}?start={start}&length={end - start}"
        async with self._answer(source, target, end - start) as parts, asyncio.timeout(window_s) as deadline:
            async for part in parts:
                held += part
                while index < run.stop and len(held) >= (size := self._size(index)):
                    self._take(source, index, bytes(held[:size]))
                    del held[:size]
                    index += 1
                    deadline.reschedule(clock() + window_s)
        if index < run.stop:
            raise BadResponse(f"expected {end - start} bytes from {source.name}, found the answer cut off; ask again")

    def _answer(
        self, source: Source, target: str, limit_bytes: int
    ) -> contextlib.aclosing[AsyncGenerator[bytes, None]]:
        """The parts of an answer, closed as soon as they are left."""
        window_s = self._pace.window_s
        parts = self._transport.download(source.peer, target, limit_bytes=limit_bytes, timeout_s=window_s)
        return contextlib.aclosing(cast("AsyncGenerator[bytes, None]", parts))

    def _size(self, index: int) -> int:
        start, end = chunk_span(self._length, index)
        return end - start

    def _take(self, source: Source, index: int, chunk: bytes) -> None:
        if merkle_leaves(chunk)[0] != self._leaves[index]:
            raise self._lie(source, f"chunk {index}")
        start = index * CHUNK_BYTES
        self._data[start : start + len(chunk)] = chunk
        if self._partial is not None:
            self._partial.write(start, chunk, size_bytes=self._length)
        self._missing.remove(index)
        self._tally.chunks[source.name] += 1
        self._came(source)

    def _came(self, source: Source) -> None:
        self._in_a_row[source.name] = 0
        self._progress_s = asyncio.get_running_loop().time()

    def _lie(self, source: Source, what: str) -> EvidenceError:
        return EvidenceError(
            f"expected {what} of {self._root[:12]} from {source.name}, found something else; ask another source"
        )
