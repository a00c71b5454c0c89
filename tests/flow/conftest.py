"""The product as its users run it: `strata` as a process, in a home of its own, every process it leaves counted."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import environment_under
from tests.ports import reserved_port

MARK = "STRATA_TEST_MARK"
LONGEST_S = 480.0  # for what takes a minute, on a machine that does other things too
GONE_S = 60.0  # the product promises five, on a machine that does nothing else


@dataclass(kw_only=True)
class Command:
    """One `strata ...` in progress."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        """What it has written to stdout."""
        return (self.folder / "stdout").read_text()

    @property
    def err(self) -> str:
        """What it has written to stderr."""
        return (self.folder / "stderr").read_text()

    def until(self, pattern: str) -> None:
        """Return once stderr shows the pattern; an end before that fails the test with what it said."""
        end_s = time.monotonic() + LONGEST_S
        while not re.search(pattern, self.err):
            assert self.process.poll() is None, f"ended with {self.process.returncode} before {pattern!r}: {self.err}"
            assert time.monotonic() < end_s, f"no {pattern!r} within {LONGEST_S} s: {self.err}"
            time.sleep(0.05)


@dataclass(kw_only=True)
class Machine:
    """A user's machine: an empty home, an empty place to work in, and the processes that were started from here."""

    folder: Path
    repository: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    commands: list[Command] = field(default_factory=list)

    @property
    def home(self) -> Path:
        """The user's home; the product has no business there."""
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """Where commands are typed."""
        return self.folder / "work"

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.work.mkdir()

    def environment(self) -> dict[str, str]:
        """Of every command: caches that libraries insist on lie beside the home, so that what lands in it is ours."""
        beside = environment_under(self.folder / "caches") | {"HOME": str(self.home)}
        python = {"PYTHONPATH": str(self.repository), "PYTHONDONTWRITEBYTECODE": "1"}
        return {"PATH": os.environ["PATH"], **beside, **python, MARK: self.mark}

    def start(self, *words: str, limits: Callable[[], None] | None = None) -> Command:
        """Start `strata WORDS` in a process group of its own, as a terminal does."""
        folder = self.folder / f"command-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "subnet.cli.main", *words],
                cwd=self.work,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=limits,
            )
        self.commands.append(Command(process=process, folder=folder))
        return self.commands[-1]

    def run(self, *words: str, limits: Callable[[], None] | None = None) -> Command:
        """Run `strata WORDS` to its end."""
        command = self.start(*words, limits=limits)
        command.process.wait(LONGEST_S)
        return command

    def running(self) -> dict[int, str]:
        """The living processes that came from here, by id, with their command lines."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
                if ours:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it ended meanwhile, or is somebody else's
        return found

    def gone_s(self, since_s: float) -> float:
        """How many seconds after `since_s` (monotonic) nothing of ours runs any more; fails when something stays."""
        while self.running():
            assert time.monotonic() < since_s + GONE_S, f"still running after {GONE_S} s: {self.running()}"
            time.sleep(0.02)
        return time.monotonic() - since_s


@contextlib.contextmanager
def machine_in(folder: Path, repository: Path) -> Iterator[Machine]:
    """A machine whose processes do not outlive the test, however that ends."""
    machine = Machine(folder=folder, repository=repository)
    left: dict[int, str] = {}
    try:
        yield machine
    finally:
        left = machine.running()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for command in machine.commands:
            command.process.wait(LONGEST_S)
    assert not left, f"processes were left running: {left}"


@pytest.fixture
def machine(tmp_path: Path, repository: Path) -> Iterator[Machine]:
    """A machine of the test's own."""
    with machine_in(tmp_path, repository) as made:
        yield made


@pytest.fixture(scope="module")
def shared_machine(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Machine]:
    """A machine that the tests of one file share."""
    with machine_in(tmp_path_factory.mktemp("machine"), repository) as made:
        yield made


@pytest.fixture
def reserved() -> Iterator[int]:
    """A port for a server that the test starts later; until then nobody answers there."""
    with reserved_port() as port:
        yield port
