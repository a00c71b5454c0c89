"""Laws of the command line: every command is listed and explains itself with an example; nothing loads too much."""

import subprocess
import sys
from pathlib import Path

import pytest

from subnet.cli.main import COMMANDS, run


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name} " in shown
        assert command.does in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name: str, capsys: pytest.CaptureFixture[str]):
    assert run([name, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Usage: strata {name}" in shown
    if name != "ledger":
        assert COMMANDS[name].example in shown


@pytest.mark.parametrize("name", ["verify", "export"])
def test_the_ledger_s_commands_have_examples_too(name: str, capsys: pytest.CaptureFixture[str]):
    assert run(["ledger", name, "--help"]) == 0
    assert f"Example: strata ledger {name}" in capsys.readouterr().out


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("strata ")


@pytest.mark.parametrize(
    "words", [["chian"], [], ["--nonsense"], ["chain", "--port", "x"], ["chain", "--port", "70000"]]
)
def test_wrong_usage_ends_with_2_and_no_traceback(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(words) == 2
    assert "Traceback" not in capsys.readouterr().err


def loaded(repository: Path, statement: str) -> set[str]:
    code = (
        f"import sys; {statement}; "
        "print(*({'torch', 'transformers', 'bittensor', 'datasets', 'numpy', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_overview_loads_nothing_heavy(repository: Path):
    assert loaded(repository, "from subnet.cli.main import run; run(['--help'])") == set()


@pytest.mark.flow
def test_the_dev_chain_loads_neither_torch_nor_the_sdk(repository: Path):
    assert loaded(repository, "import subnet.cli.chain") & {"torch", "transformers", "bittensor"} == set()


@pytest.mark.flow
def test_the_leaderboard_loads_neither_torch_nor_the_sdk(repository: Path):
    assert loaded(repository, "import subnet.cli.leaderboard") & {"torch", "transformers", "bittensor"} == set()
