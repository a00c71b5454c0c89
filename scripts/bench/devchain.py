#!/usr/bin/env python3
"""The dev chain under load: 256 neurons, 64 validators that set weights in every tempo, 10,000 blocks of 0.05 s.

    scripts/bench/devchain.py            # about 10 minutes, leaves docs/benchmarks/devchain.json
    scripts/bench/devchain.py --quick    # 1,200 blocks

The chain is a process of `strata chain`; everything goes through its websocket, and its memory is the kernel's figure
for that process. Owns the load and what is measured of it.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bittensor_core
from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from scripts.bench.report import Figure, options, report  # noqa: E402
from template.devchain.genesis import GenesisValidator, default_genesis, genesis_to_dict  # noqa: E402
from template.devchain.metadata import load_runtime  # noqa: E402

NEURONS, VALIDATORS = 256, 64
BLOCK_S, TEMPO, RATE_LIMIT = 0.05, 20, 10
BLOCKS, QUICK_BLOCKS = 10_000, 1_200
SETTLED_BLOCKS = 2_000  # from here on memory has to be flat
FULL_BLOCKS = 5_000  # from here on every state that is kept has been made, and old ones go as new ones come
STATE_WINDOW_BLOCKS = 4_096
SAMPLE_EVERY_BLOCKS = 20
FLAT_FRAC = 0.10
MIN_SET_FRAC = 0.99
RATE_LIMITED = "Custom error: 6"
MIB = 2**20
WATCH_S = 60.0


class Node:
    """JSON-RPC over one websocket: requests by id, and the heads that the node announces."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.heads: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
        self.sent = 0
        self.reading = asyncio.create_task(self._read())

    async def call(self, method: str, *params: Any) -> Any:
        """The result of a request; an error answer is a RuntimeError."""
        self.sent += 1
        answer = self.waiting[self.sent] = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}))
        reply = await asyncio.wait_for(answer, WATCH_S)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']}")
        return reply["result"]

    async def _read(self) -> None:
        async for text in self.socket:
            at_s = time.monotonic()
            frame = json.loads(text)
            if frame.get("method") == "chain_newHead":
                self.heads.put_nowait((int(frame["params"]["result"]["number"], 16), at_s))
            elif "id" in frame:
                self.waiting.pop(frame["id"]).set_result(frame)


@dataclass
class Seen:
    """What was measured while the chain ran."""

    arrivals_s: dict[int, float] = field(default_factory=dict)  # when each head was announced
    processor_s: dict[int, float] = field(default_factory=dict)  # what the chain's process had used by then
    memory_bytes: dict[int, int] = field(default_factory=dict)
    turns: int = 0
    accepted: int = 0
    pruned: dict[str, bool] = field(default_factory=dict)


class Load:
    """The neurons' keys, and signed extrinsics of theirs."""

    def __init__(self) -> None:
        self.codec = load_runtime(BLOCK_S).codec
        self.payer = bittensor_core.Keypair.create_from_uri("//Bob")
        self.validators = [bittensor_core.Keypair.create_from_uri(f"//bench validator {i}") for i in range(VALIDATORS)]
        self.miners = [
            bittensor_core.Keypair.create_from_uri(f"//bench miner {i}").ss58_address
            for i in range(NEURONS - VALIDATORS - 1)
        ]
        self.nonces: dict[str, int] = {}
        self.genesis_hash = b""
        self.random = random.Random(1)

    def genesis(self) -> dict[str, Any]:
        """The validators are seated; the miners register while the chain runs."""
        seats = tuple(
            GenesisValidator(hotkey=key.ss58_address, coldkey=key.ss58_address, stake_tao=1000.0 + number)
            for number, key in enumerate(self.validators)
        )
        return genesis_to_dict(
            default_genesis(
                validators=seats, tempo=TEMPO, weights_rate_limit=RATE_LIMIT, block_time_s=BLOCK_S, max_burn_tao=0.1,
                max_uids=NEURONS, max_validators=VALIDATORS, state_window_blocks=STATE_WINDOW_BLOCKS,
            )
        )  # fmt: skip

    def registration(self, hotkey: str) -> str:
        """A miner's registration, paid by one coldkey."""
        return self._signed(self.payer, "burned_register", {"netuid": 1, "hotkey": hotkey})

    def weights(self, validator: int) -> str:
        """Weights of one validator on everybody."""
        values = [self.random.randrange(1, 65536) for _ in range(NEURONS)]
        call = {"netuid": 1, "dests": list(range(NEURONS)), "weights": values, "version_key": 0}
        return self._signed(self.validators[validator], "set_weights", call)

    def _signed(self, key: Any, name: str, arguments: dict[str, Any]) -> str:
        nonce = self.nonces.get(key.ss58_address, 0)
        self.nonces[key.ss58_address] = nonce + 1
        call = bytes(self.codec.compose_call("SubtensorModule", name, arguments))
        extra: dict[str, Any] = {"era": "00", "nonce": nonce, "tip": 0, "tip_asset_id": None}
        payload = self.codec.signature_payload(
            call, genesis_hash=self.genesis_hash, era_block_hash=self.genesis_hash, **extra
        )
        raw, _ = self.codec.encode_signed_extrinsic(
            call, public_key=bytes(key.public_key), signature=bytes(key.sign(bytes(payload))), signature_version=1,
            **extra,
        )  # fmt: skip
        return "0x" + bytes(raw).hex()


async def measure(blocks: int) -> Seen:
    """Start a chain, load it for so many blocks, ask what it must answer, and end it."""
    load, seen = Load(), Seen()
    with tempfile.TemporaryDirectory() as folder:
        genesis = Path(folder) / "genesis.json"
        genesis.write_text(json.dumps(load.genesis()))
        command = [sys.executable, "-m", "subnet.cli.main", "chain", "--genesis", str(genesis), "--port", "0"]
        chain = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert chain.stdout is not None
            endpoint = chain.stdout.readline().split()[3].rstrip(",")
            async with connect(endpoint, max_size=None, ping_interval=None) as socket:
                node = Node(socket)
                load.genesis_hash = bytes.fromhex((await node.call("chain_getBlockHash", 0))[2:])
                await seat_miners(node, load)
                await run_load(node, load, seen, chain.pid, blocks)
                await look_back(node, load, seen)
                node.reading.cancel()
        finally:
            chain.terminate()
            chain.wait(timeout=20)
    return seen


async def seat_miners(node: Node, load: Load) -> None:
    """Register every miner, and see that the subnet is full."""
    for hotkey in load.miners:
        await node.call("author_submitExtrinsic", load.registration(hotkey))
    end_s = time.monotonic() + WATCH_S
    while await read(node, load, "SubnetworkN", 1) != NEURONS:
        if time.monotonic() > end_s:
            raise RuntimeError(f"expected {NEURONS} neurons, found {await read(node, load, 'SubnetworkN', 1)}")
        await asyncio.sleep(BLOCK_S)


async def run_load(node: Node, load: Load, seen: Seen, pid: int, blocks: int) -> None:
    """Follow the heads; at each, the validators whose turn it is set weights, each once in a tempo."""
    await node.call("chain_subscribeNewHeads")
    first: int | None = None
    while True:
        number, at_s = await node.heads.get()
        first = number if first is None else first
        seen.arrivals_s[number], seen.processor_s[number] = at_s, processor_s(pid)
        for validator in range(VALIDATORS):
            if (number + 3 * validator) % TEMPO == 0:
                seen.turns += 1
                seen.accepted += await set_weights(node, load, validator)
        if number % SAMPLE_EVERY_BLOCKS == 0:
            seen.memory_bytes[number] = resident_bytes(pid)
        if number % (50 * SAMPLE_EVERY_BLOCKS) == 0:
            sys.stderr.write(f"block {number}, {seen.memory_bytes[number] / MIB:.1f} MiB\n")
        if number - first >= blocks:
            return


async def set_weights(node: Node, load: Load, validator: int) -> bool:
    """Whether the chain took them. It does not when this client was late the last time: the rate limit is in blocks."""
    try:
        await node.call("author_submitExtrinsic", load.weights(validator))
    except RuntimeError as error:
        if RATE_LIMITED not in str(error):
            raise
        load.nonces[load.validators[validator].ss58_address] -= 1
        return False
    return True


async def look_back(node: Node, load: Load, seen: Seen) -> None:
    """Ask for states on both sides of the window's edge, for an old block, and whether what was sent is in."""
    head = await read(node, load, "System.Number")
    for name, number, kept in (
        ("recent", head - STATE_WINDOW_BLOCKS + 100, True),
        ("old", head - STATE_WINDOW_BLOCKS - 100, False),
        ("first", 1, False),
    ):
        if number > 0 and (kept or head > STATE_WINDOW_BLOCKS):
            seen.pruned[name] = await state_is_kept(node, load, number) is kept
    body = await node.call("chain_getBlock", await node.call("chain_getBlockHash", 2))
    seen.pruned["blocks stay"] = int(body["block"]["header"]["number"], 16) == 2
    await asyncio.sleep(4 * BLOCK_S)
    for key in load.validators:
        account = await read(node, load, "System.Account", key.ss58_address)
        if account["nonce"] != load.nonces[key.ss58_address]:
            raise RuntimeError(f"expected {load.nonces[key.ss58_address]} extrinsics of {key.ss58_address}: {account}")
    if not any(await read(node, load, "Incentive", 1)) or await read(node, load, "LastEpochBlock", 1) % TEMPO:
        raise RuntimeError("expected incentives, and an epoch at every multiple of the tempo, found neither")


async def state_is_kept(node: Node, load: Load, number: int) -> bool:
    """Whether the node gives the state of a block; a refusal in a pruned node's words is no, another is raised."""
    block_hash = await node.call("chain_getBlockHash", number)
    try:
        return bool(await read(node, load, "System.Number", at=block_hash) == number)
    except RuntimeError as error:
        if "State already discarded" not in str(error):
            raise
        return False


async def read(node: Node, load: Load, name: str, *keys: Any, at: str | None = None) -> Any:
    """One storage item through the wire."""
    pallet, _, item = name.rpartition(".")
    pallet = pallet or "SubtensorModule"
    key = "0x" + bytes(load.codec.storage_key(pallet, item, list(keys))).hex()
    raw = await node.call("state_getStorage", key, *([at] if at else []))
    entry = load.codec.storage_entry(pallet, item)
    return load.codec.decode(entry.value_type, bytes.fromhex(raw[2:]) if raw else entry.default_bytes)


def resident_bytes(pid: int) -> int:
    """The resident memory of a process, from the kernel."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_s(pid: int) -> float:
    """The processor time that a process has used, from the kernel: its one thread does everything."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def figures(seen: Seen, *, quick: bool) -> list[Figure]:
    """What was seen, against what has to be."""
    numbers = sorted(seen.arrivals_s)
    count = len(numbers) - 1
    gaps_s = {n: seen.arrivals_s[n] - seen.arrivals_s[n - 1] for n in numbers[1:]}
    epochs_s = [gap for n, gap in gaps_s.items() if n % TEMPO == 0]
    busy_s = {n: seen.processor_s[n] - seen.processor_s[n - 1] for n in numbers[1:]}
    worked_s = [busy for n, busy in busy_s.items() if n % TEMPO == 0]
    others_s = [gap for n, gap in gaps_s.items() if n % TEMPO not in (0, 1)]
    load = f"{NEURONS} neurons, {VALIDATORS} validators, tempo {TEMPO}, blocks of {BLOCK_S} s"
    span_s = seen.arrivals_s[numbers[-1]] - seen.arrivals_s[numbers[0]]
    return [
        Figure(
            name="blocks", value=count, unit="blocks", must=f"at least {BLOCKS}",
            holds=None if quick else count >= BLOCKS,
            how=f"a process of `strata chain` with {load}; heads counted over its websocket",
        ),
        Figure(
            name="weights_set", value=seen.accepted, unit="extrinsics", must=f"at least {MIN_SET_FRAC} of the turns",
            holds=seen.accepted >= MIN_SET_FRAC * seen.turns,
            how=f"each validator sets weights on all {NEURONS} uids once in a tempo, {seen.turns} turns; the rest came "
            "too early by the rate limit, because the one before had come late; nonces on the chain agree",
        ),
        *memory_figures(seen, numbers[0], quick=quick),
        Figure(
            name="epoch_processor_median_s", value=round(statistics.median(worked_s), 4), unit="s", must="less than 1",
            holds=statistics.median(worked_s) < 1,
            how="processor time of the chain's process between the head before an epoch's and its own, "
            f"{len(worked_s)} epochs: the epoch, and what else the block and its clients took",
        ),
        Figure(
            name="epoch_processor_worst_s", value=round(max(worked_s), 4), unit="s", must="less than 1",
            holds=max(worked_s) < 1, how="the largest of the same",
        ),
        Figure(
            name="epoch_block_median_s", value=round(statistics.median(epochs_s), 4), unit="s", must="less than 1",
            holds=statistics.median(epochs_s) < 1,
            how="time between the same heads, the wait for the block's turn included",
        ),
        Figure(
            name="epoch_block_worst_s", value=round(max(epochs_s), 4), unit="s",
            must="less than 1 where nothing else runs on the machine",
            holds=True if max(epochs_s) < 1 else None if os.getloadavg()[2] > 1 else False,
            how="the largest of the same; whatever else the machine does is in it",
        ),
        Figure(
            name="block_interval_median_s", value=round(statistics.median(others_s), 4), unit="s",
            must=f"{BLOCK_S} within 10 %", holds=abs(statistics.median(others_s) - BLOCK_S) <= BLOCK_S / 10,
            how="between two heads, but for an epoch's block and the one that follows it at once",
        ),
        Figure(
            name="block_interval_mean_s", value=round(span_s / count, 4), unit="s", must="no bound: reported",
            holds=None, how="the whole run by its number of blocks, the epochs' delay included",
        ),
        Figure(
            name="processor_share", value=round(sum(busy_s.values()) / span_s, 3), unit="of one core",
            must="less than 1", holds=sum(busy_s.values()) < span_s,
            how="the chain process's processor time by the time that passed",
        ),
    ]  # fmt: skip


def memory_figures(seen: Seen, first: int, *, quick: bool) -> list[Figure]:
    """Memory, and what an old state answers."""
    peak = max(seen.memory_bytes.values())
    answers = None if len(seen.pruned) < 4 else all(seen.pruned.values())
    return [
        Figure(
            name="memory_peak_mib", value=round(peak / MIB, 1), unit="MiB", must="at most 1,024",
            holds=peak <= 1024 * MIB, how=f"resident memory of the chain process, every {SAMPLE_EVERY_BLOCKS} blocks",
        ),
        growth(seen, first, name="memory_growth_after_2000_blocks", start=SETTLED_BLOCKS, quick=quick),
        growth(seen, first, name="memory_growth_after_5000_blocks", start=FULL_BLOCKS, quick=quick),
        Figure(
            name="old_states_answer_as_pruned", value=None if answers is None else int(answers), unit="1 is yes",
            must="1", holds=answers,
            how=f"states 100 blocks inside and outside the last {STATE_WINDOW_BLOCKS}, and of block 1, are asked for: "
            "the first answers, the others are refused with `State already discarded`; block 2 itself still answers",
        ),
    ]  # fmt: skip


def growth(seen: Seen, first: int, *, name: str, start: int, quick: bool) -> Figure:
    """How much memory grows from a block of the run to its end."""
    how = f"mean resident memory of the last 500 blocks by that of blocks {start:,} to {start + 500:,}, less one"
    must = f"at most {FLAT_FRAC}"
    if quick:
        return Figure(name=name, value=None, unit="fraction", must=must, holds=None, how=f"not in a quick run: {how}")

    def mean_mib(begin: int) -> float:
        return statistics.mean(each / MIB for n, each in seen.memory_bytes.items() if begin <= n - first < begin + 500)

    before, after = mean_mib(start), mean_mib(max(seen.memory_bytes) - first - 499)
    grown = after / before - 1
    how += f": {before:.1f} and {after:.1f} MiB"
    return Figure(name=name, value=round(grown, 4), unit="fraction", must=must, holds=grown <= FLAT_FRAC, how=how)


def main() -> int:
    chosen = options(__doc__ or "")
    seen = asyncio.run(measure(QUICK_BLOCKS if chosen.quick else BLOCKS))
    return report("devchain", figures(seen, quick=chosen.quick), quick=chosen.quick, folder=chosen.out)


if __name__ == "__main__":
    sys.exit(main())
