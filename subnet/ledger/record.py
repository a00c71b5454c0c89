"""The orchestrator's commitment on the chain: one record of at most 128 bytes that binds the log so far. Pure.

Little-endian: version u8, run id (32 bytes), round u32, ledger root (32 bytes), event count u64: 77 bytes.
"""

import struct

import msgspec

from subnet.errors import MessageError

RECORD_VERSION = 1
_LAYOUT = struct.Struct("<B32sI32sQ")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What the chain holds of a run: its id, the round, and the root over `count` events."""

    run_id: str
    round: int
    root: str
    count: int


def make_record(record: Record) -> bytes:
    """The record's 77 bytes."""
    return _LAYOUT.pack(
        RECORD_VERSION, bytes.fromhex(record.run_id), record.round, bytes.fromhex(record.root), record.count
    )


def read_record(data: bytes) -> Record:
    """The record in these bytes. Raises MessageError on another length or version."""
    if len(data) != _LAYOUT.size or data[0] != RECORD_VERSION:
        raise MessageError(
            f"expected a run's record of {_LAYOUT.size} bytes and version {RECORD_VERSION}, found {len(data)} bytes; "
            "check the orchestrator's hotkey"
        )
    _, run_id, round_number, root, count = _LAYOUT.unpack(data)
    return Record(run_id=run_id.hex(), round=round_number, root=root.hex(), count=count)
