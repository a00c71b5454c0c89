"""The outer step: from where a round started and what its merge came to, to where the next one starts.

One protocol, `OuterStep`, and one small pure function for each way: federated averaging, DiLoCo (arXiv 2311.08105),
streaming fragments (arXiv 2501.18512) and NoLoCo (arXiv 2506.10911). Separate float32 operations in numpy, so everybody
who takes the step gets the same bits. `outer_step` is the one of a run; after the other two no state is everybody's,
so these are for the simulation (`subnet.merge.outer_apart` has what else they need). Knows nothing of who took part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float32

from subnet.config import OuterConfig
from subnet.errors import InputError

Flat = Float32[np.ndarray, " parameters"]


@dataclass(frozen=True, kw_only=True)
class Slow:
    """What moves once a round: the parameters in which it starts, and the momentum; zeros before the first."""

    parameters: Flat
    momentum: Flat


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What a merge came to. gradient: the reduced pseudo-gradient, of all parameters or of those in `spans`, one after
    another. parameters: the mean of those that the merged replicas started from; None where all started alike."""

    gradient: Flat
    spans: Sequence[slice] | None = None
    parameters: Flat | None = None


class OuterStep(Protocol):
    """One way to take the step. The arguments stay as they are; InputError when the result is not finite."""

    def __call__(self, slow: Slow, merged: Merged, /, *, lr: float, momentum: float) -> Slow: ...


def averaging(slow: Slow, merged: Merged, /, *, lr: float = 1.0, momentum: float = 0.0) -> Slow:
    """Federated averaging: the mean of where the replicas ended. The momentum is the last pseudo-gradient."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        parameters = np.subtract(slow.parameters, merged.gradient)
    return _finite(parameters, merged.gradient.copy())


def diloco(slow: Slow, merged: Merged, /, *, lr: float, momentum: float) -> Slow:
    """Nesterov momentum on the pseudo-gradient, as `torch.optim.SGD(nesterov=True)` has it: buffer = momentum * buffer
    + gradient; parameters -= lr * (gradient + momentum * buffer)."""
    mu = np.float32(momentum)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        buffer = np.add(np.multiply(slow.momentum, mu), merged.gradient)
        direction = np.add(np.multiply(buffer, mu), merged.gradient)
        parameters = np.subtract(slow.parameters, np.multiply(direction, np.float32(lr)))
    return _finite(parameters, buffer)


def streaming(slow: Slow, merged: Merged, /, *, lr: float, momentum: float) -> Slow:
    """DiLoCo on one fragment of the parameters, the spans that were merged; the others stay as they are."""
    assert merged.spans is not None
    parameters, buffer = slow.parameters.copy(), slow.momentum.copy()
    first = 0
    for span in merged.spans:
        last = first + span.stop - span.start
        before = Slow(parameters=parameters[span], momentum=buffer[span])
        after = diloco(before, Merged(gradient=merged.gradient[first:last]), lr=lr, momentum=momentum)
        parameters[span], buffer[span] = after.parameters, after.momentum
        first = last
    return Slow(parameters=parameters, momentum=buffer)


def noloco(slow: Slow, merged: Merged, /, *, lr: float, momentum: float, pull: float = 1.0) -> Slow:
    """One replica's step after a merge of few: momentum on the few's mean pseudo-gradient, and a pull towards the mean
    of where they started, which holds together replicas that no merge of all ever does."""
    assert merged.parameters is not None
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        kept = np.multiply(slow.momentum, np.float32(momentum))
        step = np.subtract(kept, np.multiply(merged.gradient, np.float32(lr)))
        apart = np.multiply(np.subtract(slow.parameters, merged.parameters), np.float32(pull))
        buffer = np.subtract(step, apart)
        parameters = np.add(slow.parameters, buffer)
    return _finite(parameters, buffer)


OUTER_STEPS: dict[str, OuterStep] = {
    "averaging": averaging,
    "diloco": diloco,
    "streaming": streaming,
    "noloco": noloco,
}


def outer_step(parameters: Flat, momentum: Flat, gradient: Flat, outer: OuterConfig) -> tuple[Flat, Flat]:
    """The next parameters and the next momentum of a run; the first momentum is zeros. All are of one size."""
    before = Slow(parameters=parameters, momentum=momentum)
    after = OUTER_STEPS[outer.kind](before, Merged(gradient=gradient), lr=outer.lr, momentum=outer.momentum)
    return after.parameters, after.momentum


def lately(momentum: Flat, outer: OuterConfig) -> Flat:
    """What the merges of the last rounds came to, as a run's momentum remembers them: a mean that forgets."""
    mean: Flat = np.multiply(momentum, np.float32(1 - outer.momentum))
    return mean


def _finite(parameters: Flat, momentum: Flat) -> Slow:
    if not (np.isfinite(parameters).all() and np.isfinite(momentum).all()):
        raise InputError("expected a finite outer step, found values that are not; check the reduced pseudo-gradient")
    return Slow(parameters=parameters, momentum=momentum)
