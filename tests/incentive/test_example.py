"""The worked example of docs/incentive.md, computed again from its own numbers."""

from pathlib import Path

import pytest

from subnet.incentive.score import books
from subnet.incentive.weights import to_weights
from tests.audit.histories import add_segment, audit_run, history, judged
from tests.incentive.views import view_of

VALIDATORS = {"validator-a": 1, "validator-b": 1}
NOW_MS = 10**9


def tables(repository: Path) -> list[list[list[str]]]:
    """The example's blocks: rows of words, without their headings."""
    text = (repository / "docs" / "incentive.md").read_text(encoding="utf-8").split("## One example in numbers")[1]
    blocks = text.split("```")[1::2]
    return [[line.split() for line in block.splitlines() if line and not line.startswith("#")] for block in blocks]


def test_the_worked_example_is_right(repository):
    """Segments to books, books to weights."""
    segments, ledger, weights = tables(repository)
    state = history(
        audit_run(window_segments=4, audit_window_s=60.0, burn_frac=0.1), ("anna", "bert", "carl"), VALIDATORS
    )
    state.round = 1
    for hotkey, round_, work, unpaid, *words in segments:
        told = " ".join(words)
        segment = add_segment(
            state,
            hotkey,
            round=int(round_),
            work=int(work),
            unpaid=int(unpaid),
            tainted=told == "tainted",
            time_ms=NOW_MS if told == "open" else 0,
        )
        verdicts = {"passed": ["pass"], "void": ["void"], "one fail": ["fail"], "upheld fail": ["fail", "fail"]}
        for validator, verdict in zip(VALIDATORS, verdicts.get(told, []), strict=False):
            judged(state, segment, validator, verdict)
    found = books(state, now_ms=NOW_MS, own=None)
    for hotkey, *numbers in ledger:
        book = found[hotkey]
        stated = [book.committed, book.refuted, book.pending, book.payable, book.unpaid, book.score]
        assert stated == [int(number) for number in numbers], hotkey
    hotkeys = ("owner", "anna", "bert", "carl")
    shares = to_weights(found, view_of(hotkeys), state.config)
    assert {hotkeys[uid]: weight for uid, weight in shares.items()} == pytest.approx(
        {hotkey: float(weight) for hotkey, weight in weights}
    )
