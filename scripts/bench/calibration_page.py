#!/usr/bin/env python3
"""The tables of docs/audit.md that measured files fill: every class' tolerances, and the benchmark's figures.

    scripts/bench/calibration_page.py    # after `strata calibrate --out subnet/edges/tolerances.json`

Rewrites what lies between the page's marks; `scripts/bench/audit.py` does it too, at its end. A test compares page and
files.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from subnet.audit.tolerance import KINDS, SMALL_RUNS, Calibration, classes, tolerances  # noqa: E402
from subnet.edges.tolerances import read_calibration  # noqa: E402

PAGE = ROOT / "docs" / "audit.md"
FIGURES = ROOT / "docs" / "benchmarks" / "audit.json"
CALIBRATION, MEASURED = "calibration", "figures"  # the names of the marks
DEFAULT = ("float32", "adamw", "none")
FOLDED = {"caught": ("least of all named cheats", min), "smallest": ("largest of all kinds of comparison", max)}


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
        if (spread.dtype, spread.optimizer, spread.codec, spread.model) == (*DEFAULT, SMALL_RUNS):
            values = (spread.q50, spread.q999, spread.max, spread.tolerance)
            yield _row(spread.kind, f"{spread.count:,}", *map(_number, values))
    yield ""
    yield "Tolerances of every class, for small runs (`-`), and for the default model (`tiny`) where it was measured:"
    yield ""
    yield _row("dtype", "optimizer", "codec", "model", "segments", *KINDS)
    yield "|" + "---|" * (len(KINDS) + 5)
    for dtype, optimizer, codec in classes():
        own = [s for s in calibration.spreads if (s.dtype, s.optimizer, s.codec) == (dtype, optimizer, codec)]
        for model in dict.fromkeys(spread.model for spread in own):
            within = tolerances(calibration, dtype=dtype, optimizer=optimizer, codec=codec, model=model)
            most = max(spread.count for spread in own if spread.model == model)
            limits = (_number(within[kind]) for kind in KINDS)
            yield _row(dtype, optimizer, codec, model or "-", f"{most:,}", *limits)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    return f"{value:.1e}"


def figures(document: dict[str, Any]) -> str:
    """The benchmark's figures, a line each; cheats by name, and kinds of comparison, are one line for each class."""
    lines = [f"On {document['machine']}.", "", _row("figure", "value", "must be", "holds"), "|---|---|---|---|"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for figure in document["figures"]:
        kind, *rest = figure["name"].split("_")
        name = f"`{kind}_*_{'_'.join(rest[1:])}`, {FOLDED[kind][0]}" if kind in FOLDED else f"`{figure['name']}`"
        groups.setdefault(name, []).append(figure)
    for name, own in groups.items():
        kind, (first, *_) = own[0]["name"].split("_")[0], own
        value = FOLDED[kind][1](each["value"] for each in own) if kind in FOLDED else first["value"]
        said = {True: "yes", False: "**no**", None: "-"}[_all(own)]
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        lines.append(_row(name, f"{shown} {first['unit']}", first["must"], said))
    return "\n".join(lines) + "\n"


def _all(own: list[dict[str, Any]]) -> bool | None:
    """Whether all hold; None where nobody judges."""
    verdicts = {each["holds"] for each in own}
    return False if False in verdicts else None if None in verdicts else True


def with_tables(page: str, made: str, name: str = CALIBRATION) -> str:
    """The page with these tables between its marks of this name."""
    begin, end = (f"<!-- {name}: {word} -->\n" for word in ("begin", "end"))
    before, rest = page.split(begin)
    return before + begin + made + end + rest.split(end)[1]


def renewed(page: str) -> str:
    """The page as the files say it."""
    page = with_tables(page, tables(read_calibration()))
    if FIGURES.exists():
        page = with_tables(page, figures(json.loads(FIGURES.read_text(encoding="utf-8"))), MEASURED)
    return page


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
