"""Standing in for a receiver: the orchestrator's signature for a gradient that its receiver does not acknowledge.

A miner is paid for a microbatch once its gradient is acknowledged; a neighbour that is away, silent or refuses a fit
frame must not cost it that. So the relay, which had the letter, signs in its place: only for a planned gradient of the
step in progress, and only for a frame that any receiver would have to take. Knows nothing of letters' ways.
"""

from subnet.audit.tensors import frame_bytes, read_frame
from subnet.canonical import digest
from subnet.errors import FrameError, InputError
from subnet.ledger.state import RunState
from subnet.nodes.inbox import check_input, header_of
from subnet.wire.delivery import Key, deliver_target, delivery_of
from subnet.wire.messages import Delivery

KIND = "gradient"


def stood_in_for(state: RunState, target: str, frame: bytes, *, sender: str, receiver: str) -> Delivery | None:
    """What the orchestrator may sign in the receiver's place, or None when the delivery is not planned, or not fit."""
    run, name = state.config, digest(frame)
    for key in _planned(state, sender, receiver):
        if target == deliver_target(run.run_id, key, name, frame_bytes(run)):
            said = delivery_of(run.run_id, key, name, sender=sender, receiver=receiver)
            return said if _fit(state, key, frame) else None
    return None


def _planned(state: RunState, sender: str, receiver: str) -> list[Key]:
    """Every gradient that this sender owes this receiver in the step in progress."""
    plans = state.current.plans.values() if state.current else ()
    return [
        (plan.round, plan.step, index, KIND)
        for plan in plans
        if (receiver, sender) in zip(plan.path, plan.path[1:], strict=False)
        for index in plan.microbatches
    ]


def _fit(state: RunState, key: Key, frame: bytes) -> bool:
    try:
        check_input(state.config, read_frame(header_of(state.config, key), frame), repeated=False)
    except (FrameError, InputError):
        return False
    return True
