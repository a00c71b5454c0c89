"""The supervisor of one neuron process: its lock, its signals, its exit code. It knows nothing of what the neuron does.

The only place with a handler for everything: a fault that nobody foresaw is logged with its traceback, and the
process ends with 1. A user's mistake is one sentence on stderr, without a traceback.
"""

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from pathlib import Path
from types import FrameType

from template.errors import BaseNeuronError, LockError, UsageError
from template.values import Hotkey

log = logging.getLogger("template.neuron")

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_TEMPORARY = 0, 1, 2, 75

STOP_GRACE_S = 4.0
"""After a signal the neuron has this long to leave cleanly; then it is cancelled."""

STOP_LIMIT_S = 5.0
"""After a signal the process is gone by then, whatever it is in the middle of."""

ExitCodes = Mapping[type[Exception], int]


class DataLock:
    """The exclusive use of a data folder by one process per hotkey; gone with the process, however that ends."""

    def __init__(self, data_dir: Path, hotkey: Hotkey) -> None:
        self.path = data_dir / f"lock-{hotkey}"
        self._hotkey = hotkey
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"expected a data folder at {data_dir} that can be written, found: {error.strerror}; give another "
                "--data-dir"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._holder()
            os.close(self._file)
            raise LockError(
                f"expected to be the only process of hotkey {hotkey} on {data_dir}, found {holder}; stop that one, or "
                "use another hotkey"
            ) from error
        self.note_address(None)

    def note_address(self, address: str | None) -> None:
        """Write down where this process can be reached, for the message that a second one gets."""
        facts = {"pid": os.getpid(), "hotkey": self._hotkey, "address": address, "since_s": int(time.time())}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(facts).encode(), 0)

    def release(self) -> None:
        """Let others have the folder."""
        os.close(self._file)

    def _holder(self) -> str:
        try:
            facts = json.loads(os.pread(self._file, 4096, 0))
            at = f" at {facts['address']}" if facts["address"] else ""
            return f"process {facts['pid']}{at}"
        except (ValueError, KeyError, TypeError):
            return "another process"


class Running:
    """What a neuron's main function is handed: when to stop, and where to say that it can be reached."""

    def __init__(self, lock: DataLock | None) -> None:
        self.stopping = asyncio.Event()
        self._lock = lock

    def serving_at(self, address: str) -> None:
        """Note the address that this process answers at."""
        if self._lock is not None:
            self._lock.note_address(address)

    async def pause(self, seconds: float) -> bool:
        """Sleep, but wake when the neuron has to stop. True while it may go on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        return not self.stopping.is_set()


Main = Callable[[Running], Awaitable[None]]


def run_neuron(
    main: Main,
    *,
    name: str,
    data_dir: Path | None = None,
    hotkey: Hotkey | None = None,
    exit_codes: ExitCodes | None = None,
) -> int:
    """Run `main` until it returns, fails or is told to stop, and return the process's exit code.

    With a data folder and a hotkey, a second process of that hotkey on that folder is refused. SIGTERM and SIGINT set
    `stopping`; a second signal cancels at once. `exit_codes` adds classes of the caller's own errors.
    """
    lock = None
    try:
        if data_dir is not None and hotkey is not None:
            lock = DataLock(data_dir, hotkey)
        asyncio.run(_supervise(main, lock))
        return EXIT_OK
    except Exception as error:  # noqa: BLE001 - the one handler for everything
        return _report(error, name, exit_codes or {})
    finally:
        if lock is not None:
            lock.release()


def exit_code_of(error: BaseException, exit_codes: ExitCodes) -> int | None:
    """The exit code of an error that somebody foresaw, or None."""
    if isinstance(error, BaseNeuronError):
        return error.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EXIT_FAILED
    return next((exit_codes[kind] for kind in type(error).__mro__ if kind in exit_codes), None)


def _report(error: Exception, name: str, exit_codes: ExitCodes) -> int:
    if isinstance(error, BaseExceptionGroup):
        known = [inner for inner in error.exceptions if exit_code_of(inner, exit_codes) is not None]
        if len(known) == len(error.exceptions) and isinstance(known[0], Exception):
            error = known[0]  # a task group's first fault; the others followed from it
    code = exit_code_of(error, exit_codes)
    if code is None:
        log.error("unexpected fault name=%s", name, exc_info=error)
        _say(
            f"{name}: unexpected {type(error).__name__}: {error}; this is a fault of the program, its log has the trace"
        )
        return EXIT_FAILED
    if isinstance(error, OSError) and not isinstance(error, BaseNeuronError):
        place = f" for {error.filename}" if error.filename else ""
        _say(f"{name}: expected room on the disk{place}, found it full ({error.strerror}); free some and start again")
        return code
    _say(f"{name}: {error}")
    return code


def _say(sentence: str) -> None:
    sys.stderr.write(" ".join(sentence.split()) + "\n")
    sys.stderr.flush()


async def _supervise(main: Main, lock: DataLock | None) -> None:
    running = Running(lock)
    task = asyncio.ensure_future(main(running))
    with _signals(running, task):
        stopped = asyncio.create_task(running.stopping.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait([task], timeout=STOP_GRACE_S)
            if not task.done():
                log.warning("did not leave within %.0f s of the signal; cancelled", STOP_GRACE_S)
                task.cancel()
                await asyncio.wait([task])
        finally:
            stopped.cancel()
    if not task.cancelled():
        task.result()


@contextlib.contextmanager
def _signals(running: Running, task: "asyncio.Future[None]") -> Generator[None, None, None]:
    """SIGTERM and SIGINT ask the neuron to stop. Only a main thread has signals; elsewhere there is nothing to do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    limit = threading.Timer(STOP_LIMIT_S, os._exit, [EXIT_FAILED])
    limit.daemon = True

    def stop(name: str) -> None:
        if running.stopping.is_set():
            task.cancel()
            return
        log.info("stopping signal=%s", name)
        running.stopping.set()

    def heard(number: int, _: FrameType | None) -> None:
        # Not the loop's own handlers: those would wait for a neuron that is stuck outside its loop.
        if not limit.is_alive():
            limit.start()
        loop.call_soon_threadsafe(stop, signal.Signals(number).name)

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        limit.cancel()
