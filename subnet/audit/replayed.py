"""What a replay comes to, on numpy alone, so that whoever only reads it loads nothing that computes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from subnet.audit.tensors import Activation
from subnet.stage.layout import Flat, ReplicaState
from subnet.stage.view import StateView
from subnet.wire.merkle import chunk_span, merkle_leaves, num_chunks


@dataclass(frozen=True, kw_only=True)
class StepReplay:
    """One recomputed step: by (microbatch, kind) the outbound tensors whose frames are not, to the last bit, those that
    the receipt names; loss sums by microbatch; the gradient norm.

    A norm of NaN: the step's gradients are not finite, and no step was taken.
    """

    outbound: Mapping[tuple[int, str], Activation] = field(default_factory=dict)
    losses: Mapping[int, float] = field(default_factory=dict)
    norm: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A recomputed segment: the state it started from, its steps, its end state, read where the replica has it.

    `end` is None, and the list of steps shorter, when a step could not be taken. divisors: what the optimizer divided
    each parameter's step by, None where no step was taken. roots: of each matrix that Muon made orthogonal what it
    multiplied its rows by.
    """

    start: ReplicaState
    steps: tuple[StepReplay, ...]
    end: StateView | None
    divisors: Flat | None = None
    roots: Mapping[str, Flat] = field(default_factory=dict)

    @cached_property
    def leaves(self) -> tuple[bytes, ...]:
        """The leaf hashes of the end state."""
        if self.end is None:
            return ()
        spans = (chunk_span(len(self.end), index) for index in range(num_chunks(len(self.end))))
        return tuple(merkle_leaves(self.end[start:stop])[0] for start, stop in spans)
