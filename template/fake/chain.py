"""The chain in memory: one subnet, its rules as far as neurons meet them, under the real one's contract tests.

An extrinsic makes its own block and returns when it is in it; further blocks come from `advance()` or `run()`.
No consensus: incentive is the stake-weighted mean of the validators' weights.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import blake3

from template.errors import (
    ChainRefused,
    InsufficientBalance,
    NotRegistered,
    RateLimited,
)
from template.fake.keys import fake_address
from template.preflight import check_price, check_record, check_weights
from template.values import (
    RAO_PER_TAO,
    U16_MAX,
    ChainView,
    Coldkey,
    Hotkey,
    NeuronInfo,
    PendingWeights,
    Record,
    Submitted,
    Uid,
)


@dataclass(frozen=True, kw_only=True)
class FakeRules:
    """The subnet's parameters."""

    netuid: int = 1
    tempo: int = 20
    weights_rate_limit_blocks: int = 10
    serving_rate_limit_blocks: int = 1
    weights_version_key: int = 0
    stake_threshold_rao: int = 0
    started: bool = True
    burn_rao: int = RAO_PER_TAO // 10
    emission_rao: int = RAO_PER_TAO
    block_time_s: float = 12.0
    genesis_time_s: float = 1_700_000_000.0


@dataclass(kw_only=True)
class _Neuron:
    uid: Uid
    hotkey: Hotkey
    coldkey: Coldkey
    stake_rao: int
    permit: bool
    registered_at: int
    last_update: int
    endpoint: str | None = None
    served_at: int = 0
    incentive_u16: int = 0
    dividends_u16: int = 0
    emission_rao: int = 0
    weights: dict[Uid, int] = field(default_factory=dict)


class FakeNetwork:
    """One chain with one subnet. Blocks come from `advance()`, or from `run()` as a background task."""

    def __init__(self, *, owner: str = "owner", rules: FakeRules | None = None) -> None:
        self.rules = rules or FakeRules()
        self.owner_hotkey = fake_address(owner)
        self.owner_coldkey = fake_address(f"{owner}/coldkey")
        self.neurons: list[_Neuron] = []
        self.balances_rao: dict[Coldkey, int] = {}
        self.records: dict[Hotkey, Record] = {}
        self.commit_log: dict[tuple[int, int], Record] = {}
        self.number = 1
        self.last_epoch_block = 0
        self._views: dict[int, ChainView] = {}
        self._arrived = asyncio.Event()
        self._remember()

    def fund(self, coldkey: Coldkey, rao: int) -> None:
        """Give a coldkey free balance."""
        self.balances_rao[coldkey] = self.balances_rao.get(coldkey, 0) + rao

    def add(self, hotkey: Hotkey, coldkey: Coldkey, *, stake_rao: int = 0, permit: bool = False) -> Uid:
        """Seat a neuron as if the genesis had it."""
        uid = len(self.neurons)
        self.neurons.append(
            _Neuron(
                uid=uid, hotkey=hotkey, coldkey=coldkey, stake_rao=stake_rao, permit=permit,
                registered_at=self.number, last_update=self.number,
            )
        )  # fmt: skip
        self._remember()
        return uid

    def find(self, hotkey: Hotkey) -> _Neuron | None:
        """The seat of a hotkey, or None."""
        return next((neuron for neuron in self.neurons if neuron.hotkey == hotkey), None)

    def replace(self, uid: Uid, hotkey: Hotkey, coldkey: Coldkey) -> None:
        """Give a uid to another hotkey, as pruning does."""
        self.neurons[uid] = _Neuron(
            uid=uid, hotkey=hotkey, coldkey=coldkey, stake_rao=0, permit=False,
            registered_at=self.number, last_update=self.number,
        )  # fmt: skip
        self._remember()

    def advance(self, blocks: int = 1) -> int:
        """Make blocks, run the epochs that fall due, and return the new number."""
        for _ in range(blocks):
            self.apply(lambda: None)
        return self.number

    def apply(self, change: Callable[[], None]) -> int:
        """Make one block in which this change is the first signed extrinsic (index 1), and return its number."""
        self.number += 1
        if self.number - self.last_epoch_block >= self.rules.tempo:
            self._epoch()
        change()
        self._remember()
        self._arrived.set()
        self._arrived = asyncio.Event()
        return self.number

    async def run(self, *, every_s: float) -> None:
        """Make a block from time to time, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            self.advance()

    async def arrived(self) -> None:
        """Return when the next block has come."""
        await self._arrived.wait()

    def view(self, block: int) -> ChainView:
        """The subnet at a block. Raises ChainRefused for one that does not exist."""
        if block not in self._views:
            raise ChainRefused(f"expected a block up to {self.number}, found {block}; wait until it exists")
        return self._views[block]

    def hash_of(self, number: int) -> str:
        """The hash of a block."""
        return "0x" + blake3.blake3(f"fake/{self.rules.netuid}/{number}".encode()).hexdigest()

    def _epoch(self) -> None:
        self.last_epoch_block = self.number
        votes = [neuron for neuron in self.neurons if neuron.permit and neuron.weights and neuron.stake_rao]
        stake_rao = sum(neuron.stake_rao for neuron in votes)
        for neuron in self.neurons:
            share = sum(v.stake_rao * v.weights.get(neuron.uid, 0) / sum(v.weights.values()) for v in votes)
            neuron.incentive_u16 = int(U16_MAX * share / stake_rao) if stake_rao else 0
            neuron.dividends_u16 = int(U16_MAX * neuron.stake_rao / stake_rao) if neuron in votes else 0
            parts = neuron.incentive_u16 + neuron.dividends_u16
            neuron.emission_rao = self.rules.emission_rao * parts // (2 * U16_MAX)

    def _remember(self) -> None:
        rules = self.rules
        self._views[self.number] = ChainView(
            netuid=rules.netuid,
            block=self.number,
            block_hash=self.hash_of(self.number),
            time_s=rules.genesis_time_s + self.number * rules.block_time_s,
            block_time_s=rules.block_time_s,
            tempo=rules.tempo,
            last_epoch_block=self.last_epoch_block,
            weights_rate_limit_blocks=rules.weights_rate_limit_blocks,
            owner_hotkey=self.owner_hotkey,
            owner_coldkey=self.owner_coldkey,
            started=rules.started,
            neurons=tuple(
                NeuronInfo(
                    uid=neuron.uid,
                    hotkey=neuron.hotkey,
                    coldkey=neuron.coldkey,
                    stake_rao=neuron.stake_rao,
                    validator_permit=neuron.permit,
                    active=True,
                    incentive_u16=neuron.incentive_u16,
                    dividends_u16=neuron.dividends_u16,
                    emission_rao=neuron.emission_rao,
                    endpoint=neuron.endpoint,
                    last_update=neuron.last_update,
                    registered_at=neuron.registered_at,
                )
                for neuron in self.neurons
            ),
        )


class FakeChain:
    """Implements chain.Chain for one hotkey on a FakeNetwork. An extrinsic lands in the current block."""

    def __init__(self, network: FakeNetwork, hotkey: Hotkey, coldkey: Coldkey, *, version_key: int = 0) -> None:
        self._network = network
        self._version_key = version_key
        self._hotkey = hotkey
        self._coldkey = coldkey

    @property
    def hotkey(self) -> Hotkey:
        return self._hotkey

    @property
    def netuid(self) -> int:
        return self._network.rules.netuid

    async def view(self, block: int | None = None) -> ChainView:
        return self._network.view(self._network.number if block is None else block)

    async def block(self) -> int:
        return self._network.number

    async def block_hash(self, number: int) -> str:
        return self._network.view(number).block_hash if number else self._network.hash_of(0)

    async def wait_for_block(self, number: int) -> int:
        while self._network.number < number:
            await self._network.arrived()
        return self._network.number

    async def burn_rao(self) -> int:
        return self._network.rules.burn_rao

    async def register(self, *, limit_rao: int | None = None) -> Uid:
        network, price_rao = self._network, self._network.rules.burn_rao
        known = network.find(self._hotkey)
        if known is not None:
            return known.uid
        check_price(price_rao, limit_rao)
        if network.balances_rao.get(self._coldkey, 0) < price_rao:
            raise InsufficientBalance(f"expected {price_rao} rao on {self._coldkey}, found less; fund it")
        network.apply(lambda: self._buy(price_rao))
        return self._seat().uid

    async def publish_endpoint(self, host: str, port: int) -> Submitted:
        neuron, address = self._seat(), ipaddress.ip_address(host)
        endpoint = f"[{host}]:{port}" if address.version == 6 else f"{host}:{port}"
        if address.is_loopback or not 0 < port <= U16_MAX:
            raise ChainRefused(f"the chain refuses {endpoint} (InvalidIpAddress); announce one that others can reach")
        if neuron.endpoint == endpoint:
            return Submitted(block=None, extrinsic_index=None, message="unchanged")
        wait = neuron.served_at + self._network.rules.serving_rate_limit_blocks - self._network.number - 1
        if neuron.served_at and wait > 0:
            raise RateLimited(f"the endpoint was changed too recently; wait {wait} blocks", blocks_to_wait=wait)

        def change() -> None:
            neuron.endpoint, neuron.served_at = endpoint, self._network.number

        return self._submit(change, "served")

    async def commit(self, data: bytes) -> Submitted:
        check_record(data)
        self._seat()

        def change() -> None:
            record = Record(hotkey=self._hotkey, data=bytes(data), block=self._network.number, extrinsic_index=1)
            self._network.records[self._hotkey] = record
            self._network.commit_log[record.block, 1] = record

        return self._submit(change, "committed")

    async def read_commit(self, hotkey: Hotkey) -> Record | None:
        return self._network.records.get(hotkey)

    async def commit_at(self, block: int, extrinsic_index: int) -> Record | None:
        return self._network.commit_log.get((block, extrinsic_index))

    async def set_weights(self, weights: Mapping[Uid, float]) -> Submitted:
        neuron, network = self._seat(), self._network
        keys = (self._version_key, network.rules.weights_version_key)
        least_rao = network.rules.stake_threshold_rao
        check_weights(network.view(network.number), self._hotkey, weights, keys=keys, least_stake_rao=least_rao)
        top = max(weights.values(), default=0.0)
        if top <= 0 or any(not 0 <= uid < len(network.neurons) for uid in weights):
            raise ChainRefused("expected a positive weight and known uids; set weights for registered uids")
        wait = neuron.last_update + network.rules.weights_rate_limit_blocks - network.number - 1
        if wait > 0:
            raise RateLimited(f"weights were set too recently; wait {wait} blocks", blocks_to_wait=wait)
        scaled = {uid: round(weight / top * U16_MAX) for uid, weight in weights.items()}

        def change() -> None:
            neuron.weights = {uid: value for uid, value in sorted(scaled.items()) if value}
            neuron.last_update = network.number

        return self._submit(change, "weights set")

    async def pending_weights(self, *, everybody: bool = False) -> tuple[PendingWeights, ...]:
        return ()

    async def weights(self) -> dict[Uid, dict[Uid, float]]:
        rows = {neuron.uid: neuron.weights for neuron in self._network.neurons if neuron.weights}
        return {uid: {to: value / sum(row.values()) for to, value in row.items()} for uid, row in rows.items()}

    async def balance_rao(self) -> int:
        return self._network.balances_rao.get(self._coldkey, 0)

    async def close(self) -> None:
        return None

    def _seat(self) -> _Neuron:
        neuron = self._network.find(self._hotkey)
        if neuron is None:
            raise NotRegistered(f"{self._hotkey} is not registered on subnet {self.netuid}; register it first")
        return neuron

    def _buy(self, price_rao: int) -> None:
        self._network.fund(self._coldkey, -price_rao)
        self._network.add(self._hotkey, self._coldkey)

    def _submit(self, change: Callable[[], None], message: str) -> Submitted:
        return Submitted(block=self._network.apply(change), extrinsic_index=1, message=message)
