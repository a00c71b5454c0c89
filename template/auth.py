"""Who says so: signatures over bytes, and signed requests with an empty signed body.

A signature covers method, target, sender, receiver and time; the target carries everything else (digest and length
of a body included), so a request is judged before its body is read. Implemented by `template.sdk` (sr25519, the
btauth/1 headers) and by `template.fake`. Authentication only: whether a caller may do a thing is decided elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from template.errors import ExpiredRequest, FutureRequest
from template.values import Hotkey

MAX_AGE_S = 10.0
"""A request older than this is refused."""

FORWARDED_AGE_S = 40.0
"""The same for one that somebody forwards whole: it is under way twice. Nonces are remembered for longer than that."""

ALLOWED_SKEW_S = 2.0
"""A request dated further than this into the future is refused."""

SIGNATURE_BYTES = 64

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""sha256 of the empty body: the target carries everything that the signature has to cover."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The authenticated sender of a request."""

    hotkey: Hotkey
    nonce_ns: int


@runtime_checkable
class Signer(Protocol):
    """A hotkey's private side."""

    @property
    def hotkey(self) -> Hotkey:
        """The address that the signatures verify against."""
        ...

    def sign(self, data: bytes) -> bytes:
        """A signature of 64 bytes."""
        ...

    def sign_request(self, method: str, target: str, receiver: Hotkey, *, offset_s: float = 0.0) -> dict[str, str]:
        """The headers that prove this request; a retry needs new ones. `target` is path and query exactly as sent.

        It is dated by our clock and `offset_s`, where the receiver's is known to differ.
        """
        ...


@runtime_checkable
class Verifier(Protocol):
    """The public side, bound to the hotkey that requests must be addressed to."""

    def verify(self, data: bytes, signature: bytes, hotkey: Hotkey) -> bool:
        """Whether `signature` is `hotkey`'s over `data`. False for anything unreadable, never an exception."""
        ...

    def verify_request(self, method: str, target: str, headers: Mapping[str, str]) -> Caller:
        """The sender, each request once. Raises one of the kinds of AuthError."""
        ...


@runtime_checkable
class NonceStore(Protocol):
    """Remembers accepted requests for at least `retention` seconds, across restarts where it must."""

    @property
    def retention(self) -> float:
        """Seconds for which a nonce is remembered."""
        ...

    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        """True, and remembered, when this pair is new; False when it was seen."""
        ...


class Dates:
    """The dates of one signer's requests: no two to one receiver are equal."""

    def __init__(self) -> None:
        self._last: dict[Hotkey, tuple[float, int]] = {}

    def next_ns(self, now_ns: int, receiver: Hotkey, offset_s: float) -> int:
        """The date of the next request. Another offset starts anew: the last date may be far ahead of it."""
        offset, last_ns = self._last.get(receiver, (offset_s, 0))
        dated_ns = now_ns + int(offset_s * 1e9)
        nonce_ns = max(dated_ns, last_ns + 1) if offset == offset_s else dated_ns
        self._last[receiver] = offset_s, nonce_ns
        return nonce_ns


def request_bytes(method: str, target: str, *, nonce_ns: int, sender: Hotkey, receiver: Hotkey) -> bytes:
    """What a request's signature is over (btauth/1, sr25519, an empty body), so that anyone can check one later."""
    parts = ("btauth/1", "sr25519", method.upper(), target, EMPTY_SHA256, str(nonce_ns), sender, receiver)
    return "\n".join(parts).encode()


def check_age(delta_s: float, max_age_s: float = MAX_AGE_S) -> None:
    """Refuse a request whose time is `delta_s` from ours (negative: in the past), by how much it is off."""
    if delta_s < -max_age_s:
        raise ExpiredRequest(
            f"expected a request made within the last {max_age_s:g} s, found one dated {-delta_s:.1f} s ago; "
            "sign each attempt anew and set the clock (timedatectl set-ntp true)",
            delta_s=delta_s,
        )
    if delta_s > ALLOWED_SKEW_S:
        raise FutureRequest(
            f"expected a request dated at most {ALLOWED_SKEW_S:g} s ahead, found {delta_s:.1f} s; "
            "set the clock (timedatectl set-ntp true)",
            delta_s=delta_s,
        )
