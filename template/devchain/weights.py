"""The rules a weight vector has to pass, and how it is stored. Used by plain submissions and by reveals alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from template.devchain.context import Context, ensure
from template.devchain.fixed import FRAC_BITS, U16_MAX, mul, ratio
from template.devchain.stakes import Reader, stake_weight

MECHANISM_STRIDE = 4096  # lists of mechanism m of a subnet live at m * 4096 + netuid


@dataclass(frozen=True, kw_only=True)
class Vector:
    """One submitted weight vector."""

    netuid: int
    mechanism: int = 0
    uids: Sequence[int]
    values: Sequence[int]
    version_key: int = 0

    @property
    def index(self) -> int:
        """Where this mechanism's lists are stored."""
        return self.mechanism * MECHANISM_STRIDE + self.netuid


def owner_uid(reader: Reader, netuid: int) -> int | None:
    """The uid of the subnet owner's hotkey, when it has one."""
    uid: int | None = reader.get("Uids", netuid, reader.get("SubnetOwnerHotkey", netuid))
    return uid


def has_enough_stake(reader: Reader, netuid: int, hotkey: str) -> bool:
    """Whether the hotkey may set weights by its stake; the subnet owner's always may."""
    if hotkey == reader.get("SubnetOwnerHotkey", netuid):
        return True
    return stake_weight(reader, hotkey, netuid)[0] >= int(reader.get("StakeThreshold"))


def is_too_fast(reader: Reader, netuid: int, index: int, uid: int, block: int) -> bool:
    """Whether the hotkey set weights so recently that the rate limit still holds."""
    updates = reader.get("LastUpdate", index)
    last = updates[uid] if uid < len(updates) else 0
    return bool(last) and block - last < reader.get("WeightsSetRateLimit", netuid)


def set_weights(ctx: Context, hotkey: str, vector: Vector, *, revealed: bool = False) -> None:
    """Check the vector in the chain's order and store it; a revealed one is not rate limited."""
    netuid, uids, values = vector.netuid, vector.uids, vector.values
    ensure(netuid != 0, "CanNotSetRootNetworkWeights")
    ensure(len(uids) == len(values), "WeightVecNotEqualSize")
    ensure(ctx.get("NetworksAdded", netuid), "MechanismDoesNotExist")
    ensure(vector.mechanism < ctx.get("MechanismCountCurrent", netuid), "MechanismDoesNotExist")
    size = ctx.get("SubnetworkN", netuid)
    ensure(len(uids) <= size, "UidsLengthExceedUidsInSubNet")
    ensure(ctx.has("Uids", netuid, hotkey), "HotKeyNotRegisteredInSubNet")
    uid: int = ctx.get("Uids", netuid, hotkey)
    ensure(has_enough_stake(ctx, netuid, hotkey), "NotEnoughStakeToSetWeights")
    required = ctx.get("WeightsVersionKey", netuid)
    ensure(required == 0 or vector.version_key >= required, "IncorrectWeightVersionKey")
    if not revealed:
        ensure(not is_too_fast(ctx, netuid, vector.index, uid, ctx.block), "SettingWeightsTooFast")
    self_vote = len(uids) == 1 and uids[0] == uid
    permitted = self_vote or uid == owner_uid(ctx, netuid) or ctx.get("ValidatorPermit", netuid)[uid]
    ensure(permitted, "NeuronNoValidatorPermit")
    ensure(len(set(uids)) == len(uids), "DuplicateUids")
    ensure(all(each < size for each in uids), "UidVecContainInvalidOne")
    ensure(self_vote or len(uids) >= min(size, ctx.get("MinAllowedWeights", netuid)), "WeightVecLengthIsLow")
    scaled = upscale(values)
    limit = ctx.get("MaxWeightsLimit", netuid)
    ensure(self_vote or is_limited(scaled, limit), "MaxWeightExceeded")
    ctx.put("Weights", vector.index, uid, list(zip(uids, scaled, strict=True)))
    if not revealed:
        touch(ctx, vector.index, uid)
    ctx.emit("WeightsSet", (vector.index, uid))


def touch(ctx: Context, index: int, uid: int) -> None:
    """Note that the uid has spoken in this block."""
    updates = list(ctx.get("LastUpdate", index))
    updates += [0] * (uid + 1 - len(updates))
    updates[uid] = ctx.block
    ctx.put("LastUpdate", index, updates)


def upscale(values: Sequence[int]) -> list[int]:
    """Scale so that the largest is 65535, as the chain rounds."""
    top = max(values, default=0)
    if top == 0 or top == U16_MAX:
        return list(values)
    half = 1 << (FRAC_BITS - 1)
    if top > 32768:
        factor = ratio(U16_MAX, top)
        return [(mul(value << FRAC_BITS, factor) + half) >> FRAC_BITS for value in values]
    return [(ratio(value * U16_MAX, top) + half) >> FRAC_BITS for value in values]


def is_limited(values: Sequence[int], limit: int) -> bool:
    """Whether no value has more than limit/65535 of the sum."""
    total = sum(values)
    if limit == U16_MAX or total == 0:
        return True
    return all(ratio(value, total) <= ratio(limit, U16_MAX) for value in values)
