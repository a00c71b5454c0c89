"""Timelocked commitments: keeping them, and opening them once their drand round is known.

Owns pending weight commits by epoch, drand pulses, and sealed records of the
Commitments pallet. The chain is told pulses; it does not fetch them.
"""

import hashlib
import logging
from typing import Any

import bittensor_core

from template.devchain import coinbase, weights
from template.devchain.calls.serving import bytes_of
from template.devchain.context import FAILURES, Context
from template.devchain.metadata import SS58_FORMAT
from template.devchain.metadata_edit import decode_compact, encode_compact

logger = logging.getLogger(__name__)


def current_epoch(ctx: Context, netuid: int) -> int:
    """The subnet's epoch number; an epoch that runs in this block already counts."""
    index: int = ctx.get("SubnetEpochIndex", netuid)
    return index + 1 if coinbase.is_epoch_due(ctx, netuid) else index


def add_pulse(ctx: Context, round_number: int, signature: bytes) -> None:
    """Write a drand pulse to the chain."""
    randomness = hashlib.sha256(signature).digest()
    ctx.put("Drand.Pulses", round_number, {"round": round_number, "randomness": randomness, "signature": signature})
    ctx.put("Drand.LastStoredRound", max(round_number, ctx.get("Drand.LastStoredRound")))
    ctx.emit("Drand.NewPulse", {"rounds": [round_number]})


def begin_block(ctx: Context) -> None:
    """Open everything whose round is known. Runs before the block's epochs."""
    for netuid in coinbase.subnets(ctx):
        _reveal_weights(ctx, netuid)
    _reveal_records(ctx)


def _open(ctx: Context, ciphertext: Any, round_number: int) -> bytes | None:
    """What a timelocked ciphertext holds; None while its round is unknown. Raises ValueError when it is broken."""
    pulse = ctx.get("Drand.Pulses", round_number)
    if pulse is None:
        return None
    data = bytes_of(ciphertext)
    envelope = encode_compact(len(data)) + data + round_number.to_bytes(8, "little")
    return bytes(bittensor_core.decrypt_with_signature(envelope, bytes_of(pulse["signature"]).hex()))


def _reveal_weights(ctx: Context, netuid: int) -> None:
    """Apply what the reveal epoch committed; drop what is older; keep what has no pulse yet."""
    due = current_epoch(ctx, netuid) - ctx.get("RevealPeriodEpochs", netuid)
    for (index, epoch), commits in list(ctx.scan("TimelockedWeightCommits", netuid)):
        if epoch < due:
            ctx.delete("TimelockedWeightCommits", index, epoch)
        elif epoch == due:
            waiting = [commit for commit in commits if not _reveal_commit(ctx, netuid, commit)]
            if not waiting:
                ctx.delete("TimelockedWeightCommits", index, epoch)
            elif len(waiting) < len(commits):
                ctx.put("TimelockedWeightCommits", index, epoch, waiting)


def _reveal_commit(ctx: Context, netuid: int, commit: tuple[str, int, Any, int]) -> bool:
    """Apply one commit; False when its pulse is missing. A commit that fails is dropped, as the chain drops it."""
    hotkey, _, ciphertext, round_number = commit
    try:
        with ctx.undone_on_failure():
            payload = _open(ctx, ciphertext, round_number)
            if payload is None:
                return False
            vector = _decode_payload(payload, netuid, hotkey)
            weights.set_weights(ctx, hotkey, vector, revealed=True)
            ctx.emit("TimelockedWeightsRevealed", (netuid, hotkey))
    except FAILURES as error:
        logger.warning("event=reveal_dropped netuid=%d hotkey=%s reason=%s", netuid, hotkey, error)
    return True


def _decode_payload(payload: bytes, netuid: int, hotkey: str) -> weights.Vector:
    """The sealed vector: hotkey, uids, values, version key. It must name the hotkey that committed it."""
    key, rest = _take_bytes(payload)
    uids, rest = _take_u16s(rest)
    values, rest = _take_u16s(rest)
    if len(rest) < 8:
        raise ValueError(f"expected 8 bytes of version key, found {len(rest)}")
    named = bittensor_core.encode_ss58(key, SS58_FORMAT) if len(key) == 32 else "nobody"
    if named != hotkey:
        raise ValueError(f"expected the commit of {hotkey}, found one of {named}")
    return weights.Vector(netuid=netuid, uids=uids, values=values, version_key=int.from_bytes(rest[:8], "little"))


def _take_bytes(data: bytes) -> tuple[bytes, bytes]:
    size, used = decode_compact(data)
    return data[used : used + size], data[used + size :]


def _take_u16s(data: bytes) -> tuple[list[int], bytes]:
    count, used = decode_compact(data)
    end = used + 2 * count
    if end > len(data):
        raise ValueError(f"expected {count} numbers of two bytes, found {len(data) - used} bytes")
    return [int.from_bytes(data[at : at + 2], "little") for at in range(used, end, 2)], data[end:]


def _reveal_records(ctx: Context) -> None:
    """Open sealed records of the Commitments pallet; the history of what a hotkey revealed grows."""
    for netuid, hotkey in list(ctx.get("Commitments.TimelockedIndex")):
        record = ctx.get("Commitments.CommitmentOf", netuid, hotkey)
        sealed = _sealed_field(record)
        if sealed is None:
            _forget_record(ctx, netuid, hotkey)
            continue
        try:
            content = _open(ctx, sealed["encrypted"], sealed["reveal_round"])
        except ValueError as error:
            logger.warning("event=reveal_dropped netuid=%d hotkey=%s reason=%s", netuid, hotkey, error)
            _forget_record(ctx, netuid, hotkey)
            continue
        if content is not None:
            history = list(ctx.get("Commitments.RevealedCommitments", netuid, hotkey) or [])
            ctx.put(
                "Commitments.RevealedCommitments",
                netuid,
                hotkey,
                [*history, (encode_compact(len(content)) + content, ctx.block)],
            )
            _forget_record(ctx, netuid, hotkey)
            if len(record["info"]["fields"]) == 1:
                ctx.delete("Commitments.CommitmentOf", netuid, hotkey)
            ctx.emit("Commitments.CommitmentRevealed", {"netuid": netuid, "who": hotkey})


def _sealed_field(record: dict[str, Any] | None) -> dict[str, Any] | None:
    fields = record["info"]["fields"] if record else []
    return next((each["TimelockEncrypted"] for each in fields if "TimelockEncrypted" in each), None)


def _forget_record(ctx: Context, netuid: int, hotkey: str) -> None:
    index = [each for each in ctx.get("Commitments.TimelockedIndex") if tuple(each) != (netuid, hotkey)]
    ctx.put("Commitments.TimelockedIndex", index)


def remember_record(ctx: Context, netuid: int, hotkey: str) -> None:
    """Note that this hotkey's record has a sealed field."""
    index = {tuple(each) for each in ctx.get("Commitments.TimelockedIndex")} | {(netuid, hotkey)}
    ctx.put("Commitments.TimelockedIndex", sorted(index))
