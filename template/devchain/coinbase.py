"""The block's own work: prices fall, emission accrues, and epochs pay it out.

Owns when an epoch is due and who is paid what by it. The consensus itself is
epoch.py; this file gathers its input from storage and writes its output back.
"""

from template.devchain import neurons, stakes, weights
from template.devchain.context import Context
from template.devchain.epoch import EpochInput, EpochParams, EpochResult, run_epoch
from template.devchain.fixed import U16_MAX

_MAX_QUIET_BLOCKS = 50_400


def subnets(ctx: Context) -> list[int]:
    """Every subnet but the root, in order."""
    return sorted(netuid for (netuid,), added in ctx.scan("NetworksAdded") if added and netuid != 0)


def begin_block(ctx: Context) -> None:
    """Run before the block's extrinsics."""
    netuids = subnets(ctx)
    for netuid in netuids:
        neurons.decay_price(ctx, netuid)
        if ctx.get("RegistrationsThisBlock", netuid):
            ctx.put("RegistrationsThisBlock", netuid, 0)
        _accrue(ctx, netuid)
    epochs = 0
    for netuid in netuids:
        if not is_epoch_due(ctx, netuid):
            ctx.add("BlocksSinceLastStep", netuid, 1)
        elif epochs < ctx.get("MaxEpochsPerBlock"):
            epochs += 1
            _step(ctx, netuid)
        else:
            ctx.put("PendingEpochAt", netuid, ctx.block + 1)
            ctx.emit("EpochDeferred", {"netuid": netuid, "from_block": ctx.block, "to_block": ctx.block + 1})


def is_epoch_due(ctx: Context, netuid: int) -> bool:
    """Whether the subnet's epoch runs in this block."""
    tempo, pending = ctx.get("Tempo", netuid), ctx.get("PendingEpochAt", netuid)
    if tempo == 0:
        return False
    if 0 < pending <= ctx.block or ctx.get("BlocksSinceLastStep", netuid) > _MAX_QUIET_BLOCKS:
        return True
    since: int = ctx.block - ctx.get("LastEpochBlock", netuid)
    return since >= int(tempo)


def next_epoch(reader: stakes.Reader, netuid: int) -> int | None:
    """The block at which the subnet's next epoch runs; None when it has no epochs."""
    tempo, pending = reader.get("Tempo", netuid), reader.get("PendingEpochAt", netuid)
    if tempo == 0:
        return None
    due: int = reader.get("LastEpochBlock", netuid) + tempo
    return min(due, pending) if pending else due


def _accrue(ctx: Context, netuid: int) -> None:
    """Add this block's alpha to what the next epoch pays: the owner's cut, then half and half."""
    if ctx.get("FirstEmissionBlockNumber", netuid) is None or not ctx.get("SubtokenEnabled", netuid):
        return
    emission = ctx.get("BlockEmission") if ctx.get("SubnetEmissionEnabled", netuid) else 0
    if ctx.get("SubnetAlphaOutEmission", netuid) != emission:
        ctx.put("SubnetAlphaOutEmission", netuid, emission)
        ctx.put("SubnetTaoInEmission", netuid, emission)
    if not emission:
        return
    stakes.add_reserve(ctx, netuid, emission)
    ctx.add("TotalIssuance", emission)
    cut = emission * ctx.get("SubnetOwnerCut") // U16_MAX if ctx.get("OwnerCutEnabled", netuid) else 0
    server = (emission - cut) // 2
    ctx.add("PendingOwnerCut", netuid, cut)
    ctx.add("PendingServerEmission", netuid, server)
    ctx.add("PendingValidatorEmission", netuid, emission - cut - server)


def _step(ctx: Context, netuid: int) -> None:
    """Run the subnet's epoch and pay it out."""
    pending = {name: ctx.get(name, netuid) for name in ("PendingServerEmission", "PendingValidatorEmission")}
    emission = sum(pending.values())
    result = run_epoch(_epoch_input(ctx, netuid), _epoch_params(ctx, netuid))
    ctx.put("BlocksSinceLastStep", netuid, 0)
    ctx.put("LastEpochBlock", netuid, ctx.block)
    ctx.put("PendingEpochAt", netuid, 0)
    ctx.add("SubnetEpochIndex", netuid, 1)
    ctx.put("LastMechansimStepBlock", netuid, ctx.block)
    for name in pending:
        ctx.put(name, netuid, 0)
    if neurons.count(ctx, netuid):
        _store(ctx, netuid, result, emission)
        _pay_owner(ctx, netuid)
        _pay_servers(ctx, netuid, result.amounts(result.server, emission))
        _pay_validators(ctx, netuid, result.amounts(result.validator, emission))


def _epoch_params(ctx: Context, netuid: int) -> EpochParams:
    low, high = ctx.get("AlphaValues", netuid)
    tempo = ctx.get("Tempo", netuid)
    return EpochParams(
        tempo=tempo,
        activity_cutoff=max(1, ctx.get("ActivityCutoffFactorMilli", netuid) * tempo // 1000),
        kappa=ctx.get("Kappa", netuid),
        max_validators=ctx.get("MaxAllowedValidators", netuid),
        bonds_penalty=ctx.get("BondsPenalty", netuid),
        bonds_moving_average=ctx.get("BondsMovingAverage", netuid),
        yuma3=ctx.get("Yuma3On", netuid),
        liquid_alpha=ctx.get("LiquidAlphaOn", netuid),
        alpha_low=low,
        alpha_high=high,
        alpha_steepness=ctx.get("AlphaSigmoidSteepness", netuid),
    )


def _epoch_input(ctx: Context, netuid: int) -> EpochInput:
    size = neurons.count(ctx, netuid)
    owner, threshold = weights.owner_uid(ctx, netuid), ctx.get("StakeThreshold")
    stake = [stakes.stake_weight(ctx, ctx.get("Keys", netuid, uid), netuid)[0] for uid in range(size)]
    return EpochInput(
        block=ctx.block,
        last_step_block=ctx.get("LastMechansimStepBlock", netuid),
        stake=[value if value >= threshold or uid == owner else 0 for uid, value in enumerate(stake)],
        last_update=ctx.get("LastUpdate", netuid),
        registered_at=[ctx.get("BlockAtRegistration", netuid, uid) for uid in range(size)],
        permits=ctx.get("ValidatorPermit", netuid),
        weights={uid: row for (_, uid), row in ctx.scan("Weights", netuid)},
        bonds={uid: row for (_, uid), row in ctx.scan("Bonds", netuid)},
        owner_uid=owner,
        first_commit=_first_commits(ctx, netuid),
    )


def _first_commits(ctx: Context, netuid: int) -> dict[int, int]:
    """By uid, the block of the oldest commit that is not revealed yet; nothing when commit-reveal is off."""
    first: dict[int, int] = {}
    if ctx.get("CommitRevealWeightsEnabled", netuid):
        for _, commits in ctx.scan("TimelockedWeightCommits", netuid):
            for hotkey, block, *_ in commits:
                uid = ctx.get("Uids", netuid, hotkey)
                if uid is not None:
                    first[uid] = min(block, first.get(uid, block))
    return first


def _store(ctx: Context, netuid: int, result: EpochResult, emission: int) -> None:
    """Write what the epoch found to the lists by uid."""
    ctx.put("Active", netuid, result.active)
    ctx.put("StakeWeight", netuid, result.stake_weight)
    ctx.put("ValidatorPermit", netuid, result.permits)
    ctx.put("Consensus", netuid, result.consensus)
    ctx.put("Incentive", netuid, result.incentive)
    ctx.put("Dividends", netuid, result.dividends)
    ctx.put("ValidatorTrust", netuid, result.validator_trust)
    ctx.put("Emission", netuid, result.amounts(result.combined, emission))
    for uid in range(len(result.permits)):
        row = result.bonds.get(uid, [])
        if row:
            ctx.put("Bonds", netuid, uid, row)
        else:
            ctx.delete("Bonds", netuid, uid)


def _pay_owner(ctx: Context, netuid: int) -> None:
    """The subnet owner's cut becomes stake on its own hotkey."""
    cut = ctx.get("PendingOwnerCut", netuid)
    ctx.put("PendingOwnerCut", netuid, 0)
    stakes.add_stake(ctx, ctx.get("SubnetOwnerHotkey", netuid), ctx.get("SubnetOwner", netuid), netuid, cut)


def _pay_servers(ctx: Context, netuid: int, amounts: list[int]) -> None:
    """Incentive becomes the owner coldkey's stake; that of the subnet owner's own hotkeys is burned."""
    owner, owner_hotkey = ctx.get("SubnetOwner", netuid), ctx.get("SubnetOwnerHotkey", netuid)
    for uid, amount in enumerate(amounts):
        if not amount:
            continue
        hotkey = ctx.get("Keys", netuid, uid)
        coldkey = ctx.get("Owner", hotkey)
        if hotkey == owner_hotkey or coldkey == owner:
            ctx.add("AlphaAssets.AlphaBurned", netuid, amount)
        else:
            stakes.add_stake(ctx, hotkey, coldkey, netuid, amount)
    ctx.emit("IncentiveAlphaEmittedToMiners", {"netuid": netuid, "emissions": amounts})


def _pay_validators(ctx: Context, netuid: int, amounts: list[int]) -> None:
    """Dividends: the hotkey's take goes to its owner, the rest to everyone who staked on it."""
    for (_, hotkey), _ in list(ctx.scan("AlphaDividendsPerSubnet", netuid)):
        ctx.delete("AlphaDividendsPerSubnet", netuid, hotkey)
    for uid, amount in enumerate(amounts):
        if amount:
            hotkey = ctx.get("Keys", netuid, uid)
            take = amount * ctx.get("Delegates", hotkey) // U16_MAX
            stakes.reward(ctx, hotkey, netuid, amount - take)
            stakes.add_stake(ctx, hotkey, ctx.get("Owner", hotkey), netuid, take)
            ctx.put("AlphaDividendsPerSubnet", netuid, hotkey, amount - take)
