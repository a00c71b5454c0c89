"""A dev chain on a free port and the unmodified SDK against it."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bittensor as bt
import pytest
from websockets.sync.client import connect as websocket

from template.devchain.genesis import Genesis, GenesisValidator, development_address
from template.devchain.node import serve


def _genesis(**changes: object) -> Genesis:
    """Subnet 1 of //Owner with two validators, a fast clock, and coins for //Rich."""
    validators = tuple(
        GenesisValidator(
            hotkey=development_address(f"//validator{index}//hot"),
            coldkey=development_address(f"//validator{index}"),
            stake_tao=1000.0 * (2 - index),
        )
        for index in range(2)
    )
    values: dict[str, object] = {
        "owner_coldkey": development_address("//Owner"),
        "owner_hotkey": development_address("//Owner//hot"),
        "sudo": development_address("//Sudo"),
        "validators": validators,
        "funds_tao": ((development_address("//Rich"), 10_000.0),),
        "tempo": 10,
        "weights_rate_limit": 3,
        "block_time_s": 0.25,
    }
    return Genesis(**values | changes)  # type: ignore[arg-type]


class RunningChain:
    """A dev chain in a thread of its own."""

    def __init__(self, genesis: Genesis, *, dev_controls: bool = False) -> None:
        self.genesis = genesis
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._dev_controls = dev_controls
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def _run(self) -> None:
        work = serve(self.genesis, port=0, on_ready=self._on_ready, stop=self._stop, dev_controls=self._dev_controls)
        self._loop.run_until_complete(work)
        self._loop.close()

    def _on_ready(self, port: int) -> None:
        self.port = port
        self._ready.set()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def __enter__(self) -> "RunningChain":
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


@pytest.fixture(scope="module")
def genesis_for() -> Callable[..., Genesis]:
    """A genesis for tests, with any field changed."""
    return _genesis


@pytest.fixture(scope="module")
def start_chain() -> Callable[..., RunningChain]:
    """Start a chain as a context manager."""
    return RunningChain


@pytest.fixture(scope="module")
def sdk_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of its own for the SDK's caches and wallets."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(home))
        environment.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(home / "runtime"))
        environment.setenv("BTCLI_CONFIG", str(home / "btcli.yml"))
        environment.setenv("BTCLI_TOKEN_SYMBOLS_CACHE", str(home / "symbols.json"))
        environment.setenv("BTCLI_SUBNET_NAMES_CACHE", str(home / "names.json"))
        environment.setenv("HF_HUB_OFFLINE", "1")
        yield home


@pytest.fixture(scope="module")
def chain(sdk_home: Path, start_chain: Callable[..., RunningChain]) -> Iterator[RunningChain]:
    """One chain for all tests of the session; tests use keys of their own."""
    with start_chain(_genesis()) as running:
        yield running


@pytest.fixture(scope="module")
def connect(sdk_home: Path) -> Callable[[str], contextlib.AbstractContextManager[Any]]:
    """A blocking SDK client as a context manager; it also closes the event loop that the SDK leaves open."""

    @contextlib.contextmanager
    def client(url: str) -> Iterator[Any]:
        subtensor = bt.Subtensor(url)
        assert subtensor.block >= 0
        try:
            yield subtensor
        finally:
            loop = subtensor._loop_thread._loop
            subtensor.close()
            loop.close()

    return client


@pytest.fixture(scope="module")
def rpc() -> Callable[..., Any]:
    """One JSON-RPC request on a connection of its own; gives the whole answer."""

    def request(url: str, method: str, *params: object) -> Any:
        with websocket(url, max_size=None) as socket:
            socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}))
            return json.loads(socket.recv(timeout=20))

    return request
