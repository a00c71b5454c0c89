"""A miner's note of its last committed state: written whole and twice, read before it is ever written again."""

import json
from pathlib import Path

import numpy as np
import pytest

from subnet.edges.blobs import MemoryBlobs
from subnet.nodes.custody import NOTES, Custody, remembered
from tests.ledger.small import run_config

RUN = run_config()


def custody(folder: Path, blobs: MemoryBlobs) -> Custody:
    return Custody(run=RUN, stage=0, blobs=blobs, folder=folder)


def commit(folder: Path, blobs: MemoryBlobs, *, round_number: int = 0) -> str:
    """Commit a replica's state, as after a segment."""
    mine = custody(folder, blobs)
    mine.replica.start(mine.replica.stage.parameters_flat() + np.float32(round_number))  # each state is another one
    root, _ = mine.commit()
    mine.committed(round_number, root)
    return root


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs(limit_bytes=1 << 26)


def test_a_restarted_miner_finds_its_last_committed_state(tmp_path: Path, blobs: MemoryBlobs) -> None:
    assert remembered(tmp_path, RUN, blobs) == ""
    root = commit(tmp_path, blobs)
    assert remembered(tmp_path, RUN, blobs) == root


def test_a_process_that_only_starts_changes_no_note(tmp_path: Path, blobs: MemoryBlobs) -> None:
    """It may be killed before it has read anything: what the one before it committed must stay."""
    root = commit(tmp_path, blobs)
    before = {name: (tmp_path / name).read_bytes() for name in NOTES}
    custody(tmp_path, blobs)
    assert {name: (tmp_path / name).read_bytes() for name in NOTES} == before
    assert remembered(tmp_path, RUN, blobs) == root


@pytest.mark.parametrize("damage", [b"", b'{"run_id": "', b"\xff\xfe", b"[]", b'{"root": 7}', None])
@pytest.mark.parametrize("name", NOTES)
def test_one_damaged_copy_costs_nothing(name: str, damage: bytes | None, tmp_path: Path, blobs: MemoryBlobs) -> None:
    root = commit(tmp_path, blobs)
    (tmp_path / name).unlink()
    if damage is not None:
        (tmp_path / name).write_bytes(damage)
    assert remembered(tmp_path, RUN, blobs) == root


def test_a_kill_between_the_two_copies_leaves_the_newer_and_the_older(tmp_path: Path, blobs: MemoryBlobs) -> None:
    older = commit(tmp_path, blobs)
    backup = (tmp_path / NOTES[1]).read_bytes()
    newer = commit(tmp_path, blobs, round_number=1)
    (tmp_path / NOTES[1]).write_bytes(backup)
    assert older != newer and remembered(tmp_path, RUN, blobs) == newer
    (tmp_path / NOTES[0]).write_bytes(b"")
    assert remembered(tmp_path, RUN, blobs) == older


def test_a_state_whose_bytes_are_gone_or_another_run_s_is_not_resumed(tmp_path: Path, blobs: MemoryBlobs) -> None:
    root = commit(tmp_path, blobs)
    assert remembered(tmp_path, run_config(rounds=9), blobs) == ""
    blobs.delete(root)
    assert remembered(tmp_path, RUN, blobs) == ""
    for name in NOTES:
        (tmp_path / name).write_text(json.dumps({"run_id": RUN.run_id, "root": "../../etc/passwd"}))
    assert remembered(tmp_path, RUN, blobs) == ""
