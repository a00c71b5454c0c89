"""The page from-nothing.md, executed: its lines for this machine, in order, end with two miners that the chain pays."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from template.sdk import load_wallet
from tests.ports import reserved_port

HERE = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TESTNET = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ONLY_HERE = {
    "strata chain",
    "btcli wallet show",
    "btcli query metagraph",
}  # the dev chain itself, and what scripts need
LIMIT_S = 240.0  # after the run: a few tempos of five seconds, on a machine that does other things too


def page(repository: Path) -> str:
    return (repository / "docs" / "from-nothing.md").read_text(encoding="utf-8")


def calls(blocks: list[str]) -> list[str]:
    """What is called, as program and command, a group's command too: `btcli wallet create`, `strata miner`."""
    found = re.findall(r"\b(btcli(?: [a-z-]+){2}|strata [a-z-]+)", "\n".join(blocks))
    return [name for name in found if name not in ONLY_HERE]


def test_every_line_has_its_form_for_testnet(repository: Path):
    here, there = HERE.findall(page(repository)), TESTNET.findall(page(repository))
    missing = set(calls(here)) - set(calls(there))
    assert missing == set()
    assert "local" not in "".join(there).split()
    online = [
        line for line in "".join(there).splitlines() if not line.startswith(("btcli wallet create", "strata lead"))
    ]
    assert [line for line in online if "test" not in shlex.split(line)] == []


class Shell:
    """A bash that reads blocks of lines; it ends at the first that fails, as `set -e` says."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "-e"], cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, block: str) -> str:
        """What a block writes. A line that fails is an assertion with everything that the block wrote."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{block}\necho '=== done ==='\n")
        self.process.stdin.flush()
        said = ""
        for line in self.process.stdout:
            if line.rstrip() == "=== done ===":
                return said
            said += line
        raise AssertionError(f"the shell ended with {self.process.wait()} in:\n{block}\nit said:\n{said}")


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    """The ports of the page, and free ones in their place."""
    with reserved_port() as chain, reserved_port() as board:
        yield {"9944": str(chain), "8080": str(board)}


@pytest.fixture
def shell(tmp_path: Path, isolated_home: Path, repository: Path, ports: dict[str, str]) -> Iterator[Shell]:
    """A shell that finds `strata` and `btcli`, in an empty folder. Its processes end with it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "strata").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m subnet.cli.main "$@"\n')
    (programs / "strata").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(repository),
        "BT_CHAIN_ENDPOINT": f"ws://127.0.0.1:{ports['9944']}",
        "NO_COLOR": "1",
    }
    bash = Shell(tmp_path, environment)
    try:
        yield bash
    finally:
        os.killpg(bash.process.pid, signal.SIGKILL)
        bash.process.communicate()


def incentives(folder: Path) -> dict[str, float]:
    """The incentive of each wallet's hotkey in the metagraph that the page saves."""
    found: dict[str, Any] = json.loads((folder / "metagraph.json").read_text())
    names = {
        load_wallet(name, "default", str(folder / "wallets")).hotkey.ss58_address: name
        for name in ("owner", "vali", "miner-a", "miner-b")
    }
    return {names[hotkey]: paid for hotkey, paid in zip(found["hotkeys"], found["incentives"], strict=True)}


@pytest.mark.flow
def test_from_nothing_to_miners_with_incentive(shell: Shell, tmp_path: Path, repository: Path, ports: dict[str, str]):
    blocks = [re.sub("9944|8080", lambda port: ports[port[0]], block) for block in HERE.findall(page(repository))]
    *preparation, ask, end = blocks
    for block in preparation:
        board = shell.run(block)
    assert "round 3/3" in board and "0 refuted" in board
    folder, end_s = tmp_path / "from-nothing", time.monotonic() + LIMIT_S
    paid: dict[str, float] = {}
    while not (paid.get("miner-a") and paid.get("miner-b")):
        assert time.monotonic() < end_s, f"no incentive within {LIMIT_S} s: {paid}"
        shown = shell.run(ask)
        paid = incentives(folder)
    assert "4 uids" in shown
    assert (paid["owner"], paid["vali"]) == (0, 0)
    shell.run(end)
