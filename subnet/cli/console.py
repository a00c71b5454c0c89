"""Where commands write: facts to stdout, complaints and progress to stderr. The only file that writes there.

Text from other machines goes through `plain`, so that no name can move the cursor, colour the screen or break a line.
Knows nothing of what is said.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def line(text: str) -> None:
    """Write a line (or a block of them) to stdout at once, so that a program that reads it does not wait."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Write one line of progress to stderr."""
    sys.stderr.write(plain(text) + "\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """Write the one sentence that says why a command ends, to stderr."""
    note(f"error: {text}")


def show_json(value: Any) -> None:
    """Write a JSON document to stdout."""
    line(json.dumps(value, indent=2, sort_keys=False, ensure_ascii=True, allow_nan=False))


def plain(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(char if char.isprintable() else " " for char in text)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old content or all of the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
