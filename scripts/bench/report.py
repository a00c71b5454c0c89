"""What a benchmark leaves behind: figures in, docs/benchmarks/NAME.json and a table out.

Owns the file's format (docs/benchmarks/schema.json), the description of the machine and of the commit, and the exit
code. Knows nothing of what is measured. A figure says what it must be before it is measured, and whether it is.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs" / "benchmarks"
MEASURED_CODE = ("template", "subnet", "neurons", "scripts")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured value, what it must be (as text), whether it is (None: cannot be judged here), and how it is
    measured."""

    name: str
    value: float | int | None
    unit: str
    must: str
    holds: bool | None
    how: str


class Parts:
    """Measured parts of a benchmark that takes long, each in a file of its own as soon as it is there, so that a run
    that was cut off goes on. Parts of another commit, or of a quick run for a whole one, are refused."""

    def __init__(self, folder: Path | None, *, quick: bool) -> None:
        self._folder, self._of = folder, [commit(), quick]

    def part(self, name: str, kind: type[T], measure: Callable[[], T]) -> T:
        """The part as it lies there; measured, and put there, when it does not. Raises SystemExit."""
        if self._folder is None:
            return measure()
        path = self._folder / f"{name}.json"
        if not path.exists():
            made = measure()
            self._folder.mkdir(parents=True, exist_ok=True)
            content = msgspec.json.encode({"of": self._of, "part": made})
            path.with_suffix(".new").write_bytes(content)
            path.with_suffix(".new").rename(path)
            return made
        found = msgspec.json.decode(path.read_bytes())
        if found["of"] != self._of:
            sys.exit(
                f"expected a part of {self._of} (commit, quick), found {found['of']} in {path}; name another folder"
            )
        return msgspec.convert(found["part"], kind)


def options(about: str, *, parts: bool = False) -> argparse.Namespace:
    """The command line of every benchmark; parts: of one that can go on where it was cut off."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="take under two minutes; the file says so")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="where NAME.json goes")
    if parts:
        parser.add_argument("--parts", type=Path, metavar="DIR", help="keep each part here, and take those that are")
    return parser.parse_args()


def report(name: str, figures: Sequence[Figure], *, quick: bool, folder: Path = FOLDER) -> int:
    """Write NAME.json, show the figures, and give the exit code: 1 when one of them does not hold."""
    path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(name, figures, quick=quick), indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(table(figures) + f"\n{'quick run, ' if quick else ''}written to {path}\n")
    return int(any(figure.holds is False for figure in figures))


def document(name: str, figures: Sequence[Figure], *, quick: bool) -> dict[str, Any]:
    """The content of NAME.json."""
    return {
        "name": name,
        "commit": commit(),
        "machine": machine(),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "figures": [asdict(figure) for figure in figures],
    }


def table(figures: Sequence[Figure]) -> str:
    """The figures for a reader, one a line."""
    said = {True: "holds", False: "FAILS", None: "not judged here"}
    rows = [(each.name, _number(each.value), each.unit, each.must, said[each.holds]) for each in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def commit() -> str:
    """The commit that was measured; `+changes` follows when its code is not what lies here."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("+changes" if _git("status", "--porcelain", "--", *MEASURED_CODE) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    """Processor, cores, memory, system and Python, and how busy the machine is."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[2]:.1f} over the last 15 minutes"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
