"""Merkle trees over 64 KiB chunks: the root names a state, a proof shows that one chunk belongs to it.

Leaf, node and root are three different functions (blake3 with different key contexts), none of them the plain blake3
that names blobs; the length in bytes is bound into the root, and with it the shape of the tree. A node without a
sibling moves up unchanged. Knows nothing of what the bytes mean.
"""

import struct
from collections.abc import Iterable, Sequence

import blake3

CHUNK_BYTES = 64 * 1024
HASH_BYTES = 32
LEAF = "strata merkle leaf 1"
NODE = "strata merkle node 1"
ROOT = "strata merkle root 1"

Bytes = bytes | bytearray | memoryview


def num_chunks(length_bytes: int) -> int:
    """How many chunks this many bytes have; no bytes at all have one empty chunk."""
    return max(1, -(-length_bytes // CHUNK_BYTES))


def chunk_span(length_bytes: int, index: int) -> tuple[int, int]:
    """Where a chunk starts and ends, in bytes."""
    return index * CHUNK_BYTES, min(length_bytes, (index + 1) * CHUNK_BYTES)


def _hash(context: str, *parts: Bytes) -> bytes:
    hasher = blake3.blake3(derive_key_context=context)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def merkle_leaves(data: Bytes) -> list[bytes]:
    """The hash of every chunk, in order."""
    view = memoryview(data).cast("B")
    spans = (chunk_span(len(view), index) for index in range(num_chunks(len(view))))
    return [_hash(LEAF, view[start:end]) for start, end in spans]


def _parents(level: Sequence[bytes]) -> list[bytes]:
    pairs = [_hash(NODE, level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    return [*pairs, level[-1]] if len(level) % 2 else pairs


def _root(top: bytes, length_bytes: int) -> str:
    return _hash(ROOT, struct.pack("<Q", length_bytes), top).hex()


def root_of_leaves(leaves: Sequence[bytes], length_bytes: int) -> str:
    """The root of data whose chunk hashes are already known, as 64 hex digits."""
    level = list(leaves)
    while len(level) > 1:
        level = _parents(level)
    return _root(level[0], length_bytes)


def merkle_root(data: Bytes) -> str:
    """The root of the data, as 64 hex digits."""
    return root_of_leaves(merkle_leaves(data), memoryview(data).nbytes)


def chunk_proof(source: Bytes | Sequence[bytes], index: int) -> list[str]:
    """The siblings on the way from a chunk to the top, as hex; `source` is the data, or its leaves."""
    leaves = merkle_leaves(source) if isinstance(source, bytes | bytearray | memoryview) else source
    return chunk_proofs(leaves, (index,))[index]


def chunk_proofs(leaves: Sequence[bytes], indices: Iterable[int]) -> dict[int, list[str]]:
    """The proofs of many chunks, by index, with the tree made once."""
    tree = Tree(leaves)
    return {index: tree.proof(index) for index in indices}


class Tree:
    """All hashes of some data, made once for many proofs."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            self._levels.append(_parents(self._levels[-1]))

    @property
    def leaves(self) -> bytes:
        """The hashes of the chunks, one after the other."""
        return b"".join(self._levels[0])

    def proof(self, index: int) -> list[str]:
        """The siblings on the way from a chunk to the top, as hex."""
        if not 0 <= index < len(self._levels[0]):
            raise IndexError(f"expected a chunk below {len(self._levels[0])}, found {index}")
        proof = []
        for level in self._levels[:-1]:
            if index ^ 1 < len(level):
                proof.append(level[index ^ 1].hex())
            index //= 2
        return proof


def leaves_bytes(length_bytes: int) -> int:
    """How many bytes the leaves of this many bytes of data have, one after the other."""
    return HASH_BYTES * num_chunks(length_bytes)


def split_leaves(leaves: Bytes) -> tuple[bytes, ...]:
    """The leaves that stand one after the other in these bytes."""
    whole = bytes(leaves)
    return tuple(whole[start : start + HASH_BYTES] for start in range(0, len(whole), HASH_BYTES))


def check_leaves(root: str, length_bytes: int, leaves: Bytes) -> bool:
    """Whether these are the leaves, one after the other, of the `length_bytes` bytes that `root` names."""
    fits = 0 <= length_bytes < 1 << 64 and memoryview(leaves).nbytes == leaves_bytes(length_bytes)
    return fits and root_of_leaves(split_leaves(leaves), length_bytes) == root


def _hash_of(sibling: str) -> bytes | None:
    """The bytes of a sibling; None unless it is spelled as 64 lower-case hex digits."""
    if len(sibling) != 2 * HASH_BYTES or not set(sibling) <= set("0123456789abcdef"):
        return None
    return bytes.fromhex(sibling)


def check_chunk(root: str, length_bytes: int, index: int, chunk: Bytes, proof: Sequence[str]) -> bool:
    """Whether this is chunk `index` of the `length_bytes` bytes that `root` names."""
    width = num_chunks(length_bytes)
    if not (0 <= index < width and 0 <= length_bytes < 1 << 64):
        return False
    start, end = chunk_span(length_bytes, index)
    if memoryview(chunk).nbytes != end - start:
        return False
    node, rest = _hash(LEAF, chunk), list(proof)
    while width > 1:
        if index ^ 1 < width:
            sibling = _hash_of(rest.pop(0)) if rest else None
            if sibling is None:
                return False
            node = _hash(NODE, sibling, node) if index % 2 else _hash(NODE, node, sibling)
        width, index = (width + 1) // 2, index // 2
    return not rest and _root(node, length_bytes) == root
