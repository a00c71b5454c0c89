"""Extrinsics: reading the bytes, checking the signature, and the era's birth block.

Owns the wire format (version 4). Knows nothing of balances or of the pool;
it answers whether the bytes are what the signer meant, nothing more.
"""

from dataclasses import dataclass
from typing import Any

import bittensor_core

from template.devchain.blocks import blake2_256
from template.devchain.context import PoolError, invalid
from template.devchain.metadata import SS58_FORMAT, RuntimeInfo
from template.devchain.metadata_edit import decode_compact, encode_compact

_SIGNED_V4, _BARE_V4 = 0x84, 0x04
_SR25519, _ED25519 = 1, 0
_MAX_PAYLOAD_BYTES = 256
_BAD_FORMAT = 1001


@dataclass(frozen=True, kw_only=True)
class Extrinsic:
    """One signed extrinsic, decoded; `era` is None for an immortal one, else (period, phase)."""

    raw: bytes
    hash: bytes
    signer: str
    crypto_type: int
    signature: bytes
    era: tuple[int, int] | None
    nonce: int
    tip: int
    extra: bytes
    call_data: bytes
    call: dict[str, Any]

    def birth(self, current: int) -> int:
        """The block at which the era begins, seen from the current block; 0 for an immortal one."""
        if self.era is None:
            return 0
        period, phase = self.era
        return (max(current, phase) - phase) // period * period + phase


class _Bytes:
    """A cursor over the bytes of an extrinsic."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError(f"expected {size} more bytes, found {len(self.data) - self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def compact(self) -> int:
        value, used = decode_compact(self.data[self.at :])
        self.at += used
        return value


def decode_extrinsic(runtime: RuntimeInfo, raw: bytes) -> Extrinsic:
    """Decode a signed extrinsic; anything else is refused as the node refuses bad bytes."""
    try:
        return _decode(runtime, raw)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise PoolError(_BAD_FORMAT, "Extrinsic has invalid format", str(error)) from error


def _decode(runtime: RuntimeInfo, raw: bytes) -> Extrinsic:
    length, used = decode_compact(raw)
    body = _Bytes(raw[used:])
    if length != len(body.data):
        raise ValueError(f"expected {length} bytes after the length prefix, found {len(body.data)}")
    if (version := body.take(1)[0]) != _SIGNED_V4:
        raise ValueError(f"expected a signed extrinsic of version 4 (0x84), found {version:#x}")
    if body.take(1)[0] != 0:
        raise ValueError("expected the signer as an account id")
    public_key = body.take(32)
    crypto_type = body.take(1)[0]
    if crypto_type not in (_SR25519, _ED25519):
        raise ValueError(f"expected an sr25519 (1) or ed25519 (0) signature, found type {crypto_type}")
    signature = body.take(64)
    start = body.at
    era = _decode_era(body)
    nonce, tip = body.compact(), body.compact()
    if body.take(1)[0] != 0:
        raise ValueError("expected the metadata hash to be disabled (mode 0)")
    extra, call_data = body.data[start : body.at], body.data[body.at :]
    return Extrinsic(
        raw=raw,
        hash=blake2_256(raw),
        signer=bittensor_core.encode_ss58(public_key, SS58_FORMAT),
        crypto_type=crypto_type,
        signature=signature,
        era=era,
        nonce=nonce,
        tip=tip,
        extra=extra,
        call_data=call_data,
        call=runtime.codec.decode_call(call_data),
    )


def _decode_era(body: _Bytes) -> tuple[int, int] | None:
    first = body.take(1)[0]
    if first == 0:
        return None
    encoded = first | body.take(1)[0] << 8
    period = 2 << (encoded % 16)
    phase = (encoded >> 4) * max(period >> 12, 1)
    if period < 4 or phase >= period:
        raise ValueError(f"expected an era of at least 4 blocks with its phase inside, found {period} and {phase}")
    return period, phase


def signed_payload(runtime: RuntimeInfo, extrinsic: Extrinsic, genesis: bytes, birth_hash: bytes) -> bytes:
    """The bytes that the signer signed, on this chain and from this birth block."""
    spec, transaction = runtime.version["spec_version"], runtime.version["transaction_version"]
    versions = spec.to_bytes(4, "little") + transaction.to_bytes(4, "little")
    payload = extrinsic.call_data + extrinsic.extra + versions + genesis + birth_hash + b"\x00"
    return blake2_256(payload) if len(payload) > _MAX_PAYLOAD_BYTES else payload


def check_signature(runtime: RuntimeInfo, extrinsic: Extrinsic, genesis: bytes, birth_hash: bytes) -> None:
    """Refuse an extrinsic whose signature does not hold."""
    payload = signed_payload(runtime, extrinsic, genesis, birth_hash)
    try:
        good = bittensor_core.verify(payload, extrinsic.signature, extrinsic.signer, extrinsic.crypto_type)
    except ValueError:
        good = False
    if not good:
        raise invalid("Transaction has a bad signature")


def time_inherent(runtime: RuntimeInfo, now_ms: int) -> bytes:
    """The bare extrinsic Timestamp.set at index 0 of every block."""
    body = bytes([_BARE_V4]) + bytes(runtime.codec.compose_call("Timestamp", "set", {"now": now_ms}))
    return encode_compact(len(body)) + body
