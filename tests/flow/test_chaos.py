"""Processes that die: `strata up` says which and why; it goes on without a miner or a validator, and ends without the
orchestrator."""

import json
import os
import signal
import time

import pytest

from tests.flow.conftest import GONE_S, Machine

pytestmark = pytest.mark.chaos


def kill(machine: Machine, name: str) -> None:
    """End a role's process at once, found by what it noted in its data folder."""
    (lock,) = (machine.folder / "out" / "data" / name).glob("lock-*")
    os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)


def test_a_network_bears_the_death_of_a_miner_and_a_validator_but_not_of_the_orchestrator(machine: Machine):
    folder = machine.folder / "out"
    command = machine.start("up", "--model", "nano", "--rounds", "50", "--port", "0", "--out", str(folder))
    command.until(r"train +round 1/50 step [1-9]")
    kill(machine, "miner-1")
    command.until("miner-1 is gone: it was killed by SIGKILL")
    kill(machine, "validator-0")
    command.until("validator-0 is gone: it was killed by SIGKILL")
    command.until("train +round 2/50 step [1-9]")
    begun_s = time.monotonic()
    kill(machine, "orchestrator")
    assert command.process.wait(GONE_S) == 1
    machine.gone_s(begun_s)
    assert "Traceback" not in command.err
    assert command.err.splitlines()[-1] == (
        f"error: expected orchestrator to go on, found that it was killed by SIGKILL; its log is in {folder / 'logs'}"
    )
    summary = json.loads((folder / "summary.json").read_text())
    assert [row["round"] for row in summary["rounds"]][:2] == [0, 1]
    assert len(summary["miners"]) == 5
