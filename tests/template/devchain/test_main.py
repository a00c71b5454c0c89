"""`python -m template.devchain`: announces its endpoint, ends at SIGTERM, goes on from a saved state."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from template.devchain.genesis import Genesis, genesis_to_dict

ROOT = Path(__file__).parents[3]


def start(*options: object) -> tuple[subprocess.Popen[str], str]:
    """Start a chain; gives the process and its endpoint."""
    command = [sys.executable, "-m", "template.devchain", "--port", "0", *map(str, options)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name, _, url = process.stdout.readline().strip().partition("=")
    assert name == "BT_CHAIN_ENDPOINT"
    return process, url


def end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    return process.returncode


@pytest.mark.flow
def test_a_chain_goes_on_from_the_state_it_left(
    genesis_for: Callable[..., Genesis], rpc: Callable[..., Any], tmp_path: Path
) -> None:
    genesis, state = tmp_path / "genesis.json", tmp_path / "chain.db"
    genesis.write_text(json.dumps(genesis_to_dict(genesis_for(block_time_s=0.05))))
    first, url = start("--genesis", genesis, "--state", state, "--dev-controls")
    height = rpc(url, "dev_step", 7)["result"]
    seen = rpc(url, "chain_getBlockHash", height)["result"]
    assert end(first) == 0 and state.exists()
    second, url = start("--genesis", genesis, "--state", state)
    assert rpc(url, "chain_getBlockHash", height)["result"] == seen
    assert rpc(url, "dev_step", 1)["error"]["code"] == -32601
    assert end(second) == 0


@pytest.mark.flow
def test_the_chain_never_imports_torch_or_the_sdk() -> None:
    code = "import sys, template.devchain.__main__; print(sorted({'torch', 'bittensor'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
