"""The MEV shield: keys that clients seal extrinsics for, and opening what they sealed.

Keys follow from a secret and the block number, so a chain that is started
again opens what it had announced. On a dev chain the shield is the real wire
format without the secrecy: whoever runs the node can read everything.
"""

import hashlib

from Crypto.Cipher import ChaCha20_Poly1305

from template.devchain.context import custom
from template.devchain.mlkem import CIPHERTEXT_BYTES, PUBLIC_BYTES, KeyPair, decapsulate, key_pair

ROTATION_BLOCKS = 10
_KEPT = 3
_HASH_BYTES, _LENGTH_BYTES, _NONCE_BYTES, _TAG_BYTES = 16, 2, 24, 16
_MIN_BYTES = _HASH_BYTES + _LENGTH_BYTES + CIPHERTEXT_BYTES + _NONCE_BYTES + _TAG_BYTES
_BAD_FORM, _UNKNOWN_KEY = 23, 24

_MASK = (1 << 64) - 1
_PRIMES = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK


def _xxh64(data: bytes, seed: int) -> int:
    """XXH64 of a message whose length is a multiple of 32 bytes, as a public key's is."""
    one, two, three, four, five = _PRIMES
    lanes = [(seed + one + two) & _MASK, (seed + two) & _MASK, seed, (seed - one) & _MASK]
    for at in range(0, len(data), 32):
        words = (int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little") for lane in range(4))
        lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
    total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        total = ((total ^ _round(0, lane)) * one + four) & _MASK
    total = (total + len(data)) & _MASK
    total = (total ^ total >> 33) * two & _MASK
    total = (total ^ total >> 29) * three & _MASK
    return total ^ total >> 32


def key_hash(public: bytes) -> bytes:
    """How a ciphertext names its key: twox-128 of the public key."""
    assert len(public) == PUBLIC_BYTES and PUBLIC_BYTES % 32 == 0
    return b"".join(_xxh64(public, seed).to_bytes(8, "little") for seed in (0, 1))


class Shield:
    """The key of now and the few before it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._keys: dict[int, tuple[bytes, KeyPair]] = {}

    def public_key(self, block: int) -> bytes:
        """The key that clients should use after this block."""
        return self._key(block // ROTATION_BLOCKS)[1].public

    def _key(self, turn: int) -> tuple[bytes, KeyPair]:
        if turn not in self._keys:
            keys = key_pair(hashlib.sha512(self._secret + turn.to_bytes(8, "little")).digest())
            self._keys[turn] = (key_hash(keys.public), keys)
            self._keys.pop(turn - _KEPT, None)
        return self._keys[turn]

    def check(self, sealed: bytes, block: int) -> KeyPair:
        """The key a ciphertext is for; refuses, as the pool does, one that is malformed or for no current key."""
        size = int.from_bytes(sealed[_HASH_BYTES : _HASH_BYTES + _LENGTH_BYTES], "little")
        if len(sealed) < _MIN_BYTES or size != CIPHERTEXT_BYTES:
            raise custom(_BAD_FORM)
        turn = block // ROTATION_BLOCKS
        for each in range(max(0, turn - _KEPT + 1), turn + 1):
            named, keys = self._key(each)
            if named == sealed[:_HASH_BYTES]:
                return keys
        raise custom(_UNKNOWN_KEY)

    def open(self, sealed: bytes, block: int) -> bytes | None:
        """What was sealed, or None when it does not open."""
        keys = self.check(sealed, block)
        at = _HASH_BYTES + _LENGTH_BYTES
        shared = decapsulate(keys, sealed[at : at + CIPHERTEXT_BYTES])
        at += CIPHERTEXT_BYTES
        nonce, body = sealed[at : at + _NONCE_BYTES], sealed[at + _NONCE_BYTES :]
        cipher = ChaCha20_Poly1305.new(key=shared, nonce=nonce)
        try:
            return cipher.decrypt_and_verify(body[:-_TAG_BYTES], body[-_TAG_BYTES:])
        except ValueError:
            return None
