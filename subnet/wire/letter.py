"""A letter: one HTTP request that a relay carries for a sender who cannot reach the receiver.

It holds the request exactly as its sender signed it for the receiver, so whoever carries it can read or drop it, but
not alter or forge it. A bundle is any number of letters, one after the other:

    4 bytes   length of the head, little-endian
    head      JSON: number, method, target, headers, length of the body, room for the answer
    body

Knows nothing of how letters travel.
"""

import struct
from collections.abc import Iterable, Mapping

import msgspec

from subnet.canonical import digest
from subnet.errors import MessageError, RefusedError

HEAD_LIMIT_BYTES = 4096
SIGNED_HEADERS = "x-bittensor-"  # the only headers that a letter carries
MAX_HEADERS = 8
DELIVER, BLOBS, STATES, WANTED = "/v1/deliver?", "/v1/blobs/", "/v1/states/", "/wanted"
_LENGTH = struct.Struct("<I")
_UNSAFE = frozenset("#\\ ")


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands before a letter's body. `number` is the relay's; a sender leaves it at 0."""

    number: int = 0
    method: str
    target: str
    headers: dict[str, str]
    body_bytes: int
    answer_bytes: int  # the longest answer that its sender takes


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A head and its body."""

    head: Head
    body: bytes


def make_letter(method: str, target: str, headers: Mapping[str, str], body: bytes, *, answer_bytes: int) -> Letter:
    """A letter as its sender hands it in."""
    kept = {name: value for name, value in headers.items() if name.lower().startswith(SIGNED_HEADERS)}
    head = Head(method=method, target=target, headers=kept, body_bytes=len(body), answer_bytes=answer_bytes)
    return Letter(head=head, body=body)


def pack(letters: Iterable[Letter]) -> bytes:
    """The bytes of a bundle."""
    parts: list[bytes] = []
    for letter in letters:
        head = msgspec.json.encode(letter.head)
        parts += [_LENGTH.pack(len(head)), head, letter.body]
    return b"".join(parts)


def unpack(bundle: bytes) -> tuple[Letter, ...]:
    """The letters of a bundle. Raises MessageError when it is not one."""
    letters, at = [], 0
    while at < len(bundle):
        (length,) = _LENGTH.unpack_from(bundle, at) if len(bundle) - at >= _LENGTH.size else (0,)
        start = at + _LENGTH.size
        if not 0 < length <= HEAD_LIMIT_BYTES:
            raise MessageError(f"expected a letter's head of up to {HEAD_LIMIT_BYTES} bytes, found {length}; resend it")
        try:
            head = msgspec.json.decode(bundle[start : start + length], type=Head)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MessageError(f"expected a letter's head; {error}; check the sender's version") from error
        end = start + length + head.body_bytes
        if head.body_bytes < 0 or end > len(bundle):
            raise MessageError(f"expected a body of {head.body_bytes} bytes, found a shorter bundle; send it in full")
        letters.append(Letter(head=head, body=bundle[start + length : end]))
        at = end
    return tuple(letters)


def take_target(wait_s: float) -> str:
    """The request target by which a receiver comes for its letters."""
    return f"/v1/relay?wait_s={wait_s:g}"


def send_target(receiver: str, bundle: bytes, *, answer_bytes: int) -> str:
    """The request target by which a sender hands in a bundle of one letter."""
    return f"/v1/relay/{receiver}?digest={digest(bundle)}&length={len(bundle)}&answer={answer_bytes}"


def answer_target(number: int, status: int, body: bytes) -> str:
    """The request target by which a receiver hands in its answer to a letter."""
    return f"/v1/relay/answers/{number}?status={status}&digest={digest(body)}&length={len(body)}"


def check_relayable(head: Head) -> None:
    """Raise RefusedError unless this is a delivery, or a question for evidence, and nothing else."""
    method, target = head.method, head.target
    asked = target.startswith(STATES) and target.endswith(WANTED) and not head.body_bytes
    wanted = (target.startswith(DELIVER) or asked) if method == "POST" else target.startswith((BLOBS, STATES))
    plain = target.isascii() and target.isprintable() and ".." not in target and not _UNSAFE & set(target)
    if method not in ("GET", "POST") or not wanted or not plain or (method == "GET" and head.body_bytes):
        raise RefusedError(
            f"expected a delivery or a question for evidence, found {method[:8]} {target[:60]!r}; send it directly"
        )
    named = all(name.lower().startswith(SIGNED_HEADERS) for name in head.headers)
    if not named or len(head.headers) > MAX_HEADERS or head.answer_bytes < 0:
        raise RefusedError(
            f"expected at most {MAX_HEADERS} headers, all {SIGNED_HEADERS}*, found others; send what was signed"
        )


def sender_of(head: Head) -> str:
    """The hotkey that the request claims to be signed by; empty for one that is not signed."""
    return next((value for name, value in head.headers.items() if name.lower() == f"{SIGNED_HEADERS}hotkey"), "")
