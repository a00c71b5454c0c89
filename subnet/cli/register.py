"""`strata register`: buy a uid for a hotkey, after showing what it costs. Already registered is success.

Owns the question and the answer; the chain's rules are behind `template.chain`.
"""

import asyncio
import sys
from typing import Annotated, Any

import typer

from subnet.cli import flags
from subnet.cli.console import line, show_json
from template.chain import Chain
from template.errors import InsufficientBalance, SpendLimit, UsageError
from template.values import RAO_PER_TAO, tao_text


def register(
    network: flags.Network = "finney",
    netuid: flags.Netuid = 1,
    wallet: flags.Wallet = "default",
    hotkey: flags.Hotkey = "default",
    wallet_path: flags.WalletPath = flags.WALLET_PATH,
    limit: Annotated[
        float | None, typer.Option(metavar="TAO", help="Pay at most this. Default: the price that is shown.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before paying.")] = False,
    json: flags.Json = False,
    env_file: flags.EnvFile = None,
) -> None:
    """Register a hotkey on the subnet; shows the price and asks before it pays."""
    facts = asyncio.run(_register(network, netuid, (wallet, hotkey, wallet_path), limit, yes))
    if json:
        show_json({"network": network, **facts})
    elif facts["already"]:
        line(f"{facts['hotkey']} is registered on subnet {netuid} already, with uid {facts['uid']}; nothing was paid")
    else:
        line(f"{facts['hotkey']} is registered on subnet {netuid} with uid {facts['uid']}")


async def _register(
    network: str, netuid: int, wallet: tuple[str, str, str], limit_tao: float | None, yes: bool
) -> dict[str, Any]:
    # Imported here: the SDK takes a second to load, which `--help` and a wrong option need not wait for.
    from template.sdk import SdkChain, load_wallet

    chain = SdkChain(network, netuid, load_wallet(*wallet))
    try:
        return await register_on(chain, limit_tao=limit_tao, yes=yes)
    finally:
        await chain.close()


async def register_on(chain: Chain, *, limit_tao: float | None, yes: bool) -> dict[str, Any]:
    """Register the chain object's hotkey, asking first unless `yes`; the facts of what happened."""
    view = await chain.view()
    known = view.neuron(chain.hotkey)
    facts = {"netuid": chain.netuid, "hotkey": chain.hotkey}
    if known is not None:
        return {**facts, "uid": known.uid, "already": True, "price_rao": 0}
    price_rao, balance_rao = await chain.burn_rao(), await chain.balance_rao()
    limit_rao = price_rao if limit_tao is None else round(limit_tao * RAO_PER_TAO)
    if price_rao > limit_rao:
        raise SpendLimit(
            f"expected subnet {chain.netuid} to cost at most {tao_text(limit_rao)} TAO, found {tao_text(price_rao)}; "
            "raise --limit, or wait: the price falls until somebody registers"
        )
    if balance_rao < price_rao:
        raise InsufficientBalance(
            f"expected a balance of at least {tao_text(price_rao)} TAO to register on subnet {chain.netuid}, found "
            f"{tao_text(balance_rao)}; fund the wallet's coldkey (on the dev chain: strata chain --fund SS58=TAO)"
        )
    if not yes:
        price = f"{tao_text(price_rao)} TAO of the coldkey's {tao_text(balance_rao)}"
        price += "" if view.started else "; its owner has not started it, so nobody is paid yet"
        _confirm(f"register {chain.hotkey} on subnet {chain.netuid} for {price}")
    uid = await chain.register(limit_rao=limit_rao)
    return {**facts, "uid": uid, "already": False, "price_rao": price_rao}


def _confirm(asked: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"expected a terminal to ask on ({asked}), found none; say yes beforehand with --yes")
    if not typer.confirm(f"{asked}: go on?", err=True):
        raise typer.Exit(1)
