"""What `--cheats` means, ours and the user's own, and what it refuses."""

import subprocess
import sys

import pytest

from subnet.cheats.registry import CHEATS, make_cheat, parse_cheats
from subnet.errors import ConfigError


def test_kind_strength_and_count_are_read():
    assert parse_cheats("scale:0.2=1") == [("scale", 0.2, 1)]
    assert parse_cheats("idle") == [("idle", None, 1)]
    assert parse_cheats(" idle=2, relabel:0.5 ") == [("idle", None, 2), ("relabel", 0.5, 1)]
    assert parse_cheats("") == []
    assert parse_cheats("a/b.py:Mine:0.3=4") == [("a/b.py:Mine", 0.3, 4)]
    assert parse_cheats("a/b.py:Mine") == [("a/b.py:Mine", None, 1)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lazy", "expected a cheat of badmerge, copy, .*, or FILE.py:Class, found 'lazy'"),
        ("scale:much", "expected a number after the colon in the cheat 'scale:much', found 'much'"),
        ("scale:nan", "found 'nan'"),
        ("scale=x", "expected a whole number of miners after the =.*found 'x'"),
        ("scale=", "found ''"),
        ("scale=0", "expected at least 1 miner of cheat 'scale=0', found 0"),
        ("scale=-1", "found -1"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_cheats(text)


@pytest.mark.parametrize("kind", CHEATS)
def test_every_named_cheat_can_be_made(kind):
    assert make_cheat(kind).strength == type(make_cheat(kind)).default_strength
    assert make_cheat(kind, 0.7).strength == 0.7


def test_a_class_from_the_users_file_is_a_cheat(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from subnet.cheats.base import Cheat\nclass Mine(Cheat):\n    default_strength = 3.0\n")
    assert make_cheat(f"{path}:Mine").strength == 3.0


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "expected a file of cheats at"),
        ("x = 1\n", "expected a subclass 'Mine' of subnet.cheats.base.Cheat"),
        ("class Mine:\n    pass\n", "expected a subclass 'Mine'"),
        ("def (\n", "expected a cheat that can be imported"),
        ("import no_such_module_anywhere\n", "expected a cheat that can be imported"),
    ],
)
def test_a_file_without_the_cheat_is_refused_in_a_sentence(tmp_path, source, sentence):
    path = tmp_path / "mine.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(ConfigError, match=sentence):
        make_cheat(f"{path}:Mine")


def test_naming_cheats_does_not_import_torch():
    """The command line and the orchestrator stay without it."""
    code = "import sys, subnet.cheats.registry as cheats; cheats.parse_cheats('scale'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
