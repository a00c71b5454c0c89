"""Stake: alpha that coldkeys hold on hotkeys, as shares of the hotkey's pool on each subnet.

Owns who holds how much and the stake weight of a hotkey. Every subnet here
runs the chain's stable mechanism (one TAO for one alpha), so there is no
price curve to know about.
"""

from typing import Any, Protocol

from template.devchain.context import Context

_SHARES_PER_ALPHA = 10**9  # precision of the first shares of a pool


class Reader(Protocol):
    """Anything that answers storage reads: the current state or a past view."""

    def get(self, name: str, *params: Any) -> Any:
        """The value, or the item's default."""


def _shares(value: dict[str, int]) -> int:
    """A share number of the chain (mantissa x 10^exponent) as a whole number."""
    mantissa, exponent = value["mantissa"], value["exponent"]
    return int(mantissa * 10**exponent) if exponent >= 0 else int(mantissa // 10**-exponent)


def stake_of(reader: Reader, hotkey: str, coldkey: str, netuid: int) -> int:
    """What a coldkey holds on a hotkey, in rao of the subnet's alpha."""
    total = _shares(reader.get("TotalHotkeySharesV2", hotkey, netuid))
    if not total:
        return 0
    mine = _shares(reader.get("AlphaV2", hotkey, coldkey, netuid))
    return int(reader.get("TotalHotkeyAlpha", hotkey, netuid)) * mine // total


def add_stake(ctx: Context, hotkey: str, coldkey: str, netuid: int, alpha: int) -> None:
    """Give a coldkey more alpha on a hotkey."""
    if alpha <= 0:
        return
    pool, total = ctx.get("TotalHotkeyAlpha", hotkey, netuid), _shares(ctx.get("TotalHotkeySharesV2", hotkey, netuid))
    new = alpha * total // pool if pool and total else alpha * _SHARES_PER_ALPHA
    _set_shares(ctx, (hotkey, coldkey, netuid), new, total + new)
    ctx.put("TotalHotkeyAlpha", hotkey, netuid, pool + alpha)
    ctx.add("SubnetAlphaOut", netuid, alpha)
    _remember(ctx, coldkey, hotkey)


def remove_stake(ctx: Context, hotkey: str, coldkey: str, netuid: int, alpha: int) -> None:
    """Take alpha from a coldkey's holding; the caller has checked that it is there."""
    pool, total = ctx.get("TotalHotkeyAlpha", hotkey, netuid), _shares(ctx.get("TotalHotkeySharesV2", hotkey, netuid))
    mine = _shares(ctx.get("AlphaV2", hotkey, coldkey, netuid))
    gone = mine if alpha >= stake_of(ctx, hotkey, coldkey, netuid) else min(mine, -(-alpha * total // pool))
    _set_shares(ctx, (hotkey, coldkey, netuid), -gone, total - gone)
    ctx.put("TotalHotkeyAlpha", hotkey, netuid, pool - alpha if total > gone else 0)
    ctx.add("SubnetAlphaOut", netuid, -alpha)


def reward(ctx: Context, hotkey: str, netuid: int, alpha: int) -> None:
    """Grow a hotkey's pool: everyone who holds shares of it earns in proportion."""
    if alpha and _shares(ctx.get("TotalHotkeySharesV2", hotkey, netuid)):
        ctx.add("TotalHotkeyAlpha", hotkey, netuid, alpha)
        ctx.add("SubnetAlphaOut", netuid, alpha)
    elif alpha:
        add_stake(ctx, hotkey, ctx.get("Owner", hotkey), netuid, alpha)


def add_reserve(ctx: Context, netuid: int, tao: int) -> None:
    """Put TAO into a subnet's pool, or take it out; its alpha side follows, so that the price stays one."""
    reserve = ctx.add("SubnetTAO", netuid, tao)
    ctx.put("SubnetAlphaIn", netuid, reserve)


def _set_shares(ctx: Context, key: tuple[str, str, int], change: int, total: int) -> None:
    hotkey, coldkey, netuid = key
    mine = _shares(ctx.get("AlphaV2", *key)) + change
    if mine:
        ctx.put("AlphaV2", *key, {"mantissa": mine, "exponent": 0})
    else:
        ctx.delete("AlphaV2", *key)
    ctx.put("TotalHotkeySharesV2", hotkey, netuid, {"mantissa": total, "exponent": 0})


def _remember(ctx: Context, coldkey: str, hotkey: str) -> None:
    hotkeys = ctx.get("StakingHotkeys", coldkey)
    if hotkey not in hotkeys:
        ctx.put("StakingHotkeys", coldkey, [*hotkeys, hotkey])


def stake_weight(reader: Reader, hotkey: str, netuid: int) -> tuple[int, int, int]:
    """A hotkey's (total, alpha, TAO) stake on a subnet: alpha plus root stake times the chain's TAO weight."""
    alpha: int = reader.get("TotalHotkeyAlpha", hotkey, netuid)
    if netuid == 0:
        return alpha, 0, alpha
    tao: int = reader.get("TotalHotkeyAlpha", hotkey, 0) * reader.get("TaoWeight") >> 64
    return alpha + tao, alpha, tao
