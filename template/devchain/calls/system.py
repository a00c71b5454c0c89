"""System and Timestamp: remarks, and the inherent that tells a block its time."""

from typing import Any

from template.devchain.blocks import blake2_256
from template.devchain.calls.serving import bytes_of
from template.devchain.context import BAD_ORIGIN, Context, Origin, ensure


def remark(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Say something in a block."""
    origin.signed()


def remark_with_event(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Say something in a block, with an event."""
    digest = blake2_256(bytes_of(args["remark"]))
    ctx.emit("System.Remarked", {"sender": origin.signed(), "hash": "0x" + digest.hex()})


def set_time(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """The block's own extrinsic: milliseconds since 1970. Nobody may sign it."""
    ensure(origin.account is None and not origin.root, BAD_ORIGIN)
    ctx.put("Timestamp.Now", args["now"])


CALLS = {
    "System.remark": remark,
    "System.remark_with_event": remark_with_event,
    "Timestamp.set": set_time,
}
