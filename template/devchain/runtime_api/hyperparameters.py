"""SubnetInfoRuntimeApi: a subnet's hyperparameters, in the three forms the runtime has had."""

from typing import Any

from template.devchain.runtime_api.query import Function, Query

# Name in the answers, storage item, and the kind of the third form.
_PLAIN = (
    ("rho", "Rho", "U16"),
    ("kappa", "Kappa", "U16"),
    ("immunity_period", "ImmunityPeriod", "U16"),
    ("min_allowed_weights", "MinAllowedWeights", "U16"),
    ("max_weights_limit", "MaxWeightsLimit", "U16"),
    ("tempo", "Tempo", "U16"),
    ("min_difficulty", "MinDifficulty", "U64"),
    ("max_difficulty", "MaxDifficulty", "U64"),
    ("weights_version", "WeightsVersionKey", "U64"),
    ("weights_rate_limit", "WeightsSetRateLimit", "U64"),
    ("adjustment_interval", "AdjustmentInterval", "U16"),
    ("registration_allowed", "NetworkRegistrationAllowed", "Bool"),
    ("target_regs_per_interval", "TargetRegistrationsPerInterval", "U16"),
    ("min_burn", "MinBurn", "TaoBalance"),
    ("max_burn", "MaxBurn", "TaoBalance"),
    ("bonds_moving_avg", "BondsMovingAverage", "U64"),
    ("max_regs_per_block", "MaxRegistrationsPerBlock", "U16"),
    ("serving_rate_limit", "ServingRateLimit", "U64"),
    ("max_validators", "MaxAllowedValidators", "U16"),
    ("adjustment_alpha", "AdjustmentAlpha", "U64"),
    ("difficulty", "Difficulty", "U64"),
    ("commit_reveal_period", "RevealPeriodEpochs", "U64"),
    ("commit_reveal_weights_enabled", "CommitRevealWeightsEnabled", "Bool"),
    ("liquid_alpha_enabled", "LiquidAlphaOn", "Bool"),
)
_NEWER = (
    ("activity_cutoff_factor", "ActivityCutoffFactorMilli", "U32"),
    ("network_pow_registration_allowed", "NetworkPowRegistrationAllowed", "Bool"),
    ("bonds_penalty", "BondsPenalty", "U16"),
    ("min_childkey_take", "MinChildkeyTakePerSubnet", "U16"),
    ("owner_immune_neuron_limit", "ImmuneOwnerUidsLimit", "U16"),
    ("max_allowed_uids", "MaxAllowedUids", "U16"),
    ("burn_increase_mult", "BurnIncreaseMult", "U64F64"),
    ("burn_half_life", "BurnHalfLife", "U16"),
    ("collateral_lock_share", "CollateralLockShare", "U16"),
    ("collateral_drain_ratio", "CollateralDrainRatio", "U64F64"),
    ("yuma3_enabled", "Yuma3On", "Bool"),
    ("bonds_reset_enabled", "BondsResetOn", "Bool"),
    ("transfers_enabled", "TransferToggle", "Bool"),
    ("owner_cut_enabled", "OwnerCutEnabled", "Bool"),
    ("owner_cut_auto_lock_enabled", "OwnerCutAutoLockEnabled", "Bool"),
    ("subnet_emission_enabled", "SubnetEmissionEnabled", "Bool"),
)


def activity_cutoff(query: Query, netuid: int) -> int:
    """After how many blocks without weights a validator is inactive."""
    return max(1, int(query.get("ActivityCutoffFactorMilli", netuid) * query.get("Tempo", netuid) // 1000))


def steepness_bits(query: Query, netuid: int) -> dict[str, int]:
    """The sigmoid steepness as I32F32."""
    return {"bits": query.get("AlphaSigmoidSteepness", netuid) << 32}


def hyperparams(query: Query, netuid: int) -> dict[str, Any] | None:
    """The first form."""
    if not query.exists(netuid):
        return None
    low, high = query.get("AlphaValues", netuid)
    plain = {name: query.get(item, netuid) for name, item, _ in _PLAIN}
    return plain | {"activity_cutoff": activity_cutoff(query, netuid), "alpha_low": low, "alpha_high": high}


def hyperparams_v2(query: Query, netuid: int) -> dict[str, Any] | None:
    """The second form."""
    first = hyperparams(query, netuid)
    if first is None:
        return None
    return first | {
        "alpha_sigmoid_steepness": steepness_bits(query, netuid),
        "yuma_version": 3 if query.get("Yuma3On", netuid) else 2,
        "subnet_is_active": query.get("SubtokenEnabled", netuid),
        "transfers_enabled": query.get("TransferToggle", netuid),
        "bonds_reset_enabled": query.get("BondsResetOn", netuid),
        "user_liquidity_enabled": False,
    }


def hyperparams_v3(query: Query, netuid: int) -> list[dict[str, Any]] | None:
    """The third form: a list of names and typed values."""
    if not query.exists(netuid):
        return None
    low, high = query.get("AlphaValues", netuid)
    values = [(name, kind, query.get(item, netuid)) for name, item, kind in (*_PLAIN, *_NEWER)]
    values += [
        ("activity_cutoff", "U64", activity_cutoff(query, netuid)),
        ("alpha_low", "U16", low),
        ("alpha_high", "U16", high),
        ("alpha_sigmoid_steepness", "I32F32", steepness_bits(query, netuid)),
        ("yuma_version", "U16", 3 if query.get("Yuma3On", netuid) else 2),
        ("subnet_is_active", "Bool", query.get("SubtokenEnabled", netuid)),
        ("user_liquidity_enabled", "Bool", False),
    ]
    return [{"name": name.encode(), "value": {kind: value}} for name, kind, value in values]


APIS: dict[str, Function] = {
    "SubnetInfoRuntimeApi_get_subnet_hyperparams": hyperparams,
    "SubnetInfoRuntimeApi_get_subnet_hyperparams_v2": hyperparams_v2,
    "SubnetInfoRuntimeApi_get_subnet_hyperparams_v3": hyperparams_v3,
}
