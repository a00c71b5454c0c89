"""Accepted requests, remembered across restarts, so that a request cannot be played a second time.

An append-only text file, one "nonce hotkey" a line, written before a request is accepted. It survives the death of
the process; a death of the machine takes longer than the freshness window lasts. One process owns the file.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

RETENTION_S = 60.0
PRUNE_AT_LINES = 20_000


class FileNonceStore:
    """Implements auth.NonceStore on one file. Entries older than the retention are dropped from time to time."""

    def __init__(
        self, path: Path, *, now_ns: Callable[[], int] = time.time_ns, prune_at_lines: int = PRUNE_AT_LINES
    ) -> None:
        self.retention = RETENTION_S
        self._path = path
        self._now_ns = now_ns
        path.parent.mkdir(parents=True, exist_ok=True)
        self._seen = self._load()
        self._prune_at = self._prune_at_lines = prune_at_lines
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._rewrite()

    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        """True, and on file, when this pair is new; False when it was seen."""
        key = (nonce_ns, hotkey_ss58)
        if key in self._seen:
            return False
        self._seen.add(key)
        os.write(self._file, f"{nonce_ns} {hotkey_ss58}\n".encode())
        if len(self._seen) >= self._prune_at:
            self._rewrite()
        return True

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _load(self) -> set[tuple[int, str]]:
        if not self._path.exists():
            return set()
        pairs = (line.split(" ") for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines())
        return {(int(pair[0]), pair[1]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()}

    def _rewrite(self) -> None:
        oldest_ns = self._now_ns() - int(self.retention * 1e9)
        self._seen = {key for key in self._seen if key[0] >= oldest_ns}
        fresh = self._path.with_suffix(self._path.suffix + ".new")
        fresh.write_text("".join(f"{nonce} {hotkey}\n" for nonce, hotkey in sorted(self._seen)), encoding="utf-8")
        os.replace(fresh, self._path)
        os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._prune_at = len(self._seen) * 2 + self._prune_at_lines


class MemoryNonceStore:
    """Implements auth.NonceStore in memory, for tests and for neurons that only send."""

    def __init__(self) -> None:
        self.retention = RETENTION_S
        self._seen: set[tuple[int, str]] = set()

    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        """True, and remembered, when this pair is new; False when it was seen."""
        key = (nonce_ns, hotkey_ss58)
        if key in self._seen:
            return False
        self._seen.add(key)
        if len(self._seen) >= PRUNE_AT_LINES:
            oldest_ns = time.time_ns() - int(self.retention * 1e9)
            self._seen = {kept for kept in self._seen if kept[0] >= oldest_ns}
        return True
