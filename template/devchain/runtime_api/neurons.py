"""NeuronInfoRuntimeApi: one neuron or all of a subnet, with or without weights and bonds."""

from typing import Any

from template.devchain import stakes
from template.devchain.runtime_api.query import Function, Query

_NO_AXON = dict.fromkeys(("block", "version", "ip", "port", "ip_type", "protocol", "placeholder1", "placeholder2"), 0)
_NO_PROMETHEUS = dict.fromkeys(("block", "version", "ip", "port", "ip_type"), 0)


def axon(query: Query, netuid: int, hotkey: str) -> dict[str, int]:
    """The hotkey's published endpoint, or all zeros."""
    return query.get("Axons", netuid, hotkey) or _NO_AXON


def _lite(query: Query, netuid: int, uid: int) -> dict[str, Any]:
    hotkey = query.get("Keys", netuid, uid)
    coldkey = query.get("Owner", hotkey)
    emission = query.get("Emission", netuid)
    return {
        "hotkey": hotkey,
        "coldkey": coldkey,
        "uid": uid,
        "netuid": netuid,
        "active": query.get("Active", netuid)[uid],
        "axon_info": axon(query, netuid, hotkey),
        "prometheus_info": query.get("Prometheus", netuid, hotkey) or _NO_PROMETHEUS,
        "stake": [(coldkey, stakes.stake_weight(query.view, hotkey, netuid)[0])],
        "rank": query.get("Incentive", netuid)[uid],
        "emission": emission[uid],
        "incentive": query.get("Incentive", netuid)[uid],
        "consensus": query.get("Consensus", netuid)[uid],
        "trust": 0,
        "validator_trust": query.get("ValidatorTrust", netuid)[uid],
        "dividends": query.get("Dividends", netuid)[uid],
        "last_update": query.get("LastUpdate", netuid)[uid],
        "validator_permit": query.get("ValidatorPermit", netuid)[uid],
        "pruning_score": pruning_score(emission, uid),
    }


def pruning_score(emission: list[int], uid: int) -> int:
    """Emission over the largest one, as u16: the lower, the sooner a neuron is replaced."""
    top = max(emission, default=0)
    return emission[uid] * 65535 // top if top else 0


def _full(query: Query, netuid: int, uid: int) -> dict[str, Any]:
    matrices = {"weights": query.get("Weights", netuid, uid), "bonds": query.get("Bonds", netuid, uid)}
    return _lite(query, netuid, uid) | matrices


def get_neurons(query: Query, netuid: int) -> list[dict[str, Any]]:
    """Every neuron with its weights and bonds."""
    return [_full(query, netuid, uid) for uid in range(query.get("SubnetworkN", netuid))]


def get_neuron(query: Query, netuid: int, uid: int) -> dict[str, Any] | None:
    """One neuron with its weights and bonds."""
    return _full(query, netuid, uid) if uid < query.get("SubnetworkN", netuid) else None


def get_neurons_lite(query: Query, netuid: int) -> list[dict[str, Any]]:
    """Every neuron."""
    return [_lite(query, netuid, uid) for uid in range(query.get("SubnetworkN", netuid))]


def get_neuron_lite(query: Query, netuid: int, uid: int) -> dict[str, Any] | None:
    """One neuron."""
    return _lite(query, netuid, uid) if uid < query.get("SubnetworkN", netuid) else None


APIS: dict[str, Function] = {
    "NeuronInfoRuntimeApi_get_neuron": get_neuron,
    "NeuronInfoRuntimeApi_get_neuron_lite": get_neuron_lite,
    "NeuronInfoRuntimeApi_get_neurons": get_neurons,
    "NeuronInfoRuntimeApi_get_neurons_lite": get_neurons_lite,
}
