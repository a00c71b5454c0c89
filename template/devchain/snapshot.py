"""Saving a chain to a file and starting from it again.

The file is a SQLite database: blocks, every kept version of every value, and
the genesis it belongs to. It is written beside its place and moved there, so
a crash leaves the old one. What waits in the pool is not saved.
"""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from template.devchain.blocks import Block, split_body
from template.devchain.chain import Chain
from template.devchain.genesis import genesis_from_dict, genesis_to_dict
from template.devchain.metadata import load_runtime

_FORMAT = 1
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE blocks (number INTEGER PRIMARY KEY, hash BLOB, parent BLOB, state BLOB, extrinsics BLOB, body BLOB);
CREATE TABLE versions (item TEXT, key BLOB, block INTEGER, value BLOB);
"""


class SnapshotError(ValueError):
    """A state file that cannot be used; the message says why."""


def save_chain(chain: Chain, path: Path) -> None:
    """Write the chain's whole state; the file appears complete or not at all."""
    draft = path.with_name(path.name + ".draft")
    draft.unlink(missing_ok=True)
    meta = {
        "format": _FORMAT,
        "genesis": genesis_to_dict(chain.genesis),
        "start_ms": chain.start_ms,
        "metadata": chain.runtime.digest.hex(),
        "finalized": chain.blocks.finalized,
    }
    with closing(sqlite3.connect(draft)) as database, database:
        database.executescript(_SCHEMA)
        database.executemany(
            "INSERT INTO meta VALUES (?, ?)", [(name, json.dumps(each)) for name, each in meta.items()]
        )
        database.executemany("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)", map(_row, chain.blocks))
        database.executemany("INSERT INTO versions VALUES (?, ?, ?, ?)", chain.storage.dump())
    os.replace(draft, path)


def _row(block: Block) -> tuple[int, bytes, bytes, bytes, bytes, bytes]:
    body = b"".join(block.extrinsics)
    return block.number, block.hash, block.parent, block.state_root, block.extrinsics_root, body


def load_chain(path: Path) -> Chain:
    """A chain as it was when it was saved, under the genesis it was saved with."""
    if not path.exists():
        raise SnapshotError(f"expected a saved chain at {path}, found no file")
    with closing(sqlite3.connect(path)) as database:
        try:
            meta = {name: json.loads(value) for name, value in database.execute("SELECT name, value FROM meta")}
            blocks = [_block(row) for row in database.execute("SELECT * FROM blocks ORDER BY number")]
            versions = database.execute("SELECT item, key, block, value FROM versions ORDER BY rowid").fetchall()
        except (sqlite3.DatabaseError, ValueError) as error:
            raise SnapshotError(f"expected a saved chain in {path}, found another file: {error}") from error
    if meta.get("format") != _FORMAT:
        raise SnapshotError(
            f"expected a saved chain of format {_FORMAT}, found {meta.get('format')}: start a new chain"
        )
    genesis = genesis_from_dict(meta["genesis"])
    runtime = load_runtime(genesis.block_time_s, genesis.without_items)
    if runtime.digest.hex() != meta["metadata"]:
        raise SnapshotError(f"the chain in {path} was saved with another runtime: start a new chain")
    chain = Chain(genesis, start_ms=meta["start_ms"], runtime=runtime)
    chain.restore(blocks, versions, meta["finalized"])
    return chain


def _block(row: tuple[int, bytes, bytes, bytes, bytes, bytes]) -> Block:
    number, block_hash, parent, state, extrinsics, body = row
    return Block(number, block_hash, parent, state, extrinsics, split_body(body))
