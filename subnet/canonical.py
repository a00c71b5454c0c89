"""Canonical bytes and digests: the one way in which anything is hashed or signed.

JSON in UTF-8 with sorted keys, no spaces, shortest-repr floats (Python's own), non-finite numbers refused.
The hash is blake3 (32 bytes, written as 64 lower-case hex digits). Knows nothing of what the values mean.
"""

import json
from typing import Any, TypeVar

import blake3
import msgspec

from subnet.errors import MessageError

T = TypeVar("T")

DIGEST_BYTES = 32


def canonical(value: Any) -> bytes:
    """The canonical bytes of a JSON value or a msgspec Struct. Raises MessageError on NaN or infinity."""
    plain = msgspec.to_builtins(value)
    try:
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise MessageError(f"canonical bytes need finite numbers; {error}; replace the non-finite value") from error
    return text.encode()


def parse(data: bytes, kind: type[T]) -> T:
    """Read canonical bytes as a value of `kind`. Raises MessageError unless `canonical` gives the same bytes back."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MessageError(f"expected a {kind.__name__}; {error}; check the sender's version") from error
    if canonical(value) != data:
        raise MessageError(
            f"expected the canonical bytes of a {kind.__name__}, found another spelling; sort and trim it"
        )
    return value


def digest(data: bytes | bytearray | memoryview) -> str:
    """blake3 of the bytes, as 64 hex digits."""
    return blake3.blake3(data).hexdigest()


def digest_of(value: Any) -> str:
    """blake3 of the canonical bytes of a value."""
    return digest(canonical(value))
