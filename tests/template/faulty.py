"""A dev chain that can be made to fail, for tests of the SDK behind our protocols, and the people on it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import bittensor as bt

from template.devchain.genesis import Genesis, GenesisValidator
from template.sdk import SdkChain, create_wallet
from template.session import Patience
from tests.template.conftest import ChainThread

PROMPT = Patience(pause_s=0.02)  # does not rest long; what answers is waited for, however loaded the machine
HASTY = Patience(connect_s=3.0, read_s=3.0, pause_s=0.02)  # where silence has to be waited out
BLOCK_S = 0.05
LAG_BLOCKS = 3
LIMIT_BLOCKS = 200
VALIDATORS = 8
RICH = 12


@dataclass(kw_only=True)
class Lab:
    """A chain that can be made to fail, with validators and rich people that each test takes for itself."""

    node: ChainThread
    validators: list[bt.Wallet]
    rich: list[bt.Wallet]
    owner: bt.Wallet
    folder: Path

    def ask(self, method: str, *params: object) -> object:
        """Use a test control."""
        return self.node.ask(method, *params)

    def heal(self) -> None:
        """End every fault."""
        for method, *params in (
            ("dev_setMute", False), ("dev_setDelay", 0), ("dev_setDrop", 0), ("dev_setClock", 0), ("dev_resume",),
        ):  # fmt: skip
            self.ask(method, *params)


def people(folder: Path) -> dict[str, list[bt.Wallet]]:
    """Wallets on disk, by what they are for."""
    counts = {"owner": 1, "validator": VALIDATORS, "rich": RICH}
    return {
        kind: [create_wallet(f"{kind}{n}", "default", folder) for n in range(count)] for kind, count in counts.items()
    }


def genesis_of(who: dict[str, list[bt.Wallet]], **changes: object) -> Genesis:
    """The subnet of these people: validators staked, rich people with coins."""
    owner = who["owner"][0]
    values: dict[str, object] = {
        "owner_coldkey": owner.coldkeypub.ss58_address,
        "owner_hotkey": owner.hotkey.ss58_address,
        "sudo": owner.coldkeypub.ss58_address,
        "validators": tuple(
            GenesisValidator(hotkey=each.hotkey.ss58_address, coldkey=each.coldkeypub.ss58_address)
            for each in who["validator"]
        ),
        "funds_tao": tuple((each.coldkeypub.ss58_address, 1000.0) for each in who["rich"]),
        "tempo": 1000,
        "weights_rate_limit": LIMIT_BLOCKS,
        "block_time_s": BLOCK_S,
        "finality_lag_blocks": LAG_BLOCKS,
    }
    return Genesis(**values | changes)  # type: ignore[arg-type]


def make_lab(folder: Path) -> Lab:
    """A chain with everybody's wallets in the folder, some blocks after its begin."""
    who = people(folder)
    node = ChainThread(genesis_of(who), dev_controls=True)
    node.ask("dev_step", LIMIT_BLOCKS + LAG_BLOCKS)
    return Lab(node=node, validators=who["validator"], rich=who["rich"], owner=who["owner"][0], folder=folder)


Connect = Callable[..., SdkChain]


async def submissions(chain: SdkChain, function: str, start: int) -> list[int]:
    """The blocks since `start` in which this hotkey called `function`, one entry for each time."""
    found = []
    for number in range(start, await chain.block() + 1):
        info = await chain._sessions.read("read a block", lambda session, n=number: session.client.block_info(n))
        for extrinsic in info.extrinsics:
            signer = extrinsic.get("address") if isinstance(extrinsic, dict) else None
            if signer == chain.hotkey and extrinsic["call"]["call_function"] == function:
                found.append(number)
    return found
