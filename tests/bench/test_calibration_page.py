"""The page's tables are those of the packaged calibration and of the benchmark's file."""

import msgspec

from scripts.bench.calibration_page import MEASURED, PAGE, figures, renewed, tables, with_tables
from subnet.edges.tolerances import read_calibration


def test_the_page_says_what_the_measured_files_have():
    page = PAGE.read_text(encoding="utf-8")
    assert page == renewed(page), "run scripts/bench/calibration_page.py"


def test_another_calibration_would_be_another_page():
    packaged = read_calibration()
    first = msgspec.structs.replace(packaged.spreads[0], count=packaged.spreads[0].count + 1000)
    assert tables(msgspec.structs.replace(packaged, spreads=(first, *packaged.spreads[1:]))) != tables(packaged)


def figure(name: str, value: float, holds: bool | None) -> dict[str, object]:
    return {"name": name, "value": value, "unit": "of drawn segments", "must": "1", "holds": holds, "how": ""}


def test_the_worst_of_a_class_stands_for_it_and_a_figure_that_fails_is_seen():
    found = [
        *(figure("caught_scale_float32_adamw", 1.0, True), figure("caught_skip-blocks_float32_adamw", 0.75, False)),
        *(figure("caught_scale_float32_muon", 0.5, None), figure("honest_audits", 12_000, True)),
    ]
    made = figures({"machine": "a machine", "figures": found})
    assert made.splitlines()[4:] == [
        "| `caught_*_float32_adamw`, least of all named cheats | 0.75 of drawn segments | 1 | **no** |",
        "| `caught_*_float32_muon`, least of all named cheats | 0.5 of drawn segments | 1 | - |",
        "| `honest_audits` | 12,000 of drawn segments | 1 | yes |",
    ]
    page = PAGE.read_text(encoding="utf-8")
    assert made in with_tables(page, made, MEASURED) and tables(read_calibration()) in with_tables(page, made, MEASURED)
