"""Laws of the tree: every chunk proves itself, and nothing else does."""

import blake3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.wire.merkle import (
    CHUNK_BYTES,
    check_chunk,
    check_leaves,
    chunk_proof,
    chunk_proofs,
    chunk_span,
    leaves_bytes,
    merkle_leaves,
    merkle_root,
    num_chunks,
    root_of_leaves,
    split_leaves,
)

# lengths around the borders of chunks, up to 9 chunks: odd and even levels both occur
LENGTHS = st.builds(lambda chunks, extra: max(0, chunks * CHUNK_BYTES + extra), st.integers(0, 9), st.integers(-2, 2))


def some_bytes(length_bytes: int) -> bytes:
    return blake3.blake3(b"merkle").digest(length=length_bytes)


def chunk_of(data: bytes, index: int) -> bytes:
    start, end = chunk_span(len(data), index)
    return data[start:end]


@given(length_bytes=LENGTHS)
def test_every_chunk_proves_itself(length_bytes: int):
    data = some_bytes(length_bytes)
    root, leaves = merkle_root(data), merkle_leaves(data)
    assert len(leaves) == num_chunks(length_bytes)
    for index in range(num_chunks(length_bytes)):
        assert check_chunk(root, length_bytes, index, chunk_of(data, index), chunk_proof(leaves, index))


@given(length_bytes=LENGTHS, draw=st.data())
def test_the_leaves_are_bound_by_the_root_and_give_every_proof(length_bytes: int, draw: st.DataObject):
    data = some_bytes(length_bytes)
    root, leaves = merkle_root(data), merkle_leaves(data)
    shown = b"".join(leaves)
    assert check_leaves(root, length_bytes, shown) and split_leaves(shown) == tuple(leaves)
    assert len(shown) == leaves_bytes(length_bytes)
    assert chunk_proofs(leaves, range(len(leaves))) == {i: chunk_proof(data, i) for i in range(len(leaves))}
    bit = draw.draw(st.integers(0, 8 * len(shown) - 1))
    flipped = bytearray(shown)
    flipped[bit // 8] ^= 1 << bit % 8
    for other in (bytes(flipped), shown[:-1], shown[:-32], shown + bytes(32), b""):
        assert not check_leaves(root, length_bytes, other)
    assert not check_leaves(root, length_bytes + 1, shown)


@given(length_bytes=LENGTHS, draw=st.data())
def test_one_flipped_bit_is_refused(length_bytes: int, draw: st.DataObject):
    data = some_bytes(max(1, length_bytes))
    index = draw.draw(st.integers(0, num_chunks(len(data)) - 1))
    chunk, proof = chunk_of(data, index), chunk_proof(data, index)
    bit = draw.draw(st.integers(0, 8 * len(chunk) - 1))
    flipped = bytearray(chunk)
    flipped[bit // 8] ^= 1 << bit % 8
    assert not check_chunk(merkle_root(data), len(data), index, flipped, proof)


@given(length_bytes=LENGTHS, draw=st.data())
def test_another_index_or_length_is_refused(length_bytes: int, draw: st.DataObject):
    data = some_bytes(length_bytes)
    index = draw.draw(st.integers(0, num_chunks(length_bytes) - 1))
    root, chunk, proof = merkle_root(data), chunk_of(data, index), chunk_proof(data, index)
    for other in set(range(-1, num_chunks(length_bytes) + 1)) - {index}:
        assert not check_chunk(root, length_bytes, other, chunk, proof)
    for other in (length_bytes - 1, length_bytes + 1, length_bytes + CHUNK_BYTES, 2 * length_bytes + 1):
        assert not check_chunk(root, other, index, chunk, proof)


@given(length_bytes=LENGTHS, draw=st.data())
def test_a_changed_proof_is_refused(length_bytes: int, draw: st.DataObject):
    data = some_bytes(length_bytes + 2 * CHUNK_BYTES)
    index = draw.draw(st.integers(0, num_chunks(len(data)) - 1))
    root, chunk, proof = merkle_root(data), chunk_of(data, index), chunk_proof(data, index)
    place = draw.draw(st.integers(0, len(proof) - 1))
    upper = [*proof[:place], proof[place].upper(), *proof[place + 1 :]]
    other = [*proof[:place], "00" * 32, *proof[place + 1 :]]
    garbage = [*proof[:place], "not hex", *proof[place + 1 :]]
    for wrong in (proof[:-1], [*proof, "00" * 32], other, garbage, upper if upper != proof else other):
        assert not check_chunk(root, len(data), index, chunk, wrong)


def test_the_roots_are_pinned():
    """Change these only together with the number in the contexts."""
    assert merkle_root(b"") == "667ffd694af01443c9717523a603601f15194e3ca4a8ec99f9cf9f7ac83b4166"
    assert merkle_root(b"abc") == "87b4fce1a533e36f1a6eeb76ba0a21ea5def8d6b9e705797f40a5da612fd6d53"
    assert (
        merkle_root(some_bytes(5 * CHUNK_BYTES + 1))
        == "fa0eef5cf07573fe7f398d15371ad38676cfc28134fe9e1682461c0720982e22"
    )


def test_leaf_node_root_and_blob_never_share_a_hash():
    """The two children of a node, given as one chunk, must not hash like the node; no root is a digest of the bytes."""
    data = some_bytes(2 * CHUNK_BYTES)
    children = b"".join(merkle_leaves(data))
    assert merkle_leaves(children)[0].hex() != merkle_root(data)
    assert merkle_root(children) != merkle_root(data)
    assert blake3.blake3(data).hexdigest() != merkle_root(data)
    assert root_of_leaves(merkle_leaves(data), len(data)) == merkle_root(data)


def test_a_chunk_beyond_the_end_has_no_proof():
    with pytest.raises(IndexError, match="expected a chunk below 1, found 1"):
        chunk_proof(b"abc", 1)
