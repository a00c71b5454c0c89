"""One live session to a remote chain, and what is done when it dies. Knows no SDK: it is handed how to connect.

A read is tried again on a new session, which begins with the next endpoint: one that takes connections and answers
nothing would be chosen again otherwise. A write is sent again only for a passing fault, and only when a look at the
chain shows that it has not landed: its fate may be unknown. For the same reason it is looked for before a refusal of
what was sent again is believed: a rate limit, say, that the first one used up. Every wait has a deadline.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from template.errors import BaseNeuronError, ChainBusy, ChainUnreachable
from template.values import Submitted

log = logging.getLogger("template.session")

ATTEMPTS = 3
WRITE_DEADLINE_BLOCKS = 12
LONGEST_PAUSE_S = 10.0
SAY_AGAIN_S = 30.0  # while an outage lasts


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long each wait may last. A wait for a block outlives an outage of the node of up to `outage_s`."""

    connect_s: float = 15.0
    read_s: float = 15.0
    close_s: float = 2.0
    pause_s: float = 0.2
    outage_s: float = 600.0


@runtime_checkable
class Session(Protocol):
    """What has to be connected and closed. `close` also ends a connection that is only being made."""

    async def connect(self) -> None: ...

    async def close(self) -> None: ...

    async def block_time_s(self) -> float: ...

    async def finalised(self) -> int: ...

    async def newest(self) -> int: ...


S = TypeVar("S", bound=Session)
T = TypeVar("T")


class Sessions(Generic[S]):
    """The live session, or a new one. `faults` are the classes that `translate` turns into ours.

    `make(turn)` makes a session; the turn counts up whenever an endpoint did not answer, so that another may be first.
    """

    def __init__(
        self,
        endpoint: str,
        make: Callable[[int], S],
        *,
        faults: tuple[type[Exception], ...],
        translate: Callable[[BaseException, str], BaseNeuronError],
        patience: Patience | None = None,
    ) -> None:
        self._patience = patience or Patience()
        self.endpoint = endpoint
        self._make = make
        self._faults: tuple[type[Exception], ...] = (BaseNeuronError, *faults, OSError, TimeoutError)
        self._translate = translate
        self._connecting = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._live: S | None = None
        self._turn = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    async def read(self, doing: str, read: Callable[[S], Awaitable[T]]) -> T:
        """One read, tried again on a new session when this one is dead."""
        for attempt in range(1, ATTEMPTS + 1):
            session = None
            try:
                session = await self._session()
                async with asyncio.timeout(self._patience.read_s):
                    return await read(session)
            except self._faults as error:
                fault = self._fault(error, doing)
                if not isinstance(fault, ChainUnreachable) or attempt == ATTEMPTS:
                    raise fault from error
                log.debug("read failed doing=%r attempt=%d error=%s", doing, attempt, fault)
                self._pass_on(session)
                await asyncio.sleep(self._patience.pause_s * attempt)
        raise AssertionError("the last attempt returns or raises")

    async def write(
        self,
        doing: str,
        send: Callable[[S], Awaitable[Submitted]],
        landed: Callable[[int], Awaitable[bool]],
    ) -> Submitted:
        """One write at a time, until it is finalised. `landed(start)` tells whether it is on the chain since then."""
        async with self._writing:
            start = await self.read("read the finalised block", lambda session: session.finalised())
            block_time_s = await self.read("read the block time", lambda session: session.block_time_s())
            for attempt in range(1, ATTEMPTS + 1):
                session = None
                try:
                    session = await self._session()
                    async with asyncio.timeout(self._patience.read_s + WRITE_DEADLINE_BLOCKS * block_time_s):
                        return await send(session)
                except self._faults as error:
                    fault = self._fault(error, doing)
                    passes = isinstance(fault, ChainUnreachable | ChainBusy)
                    if attempt == 1 and not passes:  # later it may be refused because an earlier one has landed
                        raise fault from error
                    log.info("write failed doing=%r attempt=%d error=%s", doing, attempt, fault)
                    if isinstance(fault, ChainUnreachable):
                        self._pass_on(session)
                    self._drop(session)  # and with it its memory of nonces, which may be stale
                    await self._settle(self._patience.read_s + WRITE_DEADLINE_BLOCKS * block_time_s)
                    if await landed(start):
                        return Submitted(block=None, extrinsic_index=None, message="found on the chain")
                    if attempt == ATTEMPTS or not passes:
                        raise fault from error
        raise AssertionError("the last attempt returns or raises")

    async def _settle(self, limit_s: float) -> None:
        """Wait until all that the newest block may hold is final, so that looking for it shows it; not for ever."""
        newest = await self.read("read the newest block", lambda session: session.newest())
        try:
            async with asyncio.timeout(limit_s):
                await self.wait_for_block(newest + 1)
        except TimeoutError:
            log.info("no new block within %.0f s after a failed write", limit_s)

    async def wait_for_block(self, number: int) -> int:
        """Return once block `number` is finalised. Polled: a subscription would not survive a dropped connection."""
        outage = _Outage(self.endpoint, self._patience.outage_s)
        gone_pause_s = self._patience.pause_s
        while True:
            try:
                reached = await self.read("read the finalised block", lambda session: session.finalised())
                outage.over()
                if reached >= number:
                    return reached
                pause_s = min(2.0, await self.read("read the block time", lambda session: session.block_time_s()) / 3)
            except ChainUnreachable as error:
                outage.goes_on(error)
                pause_s = gone_pause_s = min(2 * gone_pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Close the session and wait for those that were dropped."""
        self._closed = True
        if self._live is not None:
            self._drop(self._live)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=self._patience.close_s)

    def _fault(self, error: BaseException, doing: str) -> BaseNeuronError:
        if isinstance(error, BaseNeuronError):
            return error
        if isinstance(error, TimeoutError) and not str(error):
            return ChainUnreachable(
                f"could not {doing}: {self.endpoint} gave no answer in time; check the connection, or name another "
                "node as a fallback"
            )
        return self._translate(error, doing)

    async def _session(self) -> S:
        async with self._connecting:
            if self._closed:
                raise ChainUnreachable("expected an open chain object, found a closed one; make a new one")
            if self._live is None:
                self._live = await self._connect()
            return self._live

    async def _connect(self) -> S:
        session = self._make(self._turn)
        connecting = asyncio.create_task(session.connect())
        try:
            done, _ = await asyncio.wait([connecting], timeout=self._patience.connect_s)
        except asyncio.CancelledError:
            self._leave(session, connecting)
            raise
        if not done:
            self._leave(session, connecting)
            self._turn += 1
            raise ChainUnreachable(
                f"expected {self.endpoint} to answer within {self._patience.connect_s:g} s, found silence; check the "
                "address and the connection, or name another node as a fallback"
            )
        try:
            connecting.result()
        except self._faults as error:
            raise self._fault(error, f"connect to {self.endpoint}") from error
        return session

    def _pass_on(self, session: S | None) -> None:
        """Drop a session that did not answer, and let the next one begin with another endpoint."""
        if session is not None and self._live is session:
            self._turn += 1
        self._drop(session)

    def _drop(self, session: S | None) -> None:
        if session is not None and self._live is session:
            self._live = None
            self._leave(session, None)

    def _leave(self, session: S, connecting: "asyncio.Task[None] | None") -> None:
        async def leave() -> None:
            if connecting is not None:
                connecting.cancel()
                await asyncio.wait([connecting])
            closing = asyncio.create_task(session.close())
            await asyncio.wait([closing], timeout=self._patience.close_s)
            closing.cancel()
            if closing.done() and not closing.cancelled() and (error := closing.exception()) is not None:
                log.debug("a dropped session ended with error=%r", error)

        task = asyncio.create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def cut(connection: Any) -> None:
    """Cut the socket that a closed connection may have left: the SDK waits longer than we do for a node's goodbye."""
    socket = getattr(getattr(connection, "_session", None), "_ws", None)
    if socket is not None:
        socket.transport.abort()


class _Outage:
    """How long an endpoint has been gone: said when it begins, from time to time, and when it is over."""

    def __init__(self, endpoint: str, limit_s: float) -> None:
        self._endpoint = endpoint
        self._limit_s = limit_s
        self._since_s: float | None = None
        self._said_s = 0.0

    def goes_on(self, error: ChainUnreachable) -> None:
        """Note one more failure. Raises it when the outage has lasted too long."""
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None or now_s - self._said_s > SAY_AGAIN_S:
            self._said_s = now_s
            gone_s = now_s - (self._since_s or now_s)
            log.warning("waiting for=chain endpoint=%s gone_s=%.0f reason=%r", self._endpoint, gone_s, str(error))
        self._since_s = self._since_s or now_s
        if now_s - self._since_s > self._limit_s:
            raise error

    def over(self) -> None:
        """Note an answer."""
        if self._since_s is not None:
            gone_s = asyncio.get_running_loop().time() - self._since_s
            log.info("chain=back endpoint=%s gone_s=%.0f", self._endpoint, gone_s)
            self._since_s = None
