"""StakeInfoRuntimeApi and BetaBasketRuntimeApi: who holds how much on which hotkey. There are no baskets here."""

from typing import Any

from template.devchain import stakes
from template.devchain.runtime_api.query import Function, Query


def _info(query: Query, hotkey: str, coldkey: str, netuid: int) -> dict[str, Any]:
    return {
        "hotkey": hotkey,
        "coldkey": coldkey,
        "netuid": netuid,
        "stake": stakes.stake_of(query.view, hotkey, coldkey, netuid),
        "locked": 0,
        "emission": query.get("AlphaDividendsPerSubnet", netuid, hotkey),
        "tao_emission": 0,
        "drain": 0,
        "is_registered": query.view.has("Uids", netuid, hotkey),
    }


def get_stake_info_for_coldkey(query: Query, coldkey: str) -> list[dict[str, Any]]:
    """Every holding of a coldkey that is not zero."""
    hotkeys = query.get("StakingHotkeys", coldkey)
    every = (_info(query, hotkey, coldkey, netuid) for hotkey in hotkeys for netuid in query.netuids())
    return [info for info in every if info["stake"]]


def get_stake_info_for_coldkeys(query: Query, coldkeys: list[str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The same for many coldkeys."""
    return [(coldkey, get_stake_info_for_coldkey(query, coldkey)) for coldkey in coldkeys]


def get_stake_info_for_one(query: Query, hotkey: str, coldkey: str, netuid: int) -> dict[str, Any]:
    """One holding, which may be zero."""
    return _info(query, hotkey, coldkey, netuid)


def get_stake_availability(query: Query, coldkeys: list[str], netuids: list[int] | None) -> dict[str, Any]:
    """Per coldkey and subnet: total, locked and available. Nothing is ever locked here."""
    wanted = query.netuids() if netuids is None else netuids
    answer = {}
    for coldkey in sorted(set(coldkeys)):
        totals = {netuid: 0 for netuid in wanted}
        for info in get_stake_info_for_coldkey(query, coldkey):
            if info["netuid"] in totals:
                totals[info["netuid"]] += info["stake"]
        answer[coldkey] = {
            netuid: {"total": total, "locked": 0, "available": total} for netuid, total in totals.items()
        }
    return answer


def get_stake_fee(query: Query, *_: Any) -> int:
    """Moving stake costs no swap fee where there is no price curve."""
    return 0


def get_coldkey_lock(query: Query, coldkey: str, netuid: int) -> None:
    """Nothing is ever locked here."""
    return


def no_conviction(query: Query, hotkey: str, netuid: int) -> dict[str, int]:
    """Nothing is locked, so there is no conviction."""
    return {"bits": 0}


def nobody(query: Query, netuid: int) -> None:
    """Nothing is locked, so nobody has the most conviction."""
    return


def nothing(query: Query, *_: Any) -> int:
    """No baskets, so nothing is in one and nothing is owed."""
    return 0


def no_positions(query: Query, *_: Any) -> list[Any]:
    """No baskets, so no positions."""
    return []


APIS: dict[str, Function] = {
    "BetaBasketRuntimeApi_get_all_validator_baskets": no_positions,
    "BetaBasketRuntimeApi_get_basket_payout": nothing,
    "BetaBasketRuntimeApi_get_root_basket_owed": nothing,
    "BetaBasketRuntimeApi_get_root_basket_portfolio": no_positions,
    "BetaBasketRuntimeApi_get_root_basket_positions": no_positions,
    "BetaBasketRuntimeApi_get_root_basket_total_nav": nothing,
    "BetaBasketRuntimeApi_get_validator_basket": no_positions,
    "BetaBasketRuntimeApi_get_validator_basket_nav": nothing,
    "StakeInfoRuntimeApi_get_coldkey_lock": get_coldkey_lock,
    "StakeInfoRuntimeApi_get_hotkey_conviction": no_conviction,
    "StakeInfoRuntimeApi_get_most_convicted_hotkey_on_subnet": nobody,
    "StakeInfoRuntimeApi_get_stake_availability_for_coldkeys": get_stake_availability,
    "StakeInfoRuntimeApi_get_stake_fee": get_stake_fee,
    "StakeInfoRuntimeApi_get_stake_info_for_coldkey": get_stake_info_for_coldkey,
    "StakeInfoRuntimeApi_get_stake_info_for_coldkeys": get_stake_info_for_coldkeys,
    "StakeInfoRuntimeApi_get_stake_info_for_hotkey_coldkey_netuid": get_stake_info_for_one,
}
