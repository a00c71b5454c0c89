"""The supervisor: exit codes, one sentence for a user's mistake, signals, and one process per hotkey and folder."""

import asyncio
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from template.errors import BaseNeuronError, ChainUnreachable, LockError, NotRegistered, UsageError, WalletError
from template.neuron import DataLock, Running, run_neuron

PROGRAM = """
import asyncio, logging, sys, time
from pathlib import Path
from template.neuron import run_neuron
logging.basicConfig(level=logging.INFO)
async def main(running):
    running.serving_at("198.18.0.1:8091")
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    {body}
sys.exit(run_neuron(main, name="miner", data_dir=Path(sys.argv[1]), hotkey="5Alice"))
"""
LEAVES = "await running.stopping.wait(); sys.stdout.write('left')"
DEAF = "await asyncio.sleep(600)"
STUCK = "time.sleep(600)"
LIMIT_S = 120.0  # for what takes five seconds at the most, on a machine that does other things too


def start(data_dir: Path, body: str = LEAVES) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body), str(data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    return process


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stdout.readline() == "ready\n"


async def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("expected a, found b; do c"), 2),
        (WalletError("expected a, found b; do c"), 2),
        (NotRegistered("expected a, found b; do c"), 2),
        (ChainUnreachable("expected a, found b; do c"), 75),
        (BaseNeuronError("expected a, found b; do c"), 1),
        (ExceptionGroup("", [ChainUnreachable("expected a, found b; do c"), BaseNeuronError("x")]), 75),
    ],
)
def test_a_known_error_is_one_sentence_and_its_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_neuron(lambda running: fail(error), name="miner") == code
    assert capsys.readouterr().err == "miner: expected a, found b; do c\n"


def test_the_callers_own_errors_have_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {LookupError: 75}
    assert run_neuron(lambda running: fail(KeyError("k")), name="miner", exit_codes=codes) == 75
    assert capsys.readouterr().err == "miner: 'k'\n"


def test_a_full_disk_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/data/blobs/x")
    assert run_neuron(lambda running: fail(full), name="miner") == 1
    assert capsys.readouterr().err.startswith("miner: expected room on the disk for /data/blobs/x, found it full")


def test_an_unexpected_error_has_its_trace_in_the_log_only(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert run_neuron(lambda running: fail(ZeroDivisionError("oops")), name="miner") == 1
    stderr = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in stderr and "Traceback" not in stderr and stderr.count("\n") == 1
    assert "Traceback" in caplog.text


def test_a_neuron_that_ends_by_itself_ends_well() -> None:
    async def main(running: Running) -> None:
        assert await running.pause(0.001)
        running.stopping.set()
        assert not await running.pause(60)

    assert run_neuron(main, name="miner") == 0


@pytest.mark.flow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_neuron_leave_cleanly(tmp_path: Path, number: int) -> None:
    process = start(tmp_path)
    ready(process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and stdout == "left" and "Traceback" not in stderr


@pytest.mark.flow
def test_a_neuron_that_does_not_leave_is_gone_after_five_seconds(tmp_path: Path) -> None:
    """The grace is four seconds, the limit five, even for a process that is stuck outside its event loop."""
    processes = [start(tmp_path / "deaf", DEAF), start(tmp_path / "stuck", STUCK)]
    for process in processes:
        ready(process)
    time.sleep(0.2)  # until the second is in its sleep
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.communicate(timeout=LIMIT_S)
    assert [process.returncode for process in processes] == [0, 1]


@pytest.mark.flow
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, DEAF)
    ready(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None and any("stopping signal=SIGINT" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and "did not leave" not in stderr


@pytest.mark.flow
def test_a_second_process_of_one_hotkey_is_refused_with_the_first_ones_address(tmp_path: Path) -> None:
    first = start(tmp_path)
    ready(first)
    second = start(tmp_path)
    _, stderr = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 2
    assert f"found process {first.pid} at 198.18.0.1:8091; stop that one" in stderr
    first.kill()
    first.communicate()
    third = start(tmp_path)
    ready(third)
    third.send_signal(signal.SIGTERM)
    third.communicate(timeout=LIMIT_S)
    assert third.returncode == 0


def test_two_hotkeys_share_a_folder(tmp_path: Path) -> None:
    alice, bob = DataLock(tmp_path, "5Alice"), DataLock(tmp_path, "5Bob")
    with pytest.raises(LockError, match=f"process {os.getpid()}; stop that one"):
        DataLock(tmp_path, "5Alice")
    assert json.loads(alice.path.read_text())["hotkey"] == "5Alice"
    alice.release()
    DataLock(tmp_path, "5Alice").release()
    bob.release()


def test_a_data_folder_that_cannot_be_made_is_the_users_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--data-dir"):
        DataLock(tmp_path / "file" / "data", "5Alice")


async def test_it_runs_outside_a_main_thread_too() -> None:
    async def main(running: Running) -> None:
        await asyncio.sleep(0)

    assert await asyncio.to_thread(run_neuron, main, name="miner") == 0
