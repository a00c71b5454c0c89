"""SubnetInfoRuntimeApi and SubnetRegistrationRuntimeApi: a subnet, its pool and its metagraph."""

from typing import Any

from template.devchain import coinbase, stakes, subnets
from template.devchain.runtime_api.hyperparameters import activity_cutoff
from template.devchain.runtime_api.neurons import axon, pruning_score
from template.devchain.runtime_api.query import Function, Query, text_units

# Fields of the answers that are a storage item as it is.
_POOL = {
    "network_registered_at": "NetworkRegisteredAt",
    "tempo": "Tempo",
    "last_step": "LastMechansimStepBlock",
    "blocks_since_last_step": "BlocksSinceLastStep",
    "alpha_in": "SubnetAlphaIn",
    "alpha_out": "SubnetAlphaOut",
    "tao_in": "SubnetTAO",
    "alpha_out_emission": "SubnetAlphaOutEmission",
    "alpha_in_emission": "SubnetAlphaInEmission",
    "tao_in_emission": "SubnetTaoInEmission",
    "subnet_volume": "SubnetVolume",
    "moving_price": "SubnetMovingPrice",
    "owner_hotkey": "SubnetOwnerHotkey",
    "owner_coldkey": "SubnetOwner",
}
_METAGRAPH = {
    "rho": "Rho",
    "kappa": "Kappa",
    "min_allowed_weights": "MinAllowedWeights",
    "max_weights_limit": "MaxWeightsLimit",
    "weights_version": "WeightsVersionKey",
    "weights_rate_limit": "WeightsSetRateLimit",
    "max_validators": "MaxAllowedValidators",
    "num_uids": "SubnetworkN",
    "max_uids": "MaxAllowedUids",
    "burn": "Burn",
    "difficulty": "Difficulty",
    "registration_allowed": "NetworkRegistrationAllowed",
    "pow_registration_allowed": "NetworkPowRegistrationAllowed",
    "immunity_period": "ImmunityPeriod",
    "min_difficulty": "MinDifficulty",
    "max_difficulty": "MaxDifficulty",
    "min_burn": "MinBurn",
    "max_burn": "MaxBurn",
    "adjustment_alpha": "AdjustmentAlpha",
    "adjustment_interval": "AdjustmentInterval",
    "target_regs_per_interval": "TargetRegistrationsPerInterval",
    "max_regs_per_block": "MaxRegistrationsPerBlock",
    "serving_rate_limit": "ServingRateLimit",
    "commit_reveal_weights_enabled": "CommitRevealWeightsEnabled",
    "commit_reveal_period": "RevealPeriodEpochs",
    "liquid_alpha_enabled": "LiquidAlphaOn",
    "bonds_moving_avg": "BondsMovingAverage",
    "active": "Active",
    "validator_permit": "ValidatorPermit",
    "last_update": "LastUpdate",
    "emission": "Emission",
    "dividends": "Dividends",
    "incentives": "Incentive",
    "consensus": "Consensus",
    "rank": "Incentive",
}
_SUBNET_INFO = {
    "rho": "Rho",
    "kappa": "Kappa",
    "difficulty": "Difficulty",
    "immunity_period": "ImmunityPeriod",
    "max_allowed_validators": "MaxAllowedValidators",
    "min_allowed_weights": "MinAllowedWeights",
    "max_weights_limit": "MaxWeightsLimit",
    "scaling_law_power": "ScalingLawPower",
    "subnetwork_n": "SubnetworkN",
    "max_allowed_uids": "MaxAllowedUids",
    "blocks_since_last_step": "BlocksSinceLastStep",
    "tempo": "Tempo",
    "burn": "Burn",
    "owner": "SubnetOwner",
}


def _copy(query: Query, netuid: int, table: dict[str, str]) -> dict[str, Any]:
    return {field: query.get(item, netuid) for field, item in table.items()}


def _pool(query: Query, netuid: int) -> dict[str, Any]:
    pending = query.get("PendingServerEmission", netuid) + query.get("PendingValidatorEmission", netuid)
    return _copy(query, netuid, _POOL) | {
        "netuid": netuid,
        "pending_alpha_emission": pending,
        "pending_root_emission": 0,
    }


def _name(query: Query, netuid: int) -> list[int]:
    identity = query.get("SubnetIdentitiesV3", netuid)
    return text_units(identity["subnet_name"]) if identity else list(b"root" if netuid == 0 else b"unknown")


def get_dynamic_info(query: Query, netuid: int) -> dict[str, Any] | None:
    """The subnet and its pool."""
    if not query.exists(netuid):
        return None
    return _pool(query, netuid) | {
        "subnet_name": _name(query, netuid),
        "token_symbol": text_units(query.get("TokenSymbol", netuid)),
        "emission": query.get("SubnetAlphaOutEmission", netuid),
        "subnet_identity": query.get("SubnetIdentitiesV3", netuid),
    }


def get_all_dynamic_info(query: Query) -> list[dict[str, Any] | None]:
    """Every subnet and its pool."""
    return [get_dynamic_info(query, netuid) for netuid in query.netuids()]


def get_metagraph(query: Query, netuid: int) -> dict[str, Any] | None:
    """The whole subnet: pool, hyperparameters, and every neuron by column."""
    if not query.exists(netuid):
        return None
    size = query.get("SubnetworkN", netuid)
    hotkeys = [query.get("Keys", netuid, uid) for uid in range(size)]
    coldkeys = [query.get("Owner", hotkey) for hotkey in hotkeys]
    weights = [stakes.stake_weight(query.view, hotkey, netuid) for hotkey in hotkeys]
    emission = query.get("Emission", netuid)
    low, high = query.get("AlphaValues", netuid)
    dividends = [(params[1], value) for params, value in query.view.scan("AlphaDividendsPerSubnet", netuid)]
    columns = {
        "hotkeys": hotkeys,
        "coldkeys": coldkeys,
        "identities": [query.get("IdentitiesV2", coldkey) for coldkey in coldkeys],
        "axons": [axon(query, netuid, hotkey) for hotkey in hotkeys],
        "pruning_score": [pruning_score(emission, uid) for uid in range(size)],
        "trust": [0] * size,
        "block_at_registration": [query.get("BlockAtRegistration", netuid, uid) for uid in range(size)],
        "total_stake": [total for total, _, _ in weights],
        "alpha_stake": [alpha for _, alpha, _ in weights],
        "tao_stake": [tao for _, _, tao in weights],
        "tao_dividends_per_hotkey": [(hotkey, 0) for hotkey in hotkeys],
        "alpha_dividends_per_hotkey": dividends,
        "collateral_locked": [0] * size,
        "collateral_min": [0] * size,
        "collateral_earned": [0] * size,
    }
    subnet = {
        "name": _name(query, netuid),
        "symbol": text_units(query.get("TokenSymbol", netuid)),
        "identity": query.get("SubnetIdentitiesV3", netuid),
        "block": query.block,
        "subnet_emission": query.get("SubnetAlphaOutEmission", netuid),
        "activity_cutoff": activity_cutoff(query, netuid),
        "alpha_low": low,
        "alpha_high": high,
    }
    return _pool(query, netuid) | _copy(query, netuid, _METAGRAPH) | subnet | columns


def get_all_metagraphs(query: Query) -> list[dict[str, Any] | None]:
    """Every subnet's metagraph."""
    return [get_metagraph(query, netuid) for netuid in query.netuids()]


def get_mechagraph(query: Query, netuid: int, mechanism: int) -> dict[str, Any] | None:
    """The metagraph of one mechanism; there is only the first one here."""
    return get_metagraph(query, netuid) if mechanism == 0 else None


def get_subnet_info(query: Query, netuid: int) -> dict[str, Any] | None:
    """The subnet in its first form."""
    if not query.exists(netuid):
        return None
    rest = {"network_modality": 0, "network_connect": [], "emission_values": 0, "emission_value": 0}
    return {"netuid": netuid} | _copy(query, netuid, _SUBNET_INFO) | rest


def get_subnet_info_v2(query: Query, netuid: int) -> dict[str, Any] | None:
    """The subnet in its second form, with its identity."""
    info = get_subnet_info(query, netuid)
    return None if info is None else info | {"identity": query.get("SubnetIdentitiesV3", netuid)}


def get_subnets_info(query: Query) -> list[dict[str, Any] | None]:
    """Every subnet in its first form."""
    return [get_subnet_info(query, netuid) for netuid in query.netuids()]


def get_subnets_info_v2(query: Query) -> list[dict[str, Any] | None]:
    """Every subnet in its second form."""
    return [get_subnet_info_v2(query, netuid) for netuid in query.netuids()]


def get_next_epoch_start_block(query: Query, netuid: int) -> int | None:
    """When the subnet's next epoch runs."""
    return coinbase.next_epoch(query.view, netuid) if query.exists(netuid) else None


def get_block_emission(query: Query) -> int:
    """What one block emits, in rao."""
    emission: int = query.get("BlockEmission")
    return emission


def get_coldkey_auto_stake_hotkey(query: Query, coldkey: str, netuid: int) -> str | None:
    """Where a coldkey wants its miners' incentive staked; None means on the miner itself."""
    hotkey: str | None = query.get("AutoStakeDestination", coldkey, netuid)
    return hotkey


def get_subnet_to_prune(query: Query) -> None:
    """No subnet ever has to leave here."""
    return


def get_network_registration_cost(query: Query) -> int:
    """What a new subnet costs at this block."""
    return subnets.creation_price(query.view, query.block)


APIS: dict[str, Function] = {
    "SubnetInfoRuntimeApi_get_all_dynamic_info": get_all_dynamic_info,
    "SubnetInfoRuntimeApi_get_all_metagraphs": get_all_metagraphs,
    "SubnetInfoRuntimeApi_get_block_emission": get_block_emission,
    "SubnetInfoRuntimeApi_get_coldkey_auto_stake_hotkey": get_coldkey_auto_stake_hotkey,
    "SubnetInfoRuntimeApi_get_dynamic_info": get_dynamic_info,
    "SubnetInfoRuntimeApi_get_mechagraph": get_mechagraph,
    "SubnetInfoRuntimeApi_get_metagraph": get_metagraph,
    "SubnetInfoRuntimeApi_get_next_epoch_start_block": get_next_epoch_start_block,
    "SubnetInfoRuntimeApi_get_subnet_info": get_subnet_info,
    "SubnetInfoRuntimeApi_get_subnet_info_v2": get_subnet_info_v2,
    "SubnetInfoRuntimeApi_get_subnet_to_prune": get_subnet_to_prune,
    "SubnetInfoRuntimeApi_get_subnets_info": get_subnets_info,
    "SubnetInfoRuntimeApi_get_subnets_info_v2": get_subnets_info_v2,
    "SubnetRegistrationRuntimeApi_get_network_registration_cost": get_network_registration_cost,
}
