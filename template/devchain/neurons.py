"""Neurons: giving out uids, the price of one, and who has to leave when a subnet is full.

Owns every list that is indexed by uid. Does not know how a neuron is paid
for or paid; the calls and the coinbase do.
"""

from functools import cache
from typing import Any

from template.devchain.context import Context, ensure
from template.devchain.fixed import FRAC_BITS

# Lists by uid on the subnet, and what a new neuron has in each.
_VECTORS: dict[str, Any] = {
    "Consensus": 0,
    "Incentive": 0,
    "Dividends": 0,
    "Emission": 0,
    "ValidatorTrust": 0,
    "ValidatorPermit": False,
    "StakeWeight": 0,
}


def count(ctx: Context, netuid: int) -> int:
    """How many uids the subnet has given out."""
    size: int = ctx.get("SubnetworkN", netuid)
    return size


def link_owner(ctx: Context, hotkey: str, coldkey: str) -> None:
    """Bind an unowned hotkey to its coldkey; fails when another coldkey owns it."""
    if ctx.has("Owner", hotkey):
        ensure(ctx.get("Owner", hotkey) == coldkey, "NonAssociatedColdKey")
        return
    ctx.put("Owner", hotkey, coldkey)
    ctx.put("OwnedHotkeys", coldkey, [*ctx.get("OwnedHotkeys", coldkey), hotkey])
    hotkeys = ctx.get("StakingHotkeys", coldkey)
    if hotkey not in hotkeys:
        ctx.put("StakingHotkeys", coldkey, [*hotkeys, hotkey])


def register(ctx: Context, netuid: int, hotkey: str) -> int:
    """Give the hotkey a uid: the next one, or that of the neuron that has to leave."""
    size = count(ctx, netuid)
    if size < ctx.get("MaxAllowedUids", netuid):
        uid = size
        _append(ctx, netuid, uid)
    else:
        found = neuron_to_prune(ctx, netuid)
        ensure(found is not None, "NoNeuronIdAvailable")
        assert found is not None
        uid = found
        _clear(ctx, netuid, uid)
    ctx.put("Uids", netuid, hotkey, uid)
    ctx.put("Keys", netuid, uid, hotkey)
    ctx.put("IsNetworkMember", hotkey, netuid, True)
    ctx.put("BlockAtRegistration", netuid, uid, ctx.block)
    ctx.emit("NeuronRegistered", (netuid, uid, hotkey))
    return uid


def _append(ctx: Context, netuid: int, uid: int) -> None:
    ctx.put("SubnetworkN", netuid, uid + 1)
    for name, value in _VECTORS.items():
        ctx.put(name, netuid, [*ctx.get(name, netuid), value])
    ctx.put("Active", netuid, [*ctx.get("Active", netuid), True])
    ctx.put("LastUpdate", netuid, [*ctx.get("LastUpdate", netuid), ctx.block])


def _clear(ctx: Context, netuid: int, uid: int) -> None:
    """Remove the old neuron from a uid and everything it earned, so that the next one inherits nothing."""
    hotkey = ctx.get("Keys", netuid, uid)
    for name in ("Uids", "Axons", "NeuronCertificates", "Prometheus"):
        ctx.delete(name, netuid, hotkey)
    ctx.delete("IsNetworkMember", hotkey, netuid)
    for name, value in _VECTORS.items():
        set_at(ctx, name, netuid, uid, value)
    set_at(ctx, "Active", netuid, uid, True)
    set_at(ctx, "LastUpdate", netuid, uid, ctx.block)
    ctx.delete("Weights", netuid, uid)
    ctx.delete("Bonds", netuid, uid)
    for (_, voter), row in list(ctx.scan("Weights", netuid)):
        if any(column == uid for column, _ in row):
            ctx.put("Weights", netuid, voter, [(column, 0 if column == uid else value) for column, value in row])


def set_at(ctx: Context, name: str, netuid: int, uid: int, value: Any) -> None:
    """Replace one element of a list by uid."""
    values = list(ctx.get(name, netuid))
    values[uid] = value
    ctx.put(name, netuid, values)


def neuron_to_prune(ctx: Context, netuid: int) -> int | None:
    """The uid that leaves next: least emission, then oldest; immune ones only when too few others are left."""
    immortal = _immortal(ctx, netuid)
    emission, period = ctx.get("Emission", netuid), ctx.get("ImmunityPeriod", netuid)
    immune: list[tuple[int, int, int]] = []
    mortal: list[tuple[int, int, int]] = []
    for uid in range(count(ctx, netuid)):
        if ctx.get("Keys", netuid, uid) in immortal:
            continue
        registered = ctx.get("BlockAtRegistration", netuid, uid)
        group = immune if ctx.block - registered < period else mortal
        group.append((emission[uid], registered, uid))
    if mortal and len(mortal) > ctx.get("MinNonImmuneUids", netuid):
        return min(mortal)[2]
    return min(immune)[2] if immune else None


def _immortal(ctx: Context, netuid: int) -> list[str]:
    """The subnet owner's hotkeys that are never pruned: the owner hotkey first, then the oldest, up to the limit."""
    owner, owner_hotkey = ctx.get("SubnetOwner", netuid), ctx.get("SubnetOwnerHotkey", netuid)
    owned = set(ctx.get("OwnedHotkeys", owner)) | {owner_hotkey}
    seats = []
    for hotkey in owned:
        if ctx.has("Uids", netuid, hotkey):
            uid = ctx.get("Uids", netuid, hotkey)
            seats.append((hotkey != owner_hotkey, ctx.get("BlockAtRegistration", netuid, uid), uid, hotkey))
    return [hotkey for *_, hotkey in sorted(seats)[: ctx.get("ImmuneOwnerUidsLimit", netuid)]]


@cache
def decay_factor(half_life_blocks: int) -> int:
    """The largest Q32 factor whose half-life-th power, rounded down at each squaring, is at most one half."""
    low, high = 0, 1 << FRAC_BITS
    while low < high:
        middle = (low + high + 1) // 2
        if _power(middle, half_life_blocks) <= 1 << (FRAC_BITS - 1):
            low = middle
        else:
            high = middle - 1
    return low


def _power(base: int, exponent: int) -> int:
    result = 1 << FRAC_BITS
    while exponent:
        if exponent & 1:
            result = result * base >> FRAC_BITS
        base = base * base >> FRAC_BITS
        exponent >>= 1
    return result


def decay_price(ctx: Context, netuid: int) -> None:
    """Let the registration price fall for one block."""
    if ctx.block <= 1:
        return
    factor = decay_factor(ctx.get("BurnHalfLife", netuid))
    set_price(ctx, netuid, ctx.get("Burn", netuid) * factor >> FRAC_BITS)


def bump_price(ctx: Context, netuid: int) -> None:
    """Raise the registration price after a registration."""
    factor = max(1 << 64, ctx.get("BurnIncreaseMult", netuid)["bits"])
    set_price(ctx, netuid, ctx.get("Burn", netuid) * factor >> 64)


def set_price(ctx: Context, netuid: int, price: int) -> None:
    """Store a price within the subnet's bounds."""
    clamped = min(max(price, ctx.get("MinBurn", netuid)), ctx.get("MaxBurn", netuid))
    if clamped != ctx.get("Burn", netuid):
        ctx.put("Burn", netuid, clamped)
