"""The nonce file: kept over restarts, pruned by age, and readable after a crash in the middle of a line."""

import time
from pathlib import Path

from template.nonces import FileNonceStore


def test_a_torn_last_line_costs_only_that_line(tmp_path: Path) -> None:
    path, now_ns = tmp_path / "nonces", time.time_ns()
    path.write_bytes(f"{now_ns} 5A\n{now_ns + 1} 5B\n{now_ns + 2}".encode() + b" \xff")
    store = FileNonceStore(path)
    assert not store.check_and_store("5A", now_ns) and not store.check_and_store("5B", now_ns + 1)
    assert store.check_and_store("5C", now_ns + 2)
    assert not FileNonceStore(path).check_and_store("5C", now_ns + 2)


def test_old_entries_are_dropped_and_young_ones_kept(tmp_path: Path) -> None:
    path, now_ns = tmp_path / "nonces", time.time_ns()
    first = FileNonceStore(path)
    first.check_and_store("5A", now_ns - 61 * 10**9)
    first.check_and_store("5A", now_ns)
    first.close()
    again = FileNonceStore(path)
    assert path.read_text() == f"{now_ns} 5A\n"
    assert not again.check_and_store("5A", now_ns)


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    path, clock_s = tmp_path / "nonces", [0]
    store = FileNonceStore(path, now_ns=lambda: clock_s[0] * 10**9, prune_at_lines=100)
    for clock_s[0] in range(1000):
        assert store.check_and_store("5A", clock_s[0] * 10**9)
    assert len(path.read_text().splitlines()) < 300
    assert not store.check_and_store("5A", clock_s[0] * 10**9)
