"""SubtensorModule: putting stake on hotkeys, taking it off, moving it. One TAO is one alpha, always."""

from typing import Any

from template.devchain import balances, neurons, stakes
from template.devchain.context import Context, Origin, ensure
from template.devchain.fixed import U16_MAX

_MIN_STAKE_RAO = 2_000_000
_PRICE_RAO = 10**9


def _check_subnet(ctx: Context, netuid: int) -> None:
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(netuid == 0 or ctx.get("SubtokenEnabled", netuid), "SubtokenDisabled")


def _put_on(ctx: Context, coldkey: str, hotkey: str, netuid: int, amount: int) -> None:
    _check_subnet(ctx, netuid)
    ensure(ctx.has("Owner", hotkey), "HotKeyAccountNotExists")
    ensure(amount >= _MIN_STAKE_RAO, "AmountTooLow")
    enough = balances.free(ctx, coldkey) >= amount + balances.EXISTENTIAL_DEPOSIT_RAO
    ensure(enough, "NotEnoughBalanceToStake")
    balances.withdraw(ctx, coldkey, amount)
    stakes.add_reserve(ctx, netuid, amount)
    stakes.add_stake(ctx, hotkey, coldkey, netuid, amount)
    ctx.add("TotalStake", amount)
    ctx.emit("StakeAdded", (coldkey, hotkey, amount, amount, netuid, 0))


def _take_off(ctx: Context, coldkey: str, hotkey: str, netuid: int, amount: int) -> None:
    _check_subnet(ctx, netuid)
    ensure(ctx.has("Owner", hotkey), "HotKeyAccountNotExists")
    held = stakes.stake_of(ctx, hotkey, coldkey, netuid)
    ensure(amount <= held, "NotEnoughStakeToWithdraw")
    ensure(amount >= _MIN_STAKE_RAO or amount == held > 0, "AmountTooLow")
    ensure(amount <= ctx.get("SubnetTAO", netuid), "InsufficientLiquidity")
    stakes.remove_stake(ctx, hotkey, coldkey, netuid, amount)
    stakes.add_reserve(ctx, netuid, -amount)
    balances.deposit(ctx, coldkey, amount)
    ctx.put("TotalStake", max(0, ctx.get("TotalStake") - amount))
    ctx.emit("StakeRemoved", (coldkey, hotkey, amount, amount, netuid, 0))


def add_stake(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Stake TAO; with a limit price, only when the price is not above it."""
    ensure(args.get("limit_price", _PRICE_RAO) >= _PRICE_RAO, "SlippageTooHigh")
    _put_on(ctx, origin.signed(), args["hotkey"], args["netuid"], args["amount_staked"])


def remove_stake(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Unstake alpha; with a limit price, only when the price is not below it."""
    ensure(args.get("limit_price", 0) <= _PRICE_RAO, "SlippageTooHigh")
    _take_off(ctx, origin.signed(), args["hotkey"], args["netuid"], args["amount_unstaked"])


def remove_stake_full(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Unstake everything on one hotkey and subnet."""
    ensure((args["limit_price"] or 0) <= _PRICE_RAO, "SlippageTooHigh")
    coldkey, hotkey, netuid = origin.signed(), args["hotkey"], args["netuid"]
    _take_off(ctx, coldkey, hotkey, netuid, stakes.stake_of(ctx, hotkey, coldkey, netuid))


def unstake_all(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Unstake everything on one hotkey, on every subnet."""
    coldkey, hotkey = origin.signed(), args["hotkey"]
    ensure(ctx.has("Owner", hotkey), "HotKeyAccountNotExists")
    for (netuid,), _ in sorted(ctx.scan("NetworksAdded")):
        held = stakes.stake_of(ctx, hotkey, coldkey, netuid)
        if held:
            _take_off(ctx, coldkey, hotkey, netuid, held)


def _move(ctx: Context, source: tuple[str, str, int], target: tuple[str, str, int], amount: int) -> None:
    """Move stake from one (coldkey, hotkey, subnet) to another."""
    (coldkey, hotkey, netuid), (new_coldkey, new_hotkey, new_netuid) = source, target
    _check_subnet(ctx, netuid)
    _check_subnet(ctx, new_netuid)
    ensure(ctx.has("Owner", hotkey) and ctx.has("Owner", new_hotkey), "HotKeyAccountNotExists")
    held = stakes.stake_of(ctx, hotkey, coldkey, netuid)
    ensure(amount <= held, "NotEnoughStakeToWithdraw")
    ensure(amount >= _MIN_STAKE_RAO, "AmountTooLow")
    ensure(netuid == new_netuid or amount <= ctx.get("SubnetTAO", netuid), "InsufficientLiquidity")
    stakes.remove_stake(ctx, hotkey, coldkey, netuid, amount)
    if netuid != new_netuid:
        stakes.add_reserve(ctx, netuid, -amount)
        stakes.add_reserve(ctx, new_netuid, amount)
    stakes.add_stake(ctx, new_hotkey, new_coldkey, new_netuid, amount)


def move_stake(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Move one's own stake to another hotkey, another subnet, or both."""
    coldkey, amount = origin.signed(), args["alpha_amount"]
    source = (coldkey, args["origin_hotkey"], args["origin_netuid"])
    target = (coldkey, args["destination_hotkey"], args["destination_netuid"])
    _move(ctx, source, target, amount)
    ctx.emit("StakeMoved", (*source, target[1], target[2], amount))


def swap_stake(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Move one's own stake to another subnet on the same hotkey."""
    coldkey, hotkey, amount = origin.signed(), args["hotkey"], args["alpha_amount"]
    ensure(args["origin_netuid"] != args["destination_netuid"], "SameNetuid")
    ensure(args.get("limit_price", 0) <= _PRICE_RAO, "SlippageTooHigh")
    source, target = args["origin_netuid"], args["destination_netuid"]
    _move(ctx, (coldkey, hotkey, source), (coldkey, hotkey, target), amount)
    ctx.emit("StakeSwapped", (coldkey, hotkey, source, target, amount))


def transfer_stake(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Give stake to another coldkey, where the subnet allows it."""
    coldkey, hotkey, amount = origin.signed(), args["hotkey"], args["alpha_amount"]
    source, target = args["origin_netuid"], args["destination_netuid"]
    allowed = ctx.get("TransferToggle", source) and ctx.get("TransferToggle", target)
    ensure(allowed, "TransferDisallowed")
    _move(ctx, (coldkey, hotkey, source), (args["destination_coldkey"], hotkey, target), amount)
    ctx.emit("StakeTransferred", (coldkey, args["destination_coldkey"], hotkey, source, target, amount))


def _destroy(ctx: Context, origin: Origin, args: dict[str, Any], kind: str) -> None:
    coldkey, hotkey, netuid, amount = origin.signed(), args["hotkey"], args["netuid"], args["amount"]
    ensure(netuid != 0, "CannotBurnOrRecycleOnRootSubnet")
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(0 < amount <= stakes.stake_of(ctx, hotkey, coldkey, netuid), "NotEnoughStakeToWithdraw")
    stakes.remove_stake(ctx, hotkey, coldkey, netuid, amount)
    ctx.add(f"AlphaAssets.{kind}", netuid, amount)
    ctx.emit(kind, (coldkey, hotkey, amount, netuid))


def recycle_alpha(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Destroy stake so that it can be emitted again."""
    _destroy(ctx, origin, args, "AlphaRecycled")


def burn_alpha(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Destroy stake for good."""
    _destroy(ctx, origin, args, "AlphaBurned")


def _set_take(ctx: Context, origin: Origin, args: dict[str, Any], *, up: bool) -> None:
    coldkey, hotkey, take = origin.signed(), args["hotkey"], args["take"]
    ensure(ctx.has("Owner", hotkey), "HotKeyAccountNotExists")
    ensure(ctx.get("Owner", hotkey) == coldkey, "NonAssociatedColdKey")
    ensure(ctx.get("MinDelegateTake") <= take <= U16_MAX, "DelegateTakeTooLow")
    ensure(take <= ctx.get("MaxDelegateTake"), "DelegateTakeTooHigh")
    now = ctx.get("Delegates", hotkey)
    ensure(take > now if up else take < now, "DelegateTakeTooLow")
    last = ctx.get("LastTxBlockDelegateTake", hotkey)
    free = not up or not last or ctx.block - last >= ctx.get("TxDelegateTakeRateLimit")
    ensure(free, "DelegateTxRateLimitExceeded")
    ctx.put("Delegates", hotkey, take)
    ctx.put("LastTxBlockDelegateTake", hotkey, ctx.block)
    ctx.emit("TakeIncreased" if up else "TakeDecreased", (coldkey, hotkey, take))


def increase_take(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Ask for a larger share of what stakers earn; rate limited."""
    _set_take(ctx, origin, args, up=True)


def decrease_take(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Ask for a smaller share of what stakers earn."""
    _set_take(ctx, origin, args, up=False)


def root_register(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Join the root network: a hotkey with stake that is registered on a subnet."""
    coldkey, hotkey = origin.signed(), args["hotkey"]
    ensure(not ctx.has("Uids", 0, hotkey), "HotKeyAlreadyRegisteredInSubNet")
    ensure(any(True for _ in ctx.scan("IsNetworkMember", hotkey)), "HotKeyNotRegisteredInNetwork")
    neurons.link_owner(ctx, hotkey, coldkey)
    ensure(neurons.count(ctx, 0) < ctx.get("MaxAllowedUids", 0), "StakeTooLowForRoot")
    neurons.register(ctx, 0, hotkey)


CALLS = {
    "SubtensorModule.add_stake": add_stake,
    "SubtensorModule.add_stake_limit": add_stake,
    "SubtensorModule.burn_alpha": burn_alpha,
    "SubtensorModule.decrease_take": decrease_take,
    "SubtensorModule.increase_take": increase_take,
    "SubtensorModule.move_stake": move_stake,
    "SubtensorModule.recycle_alpha": recycle_alpha,
    "SubtensorModule.remove_stake": remove_stake,
    "SubtensorModule.remove_stake_full_limit": remove_stake_full,
    "SubtensorModule.remove_stake_limit": remove_stake,
    "SubtensorModule.root_register": root_register,
    "SubtensorModule.swap_stake": swap_stake,
    "SubtensorModule.swap_stake_limit": swap_stake,
    "SubtensorModule.transfer_stake": transfer_stake,
    "SubtensorModule.unstake_all": unstake_all,
}
