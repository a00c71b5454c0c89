"""A miner's evidence over rounds, fails and restarts; a store that is pruned by what the ledger still needs."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from subnet.audit.draw import OWED_ROUNDS
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.edges.blobs import BlobStore, LocalBlobs, MemoryBlobs
from subnet.errors import StoreError
from subnet.incentive.owed import KEPT_S, kept_s, pinned_until
from subnet.nodes.retention import NOTE, Retention, prune, write_note
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

LIMIT_BYTES = 1 << 20
ROUND_S = 10_000.0  # so long that no age protects anything


def window(segments: int) -> RunConfig:
    run = run_config()
    return replace(run, pay=replace(run.pay, window_segments=segments))


RUN = window(6)  # two segments a round: a fail is pinned for three rounds


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now_s = 4e9  # later than any file of today is dated

    def __call__(self) -> float:
        return self.now_s


def retention(folder: Path, clock: Clock, blobs: BlobStore | None = None) -> Retention:
    """The retention of a process that starts in this folder."""
    store = blobs or LocalBlobs(folder / "blobs", limit_bytes=LIMIT_BYTES)
    return Retention(blobs=store, run=RUN, folder=folder, clock=clock)


def put(kept: Retention, number: int, text: str) -> str:
    name = digest(text.encode())
    kept.keep(number, name, text.encode())
    return name


def test_evidence_of_two_rounds_is_kept_and_older_is_deleted(tmp_path: Path) -> None:
    clock = Clock()
    kept = retention(tmp_path, clock)
    names = []
    for number in range(5):
        kept.forget(number, needed="")
        names.append(put(kept, number, f"frame {number}"))
        clock.now_s += ROUND_S
    assert kept.blobs.digests() == sorted(names[3:])


def test_short_rounds_do_not_outrun_an_audit(tmp_path: Path) -> None:
    clock = Clock()
    kept = retention(tmp_path, clock)
    name = put(kept, 0, "frame")
    clock.now_s += kept_s(RUN) - 1
    kept.forget(50, needed="")
    assert kept.blobs.has(name)
    clock.now_s += 2
    kept.forget(51, needed="")
    assert not kept.blobs.has(name)


def test_the_state_that_a_round_starts_from_is_evidence_of_that_round_too(tmp_path: Path) -> None:
    """An audit of the round's first segment begins from it, a round later still."""
    clock = Clock()
    kept = retention(tmp_path, clock)
    root = put(kept, 0, "state")
    clock.now_s += ROUND_S
    kept.forget(1, needed=root)
    clock.now_s += ROUND_S
    kept.forget(2, needed="")
    assert kept.blobs.has(root)
    clock.now_s += ROUND_S
    kept.forget(3, needed="")
    assert not kept.blobs.has(root)


def test_a_fail_pins_the_evidence_of_its_round_until_its_window_closes(tmp_path: Path) -> None:
    clock = Clock()
    kept = retention(tmp_path, clock)
    names = [put(kept, number, f"frame {number}") for number in (0, 1)]
    kept.pin(1)
    clock.now_s += ROUND_S
    for number in range(2, pinned_until(RUN, 1) + 1):
        kept.forget(number, needed="")
        assert kept.blobs.has(names[1])
    assert not kept.blobs.has(names[0])
    kept.forget(pinned_until(RUN, 1) + 1, needed="")
    assert kept.blobs.digests() == [] and kept.pins == {}


def test_what_an_earlier_process_left_is_pruned_by_its_successor(tmp_path: Path) -> None:
    """Noted blobs by their own round; what nobody noted (a state committed in vain, say) two rounds after the start."""
    clock = Clock()
    first = retention(tmp_path, clock)
    old, young = put(first, 0, "old"), put(first, 2, "young")
    orphan = first.blobs.put(b"nobody knows why")
    os.utime(tmp_path / "blobs" / orphan[:2] / orphan, (clock.now_s, clock.now_s))
    clock.now_s += ROUND_S
    second = retention(tmp_path, clock)
    second.forget(3, needed="")
    assert second.blobs.digests() == sorted((young, orphan)) and not second.blobs.has(old)
    third = retention(tmp_path, clock)
    third.forget(4, needed="")
    assert third.blobs.digests() == [orphan]
    third.forget(5, needed="")
    assert third.blobs.digests() == []


@pytest.mark.parametrize("damage", ["gone", "cut", "garbage"])
def test_a_damaged_note_keeps_longer_and_loses_nothing(damage: str, tmp_path: Path) -> None:
    clock = Clock()
    first = retention(tmp_path, clock)
    names = sorted(put(first, 0, f"frame {number}") for number in range(3))
    note = tmp_path / NOTE
    if damage == "gone":
        note.unlink()
    else:
        note.write_bytes({"cut": note.read_bytes()[:-30], "garbage": b"\xff\x00 kept x y\nkept 1 2\n"}[damage])
    clock.now_s += ROUND_S
    second = retention(tmp_path, clock)
    second.forget(1, needed="")
    assert second.blobs.digests() == names
    second.forget(3, needed="")
    assert second.blobs.digests() == []


def test_a_note_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    kept = retention(tmp_path, Clock())
    (tmp_path / NOTE).mkdir()
    with pytest.raises(StoreError, match=r"expected to read and write .*kept.txt, found: .*; free the disk or choose"):
        put(kept, 0, "frame")


def test_a_note_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    write_note(path, "old")
    (tmp_path / "replica.new").mkdir()  # stands for a disk that takes no more
    with pytest.raises(StoreError, match="expected to read and write"):
        write_note(path, "new")
    assert path.read_text() == "old"


plans = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=10)


@given(plans)
def test_no_audit_that_is_owed_finds_a_gap(history: list[tuple[int, bool, bool]]) -> None:
    """Rounds of some segments, a fail of the last one or none, a restart or none: start, end and frame are all there.

    In a round without a segment the replica keeps its state, from which a later one starts.
    """
    clock = Clock()
    with TemporaryDirectory() as place:
        folder, blobs = Path(place), MemoryBlobs(limit_bytes=LIMIT_BYTES)
        kept, root = retention(folder, clock, blobs), ""
        segments: list[tuple[int, set[str]]] = []
        failed: set[int] = set()
        for number, (count, fails, restarts) in enumerate(history):
            kept.forget(number, needed=root)
            for position in range(count):
                end = put(kept, number, f"state {number} {position}")
                frame = put(kept, number, f"frame {number} {position}")
                segments.append((number, {root, end, frame} - {""}))
                root = end
            if fails and count:
                kept.pin(number)
                failed.add(number)
            clock.now_s += ROUND_S
            if restarts:
                kept = retention(folder, clock, blobs)
            there = set(kept.blobs.digests())
            for made, names in segments:
                if made > number - OWED_ROUNDS or (made in failed and number <= pinned_until(RUN, made)):
                    assert names <= there, f"round {number} lacks evidence of round {made}"
        end = len(history) + pinned_until(RUN, 0) + OWED_ROUNDS + 1
        kept.forget(end, needed="")
        kept.forget(end + OWED_ROUNDS, needed="")
        assert kept.blobs.digests() == []


def test_a_store_is_pruned_to_what_the_ledger_needs_and_nothing_young_is_touched() -> None:
    sim = Simulation(run=run_config(rounds=4))
    sim.start("ann", "ben")
    while sim.state.phase != "done":
        sim.do_round()
    state, store = sim.state, MemoryBlobs(limit_bytes=LIMIT_BYTES)
    stale, fresh = store.put(b"a contribution of round 0"), store.put(b"not in the ledger yet")
    now_s = store.kept_since_s(fresh)
    assert prune(store, state, now_s=now_s + KEPT_S - 1) == 0
    assert prune(store, state, now_s=now_s + KEPT_S) == 2
    assert not store.has(stale) and store.digests() == []


def test_what_is_owed_stays_however_old_it_is(tmp_path: Path) -> None:
    """With bytes whose digests the ledger names: the contributions of a closed round."""
    from tests.nodes.served import MINERS, contribution, simulated

    sim = simulated("merge")
    store = LocalBlobs(tmp_path, limit_bytes=LIMIT_BYTES)
    names = {store.put(contribution(sim, name)) for name in MINERS}
    other = store.put(b"of nobody")
    now_s = sim.state.time_ms / 1000 + 10**9
    assert prune(store, sim.state, now_s=now_s) == 1
    assert set(store.digests()) == names and other not in names
