"""Free balances: reading, moving, creating and burning TAO, in rao. Knows the existential deposit, not why it moves."""

from typing import Any

from template.devchain.context import Context, DispatchError

EXISTENTIAL_DEPOSIT_RAO = 500


def free(ctx: Context, account: str) -> int:
    """The account's free balance."""
    balance: int = ctx.get("System.Account", account)["data"]["free"]
    return balance


def deposit(ctx: Context, account: str, amount: int) -> None:
    """Create TAO on an account."""
    if amount == 0:
        return
    info = ctx.get("System.Account", account)
    if not ctx.has("System.Account", account):
        ctx.emit("System.NewAccount", {"account": account})
        ctx.emit("Balances.Endowed", {"account": account, "free_balance": amount})
    _set_free(ctx, account, info, info["data"]["free"] + amount)
    ctx.add("Balances.TotalIssuance", amount)


def withdraw(ctx: Context, account: str, amount: int, *, keep_alive: bool = True) -> None:
    """Take TAO off an account; fails with the runtime's token error when it is not there."""
    info = ctx.get("System.Account", account)
    left = info["data"]["free"] - amount
    if left < 0:
        raise DispatchError({"Token": "FundsUnavailable"})
    if keep_alive and amount and left < EXISTENTIAL_DEPOSIT_RAO:
        raise DispatchError({"Token": "NotExpendable"})
    _set_free(ctx, account, info, left)
    ctx.add("Balances.TotalIssuance", -amount)


def transfer(ctx: Context, source: str, target: str, amount: int, *, keep_alive: bool = True) -> None:
    """Move TAO between accounts."""
    if amount and free(ctx, target) + amount < EXISTENTIAL_DEPOSIT_RAO:
        raise DispatchError({"Token": "BelowMinimum"})
    withdraw(ctx, source, amount, keep_alive=keep_alive)
    deposit(ctx, target, amount)
    ctx.emit("Balances.Transfer", {"from": source, "to": target, "amount": amount})


def _set_free(ctx: Context, account: str, info: dict[str, Any], amount: int) -> None:
    data = info["data"] | {"free": amount}
    ctx.put("System.Account", account, info | {"providers": 1 if amount else 0, "data": data})
