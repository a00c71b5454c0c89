"""Laws of the record on the chain: 77 pinned bytes that bind run, round and log, and nothing else is read as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.errors import MessageError
from subnet.ledger.record import Record, make_record, read_record
from template.values import COMMITMENT_LIMIT_BYTES

RECORD = Record(run_id=bytes(range(32)).hex(), round=3, root=bytes(range(32, 64)).hex(), count=1 << 33)
GOLDEN = "01" + bytes(range(32)).hex() + "03000000" + bytes(range(32, 64)).hex() + "0000000002000000"
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)


def test_the_bytes_are_the_golden_ones() -> None:
    """Whoever changes them changes RECORD_VERSION, their first byte."""
    assert make_record(RECORD).hex() == GOLDEN
    assert read_record(bytes.fromhex(GOLDEN)) == RECORD
    assert len(GOLDEN) // 2 == 77 <= COMMITMENT_LIMIT_BYTES


@given(run_id=DIGESTS, root=DIGESTS, round=st.integers(0, (1 << 32) - 1), count=st.integers(0, (1 << 64) - 1))
def test_what_is_read_is_what_was_written(run_id: str, root: str, round: int, count: int) -> None:
    record = Record(run_id=run_id, round=round, root=root, count=count)
    assert read_record(make_record(record)) == record


@pytest.mark.parametrize(
    "data", [b"", bytes.fromhex(GOLDEN)[:-1], bytes.fromhex(GOLDEN) + b"\0", b"\2" + bytes.fromhex(GOLDEN)[1:]]
)
def test_other_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(MessageError, match="expected a run's record of 77 bytes and version 1, found [0-9]+ bytes"):
        read_record(data)
