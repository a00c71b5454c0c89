"""Blocks: headers, hashes, bodies, and which block is head and which is final.

A header's hash is the real one (blake2b-256 of the SCALE header). The state
root is a running digest of what each block wrote: it commits to the state,
but it is no Merkle root and gives no proofs.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from template.devchain.metadata_edit import decode_compact, encode_compact
from template.devchain.spool import Spool

_IN_MEMORY = 256


def blake2_256(data: bytes) -> bytes:
    """The chain's hash."""
    return hashlib.blake2b(data, digest_size=32).digest()


@dataclass(frozen=True)
class Block:
    """One block; `extrinsics` are the raw bytes, each with its length prefix."""

    number: int
    hash: bytes
    parent: bytes
    state_root: bytes
    extrinsics_root: bytes
    extrinsics: tuple[bytes, ...]

    def header(self) -> dict[str, Any]:
        """The header as JSON-RPC shows it."""
        return {
            "parentHash": "0x" + self.parent.hex(),
            "number": hex(self.number),
            "stateRoot": "0x" + self.state_root.hex(),
            "extrinsicsRoot": "0x" + self.extrinsics_root.hex(),
            "digest": {"logs": []},
        }


def seal(parent: Block | None, salt: bytes, changes: Iterable[tuple[bytes, bytes | None]], body: list[bytes]) -> Block:
    """Make the block after `parent` (the first one without a parent); `salt` sets apart chains with equal content."""
    number = parent.number + 1 if parent else 0
    parent_hash = parent.hash if parent else bytes(32)
    digest = hashlib.blake2b(salt + (parent.state_root if parent else b""), digest_size=32)
    for key, value in sorted(changes, key=lambda change: change[0]):
        digest.update(key + (b"\x00" if value is None else b"\x01" + value))
    state_root = digest.digest()
    extrinsics_root = blake2_256(b"".join(blake2_256(each) for each in body))
    header = parent_hash + encode_compact(number) + state_root + extrinsics_root + encode_compact(0)
    return Block(number, blake2_256(header), parent_hash, state_root, extrinsics_root, tuple(body))


class BlockStore:
    """The chain of blocks from genesis to head, by number and by hash. Older ones lie on disk."""

    def __init__(self, genesis: Block) -> None:
        self._recent = {0: genesis}
        self._places: list[int] = []  # of the blocks on disk, which are the first ones
        self._numbers = {genesis.hash: 0}
        self._spool = Spool()
        self._head = genesis
        self.genesis = genesis
        self.finalized = 0

    def __iter__(self) -> Iterator[Block]:
        return (self._get(number) for number in range(self.head.number + 1))

    @property
    def head(self) -> Block:
        """The newest block."""
        return self._head

    def append(self, block: Block) -> None:
        """Put the next block on top."""
        assert block.parent == self.head.hash
        self._recent[block.number] = self._head = block
        self._numbers[block.hash] = block.number
        if len(self._recent) > _IN_MEMORY:
            oldest = self._recent.pop(len(self._places))
            self._places.append(self._spool.put(0, _pack(oldest)))

    def truncate(self, number: int) -> list[Block]:
        """Drop every block above `number` and return them; finalised blocks are not protected, as a test wants."""
        dropped = [self._get(each) for each in range(number + 1, self.head.number + 1)]
        for block in dropped:
            self._recent.pop(block.number, None)
            del self._numbers[block.hash]
        del self._places[number + 1 :]
        self._head = self._get(number)
        self.finalized = min(self.finalized, number)
        return dropped

    def _get(self, number: int) -> Block:
        found = self._recent.get(number)
        return _unpack(number, self._spool.get(self._places[number])) if found is None else found

    def by_number(self, number: int) -> Block | None:
        """The block at that height."""
        return self._get(number) if 0 <= number <= self.head.number else None

    def by_hash(self, block_hash: bytes) -> Block | None:
        """The block with that hash."""
        number = self._numbers.get(block_hash)
        return None if number is None else self._get(number)

    def close(self) -> None:
        """Give back the disk space of older blocks."""
        self._spool.close()


def _pack(block: Block) -> bytes:
    return b"".join((block.hash, block.parent, block.state_root, block.extrinsics_root, *block.extrinsics))


def _unpack(number: int, data: bytes) -> Block:
    block_hash, parent, state_root, extrinsics_root = (data[at : at + 32] for at in range(0, 128, 32))
    return Block(number, block_hash, parent, state_root, extrinsics_root, split_body(data[128:]))


def split_body(data: bytes) -> tuple[bytes, ...]:
    """The extrinsics of a body that was joined; each begins with its length."""
    parts, at = [], 0
    while at < len(data):
        size, used = decode_compact(data[at : at + 9])
        parts.append(data[at : at + used + size])
        at += used + size
    return tuple(parts)
