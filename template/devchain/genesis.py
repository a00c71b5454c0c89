"""Genesis: every value a dev chain starts with, in this one file.

Where a number differs from the real chain's, it is so that a subnet's life
fits into minutes: short tempo, short rate limits, commit-reveal off.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

import bittensor_core

from template.devchain import balances, neurons, stakes, subnets
from template.devchain.context import Context

RAO_PER_TAO = 10**9
NETUID = 1
_SUDO_TAO, _OWNER_TAO = 1_000_000.0, 10_000.0
_ROOT_SYMBOL = "Τ"


@dataclass(frozen=True, kw_only=True)
class GenesisValidator:
    """A validator that is registered, staked and permitted from block 0."""

    hotkey: str
    coldkey: str
    stake_tao: float = 1000.0


@dataclass(frozen=True, kw_only=True)
class Genesis:
    """What a dev chain starts with; addresses are ss58."""

    owner_coldkey: str
    owner_hotkey: str
    sudo: str
    validators: tuple[GenesisValidator, ...] = ()
    funds_tao: tuple[tuple[str, float], ...] = ()
    tempo: int = 20
    weights_rate_limit: int = 10
    serving_rate_limit: int = 1
    min_allowed_weights: int = 1
    commit_reveal: bool = False
    reveal_period_epochs: int = 1
    block_time_s: float = 1.0
    finality_lag_blocks: int = 0
    max_uids: int = 256
    max_validators: int = 64
    immunity_period: int = 4096
    burn_tao: float = 0.1
    min_burn_tao: float = 0.0005
    max_burn_tao: float = 100.0
    burn_half_life: int = 360
    weights_version_key: int = 0
    activity_cutoff_factor_milli: int = 50_000
    stake_threshold_tao: float = 0.0
    yuma3: bool = False
    start_call_delay: int = 10
    network_rate_limit: int = 0
    network_lock_tao: float = 100.0
    subnet_name: str = "strata"
    state_window_blocks: int = 4096
    without_items: tuple[str, ...] = ()  # storage items that clients should find missing
    start_ms: int = 0  # the clock of block 0; 0 means the machine's clock when the chain starts

    def __post_init__(self) -> None:
        for name in ("owner_coldkey", "owner_hotkey", "sudo"):
            _check_address(name, getattr(self, name))
        for validator in self.validators:
            _check_address("validator hotkey", validator.hotkey)
            _check_address("validator coldkey", validator.coldkey)
        for address, amount in self.funds_tao:
            _check_address("funds_tao", address)
            if amount < 0:
                raise ValueError(f"funds_tao expects amounts of at least 0 TAO, found {amount} for {address}")
        if self.block_time_s <= 0 or self.tempo < 1 or self.max_uids < 1 or self.state_window_blocks < 1:
            raise ValueError(
                "block_time_s must be above 0 and tempo, max_uids and state_window_blocks at least 1, found "
                f"{self.block_time_s}, {self.tempo}, {self.max_uids} and {self.state_window_blocks}"
            )
        hotkeys = [self.owner_hotkey, *(validator.hotkey for validator in self.validators)]
        if len(set(hotkeys)) != len(hotkeys):
            raise ValueError("the hotkeys of the owner and of the validators must all differ, found one twice")
        if self.max_uids < len(hotkeys):
            raise ValueError(f"max_uids must hold the {len(hotkeys)} hotkeys of genesis, found {self.max_uids}")


def _check_address(name: str, address: str) -> None:
    try:
        bittensor_core.ss58_decode(address)
    except ValueError as error:
        raise ValueError(f"{name} expects an ss58 address, found {address!r}: {error}") from error


def genesis_to_dict(genesis: Genesis) -> dict[str, Any]:
    """A plain JSON form, for handing a genesis to another process."""
    return asdict(genesis)


def genesis_from_dict(data: dict[str, Any]) -> Genesis:
    """The inverse of genesis_to_dict; a key that Genesis does not have is refused."""
    unknown = set(data) - {each.name for each in fields(Genesis)}
    if unknown:
        raise ValueError(f"a genesis does not have {', '.join(sorted(unknown))}: remove it from the file")
    values = dict(data)
    values["validators"] = tuple(GenesisValidator(**each) for each in data.get("validators", ()))
    values["funds_tao"] = tuple((address, float(amount)) for address, amount in data.get("funds_tao", ()))
    values["without_items"] = tuple(data.get("without_items", ()))
    return Genesis(**values)


def genesis_salt(genesis: Genesis, metadata_digest: bytes, start_ms: int) -> bytes:
    """What sets this chain apart from any other, so that no client mixes their caches."""
    content = json.dumps(genesis_to_dict(genesis), sort_keys=True).encode()
    return hashlib.blake2b(metadata_digest + start_ms.to_bytes(8, "little") + content, digest_size=32).digest()


def development_address(uri: str) -> str:
    """The public address of a well-known development key such as //Alice."""
    return str(bittensor_core.Keypair.create_from_uri(uri).ss58_address)


def default_genesis(**changes: Any) -> Genesis:
    """A chain for one person: //Alice is sudo and owns subnet 1, //Bob, //Charlie and //Dave have coins."""
    funds = tuple((development_address(uri), 10_000.0) for uri in ("//Bob", "//Charlie", "//Dave", "//Eve", "//Ferdie"))
    defaults: dict[str, Any] = {
        "owner_coldkey": development_address("//Alice"),
        "owner_hotkey": development_address("//Alice//hotkey"),
        "sudo": development_address("//Alice"),
        "funds_tao": funds,
    }
    defaults["funds_tao"] = funds + tuple(changes.pop("funds_tao", ()))
    return Genesis(**defaults | changes)


def rao(tao: float) -> int:
    """TAO as whole rao."""
    return round(tao * RAO_PER_TAO)


def write_genesis(ctx: Context, genesis: Genesis) -> None:
    """Fill storage at block 0."""
    ctx.put("Sudo.Key", genesis.sudo)
    balances.deposit(ctx, genesis.sudo, rao(_SUDO_TAO))
    balances.deposit(ctx, genesis.owner_coldkey, rao(_OWNER_TAO))
    for address, amount in genesis.funds_tao:
        balances.deposit(ctx, address, rao(amount))
    ctx.put("StakeThreshold", rao(genesis.stake_threshold_tao))
    ctx.put("StartCallDelay", genesis.start_call_delay)
    ctx.put("CommitRevealWeightsVersion", 4)
    ctx.put("TotalNetworks", 2)
    ctx.put("AdminFreezeWindow", 0)
    ctx.put("OwnerHyperparamRateLimit", 0)
    ctx.put("NetworkRateLimit", genesis.network_rate_limit)
    ctx.put("NetworkMinLockCost", rao(genesis.network_lock_tao))
    ctx.put("NetworkLastLockCost", rao(genesis.network_lock_tao))
    _write_root(ctx, genesis)
    ctx.subnet_defaults = subnet_defaults(genesis)
    subnets.write_subnet(ctx, NETUID, genesis.owner_coldkey, genesis.owner_hotkey)
    subnets.write_name(ctx, NETUID, genesis.subnet_name)
    ctx.put("SubtokenEnabled", NETUID, True)
    ctx.put("FirstEmissionBlockNumber", NETUID, 1)
    _write_neurons(ctx, genesis)
    ctx.put("TotalIssuance", ctx.get("Balances.TotalIssuance"))


def _write_root(ctx: Context, genesis: Genesis) -> None:
    ctx.put("NetworksAdded", 0, True)
    ctx.put("Tempo", 0, 100)
    ctx.put("TokenSymbol", 0, _ROOT_SYMBOL.encode())
    ctx.put("SubnetOwner", 0, genesis.sudo)
    ctx.put("NetworkRegistrationAllowed", 0, False)


def subnet_defaults(genesis: Genesis) -> dict[str, Any]:
    """The hyperparameters of subnet 1, and of every subnet made later."""
    return {
        "Tempo": genesis.tempo,
        "WeightsSetRateLimit": genesis.weights_rate_limit,
        "ServingRateLimit": genesis.serving_rate_limit,
        "MinAllowedWeights": genesis.min_allowed_weights,
        "MaxWeightsLimit": 65535,
        "CommitRevealWeightsEnabled": genesis.commit_reveal,
        "RevealPeriodEpochs": genesis.reveal_period_epochs,
        "MaxAllowedUids": genesis.max_uids,
        "MinAllowedUids": min(64, genesis.max_uids),
        "MaxAllowedValidators": genesis.max_validators,
        "ImmunityPeriod": genesis.immunity_period,
        "Burn": rao(genesis.burn_tao),
        "MinBurn": rao(genesis.min_burn_tao),
        "MaxBurn": rao(genesis.max_burn_tao),
        "BurnHalfLife": genesis.burn_half_life,
        "WeightsVersionKey": genesis.weights_version_key,
        "ActivityCutoffFactorMilli": genesis.activity_cutoff_factor_milli,
        "Yuma3On": genesis.yuma3,
    }


def _write_neurons(ctx: Context, genesis: Genesis) -> None:
    """The owner's hotkey at uid 0, then the validators, staked and permitted."""
    neurons.link_owner(ctx, genesis.owner_hotkey, genesis.owner_coldkey)
    neurons.register(ctx, NETUID, genesis.owner_hotkey)
    for validator in genesis.validators:
        if not balances.free(ctx, validator.coldkey):
            balances.deposit(ctx, validator.coldkey, rao(100.0))
        neurons.link_owner(ctx, validator.hotkey, validator.coldkey)
        uid = neurons.register(ctx, NETUID, validator.hotkey)
        stakes.add_stake(ctx, validator.hotkey, validator.coldkey, NETUID, rao(validator.stake_tao))
        stakes.add_reserve(ctx, NETUID, rao(validator.stake_tao))
        ctx.add("TotalStake", rao(validator.stake_tao))
        neurons.set_at(ctx, "ValidatorPermit", NETUID, uid, True)
    neurons.set_at(ctx, "ValidatorPermit", NETUID, 0, True)
