"""Balances: moving TAO."""

from typing import Any

from template.devchain import balances
from template.devchain.context import BAD_ORIGIN, Context, Origin, account_of, ensure


def transfer_allow_death(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Move TAO, even if the sender's account disappears."""
    balances.transfer(ctx, origin.signed(), account_of(args["dest"]), args["value"], keep_alive=False)


def transfer_keep_alive(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Move TAO, but not the last of it."""
    balances.transfer(ctx, origin.signed(), account_of(args["dest"]), args["value"])


def transfer_all(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Move everything, or everything above the existential deposit."""
    account, keep = origin.signed(), args["keep_alive"]
    amount = balances.free(ctx, account) - (balances.EXISTENTIAL_DEPOSIT_RAO if keep else 0)
    balances.transfer(ctx, account, account_of(args["dest"]), max(0, amount), keep_alive=keep)


def force_set_balance(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Root: set an account's free balance."""
    ensure(origin.root, BAD_ORIGIN)
    account = account_of(args["who"])
    change = args["new_free"] - balances.free(ctx, account)
    if change >= 0:
        balances.deposit(ctx, account, change)
    else:
        balances.withdraw(ctx, account, -change, keep_alive=False)
    ctx.emit("Balances.BalanceSet", {"who": account, "free": args["new_free"]})


CALLS = {
    "Balances.transfer_allow_death": transfer_allow_death,
    "Balances.transfer_keep_alive": transfer_keep_alive,
    "Balances.transfer_all": transfer_all,
    "Balances.force_set_balance": force_set_balance,
}
