"""What the pool refuses before anything is in a block: the runtime's own checks of a transaction.

Owns the numbered reasons (`Custom error: N`). The same conditions are checked
again when the call runs; here they keep a doomed extrinsic out of the pool.
"""

from typing import Any

from template.devchain import weights
from template.devchain.calls import serving
from template.devchain.calls.serving import bytes_of
from template.devchain.context import PoolError, custom
from template.devchain.dispatch import Call, arguments_of, name_of
from template.devchain.state import Storage

LOW_STAKE, BAD_SUBNET, RATE_LIMIT, NOT_IN_NETWORK, BAD_ADDRESS = 1, 3, 6, 10, 11
_MAX_COMMIT_BYTES = 5000
SERVING_LIMIT, BAD_PORT, UID_NOT_FOUND = 12, 13, 19

_SETTING = frozenset({"SubtensorModule.set_weights", "SubtensorModule.set_mechanism_weights"})
_COMMITTING = frozenset(
    {
        "SubtensorModule.commit_weights",
        "SubtensorModule.commit_mechanism_weights",
        "SubtensorModule.commit_timelocked_weights",
        "SubtensorModule.commit_timelocked_mechanism_weights",
        "SubtensorModule.commit_crv3_mechanism_weights",
    }
)
_SERVING = {
    "SubtensorModule.serve_axon": "Axons",
    "SubtensorModule.serve_axon_tls": "Axons",
    "SubtensorModule.serve_prometheus": "Prometheus",
}


def check_call(storage: Storage, signer: str, call: Call, block: int) -> None:
    """Refuse a call that cannot succeed in the next block; `block` is that block's number."""
    name = name_of(call)
    if name in _COMMITTING and len(bytes_of(arguments_of(call).get("commit", b""))) > _MAX_COMMIT_BYTES:
        raise PoolError(1001, "Extrinsic has invalid format", f"a commit has at most {_MAX_COMMIT_BYTES} bytes")
    if name in _SETTING or name in _COMMITTING:
        _check_weights(storage, signer, arguments_of(call), block)
    elif name in _SERVING:
        _check_serving(storage, signer, arguments_of(call), (_SERVING[name], block))


def _check_weights(storage: Storage, hotkey: str, args: dict[str, Any], block: int) -> None:
    netuid = args["netuid"]
    if not storage.get("NetworksAdded", netuid):
        raise custom(BAD_SUBNET)
    if not weights.has_enough_stake(storage, netuid, hotkey):
        raise custom(LOW_STAKE)
    uid = storage.get("Uids", netuid, hotkey)
    if uid is None:
        raise custom(UID_NOT_FOUND)
    index = args.get("mecid", 0) * weights.MECHANISM_STRIDE + netuid
    if weights.is_too_fast(storage, netuid, index, uid, block):
        raise custom(RATE_LIMIT)


def _check_serving(storage: Storage, hotkey: str, args: dict[str, Any], where: tuple[str, int]) -> None:
    item, block = where
    if not any(True for _ in storage.scan("IsNetworkMember", hotkey)):
        raise custom(NOT_IN_NETWORK)
    if not serving.is_valid_ip_type(args["ip_type"]) or not serving.is_valid_ip(args["ip_type"], args["ip"]):
        raise custom(BAD_ADDRESS)
    if serving.is_too_fast(storage, item, args["netuid"], hotkey, block):
        raise custom(SERVING_LIMIT)
    if args["port"] == 0:
        raise custom(BAD_PORT)
