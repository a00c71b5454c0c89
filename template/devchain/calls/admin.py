"""AdminUtils: hyperparameters, set by root or, where the runtime allows it, by the subnet's owner.

Owns who may set what, within which bounds. One row of the table is one call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from template.devchain import coinbase
from template.devchain.context import BAD_ORIGIN, Context, Origin, ensure

Check = Callable[[Context, int, Any], None]  # context, netuid, the new value

_MAX_UIDS = 256
_MIN_BURN_TOP_RAO, _MAX_BURN_BOTTOM_RAO = 10**9, 10**8
_MIN_TEMPO, _MAX_TEMPO = 360, 50_400
_MIN_ALPHA = 1638
_MAX_BONDS_AVERAGE = 975_000
_OWNER_LIMIT_BASE = 1000  # kinds of the owner's rate limits, apart from those of the runtime


@dataclass(frozen=True)
class Setter:
    """How one call sets one storage item."""

    item: str
    argument: str
    event: str | None = None
    owner: bool = False  # may the subnet's owner call it
    per_subnet: bool = True
    check: Check | None = None


def _within(low: int, high: int, error: str) -> Check:
    def check(ctx: Context, netuid: int, value: Any) -> None:
        ensure(low <= (value["bits"] if isinstance(value, dict) else value) <= high, error)

    return check


def _check_min_burn(ctx: Context, netuid: int, value: int) -> None:
    ensure(value < _MIN_BURN_TOP_RAO and value < ctx.get("MaxBurn", netuid), "AdminUtils.ValueNotInBounds")


def _check_max_burn(ctx: Context, netuid: int, value: int) -> None:
    ensure(value > _MAX_BURN_BOTTOM_RAO and value > ctx.get("MinBurn", netuid), "AdminUtils.ValueNotInBounds")


def _check_max_uids(ctx: Context, netuid: int, value: int) -> None:
    ensure(value >= ctx.get("SubnetworkN", netuid), "AdminUtils.MaxAllowedUIdsLessThanCurrentUIds")
    ensure(value >= ctx.get("MinAllowedUids", netuid), "AdminUtils.MaxAllowedUidsLessThanMinAllowedUids")
    ensure(value <= _MAX_UIDS, "AdminUtils.MaxAllowedUidsGreaterThanDefaultMaxAllowedUids")


def _check_min_uids(ctx: Context, netuid: int, value: int) -> None:
    too_many = value > ctx.get("MaxAllowedUids", netuid)
    ensure(not too_many, "AdminUtils.MinAllowedUidsGreaterThanMaxAllowedUids")


def _check_max_validators(ctx: Context, netuid: int, value: int) -> None:
    ensure(value <= ctx.get("MaxAllowedUids", netuid), "AdminUtils.MaxValidatorsLargerThanMaxUIds")


def _check_reveal_period(ctx: Context, netuid: int, value: int) -> None:
    ensure(value >= 1, "RevealPeriodTooSmall")
    ensure(value <= 100, "RevealPeriodTooLarge")


_TEMPO = _within(_MIN_TEMPO, _MAX_TEMPO, "TempoOutOfBounds")
_FACTOR = _within(1000, 50_000, "ActivityCutoffFactorMilliOutOfBounds")
_MULT = _within(1 << 64, 3 << 64, "AdminUtils.InvalidValue")
_HALF_LIFE = _within(1, 36_100, "AdminUtils.InvalidValue")
_BONDS = _within(0, _MAX_BONDS_AVERAGE, "AdminUtils.BondsMovingAverageMaxReached")

SETTERS: dict[str, Setter] = {
    # owner or root
    "sudo_set_activity_cutoff_factor": Setter(
        "ActivityCutoffFactorMilli", "factor_milli", None, owner=True, check=_FACTOR
    ),
    "sudo_set_adjustment_alpha": Setter("AdjustmentAlpha", "adjustment_alpha", "AdjustmentAlphaSet", owner=True),
    "sudo_set_alpha_sigmoid_steepness": Setter(
        "AlphaSigmoidSteepness", "steepness", "AlphaSigmoidSteepnessSet", owner=True
    ),
    "sudo_set_bonds_moving_average": Setter(
        "BondsMovingAverage", "bonds_moving_average", "BondsMovingAverageSet", owner=True, check=_BONDS
    ),
    "sudo_set_bonds_penalty": Setter("BondsPenalty", "bonds_penalty", "BondsPenaltySet", owner=True),
    "sudo_set_bonds_reset_enabled": Setter("BondsResetOn", "enabled", "BondsResetOnSet", owner=True),
    "sudo_set_burn_half_life": Setter("BurnHalfLife", "burn_half_life", None, owner=True, check=_HALF_LIFE),
    "sudo_set_burn_increase_mult": Setter("BurnIncreaseMult", "burn_increase_mult", None, owner=True, check=_MULT),
    "sudo_set_commit_reveal_weights_enabled": Setter(
        "CommitRevealWeightsEnabled", "enabled", "CommitRevealEnabled", owner=True
    ),
    "sudo_set_commit_reveal_weights_interval": Setter(
        "RevealPeriodEpochs", "interval", "CommitRevealPeriodsSet", owner=True, check=_check_reveal_period
    ),
    "sudo_set_immunity_period": Setter("ImmunityPeriod", "immunity_period", "ImmunityPeriodSet", owner=True),
    "sudo_set_liquid_alpha_enabled": Setter("LiquidAlphaOn", "enabled", owner=True),
    "sudo_set_max_allowed_uids": Setter(
        "MaxAllowedUids", "max_allowed_uids", "MaxAllowedUidsSet", owner=True, check=_check_max_uids
    ),
    "sudo_set_max_burn": Setter("MaxBurn", "max_burn", "MaxBurnSet", owner=True, check=_check_max_burn),
    "sudo_set_max_difficulty": Setter("MaxDifficulty", "max_difficulty", "MaxDifficultySet", owner=True),
    "sudo_set_min_allowed_weights": Setter(
        "MinAllowedWeights", "min_allowed_weights", "MinAllowedWeightSet", owner=True
    ),
    "sudo_set_min_burn": Setter("MinBurn", "min_burn", "MinBurnSet", owner=True, check=_check_min_burn),
    "sudo_set_network_pow_registration_allowed": Setter(
        "NetworkPowRegistrationAllowed", "registration_allowed", "PowRegistrationAllowed", owner=True
    ),
    "sudo_set_network_registration_allowed": Setter(
        "NetworkRegistrationAllowed", "registration_allowed", "RegistrationAllowed", owner=True
    ),
    "sudo_set_owner_cut_enabled": Setter("OwnerCutEnabled", "enabled", owner=True),
    "sudo_set_owner_immune_neuron_limit": Setter("ImmuneOwnerUidsLimit", "immune_neurons", owner=True),
    "sudo_set_rho": Setter("Rho", "rho", "RhoSet", owner=True),
    "sudo_set_serving_rate_limit": Setter("ServingRateLimit", "serving_rate_limit", "ServingRateLimitSet", owner=True),
    "sudo_set_tempo": Setter("Tempo", "tempo", "TempoSet", owner=True),
    "sudo_set_toggle_transfer": Setter("TransferToggle", "toggle", "TransferToggle", owner=True),
    "sudo_set_weights_version_key": Setter(
        "WeightsVersionKey", "weights_version_key", "WeightsVersionKeySet", owner=True
    ),
    "sudo_set_yuma3_enabled": Setter("Yuma3On", "enabled", owner=True),
    # root only
    "sudo_set_adjustment_interval": Setter("AdjustmentInterval", "adjustment_interval", "AdjustmentIntervalSet"),
    "sudo_set_difficulty": Setter("Difficulty", "difficulty", "DifficultySet"),
    "sudo_set_kappa": Setter("Kappa", "kappa", "KappaSet"),
    "sudo_set_max_allowed_validators": Setter(
        "MaxAllowedValidators", "max_allowed_validators", "MaxAllowedValidatorsSet", check=_check_max_validators
    ),
    "sudo_set_max_registrations_per_block": Setter(
        "MaxRegistrationsPerBlock", "max_registrations_per_block", "MaxRegistrationsPerBlockSet"
    ),
    "sudo_set_min_allowed_uids": Setter(
        "MinAllowedUids", "min_allowed_uids", "MinAllowedUidsSet", check=_check_min_uids
    ),
    "sudo_set_min_difficulty": Setter("MinDifficulty", "min_difficulty", "MinDifficultySet"),
    "sudo_set_min_non_immune_uids": Setter("MinNonImmuneUids", "min", "MinNonImmuneUidsSet"),
    "sudo_set_subnet_emission_enabled": Setter("SubnetEmissionEnabled", "enabled"),
    "sudo_set_subtoken_enabled": Setter("SubtokenEnabled", "subtoken_enabled"),
    "sudo_set_target_registrations_per_interval": Setter(
        "TargetRegistrationsPerInterval", "target_registrations_per_interval", "RegistrationPerIntervalSet"
    ),
    "sudo_set_weights_set_rate_limit": Setter(
        "WeightsSetRateLimit", "weights_set_rate_limit", "WeightsSetRateLimitSet"
    ),
    # root only, for the whole chain
    "sudo_set_admin_freeze_window": Setter("AdminFreezeWindow", "window", "AdminFreezeWindowSet", per_subnet=False),
    "sudo_set_commit_reveal_version": Setter(
        "CommitRevealWeightsVersion", "version", "CommitRevealVersionSet", per_subnet=False
    ),
    "sudo_set_lock_reduction_interval": Setter(
        "NetworkLockReductionInterval", "interval", "NetworkLockCostReductionIntervalSet", per_subnet=False
    ),
    "sudo_set_max_epochs_per_block": Setter(
        "MaxEpochsPerBlock", "max_epochs_per_block", "MaxEpochsPerBlockSet", per_subnet=False
    ),
    "sudo_set_network_min_lock_cost": Setter(
        "NetworkMinLockCost", "lock_cost", "NetworkMinLockCostSet", per_subnet=False
    ),
    "sudo_set_network_rate_limit": Setter("NetworkRateLimit", "rate_limit", "NetworkRateLimitSet", per_subnet=False),
    "sudo_set_owner_hparam_rate_limit": Setter(
        "OwnerHyperparamRateLimit", "epochs", "OwnerHyperparamRateLimitSet", per_subnet=False
    ),
    "sudo_set_stake_threshold": Setter("StakeThreshold", "min_stake", "StakeThresholdSet", per_subnet=False),
    "sudo_set_start_call_delay": Setter("StartCallDelay", "delay", "StartCallDelaySet", per_subnet=False),
    "sudo_set_subnet_limit": Setter("SubnetLimit", "max_subnets", "SubnetLimitSet", per_subnet=False),
    "sudo_set_subnet_owner_cut": Setter("SubnetOwnerCut", "subnet_owner_cut", "SubnetOwnerCutSet", per_subnet=False),
    "sudo_set_tx_delegate_take_rate_limit": Setter(
        "TxDelegateTakeRateLimit", "tx_rate_limit", "TxDelegateTakeRateLimitSet", per_subnet=False
    ),
}
_KINDS = {name: _OWNER_LIMIT_BASE + index for index, name in enumerate(sorted(SETTERS))}


def authorize(ctx: Context, origin: Origin, netuid: int, kind: int) -> None:
    """Root always may; the subnet's owner may outside the freeze window and once per rate limit."""
    if origin.root:
        return
    owner = origin.signed()
    ensure(ctx.get("NetworksAdded", netuid), "SubnetNotExists")
    ensure(ctx.get("SubnetOwner", netuid) == owner, BAD_ORIGIN)
    due = coinbase.next_epoch(ctx, netuid)
    window = ctx.get("AdminFreezeWindow")
    frozen = window > 0 and due is not None and due - ctx.block < window
    ensure(not frozen, "AdminActionProhibitedDuringWeightsWindow")
    limit = ctx.get("OwnerHyperparamRateLimit") * ctx.get("Tempo", netuid)
    last = ctx.get("TransactionKeyLastBlock", owner, netuid, kind)
    ensure(last == 0 or ctx.block - last >= limit, "TxRateLimitExceeded")
    ctx.put("TransactionKeyLastBlock", owner, netuid, kind, ctx.block)


def _set(name: str, ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Run one row of the table."""
    setter, value = SETTERS[name], args[SETTERS[name].argument]
    netuid = args.get("netuid", 0)
    ensure(origin.root or setter.owner, BAD_ORIGIN)
    if setter.per_subnet:
        ensure(ctx.get("NetworksAdded", netuid), "AdminUtils.SubnetDoesNotExist")
        authorize(ctx, origin, netuid, _KINDS[name])
    if name == "sudo_set_tempo" and not origin.root:
        _TEMPO(ctx, netuid, value)
    if name == "sudo_set_alpha_sigmoid_steepness" and not origin.root:
        ensure(value >= 0, "AdminUtils.NegativeSigmoidSteepness")
    if setter.check is not None:
        setter.check(ctx, netuid, value)
    if setter.per_subnet:
        ctx.put(setter.item, netuid, value)
    else:
        ctx.put(setter.item, value)
    if setter.event is not None:
        ctx.emit(setter.event, (netuid, value) if setter.per_subnet else value)


def set_alpha_values(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Owner or root: the bounds of liquid alpha, both at once."""
    netuid, low, high = args["netuid"], args["alpha_low"], args["alpha_high"]
    authorize(ctx, origin, netuid, _OWNER_LIMIT_BASE - 1)
    ensure(ctx.get("LiquidAlphaOn", netuid), "LiquidAlphaDisabled")
    ensure(high >= _MIN_ALPHA, "AlphaHighTooLow")
    ensure(_MIN_ALPHA <= low <= high, "AlphaLowOutOfRange")
    ctx.put("AlphaValues", netuid, (low, high))


def set_owner_hotkey(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Owner or root: which hotkey stands for the subnet's owner."""
    netuid, hotkey = args["netuid"], args["hotkey"]
    authorize(ctx, origin, netuid, _OWNER_LIMIT_BASE - 2)
    ctx.put("SubnetOwnerHotkey", netuid, hotkey)
    ctx.emit("SubnetOwnerHotkeySet", (netuid, hotkey))


def set_tempo(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """The owner's own call for the tempo."""
    _set("sudo_set_tempo", ctx, origin, args)


def set_activity_cutoff_factor(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """The owner's own call for the activity cutoff."""
    _set("sudo_set_activity_cutoff_factor", ctx, origin, args)
    ctx.emit("ActivityCutoffFactorMilliSet", {"netuid": args["netuid"], "factor_milli": args["factor_milli"]})


CALLS: dict[str, Callable[[Context, Origin, dict[str, Any]], None]] = {
    **{f"AdminUtils.{name}": partial(_set, name) for name in SETTERS},
    "AdminUtils.sudo_set_alpha_values": set_alpha_values,
    "AdminUtils.sudo_set_sn_owner_hotkey": set_owner_hotkey,
    "SubtensorModule.set_activity_cutoff_factor": set_activity_cutoff_factor,
    "SubtensorModule.set_tempo": set_tempo,
}
