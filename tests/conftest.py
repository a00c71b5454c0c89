"""What every test stands on: no test sees the user's folders, the network's caches or a second torch thread.

The environment is set while this file is read, because libraries look at it when they are imported. Torch is not
imported here: tests of the parts that work without it stay without it.
"""

import atexit
import gc
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from beartype import BeartypeConf
from beartype.claw import beartype_package
from hypothesis import settings

gc.disable()  # until all is imported: what imports make stays, and is not looked through again and again

SCRATCH = Path(tempfile.mkdtemp(prefix="strata-tests-"))
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)


def environment_under(home: Path) -> dict[str, str]:
    """The variables that keep the project and its libraries inside one folder, offline and single-threaded."""
    return {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "HF_HOME": str(home / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "BITTENSOR_RUNTIME_CACHE_DIR": str(home / "bittensor"),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


os.environ.update(environment_under(SCRATCH))
for name in [name for name in os.environ if name.startswith(("BT_", "STRATA_"))]:
    if not name.startswith("STRATA_TEST_"):  # those say where optional tests may go
        del os.environ[name]

# The same examples on every machine and in every run; how long one takes says nothing about the code.
settings.register_profile("strata", max_examples=40, derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("strata")


# What is called with another type than its signature says fails, whatever mypy could see of it.
beartype_package("subnet", conf=BeartypeConf(claw_is_pep526=False))


def pytest_collection_finish() -> None:
    """What was made so far is never garbage: only what tests make is looked through."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _one_thread_and_one_seed() -> None:
    """Torch, where a test has imported it, starts every test with one thread and the same seed."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _no_thread_outlives_its_file() -> Iterator[None]:
    """Test files share processes. What one leaves running, a client that looks for its chain for example, disturbs
    another: hypothesis refuses examples during whose making the process's random numbers moved."""
    before = set(threading.enumerate())
    yield
    ends = time.monotonic() + 10
    for each in _left(before):
        each.join(max(0.0, ends - time.monotonic()))
    assert not _left(before), f"expected no thread left by this file, found {_left(before)}; end what was started"


def _left(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads that were not there before and do something: not an executor's, which wait for work until it is garbage,
    nor tqdm's, which looks after its bars for the life of a process."""
    new = [each for each in threading.enumerate() if each not in before]
    return [each for each in new if not re.fullmatch(r"tqdm_monitor|\w+_\d+", each.name)]


@pytest.fixture
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A HOME of the test's own, empty; child processes see it too."""
    home = tmp_path / "home"
    home.mkdir()
    for name, value in environment_under(home).items():
        monkeypatch.setenv(name, value)
    yield home


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the project's source."""
    return Path(__file__).resolve().parent.parent
