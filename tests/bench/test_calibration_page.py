"""The page's tables are the packaged calibration's."""

import msgspec

from scripts.bench.calibration_page import PAGE, tables, with_tables
from subnet.edges.tolerances import read_calibration


def test_the_page_says_what_the_packaged_calibration_has():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page, tables(read_calibration())), "run scripts/bench/calibration_page.py"


def test_another_calibration_would_be_another_page():
    packaged = read_calibration()
    first = msgspec.structs.replace(packaged.spreads[0], count=packaged.spreads[0].count + 1000)
    assert tables(msgspec.structs.replace(packaged, spreads=(first, *packaged.spreads[1:]))) != tables(packaged)
