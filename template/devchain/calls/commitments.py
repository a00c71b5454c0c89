"""Commitments: a registered hotkey's public record, at most so many bytes per tempo."""

from typing import Any

from template.devchain import reveals
from template.devchain.context import Context, Origin, ensure

_MAX_FIELDS = 3
_MIN_SPACE_BYTES = 100  # what one commitment costs at least, as on the chain


def field_bytes(field: Any) -> int:
    """How many bytes a field holds; the variant's name says it."""
    if not isinstance(field, dict):
        return 0
    name, value = next(iter(field.items()))
    if name.startswith("Raw"):
        return int(name.removeprefix("Raw"))
    if name == "BigRaw":
        return len(value) // 2 - 1 if isinstance(value, str) and value.startswith("0x") else len(value)
    if name == "TimelockEncrypted":
        encrypted = value["encrypted"]
        return len(encrypted) // 2 - 1 if isinstance(encrypted, str) else len(encrypted)
    return 32


def set_commitment(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Store the record, replacing the one before."""
    hotkey, netuid = origin.signed(), args["netuid"]
    fields = args["info"]["fields"]
    ensure(ctx.has("Uids", netuid, hotkey), "Commitments.AccountNotAllowedCommit")
    ensure(len(fields) <= _MAX_FIELDS, "Commitments.TooManyFieldsInCommitmentInfo")
    _use_space(ctx, netuid, hotkey, max(_MIN_SPACE_BYTES, sum(field_bytes(field) for field in fields)))
    record = {"deposit": 0, "block": ctx.block, "info": args["info"]}
    ctx.put("Commitments.CommitmentOf", netuid, hotkey, record)
    ctx.put("Commitments.LastCommitment", netuid, hotkey, ctx.block)
    if "ResetBondsFlag" in fields and ctx.get("BondsResetOn", netuid):
        _reset_bonds(ctx, netuid, ctx.get("Uids", netuid, hotkey))
    sealed = next((each["TimelockEncrypted"] for each in fields if "TimelockEncrypted" in each), None)
    if sealed is not None:
        reveals.remember_record(ctx, netuid, hotkey)
        event = {"netuid": netuid, "who": hotkey, "reveal_round": sealed["reveal_round"]}
        ctx.emit("Commitments.TimelockCommitment", event)
        return
    ctx.emit("Commitments.Commitment", {"netuid": netuid, "who": hotkey})


def _use_space(ctx: Context, netuid: int, hotkey: str, size: int) -> None:
    """Count the bytes of this epoch against the limit."""
    epoch = ctx.get("SubnetEpochIndex", netuid)
    usage = ctx.get("Commitments.UsedSpaceOf", netuid, hotkey)
    used = usage["used_space"] if usage and usage["last_epoch"] == epoch else 0
    ensure(used + size <= ctx.get("Commitments.MaxSpace"), "Commitments.SpaceLimitExceeded")
    ctx.put("Commitments.UsedSpaceOf", netuid, hotkey, {"last_epoch": epoch, "used_space": used + size})


def _reset_bonds(ctx: Context, netuid: int, uid: int) -> None:
    """Let every validator's bond to this neuron start again from zero."""
    for (_, voter), row in list(ctx.scan("Bonds", netuid)):
        if any(column == uid for column, _ in row):
            ctx.put("Bonds", netuid, voter, [(column, 0 if column == uid else bond) for column, bond in row])


def set_max_space(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Root: how many bytes a hotkey may commit per epoch."""
    ensure(origin.root, "BadOrigin")
    ctx.put("Commitments.MaxSpace", args["new_limit"])


CALLS = {
    "Commitments.set_commitment": set_commitment,
    "Commitments.set_max_space": set_max_space,
}
