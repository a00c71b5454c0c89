"""One contract for every blob store; and what only a folder can do wrong: full disks, damage, leftovers."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from subnet.canonical import digest
from subnet.edges.blobs import BlobStore, LocalBlobs, MemoryBlobs
from subnet.errors import EvidenceError, StoreError
from subnet.wire.merkle import CHUNK_BYTES, merkle_root

LIMIT_BYTES = 1 << 20


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobs(limit_bytes=LIMIT_BYTES)
    return LocalBlobs(tmp_path / "blobs", limit_bytes=LIMIT_BYTES)


@pytest.fixture
def local(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs", limit_bytes=LIMIT_BYTES)


@pytest.mark.parametrize("data", [b"", b"abc", bytes(200_000)])
def test_what_was_put_is_got_by_its_digest(store: BlobStore, data: bytes):
    name = store.put(data)
    assert name == digest(data)
    assert store.has(name)
    assert store.get(name) == data
    assert store.size(name) == len(data)
    assert store.digests() == [name]


def test_a_state_is_kept_under_its_merkle_root(store: BlobStore):
    state = bytes(range(256)) * 600
    root = merkle_root(state)
    store.put_named(root, state)
    assert store.get(root) == state
    assert not store.has(digest(state))
    assert store.get_range(root, CHUNK_BYTES, CHUNK_BYTES) == state[CHUNK_BYTES : 2 * CHUNK_BYTES]
    assert store.get_range(root, 2 * CHUNK_BYTES, CHUNK_BYTES) == state[2 * CHUNK_BYTES :]


def test_bytes_that_are_not_what_the_name_says_are_not_kept(store: BlobStore):
    with pytest.raises(EvidenceError, match="expected bytes of digest or root abababab.*found 3 bytes"):
        store.put_named("ab" * 32, b"abc")
    assert store.digests() == []


def test_what_is_missing_is_said_to_be_missing(store: BlobStore):
    for ask in (store.get, store.size, lambda name: store.get_range(name, 0, 1)):
        with pytest.raises(StoreError, match="expected a blob abababab.* in the store, found none"):
            ask("ab" * 32)
    assert not store.has("ab" * 32)


def test_a_range_before_the_start_is_refused(store: BlobStore):
    name = store.put(b"abc")
    for start, length_bytes in ((-1, 1), (0, -1)):
        with pytest.raises(EvidenceError, match=f"expected a range from 0 on, found {length_bytes} bytes from {start}"):
            store.get_range(name, start, length_bytes)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "AB" * 32, "ab" * 31, "ab" * 32 + "/", "ab" * 33])
def test_a_name_that_is_no_digest_is_refused_everywhere(store: BlobStore, name: str):
    for ask in (store.get, store.size, store.has, store.delete, lambda name: store.put_named(name, b"")):
        with pytest.raises(EvidenceError, match="expected a name of 64 lower-case hex digits"):
            ask(name)


def test_what_is_deleted_is_gone_and_its_room_is_free(store: BlobStore):
    name = store.put(bytes(LIMIT_BYTES))
    store.delete(name)
    store.delete(name)
    assert not store.has(name)
    assert store.get(store.put(b"x" * LIMIT_BYTES)) == b"x" * LIMIT_BYTES


def test_a_store_at_its_limit_refuses_more_and_keeps_what_it_has(store: BlobStore):
    kept = store.put(bytes(LIMIT_BYTES - 2))
    with pytest.raises(StoreError, match=f"expected the store to stay within {LIMIT_BYTES} bytes, found it would need"):
        store.put(b"abc")
    assert store.digests() == [kept]
    store.put(b"ab")


def test_the_same_bytes_twice_take_their_room_once(store: BlobStore):
    for _ in range(3):
        store.put(bytes(LIMIT_BYTES))
    assert len(store.digests()) == 1


def test_damage_is_noticed_and_healed_by_the_same_bytes(local: LocalBlobs, tmp_path: Path):
    name = local.put(b"abc")
    (tmp_path / "blobs" / name[:2] / name).write_bytes(b"abd")
    with pytest.raises(EvidenceError, match="fetch the blob again from another source"):
        local.get(name)
    local.put(b"abc")
    assert local.get(name) == b"abc"


def test_a_new_process_finds_what_the_old_one_kept_and_removes_what_it_left_unfinished(
    local: LocalBlobs, tmp_path: Path
):
    name = local.put(bytes(LIMIT_BYTES))
    unfinished = tmp_path / "blobs" / "incoming" / "half"
    unfinished.write_bytes(b"half")
    again = LocalBlobs(tmp_path / "blobs", limit_bytes=LIMIT_BYTES)
    assert again.digests() == [name]
    assert not unfinished.exists()
    with pytest.raises(StoreError, match="raise the limit or delete old blobs"):
        again.put(b"one more")


@pytest.fixture
def files_of_at_most_64_kib() -> Iterator[None]:
    """The system refuses to write more into one file, like a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("files_of_at_most_64_kib")
def test_a_refused_write_is_one_sentence_and_leaves_nothing_half_written(local: LocalBlobs, tmp_path: Path):
    with pytest.raises(StoreError, match="expected to write to the blob store .*, found 'File too large'; free space"):
        local.put(bytes(200_000))
    assert local.digests() == []
    assert list((tmp_path / "blobs" / "incoming").iterdir()) == []
    assert local.get(local.put(b"small")) == b"small"


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="expected to open the blob store .*, found 'Not a directory'"):
        LocalBlobs(tmp_path / "file" / "blobs", limit_bytes=LIMIT_BYTES)
