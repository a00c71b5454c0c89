"""SwapRuntimeApi: what alpha costs. Every subnet here runs the stable mechanism, so it costs exactly one TAO."""

from typing import Any

from template.devchain.runtime_api.query import Function, Query

_ONE_TAO_RAO = 10**9


def current_alpha_price(query: Query, netuid: int) -> int:
    """Rao per alpha; zero for a subnet that does not exist."""
    return _ONE_TAO_RAO if query.exists(netuid) else 0


def current_alpha_price_all(query: Query) -> list[dict[str, int]]:
    """The price on every subnet."""
    return [{"netuid": netuid, "price": _ONE_TAO_RAO} for netuid in query.netuids()]


def sim_swap(query: Query, netuid: int, amount: int) -> dict[str, Any]:
    """What a swap in either direction would give: the same amount, without fee or slippage."""
    fees = dict.fromkeys(("tao_fee", "alpha_fee", "tao_slippage", "alpha_slippage"), 0)
    return {"tao_amount": amount, "alpha_amount": amount} | fees


APIS: dict[str, Function] = {
    "SwapRuntimeApi_current_alpha_price": current_alpha_price,
    "SwapRuntimeApi_current_alpha_price_all": current_alpha_price_all,
    "SwapRuntimeApi_sim_swap_alpha_for_tao": sim_swap,
    "SwapRuntimeApi_sim_swap_tao_for_alpha": sim_swap,
}
