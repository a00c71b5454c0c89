"""Blocks: headers, hashes, bodies, and which block is head and which is final.

A header's hash is the real one (blake2b-256 of the SCALE header). The state
root is a running digest of what each block wrote: it commits to the state,
but it is no Merkle root and gives no proofs.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from template.devchain.metadata_edit import encode_compact


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
    """The chain of blocks from genesis to head, by number and by hash."""

    def __init__(self, genesis: Block) -> None:
        self._blocks = [genesis]
        self._numbers = {genesis.hash: 0}
        self.finalized = 0

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    @property
    def head(self) -> Block:
        """The newest block."""
        return self._blocks[-1]

    @property
    def genesis(self) -> Block:
        """Block 0."""
        return self._blocks[0]

    def append(self, block: Block) -> None:
        """Put the next block on top."""
        assert block.parent == self.head.hash
        self._blocks.append(block)
        self._numbers[block.hash] = block.number

    def truncate(self, number: int) -> list[Block]:
        """Drop every block above `number` and return them; finalised blocks are not protected, as a test wants."""
        dropped = self._blocks[number + 1 :]
        del self._blocks[number + 1 :]
        for block in dropped:
            del self._numbers[block.hash]
        self.finalized = min(self.finalized, number)
        return dropped

    def by_number(self, number: int) -> Block | None:
        """The block at that height."""
        return self._blocks[number] if 0 <= number < len(self._blocks) else None

    def by_hash(self, block_hash: bytes) -> Block | None:
        """The block with that hash."""
        number = self._numbers.get(block_hash)
        return None if number is None else self._blocks[number]
