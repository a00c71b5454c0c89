#!/usr/bin/env python3
"""The tables of docs/audit.md that the packaged calibration fills: what was measured, and every class' tolerances.

    scripts/bench/calibration_page.py    # after `strata calibrate --out subnet/edges/tolerances.json`

Rewrites what lies between the page's two marks. A test compares page and file.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from subnet.audit.tolerance import KINDS, Calibration, classes, tolerances  # noqa: E402
from subnet.edges.tolerances import read_calibration  # noqa: E402

PAGE = ROOT / "docs" / "audit.md"
BEGIN, END = "<!-- calibration: begin -->\n", "<!-- calibration: end -->\n"
DEFAULT = ("float32", "adamw", "none")


def tables(calibration: Calibration) -> str:
    """All of it."""
    return "\n".join(_lines(calibration)) + "\n"


def _lines(calibration: Calibration) -> Iterator[str]:
    machine, versions = calibration.machine, calibration.versions
    accelerator = {"none": "no accelerator"}.get(machine["accelerator"], machine["accelerator"])
    yield (
        f"The packaged calibration: {calibration.segments:,} honest segments of {calibration.settings} runs under "
        f"{len(calibration.conditions)} conditions, on"
    )
    yield f"{machine['processor']} ({machine['cores']} cores, {accelerator}), torch {versions['torch']}. Distances in"
    yield "the default class, float32 with AdamW over the codec `none`:"
    yield ""
    yield "| kind | segments | median | 99.9 % | largest | tolerance |"
    yield "|---|---|---|---|---|---|"
    for spread in calibration.spreads:
        if (spread.dtype, spread.optimizer, spread.codec) == DEFAULT:
            values = (spread.q50, spread.q999, spread.max, spread.tolerance)
            yield _row(spread.kind, f"{spread.count:,}", *map(_number, values))
    yield ""
    yield "Tolerances of every class, and the largest ratio of one to the 99.9th percentile of its own segments:"
    yield ""
    yield _row("dtype", "optimizer", "codec", "segments", *KINDS, "ratio")
    yield "|" + "---|" * (len(KINDS) + 5)
    for dtype, optimizer, codec in classes():
        own = [s for s in calibration.spreads if (s.dtype, s.optimizer, s.codec) == (dtype, optimizer, codec)]
        within = tolerances(calibration, dtype=dtype, optimizer=optimizer, codec=codec)
        ratio = max(spread.tolerance / spread.q999 for spread in own)
        most = max(spread.count for spread in own)
        yield _row(dtype, optimizer, codec, f"{most:,}", *(_number(within[kind]) for kind in KINDS), f"{ratio:.2f}")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    return f"{value:.1e}"


def with_tables(page: str, made: str) -> str:
    """The page with these tables between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + made + END + rest.split(END)[1]


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables(read_calibration())), encoding="utf-8")


if __name__ == "__main__":
    main()
