"""Running a call: which function does it, what it costs, and the wrappers that hold other calls.

Owns the table of all calls this chain knows. A call of the real runtime that
is not in it fails with System.CallFiltered and a line in the log.
"""

import logging
from collections.abc import Callable
from typing import Any

from template.devchain.calls import (
    admin,
    commitments,
    commits,
    registration,
    serving,
    shielded,
    staking,
    subnets,
    system,
    transfers,
    weights,
)
from template.devchain.context import Context, DispatchError, Origin, account_of, ensure

logger = logging.getLogger(__name__)

Call = dict[str, Any]
Function = Callable[[Context, Origin, dict[str, Any]], None]

# Calls that cost their sender nothing, as in the runtime: a hotkey without a balance can do its work.
_FREE = frozenset(
    {
        "SubtensorModule.set_weights",
        "SubtensorModule.set_mechanism_weights",
        "SubtensorModule.commit_weights",
        "SubtensorModule.commit_mechanism_weights",
        "SubtensorModule.commit_timelocked_weights",
        "SubtensorModule.commit_timelocked_mechanism_weights",
        "SubtensorModule.reveal_weights",
        "SubtensorModule.reveal_mechanism_weights",
        "SubtensorModule.serve_axon",
        "SubtensorModule.serve_axon_tls",
        "SubtensorModule.serve_prometheus",
        "Commitments.set_commitment",
        "Sudo.sudo",
        "Sudo.sudo_unchecked_weight",
        "Sudo.sudo_as",
    }
)
_REF_TIME = 300_000_000
_RAO_PER_REF_TIME = 2000  # one rao per so much reference time


def name_of(call: Call) -> str:
    """`Pallet.function` of a decoded call."""
    return f"{call['call_module']}.{call['call_function']}"


def arguments_of(call: Call) -> dict[str, Any]:
    """The arguments of a decoded call by name."""
    return {each["name"]: each["value"] for each in call["call_args"]}


def fee_of(call: Call, length_bytes: int) -> int:
    """What the call costs in rao: by weight and by length; nothing for those that pay no fee."""
    return 0 if name_of(call) in _FREE else _REF_TIME // _RAO_PER_REF_TIME + length_bytes


def dispatch_info(call: Call) -> dict[str, Any]:
    """Weight, class and whether it pays, as the runtime reports them."""
    pays = "No" if name_of(call) in _FREE else "Yes"
    return {"weight": {"ref_time": _REF_TIME, "proof_size": 0}, "class": "Normal", "pays_fee": pays}


def dispatch(ctx: Context, origin: Origin, call: Call) -> None:
    """Run the call; everything it wrote is undone when it fails with DispatchError."""
    name = name_of(call)
    function = CALLS.get(name)
    if function is None:
        logger.warning("event=call_refused call=%s reason=not_implemented", name)
        raise DispatchError("System.CallFiltered")
    try:
        with ctx.undone_on_failure():
            function(ctx, origin, arguments_of(call))
    except (OverflowError, TypeError, ValueError) as error:
        logger.warning("event=call_failed call=%s reason=%s", name, error)
        raise DispatchError({"Arithmetic": "Overflow"}) from error


def _attempt(ctx: Context, origin: Origin, call: Call) -> Any:
    """Run a wrapped call and give the runtime's Result."""
    try:
        dispatch(ctx, origin, call)
    except DispatchError as error:
        return {"Err": ctx.dispatch_error(error)}
    return {"Ok": None}


def _sudo(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    ensure(origin.signed() == ctx.get("Sudo.Key"), "Sudo.RequireSudo")
    ctx.emit("Sudo.Sudid", {"sudo_result": _attempt(ctx, Origin(None, root=True), args["call"])})


def _sudo_as(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    ensure(origin.signed() == ctx.get("Sudo.Key"), "Sudo.RequireSudo")
    ctx.emit("Sudo.SudoAsDone", {"sudo_result": _attempt(ctx, Origin(account_of(args["who"])), args["call"])})


def _sudo_set_key(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    old = ctx.get("Sudo.Key")
    ensure(origin.signed() == old, "Sudo.RequireSudo")
    new = account_of(args["new"])
    ctx.put("Sudo.Key", new)
    ctx.emit("Sudo.KeyChanged", {"old": old, "new": new})


def _batch(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Run calls until one fails; those before it stay."""
    for index, call in enumerate(args["calls"]):
        result = _attempt(ctx, origin, call)
        if "Err" in result:
            ctx.emit("Utility.BatchInterrupted", {"index": index, "error": result["Err"]})
            return
        ctx.emit("Utility.ItemCompleted")
    ctx.emit("Utility.BatchCompleted")


def _batch_all(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Run all calls or none."""
    for call in args["calls"]:
        dispatch(ctx, origin, call)
        ctx.emit("Utility.ItemCompleted")
    ctx.emit("Utility.BatchCompleted")


def _force_batch(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Run all calls, whatever fails."""
    failed = False
    for call in args["calls"]:
        result = _attempt(ctx, origin, call)
        failed = failed or "Err" in result
        if "Err" in result:
            ctx.emit("Utility.ItemFailed", {"error": result["Err"]})
        else:
            ctx.emit("Utility.ItemCompleted")
    ctx.emit("Utility.BatchCompletedWithErrors" if failed else "Utility.BatchCompleted")


CALLS: dict[str, Function] = {
    **admin.CALLS,
    **commitments.CALLS,
    **commits.CALLS,
    **registration.CALLS,
    **serving.CALLS,
    **shielded.CALLS,
    **staking.CALLS,
    **subnets.CALLS,
    **system.CALLS,
    **transfers.CALLS,
    **weights.CALLS,
    "Sudo.sudo": _sudo,
    "Sudo.sudo_unchecked_weight": _sudo,
    "Sudo.sudo_as": _sudo_as,
    "Sudo.set_key": _sudo_set_key,
    "Utility.batch": _batch,
    "Utility.batch_all": _batch_all,
    "Utility.force_batch": _force_batch,
}
