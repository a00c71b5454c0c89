"""A miner sees each of its verdicts, why, and how to check it: in its log and on its health page."""

import logging

import pytest

from subnet.canonical import digest_of
from subnet.nodes.told import SHOWN, Told
from subnet.wire.messages import WIRE_VERSION, Check, Verdict


def verdict(word: str, reason: str, *, number: int = 0) -> Verdict:
    return Verdict(
        version=WIRE_VERSION,
        run_id="0" * 64,
        validator="validator",
        segment="5e" * 32,
        hotkey="miner",
        stage=1,
        round=3,
        verdict=word,
        reason=reason,
        distance=0.2,
        tolerance=1e-4,
        checks=(
            Check(name="activation", distance=0.2, tolerance=1e-4),
            Check(name="norm", distance=0.0, tolerance=1e-4),
        ),
        evidence=(),
        draw=None,
        time_ms=number,
    )


def test_each_verdict_is_one_line_with_its_reason_and_the_way_to_check_it(caplog: pytest.LogCaptureFixture) -> None:
    told, failed = Told(), verdict("fail", "activation")
    with caplog.at_level(logging.INFO, logger="strata.miner"):
        for each in (verdict("pass", "ok"), failed, verdict("void", "withheld")):
            told.take(each)
    lines = [record.getMessage() for record in caplog.records]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
    assert lines[1] == (
        "verdict=fail reason=activation segment=5e5e5e5e5e5e round=3 stage=1 distance=0.2 tolerance=0.0001 "
        "checks=activation:0.2/0.0001,norm:0/0.0001 by=validator "
        f"check='strata replay {digest_of(failed)[:12]} --run URL'"
    )
    assert lines[2].endswith("check=''"), "a void has nothing to repeat"


def test_the_health_page_has_the_counts_and_the_last_verdicts() -> None:
    told = Told()
    for number in range(SHOWN + 5):
        told.take(verdict("pass", "ok", number=number))
    newest = verdict("fail", "norm", number=99)
    told.take(newest)
    page = told.health()
    assert page["verdicts"] == {"pass": SHOWN + 5, "fail": 1, "void": 0}
    assert len(page["last_verdicts"]) == SHOWN
    shown = page["last_verdicts"][-1]
    assert (shown["id"], shown["reason"], shown["validator"]) == (digest_of(newest), "norm", "validator")
    assert shown["checks"] == {"activation": [0.2, 1e-4], "norm": [0.0, 1e-4]}
    assert shown["check"].startswith(f"strata replay {digest_of(newest)[:12]}")
