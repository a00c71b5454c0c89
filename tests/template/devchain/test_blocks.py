"""Blocks chain by hash, and old ones come back from disk as they were."""

import pytest

from template.devchain.blocks import BlockStore, blake2_256, seal, split_body
from template.devchain.metadata_edit import encode_compact
from template.devchain.spool import Spool


def body(number: int) -> list[bytes]:
    data = bytes([number % 256]) * (number % 90)
    return [encode_compact(len(data)) + data, b"\x04\x00"]


@pytest.fixture
def store() -> BlockStore:
    """Genesis and 600 blocks, most of them no longer in memory."""
    store = BlockStore(seal(None, b"salt", [], []))
    for number in range(1, 601):
        store.append(seal(store.head, b"", [(b"key", bytes([number % 256]))], body(number)))
    return store


def test_a_hash_is_that_of_the_scale_header() -> None:
    block = seal(None, b"salt", [(b"key", b"value")], [b"\x04\x01"])
    header = bytes(32) + b"\x00" + block.state_root + block.extrinsics_root + b"\x00"
    assert block.hash == blake2_256(header)
    assert block.header()["parentHash"] == "0x" + "00" * 32


def test_changes_salt_and_body_each_change_the_hash() -> None:
    blocks = [
        seal(None, b"salt", [(b"key", b"value")], []),
        seal(None, b"other", [(b"key", b"value")], []),
        seal(None, b"salt", [(b"key", None)], []),
        seal(None, b"salt", [(b"key", b"value")], [b"\x04\x01"]),
    ]
    assert len({block.hash for block in blocks}) == 4


def test_every_block_is_found_by_number_and_by_hash(store: BlockStore) -> None:
    parent = bytes(32)
    for number, block in enumerate(store):
        assert block.number == number and block.parent == parent
        assert store.by_hash(block.hash) == store.by_number(number) == block
        assert list(block.extrinsics) == (body(number) if number else [])
        parent = block.hash
    assert store.by_number(601) is None and store.by_number(-1) is None and store.by_hash(b"?" * 32) is None


@pytest.mark.parametrize("target", [599, 400, 100, 0])
def test_a_truncated_chain_goes_on(store: BlockStore, target: int) -> None:
    store.finalized = 590
    before = list(store)
    dropped = store.truncate(target)
    assert dropped == before[target + 1 :] and store.head == before[target]
    assert store.finalized == min(590, target)
    for number in range(target + 1, 601):
        store.append(seal(store.head, b"fork", [], body(number)))
    assert [block.number for block in store] == list(range(601))
    assert store.by_hash(before[-1].hash) is None


def test_a_body_splits_where_it_was_joined() -> None:
    assert split_body(b"".join(body(80))) == tuple(body(80))
    assert split_body(b"") == ()


def test_a_spool_gives_back_what_it_took_until_its_segment_is_dropped() -> None:
    spool = Spool()
    places = {number: spool.put(number // 10, bytes([number]) * number) for number in range(30)}
    assert all(spool.get(place) == bytes([number]) * number for number, place in places.items())
    spool.drop_before(2)
    assert spool.get(places[25]) == bytes([25]) * 25
    with pytest.raises(KeyError):
        spool.get(places[5])
    spool.close()
