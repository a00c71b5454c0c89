"""Laws of the board as text: plain ASCII at 100 columns whatever the names, and the cheater named with its reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.board.facts import Around, facts
from subnet.board.table import ascii_only, board, columns, quantity, ranked, short
from tests.board.made_up import made_up
from tests.board.small_run import CHEATER, T0_MS, hotkey, small_run


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("miners", [0, 1, 5, 256])
def test_the_board_is_printable_ascii_of_at_most_100_columns(miners: int, hostile: bool):
    for line in board(made_up(miners, hostile=hostile, rounds=3 if miners else 0)).split("\n"):
        assert len(line) <= 100
        assert all(" " <= char <= "~" for char in line)


def test_the_board_names_the_cheater_its_refuted_work_and_the_reason():
    document = facts(small_run().fold(), None, T0_MS + 10**6, around=Around(cheats={hotkey(CHEATER): "scale"}))
    text = board(document)
    (line,) = [line for line in text.split("\n") if line.startswith("refuted: ")]
    assert short(hotkey(CHEATER)) in line
    assert "cheat scale" in line
    assert "weight 0.000" in line
    assert "round 0: activation, distance 0.19 where 0.0001 is allowed" in text
    assert "about a quarter of all segments are audited (2 of 8)" in text


def test_committed_weights_are_said_with_their_blocks():
    document = made_up(3)
    (line,) = [line for line in board(document).split("\n") if line.startswith("weights: ")]
    assert line.startswith("weights: those of validator 101 (5")
    assert line.endswith("were committed at block 310, revealed at about block 330")
    document["validators"] *= 8
    lines = [line for line in board(document).split("\n") if line.startswith("weights: ")]
    assert len(lines) == 5 and lines[-1] == "weights: 4 more validators have committed some"


def test_a_run_without_a_refusal_says_so():
    document = made_up(3)
    for row in document["miners"]:
        row["work_refuted"] = 0
    assert "refuted: no work of any miner" in board(document)


def test_the_cheater_stands_last_and_stays_visible_among_many():
    document = made_up(256)
    cheater = ranked(document["miners"])[-1]
    assert cheater["cheat"] == "scale"
    text = board(document)
    assert short(cheater["hotkey"]) in text
    assert "and 216 more; --json lists all" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1234567, "1.23M"), (4.5e15, "4.5P"), (None, "-"), (999_600, "1M")],
)
def test_quantities_have_three_digits_and_a_unit(value: int | float | None, text: str):
    assert quantity(value) == text


@given(st.text(max_size=200), st.integers(4, 40))
def test_no_text_leaves_ascii_or_its_limit(text: str, limit: int):
    shown = ascii_only(text, limit)
    assert len(shown) <= limit
    assert all(" " <= char <= "~" for char in shown)


@given(st.lists(st.tuples(st.text("ab", max_size=5), st.text("cd", max_size=9)), max_size=6))
def test_columns_line_up(rows: list[tuple[str, str]]):
    lines = columns(("left", "right"), rows, left=("left",))
    width = len(lines[1])
    assert all(len(line) <= width for line in lines)
    assert all(line.endswith(row[1]) for line, row in zip(lines[2:], rows, strict=True))
