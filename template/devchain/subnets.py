"""Subnets: what a new one starts with, and what making one costs."""

from typing import Any

from template.devchain.context import Context
from template.devchain.stakes import Reader

_SYMBOLS = "αβγδεζηθικλμνξοπρστυφχψω"
_NO_TEXT = ("github_repo", "subnet_contact", "subnet_url", "discord", "description", "logo_url", "additional")


def write_subnet(ctx: Context, netuid: int, owner_coldkey: str, owner_hotkey: str) -> None:
    """Give a subnet its owner and the hyperparameters of genesis; it is not started yet."""
    values: dict[str, Any] = {
        "NetworksAdded": True,
        "NetworkRegisteredAt": ctx.block,
        "SubnetOwner": owner_coldkey,
        "SubnetOwnerHotkey": owner_hotkey,
        "TokenSymbol": _symbol(netuid),
        "SubnetMechanism": 0,
        "SubnetMovingPrice": {"bits": 1 << 32},
        "LastEpochBlock": ctx.block,
    }
    for name, value in (values | ctx.subnet_defaults).items():
        ctx.put(name, netuid, value)


def _symbol(netuid: int) -> bytes:
    """A letter, repeated when the letters run out."""
    index = netuid - 1
    return (_SYMBOLS[index % len(_SYMBOLS)] * (1 + index // len(_SYMBOLS))).encode()


def write_name(ctx: Context, netuid: int, name: str) -> None:
    """Give a subnet a name and nothing else of an identity."""
    ctx.put("SubnetIdentitiesV3", netuid, dict.fromkeys(_NO_TEXT, b"") | {"subnet_name": name.encode()})


def creation_price(reader: Reader, block: int) -> int:
    """What a new subnet costs at a block: twice the last price, falling linearly, never below the minimum."""
    last, minimum = reader.get("NetworkLastLockCost"), reader.get("NetworkMinLockCost")
    since = block - reader.get("LastRateLimitedBlock", "NetworkLastRegistered")
    interval = max(1, reader.get("NetworkLockReductionInterval"))
    doubled = 2 * last if reader.get("LastRateLimitedBlock", "NetworkLastRegistered") else last
    return int(max(minimum, doubled - last * since // interval))
