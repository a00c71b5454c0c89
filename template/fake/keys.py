"""Keys in memory: deterministic addresses and keyed-hash signatures, under the same tests as the real ones.

Whoever knows an address could make its signatures, so they prove nothing outside a test.
"""

import hashlib
import time
from collections.abc import Callable, Mapping

import blake3

from template.auth import MAX_AGE_S, Caller, Dates, NonceStore, check_age, request_bytes
from template.errors import BadSignature, MalformedAuth, ReplayedRequest, WrongReceiver
from template.nonces import MemoryNonceStore
from template.values import Hotkey

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def fake_address(name: str) -> str:
    """A well-formed ss58 address (format 42) that is a pure function of the name. It has no private key."""
    key = b"\x2a" + hashlib.blake2b(name.encode(), digest_size=32).digest()
    number = int.from_bytes(key + hashlib.blake2b(b"SS58PRE" + key, digest_size=64).digest()[:2], "big")
    digits = ""
    while number:
        number, place = divmod(number, 58)
        digits = BASE58[place] + digits
    return digits


class FakeSigner:
    """Implements auth.Signer with keyed hashes. The same name gives the same hotkey."""

    def __init__(self, name: str, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._hotkey = fake_address(name)
        self._now_ns = now_ns
        self._dates = Dates()

    @property
    def hotkey(self) -> Hotkey:
        return self._hotkey

    def sign(self, data: bytes) -> bytes:
        return fake_signature(self._hotkey, data)

    def sign_request(self, method: str, target: str, receiver: Hotkey, *, offset_s: float = 0.0) -> dict[str, str]:
        nonce_ns = self._dates.next_ns(self._now_ns(), receiver, offset_s)
        signed = self.sign(request_bytes(method, target, nonce_ns=nonce_ns, sender=self._hotkey, receiver=receiver))
        return {
            "X-Bittensor-Version": "1",
            "X-Bittensor-Hotkey": self._hotkey,
            "X-Bittensor-Receiver": receiver,
            "X-Bittensor-Nonce": str(nonce_ns),
            "X-Bittensor-Signature": "0x" + signed.hex(),
        }


class FakeVerifier:
    """Implements auth.Verifier for FakeSigner's signatures."""

    def __init__(
        self,
        self_hotkey: Hotkey,
        nonce_store: NonceStore | None = None,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self._self_hotkey = self_hotkey
        self._max_age_s = max_age_s
        self._nonces = nonce_store or MemoryNonceStore()
        self._now_ns = now_ns

    def verify(self, data: bytes, signature: bytes, hotkey: Hotkey) -> bool:
        return signature == fake_signature(hotkey, data)

    def verify_request(self, method: str, target: str, headers: Mapping[str, str]) -> Caller:
        lowered = {name.lower(): value for name, value in headers.items()}
        sender, nonce = lowered.get("x-bittensor-hotkey", ""), lowered.get("x-bittensor-nonce", "")
        signature = lowered.get("x-bittensor-signature", "").removeprefix("0x")
        if lowered.get("x-bittensor-version") != "1" or not sender or not nonce.isdecimal():
            raise MalformedAuth("expected the btauth/1 headers, found some missing or unreadable; sign the request")
        if lowered.get("x-bittensor-receiver") != self._self_hotkey:
            raise WrongReceiver("expected a request signed for this hotkey, found another; ask the chain who is here")
        check_age((int(nonce) - self._now_ns()) / 1e9, self._max_age_s)
        signed = request_bytes(method, target, nonce_ns=int(nonce), sender=sender, receiver=self._self_hotkey)
        if signature != fake_signature(sender, signed).hex():
            raise BadSignature("expected the hotkey's signature over this request, found another; sign what you send")
        if not self._nonces.check_and_store(sender, int(nonce)):
            raise ReplayedRequest("expected a request that is new, found one seen before; sign each attempt anew")
        return Caller(hotkey=sender, nonce_ns=int(nonce))


def fake_signature(hotkey: Hotkey, data: bytes) -> bytes:
    """What stands for this hotkey's signature over the data."""
    return blake3.blake3(data, key=blake3.blake3(b"fake signer/" + hotkey.encode()).digest()).digest(length=64)
