"""The HTTP client: signs, sends and reads within a deadline, and turns every fault of aiohttp into one of ours.

One attempt per call: a retry signs anew, so it is the caller's. Redirects are not followed: a peer has one address.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from template.auth import Signer
from template.clocks import Clocks
from template.config import resolve_peer
from template.errors import (
    BadResponse,
    BodyMismatch,
    BodyTooLarge,
    ClockFault,
    ClockSkew,
    DeadlineExceeded,
    PeerRefused,
    PeerUnreachable,
    TransportError,
)
from template.transport import Body, Response
from template.values import Hotkey

CONNECT_DEADLINE_S = 5.0
ANSWER_LIMIT_BYTES = 64 * 2**20
REFUSAL_LIMIT_BYTES = 64 * 2**10
CHUNK_BYTES = 256 * 2**10
ASK_FIRST_BYTES = 32 * 2**10
"""A longer body waits for the receiver's consent (100 Continue), so that a refusal costs no upload."""

ERRORS: dict[type[Exception], type[TransportError]] = {
    aiohttp.ClientConnectionError: PeerUnreachable,
    aiohttp.ClientConnectionResetError: PeerUnreachable,
    aiohttp.ClientOSError: PeerUnreachable,
    aiohttp.ClientConnectorError: PeerUnreachable,
    aiohttp.ClientSSLError: PeerUnreachable,
    aiohttp.ServerConnectionError: PeerUnreachable,
    aiohttp.ServerDisconnectedError: PeerUnreachable,
    aiohttp.ServerTimeoutError: DeadlineExceeded,
    aiohttp.ClientPayloadError: BodyMismatch,
    aiohttp.ClientResponseError: BadResponse,
    aiohttp.InvalidURL: PeerUnreachable,
    aiohttp.NonHttpUrlClientError: PeerUnreachable,
    aiohttp.RedirectClientError: BadResponse,
    aiohttp.client_exceptions.UploadAbortedError: PeerUnreachable,
    TimeoutError: DeadlineExceeded,
    OSError: PeerUnreachable,
}
"""aiohttp's errors by their nearest base. There is no entry for ClientError: a new kind must be placed here."""


def our_error(error: Exception, peer: str, doing: str) -> TransportError:
    """Our error for one of aiohttp's. Raises KeyError for a kind that nobody has placed."""
    kind = next((ERRORS[base] for base in type(error).__mro__ if base in ERRORS), None)
    if kind is None:
        raise KeyError(type(error).__name__) from error
    reason = str(getattr(error, "os_error", error)) or type(error).__name__
    remedy = {
        PeerUnreachable: "check that it runs and that its address and port can be reached",
        DeadlineExceeded: "try again, or allow more time",
    }.get(kind, "check what runs at that address")
    return kind(f"expected {peer} to {doing}, found: {reason}; {remedy}")


def refusal(status: int, body: bytes, peer: str, *, retry_after: str | None = None) -> PeerRefused:
    """Our error for an answer of status 400 and above. `retry_after` is the header; only its form in seconds counts."""
    try:
        facts: Any = json.loads(body)
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        facts = {"error": f"http_{status}", "message": body[:200].decode(errors="replace") or "no reason given"}
    word, message = str(facts.get("error", f"http_{status}")), str(facts.get("message", "no reason given"))
    number = facts.get("delta_s")
    delta_s = float(number) if word in ("expired", "future_dated") and isinstance(number, int | float) else None
    if delta_s is not None and status == ClockFault.status:  # else it is a third one's word, handed on
        side = "behind" if delta_s < 0 else "ahead of"
        return ClockSkew(
            f"{peer} refused the request as {word}: expected clocks within seconds of each other, found ours "
            f"{abs(delta_s):.1f} s {side} the peer's; set this machine's clock (timedatectl set-ntp true)",
            word=word,
            delta_s=delta_s,
        )
    wait = retry_after if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
    return PeerRefused(
        f"{peer} refused the request ({word}): {message}",
        status=status,
        word=word,
        retry_after_s=None if wait is None else float(wait[:9]),
        delta_s=delta_s,
    )


class HttpTransport:
    """Implements transport.Transport over HTTP/1.1 with pooled connections. Usable within one event loop."""

    def __init__(self, signer: Signer | None, *, address_map: Mapping[str, str] | None = None) -> None:
        self._signer = signer
        self._address_map = address_map or {}
        self._clocks = Clocks()
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        peer: str,
        target: str,
        *,
        body: Body | None = None,
        receiver: Hotkey | None = None,
        timeout_s: float = 10.0,
    ) -> Response:
        """Send one request and read its whole answer within the deadline."""
        signed_s = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s), self._send(method, peer, target, body, receiver) as answer:
                if answer.status >= 300:
                    raise await self._refused(answer, peer, receiver, signed_s)
                data = b"".join([chunk async for chunk in _limited(answer, ANSWER_LIMIT_BYTES, peer)])
                return Response(status=answer.status, body=data, headers=_lower(answer.headers))
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"expected an answer from {peer} within {timeout_s:g} s, found none; try again, or allow more time"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise our_error(error, peer, f"answer {method} {target[:80]}") from error
        except ValueError as error:  # what yarl and idna say of an address that is none
            raise PeerUnreachable(f"expected an address that can be reached, found {peer[:80]!r}; check it") from error

    async def download(
        self,
        peer: str,
        target: str,
        *,
        receiver: Hotkey | None = None,
        limit_bytes: int,
        timeout_s: float = 60.0,
    ) -> AsyncIterator[bytes]:
        """GET in chunks; the deadline bounds the wait for the answer and for each chunk, not the whole."""
        signed_s = time.monotonic()
        try:
            async with (
                asyncio.timeout(timeout_s) as deadline,
                self._send("GET", peer, target, None, receiver) as answer,
            ):
                if answer.status >= 300:
                    raise await self._refused(answer, peer, receiver, signed_s)
                async for chunk in _limited(answer, limit_bytes, peer):
                    deadline.reschedule(None)  # how long the consumer takes is not the peer's fault
                    yield chunk
                    deadline.reschedule(asyncio.get_running_loop().time() + timeout_s)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"expected the next bytes from {peer} within {timeout_s:g} s, found none; try again later"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise our_error(error, peer, f"send {target[:80]}") from error
        except ValueError as error:
            raise PeerUnreachable(f"expected an address that can be reached, found {peer[:80]!r}; check it") from error

    async def close(self) -> None:
        """Close pooled connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _send(self, method: str, peer: str, target: str, body: Body | None, receiver: Hotkey | None) -> Any:
        headers = {"Accept-Encoding": "identity"}
        if receiver is not None:
            assert self._signer is not None, "a signed request needs a signer"
            headers |= self._signer.sign_request(method, target, receiver, offset_s=self._clocks.offset_s(receiver))
        size_bytes = 0 if body is None else memoryview(body).nbytes
        if body is not None:
            headers |= {"Content-Length": str(size_bytes), "Content-Type": "application/octet-stream"}
        return self._open().request(
            method,
            URL(resolve_peer(peer, self._address_map) + target, encoded=True),
            headers=headers,
            data=_slices(body) if body is not None and size_bytes > CHUNK_BYTES else body,
            expect100=size_bytes > ASK_FIRST_BYTES,
            allow_redirects=False,
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_DEADLINE_S),
                auto_decompress=False,
            )
        return self._session

    async def _refused(
        self, answer: aiohttp.ClientResponse, peer: str, receiver: Hotkey | None, signed_s: float
    ) -> TransportError:
        if answer.status < 400:
            return BadResponse(f"expected an answer from {peer}, found a redirect ({answer.status}); check its address")
        data = b"".join([chunk async for chunk in _limited(answer, REFUSAL_LIMIT_BYTES, peer)])
        refused = refusal(answer.status, data, peer, retry_after=answer.headers.get("Retry-After"))
        return self._clocks.noted(refused, receiver, elapsed_s=time.monotonic() - signed_s)


async def _slices(body: Body) -> AsyncIterator[bytes]:
    """The body in pieces, so that a large one does not hold up the event loop."""
    view = memoryview(body).cast("B")
    for start in range(0, view.nbytes, CHUNK_BYTES):
        yield bytes(view[start : start + CHUNK_BYTES])


async def _limited(answer: aiohttp.ClientResponse, limit_bytes: int, peer: str) -> AsyncIterator[bytes]:
    announced = answer.content_length
    received = 0
    if announced is not None and announced > limit_bytes:
        answer.close()
        raise BodyTooLarge(
            f"expected at most {limit_bytes} bytes from {peer}, found {announced} announced; ask for less"
        )
    async for chunk in answer.content.iter_any():
        received += len(chunk)
        if received > limit_bytes:
            answer.close()
            raise BodyTooLarge(f"expected at most {limit_bytes} bytes from {peer}, found more; ask for less")
        yield chunk


def _lower(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
