"""SubtensorModule: registering a neuron by burning TAO."""

from typing import Any

from template.devchain import balances, neurons, stakes
from template.devchain.context import Context, Origin, ensure


def burned_register(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Register a hotkey at the current price."""
    _register(ctx, origin.signed(), args["netuid"], args["hotkey"])


def register_limit(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Register a hotkey unless the price is above the given limit."""
    coldkey, netuid = origin.signed(), args["netuid"]
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(ctx.get("Burn", netuid) <= args["limit_price"], "RegistrationPriceLimitExceeded")
    _register(ctx, coldkey, netuid, args["hotkey"])


def _register(ctx: Context, coldkey: str, netuid: int, hotkey: str) -> None:
    ensure(netuid != 0, "RegistrationNotPermittedOnRootSubnet")
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(ctx.get("NetworkRegistrationAllowed", netuid), "SubNetRegistrationDisabled")
    ensure(not ctx.has("Uids", netuid, hotkey), "HotKeyAlreadyRegisteredInSubNet")
    price = ctx.get("Burn", netuid)
    ensure(balances.free(ctx, coldkey) >= price + balances.EXISTENTIAL_DEPOSIT_RAO, "NotEnoughBalanceToStake")
    neurons.link_owner(ctx, hotkey, coldkey)
    full = neurons.count(ctx, netuid) >= ctx.get("MaxAllowedUids", netuid)
    ensure(not full or neurons.neuron_to_prune(ctx, netuid) is not None, "NoNeuronIdAvailable")
    balances.withdraw(ctx, coldkey, price)
    stakes.add_reserve(ctx, netuid, price)
    ctx.add("RAORecycledForRegistration", netuid, price)
    neurons.register(ctx, netuid, hotkey)
    ctx.add("RegistrationsThisBlock", netuid, 1)
    ctx.add("RegistrationsThisInterval", netuid, 1)
    ctx.add("BurnRegistrationsThisInterval", netuid, 1)
    neurons.bump_price(ctx, netuid)


def try_associate_hotkey(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Claim an unowned hotkey for the calling coldkey."""
    neurons.link_owner(ctx, args["hotkey"], origin.signed())


CALLS = {
    "SubtensorModule.burned_register": burned_register,
    "SubtensorModule.register_limit": register_limit,
    "SubtensorModule.try_associate_hotkey": try_associate_hotkey,
}
