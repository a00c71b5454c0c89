"""SubtensorModule: commit-reveal weights, timelocked (version 4) and with a salted hash."""

from typing import Any

from template.devchain import reveals, weights
from template.devchain.blocks import blake2_256
from template.devchain.calls.serving import bytes_of
from template.devchain.context import Context, Origin, ensure

_MAX_PENDING = 10


def _check_commit(ctx: Context, hotkey: str, netuid: int, index: int) -> int:
    """What every kind of commit needs; gives the uid."""
    ensure(ctx.get("NetworksAdded", netuid), "MechanismDoesNotExist")
    ensure(ctx.get("CommitRevealWeightsEnabled", netuid), "CommitRevealDisabled")
    ensure(ctx.has("Uids", netuid, hotkey), "HotKeyNotRegisteredInSubNet")
    uid: int = ctx.get("Uids", netuid, hotkey)
    too_fast = weights.is_too_fast(ctx, netuid, index, uid, ctx.block)
    ensure(not too_fast, "CommittingWeightsTooFast")
    return uid


def commit_timelocked(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Commit sealed weights that open by themselves once their drand round is known."""
    hotkey, netuid, commit = origin.signed(), args["netuid"], bytes_of(args["commit"])
    index = args.get("mecid", 0) * weights.MECHANISM_STRIDE + netuid
    version = ctx.get("CommitRevealWeightsVersion")
    ensure(args["commit_reveal_version"] == version, "IncorrectCommitRevealVersion")
    uid = _check_commit(ctx, hotkey, netuid, index)
    epoch = reveals.current_epoch(ctx, netuid)
    commits = list(ctx.get("TimelockedWeightCommits", index, epoch))
    ensure(sum(each[0] == hotkey for each in commits) < _MAX_PENDING, "TooManyUnrevealedCommits")
    entry = (hotkey, ctx.block, commit, args["reveal_round"])
    ctx.put("TimelockedWeightCommits", index, epoch, [*commits, entry])
    weights.touch(ctx, index, uid)
    digest = "0x" + blake2_256(commit).hex()
    ctx.emit("TimelockedWeightsCommitted", (hotkey, index, digest, args["reveal_round"]))


def commit_hash(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Commit to the hash of weights that the hotkey reveals itself, in a later epoch."""
    hotkey, netuid = origin.signed(), args["netuid"]
    index = args.get("mecid", 0) * weights.MECHANISM_STRIDE + netuid
    uid = _check_commit(ctx, hotkey, netuid, index)
    tempo, period = ctx.get("Tempo", netuid), ctx.get("RevealPeriodEpochs", netuid)
    pending = [each for each in ctx.get("WeightCommits", index, hotkey) or [] if each[3] >= ctx.block]
    ensure(len(pending) < _MAX_PENDING, "TooManyUnrevealedCommits")
    first = ctx.get("LastEpochBlock", netuid) + period * tempo
    ctx.put("WeightCommits", index, hotkey, [*pending, (args["commit_hash"], ctx.block, first, first + tempo - 1)])
    weights.touch(ctx, index, uid)
    ctx.emit("WeightsCommitted", (hotkey, index, args["commit_hash"]))


def reveal_hash(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Reveal weights that were committed to by hash."""
    hotkey, netuid = origin.signed(), args["netuid"]
    index = args.get("mecid", 0) * weights.MECHANISM_STRIDE + netuid
    ensure(ctx.get("CommitRevealWeightsEnabled", netuid), "CommitRevealDisabled")
    commits = ctx.get("WeightCommits", index, hotkey) or []
    ensure(bool(commits), "NoWeightsCommitFound")
    digest = "0x" + blake2_256(_hash_payload(ctx, hotkey, index, args)).hex()
    found = next((each for each in commits if each[0] == digest), None)
    ensure(found is not None, "InvalidRevealCommitHashNotMatch")
    assert found is not None
    ensure(ctx.block >= found[2], "RevealTooEarly")
    ensure(ctx.block <= found[3], "ExpiredWeightCommit")
    ctx.put("WeightCommits", index, hotkey, [each for each in commits if each[0] != digest and each[3] >= ctx.block])
    vector = weights.Vector(
        netuid=netuid,
        mechanism=args.get("mecid", 0),
        uids=args["uids"],
        values=args["values"],
        version_key=args["version_key"],
    )
    weights.set_weights(ctx, hotkey, vector, revealed=True)
    ctx.emit("WeightsRevealed", (hotkey, index, digest))


def _hash_payload(ctx: Context, hotkey: str, index: int, args: dict[str, Any]) -> bytes:
    """The bytes that were hashed: who, where, uids, values, salt, version key."""
    codec = ctx.runtime.codec
    parts = [("AccountId", hotkey), ("u16", index), ("Vec<u16>", args["uids"]), ("Vec<u16>", args["values"])]
    parts += [("Vec<u16>", args["salt"]), ("u64", args["version_key"])]
    return b"".join(bytes(codec.encode(kind, value)) for kind, value in parts)


CALLS = {
    "SubtensorModule.commit_mechanism_weights": commit_hash,
    "SubtensorModule.commit_timelocked_mechanism_weights": commit_timelocked,
    "SubtensorModule.commit_timelocked_weights": commit_timelocked,
    "SubtensorModule.commit_weights": commit_hash,
    "SubtensorModule.reveal_mechanism_weights": reveal_hash,
    "SubtensorModule.reveal_weights": reveal_hash,
}
