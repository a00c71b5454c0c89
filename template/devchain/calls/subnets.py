"""SubtensorModule: making a subnet, starting it, naming it, and triggering its epoch."""

from typing import Any

from template.devchain import balances, coinbase, neurons, stakes, subnets
from template.devchain.calls.serving import bytes_of
from template.devchain.context import BAD_ORIGIN, Context, Origin, ensure

_IDENTITY = (
    "subnet_name",
    "github_repo",
    "subnet_contact",
    "subnet_url",
    "discord",
    "description",
    "logo_url",
    "additional",
)
_MAX_FIELD_BYTES = 1024


def register_network(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Make a subnet: lock its price, give the hotkey uid 0. It earns nothing before its start call."""
    coldkey, hotkey = origin.signed(), args["hotkey"]
    last, limit = ctx.get("LastRateLimitedBlock", "NetworkLastRegistered"), ctx.get("NetworkRateLimit")
    ensure(last == 0 or ctx.block - last >= limit, "NetworkTxRateLimitExceeded")
    existing = [params[0] for params, added in ctx.scan("NetworksAdded") if added]
    ensure(len(existing) - 1 < ctx.get("SubnetLimit"), "SubnetLimitReached")
    price = subnets.creation_price(ctx, ctx.block)
    ensure(balances.free(ctx, coldkey) >= price + balances.EXISTENTIAL_DEPOSIT_RAO, "CannotAffordLockCost")
    neurons.link_owner(ctx, hotkey, coldkey)
    netuid = next(each for each in range(1, len(existing) + 1) if each not in existing)
    balances.withdraw(ctx, coldkey, price)
    subnets.write_subnet(ctx, netuid, coldkey, hotkey)
    stakes.add_reserve(ctx, netuid, price)
    ctx.put("SubnetLocked", netuid, price)
    ctx.put("NetworkLastLockCost", price)
    ctx.put("LastRateLimitedBlock", "NetworkLastRegistered", ctx.block)
    ctx.add("TotalNetworks", 1)
    neurons.register(ctx, netuid, hotkey)
    neurons.set_at(ctx, "ValidatorPermit", netuid, 0, True)
    if args.get("identity"):
        _write_identity(ctx, netuid, args["identity"])
    ctx.emit("NetworkAdded", (netuid, 0))


def start_call(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Start a subnet's emission and its token, once the delay after its creation is over."""
    coldkey, netuid = origin.signed(), args["netuid"]
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(ctx.get("SubnetOwner", netuid) == coldkey, BAD_ORIGIN)
    ensure(ctx.get("FirstEmissionBlockNumber", netuid) is None, "FirstEmissionBlockNumberAlreadySet")
    waited = ctx.block - ctx.get("NetworkRegisteredAt", netuid) >= ctx.get("StartCallDelay")
    ensure(waited, "NeedWaitingMoreBlocksToStarCall")
    ctx.put("FirstEmissionBlockNumber", netuid, ctx.block + 1)
    ctx.put("SubtokenEnabled", netuid, True)
    ctx.put("LastEpochBlock", netuid, ctx.block)
    ctx.emit("FirstEmissionBlockNumberSet", (netuid, ctx.block + 1))


def _write_identity(ctx: Context, netuid: int, args: dict[str, Any]) -> None:
    values = {name: bytes_of(args[name]) for name in _IDENTITY}
    ensure(all(len(value) <= _MAX_FIELD_BYTES for value in values.values()), "InvalidIdentity")
    ctx.put("SubnetIdentitiesV3", netuid, values)
    ctx.emit("SubnetIdentitySet", netuid)


def set_subnet_identity(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Owner: name and links of a subnet."""
    netuid = args["netuid"]
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(origin.root or ctx.get("SubnetOwner", netuid) == origin.signed(), "NotSubnetOwner")
    _write_identity(ctx, netuid, args)


def set_identity(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """A coldkey's own name and links; it needs a registered hotkey."""
    coldkey = origin.signed()
    owned = ctx.get("OwnedHotkeys", coldkey)
    member = any(True for hotkey in owned for _ in ctx.scan("IsNetworkMember", hotkey))
    ensure(member, "HotKeyNotRegisteredInNetwork")
    values = {name: bytes_of(value) for name, value in args.items()}
    ensure(all(len(value) <= _MAX_FIELD_BYTES for value in values.values()), "InvalidIdentity")
    ctx.put("IdentitiesV2", coldkey, values)
    ctx.emit("ChainIdentitySet", coldkey)


def update_symbol(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Owner: the symbol of a subnet's token."""
    netuid, symbol = args["netuid"], bytes_of(args["symbol"])
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(origin.root or ctx.get("SubnetOwner", netuid) == origin.signed(), BAD_ORIGIN)
    taken = any(bytes_of(value) == symbol for _, value in ctx.scan("TokenSymbol"))
    ensure(not taken, "SymbolAlreadyInUse")
    ctx.put("TokenSymbol", netuid, symbol)
    ctx.emit("SymbolUpdated", {"netuid": netuid, "symbol": symbol})


def trigger_epoch(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Owner: run the epoch in the next block."""
    netuid = args["netuid"]
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(ctx.get("SubnetOwner", netuid) == origin.signed(), BAD_ORIGIN)
    ensure(not ctx.get("CommitRevealWeightsEnabled", netuid), "DynamicTempoBlockedByCommitReveal")
    ensure(ctx.get("PendingEpochAt", netuid) == 0, "EpochTriggerAlreadyPending")
    due = coinbase.next_epoch(ctx, netuid)
    ensure(due is None or due > ctx.block + 1, "AutoEpochAlreadyImminent")
    ctx.put("PendingEpochAt", netuid, ctx.block + 1)
    ctx.emit("EpochTriggered", {"netuid": netuid, "by": origin.signed(), "fires_at": ctx.block + 1})


CALLS = {
    "SubtensorModule.register_network": register_network,
    "SubtensorModule.register_network_with_identity": register_network,
    "SubtensorModule.set_identity": set_identity,
    "SubtensorModule.set_subnet_identity": set_subnet_identity,
    "SubtensorModule.start_call": start_call,
    "SubtensorModule.trigger_epoch": trigger_epoch,
    "SubtensorModule.update_symbol": update_symbol,
}
