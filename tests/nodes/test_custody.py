"""A miner's note of its last committed state: written whole and twice, read before it is ever written again."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from subnet.edges.blobs import LocalBlobs, MemoryBlobs
from subnet.errors import EvidenceError
from subnet.nodes.custody import NOTES, Custody, remembered
from subnet.stage.layout import PublicState, StateLayout, public_to_bytes
from subnet.wire.merkle import merkle_root
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


def public(fill: float) -> bytes:
    """A round's public state with these parameters."""
    layout = StateLayout(RUN, 0)
    flat = np.full(layout.num_parameters, fill, dtype=np.float32)
    return public_to_bytes(layout, PublicState(parameters=flat, outer_momentum=flat * 0))


def trained(mine: Custody, steps: int = 1) -> None:
    """Take so many inner steps with gradients of one."""
    for _ in range(steps):
        for tensor in mine.replica.stage.parameters.values():
            tensor.grad = torch.ones_like(tensor)
        mine.replica.step(3)
        mine.steps += 1


def test_a_round_starts_at_its_public_parameters_with_the_moments_of_the_last_state(
    tmp_path: Path, blobs: MemoryBlobs
) -> None:
    """A joiner has zeros. Steps that nobody committed leave nothing behind."""
    mine = custody(tmp_path, blobs)
    mine.take_public(0, public(0.5))
    mine.begin_round(0)
    assert mine.replica.state().moments.step == 0 and not mine.replica.state().moments.exp_avg.any()
    trained(mine, 2)
    mine.round_tokens = 64
    root, size_bytes = mine.commit()
    mine.committed(0, root)
    kept = mine.replica.state().moments
    assert (size_bytes, mine.uncommitted_steps, mine.root_tokens) == (mine.layout.state_bytes, 0, 64)
    trained(mine)
    assert mine.uncommitted_steps == 1
    mine.take_public(1, public(0.25))
    mine.begin_round(1)
    state = mine.replica.state()
    assert (state.parameters == np.float32(0.25)).all()
    assert (state.moments.exp_avg == kept.exp_avg).all() and state.moments.step == kept.step == 2
    assert (mine.steps, mine.round_tokens, mine.root_tokens) == (2, 0, 0)


def test_a_rollback_returns_to_the_last_state_of_the_round_or_to_its_begin(tmp_path: Path, blobs: MemoryBlobs) -> None:
    mine = custody(tmp_path, blobs)
    mine.take_public(0, public(0.5))
    mine.begin_round(0)
    trained(mine)
    mine.restore(0)
    assert (mine.replica.stage.parameters_flat() == np.float32(0.5)).all() and mine.steps == 0
    trained(mine)
    mine.round_tokens = 32
    root, _ = mine.commit()
    mine.committed(0, root)
    trained(mine)
    mine.round_tokens = 64
    mine.restore(0)
    assert merkle_root(mine.replica.commit()) == root and (mine.steps, mine.round_tokens) == (1, 32)


def test_after_a_fresh_start_nothing_of_the_old_moments_is_left(tmp_path: Path, blobs: MemoryBlobs) -> None:
    mine = custody(tmp_path, blobs)
    mine.take_public(0, public(0.5))
    mine.begin_round(0)
    trained(mine)
    root, _ = mine.commit()
    mine.committed(0, root)
    mine.start_afresh()
    assert remembered(tmp_path, RUN, blobs) == ""
    mine.take_public(1, public(0.25))
    mine.restore(1)
    assert mine.replica.state().moments.step == 0 and not mine.replica.state().moments.exp_avg_sq.any()


def test_public_states_before_the_last_round_are_forgotten(tmp_path: Path, blobs: MemoryBlobs) -> None:
    mine = custody(tmp_path, blobs)
    for number in range(4):
        mine.take_public(number, public(number / 8))
    assert sorted(mine.publics) == [2, 3]
    mine.begin_round(3)
    trained(mine)
    start, end = mine.pseudo_gradient(3)
    assert (start == np.float32(3 / 8)).all() and not np.array_equal(start, end)


def test_a_state_that_was_damaged_on_disk_is_not_gone_on_from(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "blobs", limit_bytes=1 << 26)
    mine = Custody(run=RUN, stage=0, blobs=blobs, folder=tmp_path)
    mine.take_public(0, public(0.5))
    mine.begin_round(0)
    trained(mine)
    root, size_bytes = mine.commit()
    mine.committed(0, root)
    (tmp_path / "blobs" / root[:2] / root).write_bytes(bytes(size_bytes))
    with pytest.raises(EvidenceError, match=f"expected bytes of digest or root {root[:16]}"):
        mine.restore(0)
