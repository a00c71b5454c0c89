"""A local network from nothing: wallets, dev chain, registrations, and every role as a process of its own.

Everything lies in one folder; the user's wallets are never touched. Knows nothing of how the run is shown.
"""

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subnet.canonical import canonical
from subnet.config import RunConfig
from subnet.errors import StoreError, SubnetError
from subnet.nodes.fleet import Child, Fleet
from template.config import LOCAL_ADDRESS_MAP, LOCAL_STAND_IN_ADDRESS, NeuronConfig
from template.devchain.genesis import Genesis, GenesisValidator, genesis_to_dict
from template.sdk import SdkChain, create_wallet

NETUID = 1
HOTKEY = "default"
STAKE_TAO = 1000.0
FUNDS_TAO = 100.0
CHAIN_S = 60.0
HOST = "127.0.0.1"
SEAT_S = 30.0  # until a miner has its stage
SEAT = re.compile(r"logger=strata\.miner stage=\d")
ENDPOINT = re.compile(r"ws://[0-9.]+:\d+")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a local network is made of: its run, its miners by name (with the cheat of each, if any), its validators."""

    run: RunConfig
    folder: Path
    miners: dict[str, tuple[str, float | None]]  # name -> cheat and its strength; ("", None) is honest
    num_validators: int
    port: int
    block_time_s: float = 0.5

    @property
    def validators(self) -> list[str]:
        """The validators' names."""
        return [f"validator-{number}" for number in range(self.num_validators)]


@dataclass(kw_only=True)
class LocalNetwork:
    """The running network; `stop` ends it."""

    plan: Plan
    fleet: Fleet = field(init=False)
    wallets: dict[str, Any] = field(default_factory=dict)
    endpoint: str = ""

    def __post_init__(self) -> None:
        self.fleet = Fleet(logs=self.plan.folder / "logs")

    @property
    def names(self) -> list[str]:
        """Everybody with a wallet."""
        return ["owner", *self.plan.validators, *self.plan.miners]

    def hotkey(self, name: str) -> str:
        """The hotkey of a neuron by its name."""
        return str(self.wallets[name].hotkey.ss58_address)

    async def start(self) -> None:
        """Bring everything up, in the order in which it depends on each other."""
        self.fleet.prepare()
        await asyncio.to_thread(self._make_files)
        await self._start_chain()
        self._start_orchestrator()
        await self._register()
        await asyncio.to_thread(self.fleet.wait_ready)
        self.fleet.fork(self._child("publisher", "publisher", wallet="owner", out=self.plan.folder / "checkpoints"))
        for name in self.plan.validators:
            self.fleet.fork(self._child("validator", name))
        await self._start_miners()

    async def _start_miners(self) -> None:
        """The honest miners first: they spread evenly over the stages, so a barred cheat leaves no stage thin."""
        honest = [name for name, (kind, _) in self.plan.miners.items() if not kind]
        for name in honest:
            self.fleet.fork(self._child("miner", name))
        for name in honest:
            with contextlib.suppress(SubnetError):  # one that ended instead is named by whoever watches
                await self.fleet.wait_for(name, _seat, limit_s=SEAT_S)
        for name, (kind, strength) in self.plan.miners.items():
            if kind:
                self.fleet.fork(self._child("miner", name, cheat_kind=kind, cheat_strength=strength))

    def stop(self) -> None:
        """End every process."""
        self.fleet.stop()

    def _make_files(self) -> None:
        """Wallets, genesis and the run's configuration. Raises StoreError when the disk refuses."""
        folder = self.plan.folder
        try:
            for name in self.names:
                self.wallets[name] = create_wallet(name, HOTKEY, folder / "wallets")
            (folder / "run.json").write_bytes(canonical(self.plan.run))
            (folder / "genesis.json").write_text(json.dumps(genesis_to_dict(self._genesis()), indent=2))
        except OSError as error:
            raise StoreError(
                f"expected to write to {folder}, found: {error.strerror}; free the disk or choose --out"
            ) from error

    def _genesis(self) -> Genesis:
        def cold(name: str) -> str:
            return str(self.wallets[name].coldkeypub.ss58_address)

        return Genesis(
            owner_coldkey=cold("owner"),
            owner_hotkey=self.hotkey("owner"),
            sudo=cold("owner"),
            validators=tuple(
                GenesisValidator(hotkey=self.hotkey(name), coldkey=cold(name), stake_tao=STAKE_TAO)
                for name in self.plan.validators
            ),
            funds_tao=tuple((cold(name), FUNDS_TAO) for name in self.names),
            block_time_s=self.plan.block_time_s,
        )

    async def _start_chain(self) -> None:
        genesis = str(self.plan.folder / "genesis.json")
        self.fleet.command("chain", ["chain", "--genesis", genesis, "--port", "0", "--host", HOST])
        self.endpoint = await self.fleet.wait_for("chain", _endpoint, limit_s=CHAIN_S)

    def _start_orchestrator(self) -> None:
        folder, plan = self.plan.folder, self.plan
        self.fleet.command(
            "orchestrator",
            [
                "orchestrator",
                *("--network", self.endpoint, "--netuid", str(NETUID)),
                *("--wallet", "owner", "--hotkey", HOTKEY, "--wallet-path", str(folder / "wallets")),
                *("--data-dir", str(folder / "data" / "orchestrator"), "--config", str(folder / "run.json")),
                *("--host", HOST, "--port", str(plan.port), "--external-ip", LOCAL_STAND_IN_ADDRESS),
                *("--address-map", f"{LOCAL_STAND_IN_ADDRESS}={HOST}"),
                *("--wait-for", str(len(plan.miners)), "--patience", "60"),
            ],
        )

    async def _register(self) -> None:
        """Register every miner's hotkey with its own coldkey; validators and owner are in the genesis."""

        async def register(name: str) -> None:
            chain = SdkChain(self.endpoint, NETUID, self.wallets[name])
            try:
                await chain.register()
            finally:
                await chain.close()

        await asyncio.gather(*(register(name) for name in self.plan.miners))

    def _child(self, role: str, name: str, *, wallet: str | None = None, **more: Any) -> Child:
        config = NeuronConfig(
            data_dir=self.plan.folder / "data" / name,
            network=self.endpoint,
            netuid=NETUID,
            wallet_name=wallet or name,
            wallet_hotkey=HOTKEY,
            wallet_path=str(self.plan.folder / "wallets"),
            host=HOST,
            port=0,
            external_host=LOCAL_STAND_IN_ADDRESS,
            address_map=LOCAL_ADDRESS_MAP,
        )
        return Child(role=role, name=name, config=config, log=self.fleet.logs / f"{name}.log", **more)


def _seat(log: str) -> str | None:
    found = SEAT.search(log)
    return found.group() if found else None


def _endpoint(log: str) -> str | None:
    found = ENDPOINT.search(log)
    return found.group() if found and "dev chain on" in log else None
