"""DelegateInfoRuntimeApi: hotkeys that others may stake on, with what they hold."""

from typing import Any

from template.devchain import stakes
from template.devchain.runtime_api.query import Function, Query


def _nominators(query: Query, hotkey: str) -> dict[str, list[tuple[int, int]]]:
    """By coldkey, what it holds on the hotkey on each subnet."""
    holdings: dict[str, list[tuple[int, int]]] = {}
    for (_, coldkey, netuid), _ in query.view.scan("AlphaV2", hotkey):
        held = stakes.stake_of(query.view, hotkey, coldkey, netuid)
        if held:
            holdings.setdefault(coldkey, []).append((netuid, held))
    return holdings


def _delegate(query: Query, hotkey: str) -> dict[str, Any]:
    registered = sorted(netuid for (_, netuid), member in query.view.scan("IsNetworkMember", hotkey) if member)
    uids = {netuid: query.get("Uids", netuid, hotkey) for netuid in registered}
    return {
        "delegate_ss58": hotkey,
        "take": query.get("Delegates", hotkey),
        "nominators": list(_nominators(query, hotkey).items()),
        "owner_ss58": query.get("Owner", hotkey),
        "registrations": registered,
        "validator_permits": [each for each in registered if query.get("ValidatorPermit", each)[uids[each]]],
        "return_per_1000": 0,
        "total_daily_return": 0,
    }


def get_delegates(query: Query) -> list[dict[str, Any]]:
    """Every hotkey that has an owner and holds stake."""
    hotkeys = [params[0] for params, _ in query.view.scan("Owner")]
    staked = [hotkey for hotkey in hotkeys if any(True for _ in query.view.scan("AlphaV2", hotkey))]
    return [_delegate(query, hotkey) for hotkey in staked]


def get_delegate(query: Query, hotkey: str) -> dict[str, Any] | None:
    """One hotkey."""
    return _delegate(query, hotkey) if query.view.has("Owner", hotkey) else None


def get_delegated(query: Query, coldkey: str) -> list[Any]:
    """What a coldkey holds, hotkey by hotkey and subnet by subnet."""
    answer = []
    for hotkey in query.get("StakingHotkeys", coldkey):
        for netuid, held in _nominators(query, hotkey).get(coldkey, ()):
            answer.append((_delegate(query, hotkey), (netuid, held)))
    return answer


APIS: dict[str, Function] = {
    "DelegateInfoRuntimeApi_get_delegate": get_delegate,
    "DelegateInfoRuntimeApi_get_delegated": get_delegated,
    "DelegateInfoRuntimeApi_get_delegates": get_delegates,
}
