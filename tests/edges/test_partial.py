"""What an unfinished download leaves: parts in their places, of no other size, and not for ever."""

import os
import time
from pathlib import Path

import pytest

from subnet.edges.partial import KEPT_S, Partial
from subnet.errors import EvidenceError, StoreError

NAME, OTHER, YOUNG = "a" * 64, "b" * 64, "c" * 64


def test_parts_lie_in_their_places_and_the_rest_is_zeros(tmp_path: Path) -> None:
    partial = Partial(tmp_path / "partial", NAME)
    assert partial.read(8) == b"" and not (tmp_path / "partial").exists()
    partial.write(5, b"xyz", size_bytes=8)
    partial.write(1, b"b", size_bytes=8)
    assert Partial(tmp_path / "partial", NAME).read(8) == b"\0b\0\0\0xyz"
    assert partial.read(9) == b""
    partial.drop()
    assert partial.read(8) == b""
    partial.drop()


def test_what_nobody_went_on_with_is_removed_and_what_is_young_or_asked_for_stays(tmp_path: Path) -> None:
    for name in (NAME, OTHER, YOUNG):
        Partial(tmp_path, name).write(0, b"x", size_bytes=1)
    old_s = time.time() - KEPT_S - 60
    for name in (NAME, OTHER):
        os.utime(tmp_path / name, (old_s, old_s))
    Partial(tmp_path, NAME)
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, YOUNG]


def test_a_name_is_no_path_and_a_disk_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="64 lower-case hex digits"):
        Partial(tmp_path, "../escaped")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="expected to keep an unfinished download in"):
        Partial(tmp_path / "file", NAME).write(0, b"x", size_bytes=1)
