"""SubtensorModule: setting weights in the open."""

from typing import Any

from template.devchain.context import Context, Origin, ensure
from template.devchain.weights import Vector, set_weights


def plain(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Set weights where commit-reveal is off."""
    hotkey, netuid = origin.signed(), args["netuid"]
    ensure(not ctx.get("CommitRevealWeightsEnabled", netuid), "CommitRevealEnabled")
    vector = Vector(
        netuid=netuid,
        mechanism=args.get("mecid", 0),
        uids=args["dests"],
        values=args["weights"],
        version_key=args["version_key"],
    )
    set_weights(ctx, hotkey, vector)


CALLS = {
    "SubtensorModule.set_weights": plain,
    "SubtensorModule.set_mechanism_weights": plain,
}
