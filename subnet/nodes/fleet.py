"""The processes of a whole network on this machine: started, watched and ended together.

Chain and orchestrator are processes of their own commands and never load torch; miners, validators and the publisher
are forked out of one server that has loaded it. Every process has a log file. Knows nothing of training.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from subnet.errors import EXIT_CODES, SubnetError
from template.config import NeuronConfig
from template.neuron import Running, run_neuron

CHILDREN_S = 2.4  # to leave, while the orchestrator still answers
COMMAND_S = 1.0  # for the orchestrator, then for the chain
UNSET = (
    *("STRATA_LEDGER", "STRATA_DEBUG", "BT_FALLBACK_ENDPOINTS", "STRATA_EXTERNAL_PORT", "BT_AXON_EXTERNAL_PORT"),
    *("STRATA_STAGES", "STRATA_ROUNDS", "STRATA_STEPS", "STRATA_MODEL", "STRATA_DATA"),
    *("STRATA_TOKENIZER", "STRATA_LR", "STRATA_SEQUENCE_TOKENS", "STRATA_REDUCTION", "STRATA_OUTER"),
    *("STRATA_DTYPE", "STRATA_OPTIMIZER", "STRATA_TOLERANCES", "STRATA_CANARIES"),
)
"""Settings that a network's plan does not give as flags: empty means the default."""

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
LOG_FORMAT = "time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"


@dataclass(frozen=True, kw_only=True)
class Child:
    """What a forked process does: a role, its place, and for some roles one thing more."""

    role: str
    name: str
    config: NeuronConfig
    log: Path
    cheat_kind: str = ""
    cheat_strength: float | None = None
    out: Path | None = None


@dataclass(kw_only=True)
class Fleet:
    """The processes by name, in the order in which they were started."""

    logs: Path
    commands: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    children: dict[str, ForkServerProcess] = field(default_factory=dict)

    def prepare(self) -> None:
        """Begin to load what computes, in the background. Fixes the environment of all processes first."""
        self.logs.mkdir(parents=True, exist_ok=True)
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        os.environ.update(MALLOC)
        os.environ.setdefault("BITTENSOR_RUNTIME_CACHE_DIR", str(self.logs.parent / "cache"))  # not in the user's HOME
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["subnet.nodes.preloaded"])
        multiprocessing.resource_tracker.ensure_running()  # first, as it changes the mask itself
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: Ctrl-C is ours, and we pass it on
        try:
            multiprocessing.forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def wait_ready(self) -> None:
        """Block until the server has loaded what computes, so that `fork` returns at once. For a thread."""
        process = multiprocessing.get_context("forkserver").Process(target=_nothing)
        try:
            process.start()
        except EOFError as error:
            raise SubnetError(
                "expected the fork server to load torch, found it ended; is there memory left?"
            ) from error
        process.join()

    def command(self, name: str, arguments: Sequence[str]) -> None:
        """Start `strata ARGUMENTS` as a process of its own."""
        with (self.logs / f"{name}.log").open("wb") as log:
            self.commands[name] = subprocess.Popen(
                [sys.executable, "-m", "subnet.cli.main", *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=without_settings(os.environ),
            )

    def fork(self, child: Child) -> None:
        """Start a role out of the fork server."""
        process = multiprocessing.get_context("forkserver").Process(target=_run, args=(child,), name=child.name)
        process.start()
        self.children[child.name] = process

    def ended(self) -> dict[str, int]:
        """The processes that are no longer running, with their exit codes."""
        codes = {name: process.poll() for name, process in self.commands.items()}
        codes |= {name: process.exitcode for name, process in self.children.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def complaint(self, name: str) -> str:
        """The last line that a process wrote besides its log: why it ended, in its own words."""
        try:
            text = (self.logs / f"{name}.log").read_text(errors="replace")
        except OSError:
            return "it wrote nothing"
        lines = [line for line in text.splitlines() if line.strip()]
        said = [line for line in lines if not line.startswith("time=")] or lines
        last = said[-1] if said else "it wrote nothing"
        for prefix in ("error: ", f"strata {name}: ", f"{name}: "):
            last = last.removeprefix(prefix)
        return last

    def fate(self, name: str, code: int) -> str:
        """How a process ended: the signal that killed it, or its exit code and its last words."""
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it ended with exit code {code} ({self.complaint(name)})"

    async def wait_for(self, name: str, found: Callable[[str], str | None], *, limit_s: float) -> str:
        """Wait until `found` sees what it looks for in a process's log. Raises SubnetError when the process ends."""
        end_s = time.monotonic() + limit_s
        while True:
            path = self.logs / f"{name}.log"
            value = found(path.read_text(errors="replace")) if path.exists() else None
            if value is not None:
                return value
            if name in self.ended() or time.monotonic() > end_s:
                raise SubnetError(f"expected {name} to start, found: {self.complaint(name)}; see {path}")
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        """End every process within five seconds: asked in turn, those first that the others serve; then killed."""
        for child in self.children.values():
            if child.exitcode is None:
                child.terminate()
        self._wait(list(self.children), limit_s=CHILDREN_S)
        for name in reversed(self.commands):
            if self.commands[name].poll() is None:
                self.commands[name].terminate()
            self._wait([name], limit_s=COMMAND_S)
        for child in self.children.values():
            if child.exitcode is None:
                child.kill()
        for process in self.commands.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        self._end_server()

    def _wait(self, names: list[str], *, limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s and not self.ended().keys() >= set(names):
            time.sleep(0.02)

    def _end_server(self) -> None:
        """Kill the fork server: left to itself it ends only once it has loaded everything."""
        pid: int | None = getattr(multiprocessing.forkserver._forkserver, "_forkserver_pid", None)  # no public handle
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _nothing() -> None:
    """The body of a process that only shows that the server forks."""


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what the user has set for other networks, and without a `.env`."""
    return {**environment, **dict.fromkeys(UNSET, ""), "STRATA_ENV_FILE": os.devnull}


def _run(child: Child) -> None:
    """The body of a forked process."""
    _redirect(child.log)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr, force=True)
    from subnet.nodes.processes import CheatChoice, run_miner, run_publisher, run_validator

    async def main(running: Running) -> None:
        if child.role == "miner":
            choice = CheatChoice(kind=child.cheat_kind, strength=child.cheat_strength)
            await run_miner(child.config, running, cheat=choice)
        elif child.role == "validator":
            await run_validator(child.config, running)
        else:
            assert child.out is not None
            await run_publisher(child.config, running, out=child.out)

    config = child.config
    sys.exit(
        run_neuron(main, name=child.name, data_dir=config.data_dir, hotkey=config.wallet_name, exit_codes=EXIT_CODES)
    )


def _redirect(log: Path) -> None:
    """Let everything that the process writes go to its log."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(file)
