"""The canonical bytes of a stage's state, on numpy alone.

A replica's state is `parameters`, `exp_avg`, `exp_avg_sq` (float32, little-endian, each the stage's tensors one
after another in canonical order) and `step` (u64, little-endian). The public state of a stage between rounds is
`parameters` and `outer_momentum`. Lengths are checked before anything is read or allocated. Does not know torch,
digests or Merkle trees, and does not judge values: evidence must be representable as it is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subnet.config import RunConfig
from subnet.errors import EvidenceError
from subnet.model.cost import spans
from subnet.model.shapes import Shape, span_shapes

Flat = npt.NDArray[np.float32]

FLOAT = np.dtype("<f4")
COUNTER_BYTES = 8
SECTIONS = ("parameters", "exp_avg", "exp_avg_sq")
PUBLIC_SECTIONS = ("parameters", "outer_momentum")


@dataclass(frozen=True, kw_only=True)
class Moments:
    """The inner optimizer's memory: both moments in the layout's order, and how many steps made them."""

    exp_avg: Flat
    exp_avg_sq: Flat
    step: int


@dataclass(frozen=True, kw_only=True)
class ReplicaState:
    """What a replica commits to."""

    parameters: Flat
    moments: Moments


@dataclass(frozen=True, kw_only=True)
class PublicState:
    """What everyone knows of a stage between two rounds."""

    parameters: Flat
    outer_momentum: Flat


class StateLayout:
    """Where each tensor of stage `index` lies in a flat array, and each section in the state's bytes."""

    def __init__(self, run: RunConfig, index: int) -> None:
        self.index = index
        self.shapes: dict[str, Shape] = span_shapes(run, spans(run)[index])  # by name in the whole model
        self.slices: dict[str, slice] = {}  # of elements, within one section
        end = 0
        for name, shape in self.shapes.items():
            start, end = end, end + math.prod(shape)
            self.slices[name] = slice(start, end)
        self.num_parameters = end
        self.section_bytes = end * FLOAT.itemsize
        self.state_bytes = len(SECTIONS) * self.section_bytes + COUNTER_BYTES
        self.public_bytes = len(PUBLIC_SECTIONS) * self.section_bytes

    def section_of(self, offset: int) -> str:
        """The section of a replica's state that holds the byte at `offset`: one of SECTIONS, or "step"."""
        assert 0 <= offset < self.state_bytes, f"offset {offset} in a state of {self.state_bytes} bytes"
        return (*SECTIONS, "step")[offset // self.section_bytes] if self.section_bytes else "step"

    def split(self, flat: Flat) -> dict[str, Flat]:
        """The tensors of one section by name, as views of `flat`."""
        self.check_flat(flat)
        return {name: flat[self.slices[name]].reshape(shape) for name, shape in self.shapes.items()}

    def join(self, tensors: Mapping[str, npt.NDArray[Any]]) -> Flat:
        """The inverse of `split`: one new flat array."""
        flat = np.empty(self.num_parameters, dtype=FLOAT)
        for name, shape in self.shapes.items():
            assert tensors[name].shape == shape, f"{name} has shape {tensors[name].shape}, not {shape}"
            flat[self.slices[name]] = tensors[name].reshape(-1)
        return flat

    def zeros(self) -> Moments:
        """The moments of a joiner."""
        zero = np.zeros(self.num_parameters, dtype=FLOAT)
        return Moments(exp_avg=zero, exp_avg_sq=zero.copy(), step=0)

    def check_flat(self, flat: npt.NDArray[Any]) -> None:
        """Raises EvidenceError unless `flat` is one section of this stage."""
        if flat.shape != (self.num_parameters,) or flat.dtype != FLOAT:
            raise EvidenceError(
                f"expected {self.num_parameters} float32 parameters of stage {self.index}, found {flat.dtype} of shape "
                f"{flat.shape}; fetch the state of this stage and run"
            )


def state_to_bytes(layout: StateLayout, state: ReplicaState) -> bytes:
    """The canonical bytes of a replica's state: what its Merkle root commits to."""
    moments = state.moments
    assert 0 <= moments.step < 2 ** (8 * COUNTER_BYTES), f"step {moments.step}"
    sections = (state.parameters, moments.exp_avg, moments.exp_avg_sq)
    return _sections_to_bytes(layout, sections, moments.step.to_bytes(COUNTER_BYTES, "little"))


def tensors_to_bytes(layout: StateLayout, sections: Sequence[Mapping[str, Flat]], step: int) -> bytes:
    """The same from the tensors of each section by name, as they are, without joining them first."""
    assert 0 <= step < 2 ** (8 * COUNTER_BYTES), f"step {step}"
    parts: list[memoryview | bytes] = []
    for tensors in sections:
        for name, shape in layout.shapes.items():
            assert tensors[name].shape == shape, f"{name} has shape {tensors[name].shape}, not {shape}"
            parts.append(np.ascontiguousarray(tensors[name], dtype=FLOAT).reshape(-1).data.cast("B"))
    return b"".join([*parts, step.to_bytes(COUNTER_BYTES, "little")])


def state_from_bytes(layout: StateLayout, data: bytes) -> ReplicaState:
    """The inverse, as read-only views of `data`. Raises EvidenceError unless it has this stage's exact length."""
    _check_length(layout, data, layout.state_bytes, "a replica's state")
    parameters, exp_avg, exp_avg_sq = _sections_from_bytes(layout, data, len(SECTIONS))
    step = int.from_bytes(data[-COUNTER_BYTES:], "little")
    return ReplicaState(parameters=parameters, moments=Moments(exp_avg=exp_avg, exp_avg_sq=exp_avg_sq, step=step))


def public_to_bytes(layout: StateLayout, state: PublicState) -> bytes:
    """The canonical bytes of a stage's public state between rounds."""
    return _sections_to_bytes(layout, (state.parameters, state.outer_momentum))


def public_from_bytes(layout: StateLayout, data: bytes) -> PublicState:
    """The inverse, as read-only views of `data`. Raises EvidenceError unless it has this stage's exact length."""
    _check_length(layout, data, layout.public_bytes, "a public state")
    parameters, outer_momentum = _sections_from_bytes(layout, data, len(PUBLIC_SECTIONS))
    return PublicState(parameters=parameters, outer_momentum=outer_momentum)


def parameters_from_leading(layout: StateLayout, leading: bytes) -> Flat:
    """The parameters, which come first in every state, as a read-only view. Raises EvidenceError when bytes lack."""
    if len(leading) < layout.section_bytes:
        _check_length(layout, leading, layout.section_bytes, "at least the parameters")
    return np.frombuffer(leading, dtype=FLOAT, count=layout.num_parameters)


def _sections_to_bytes(layout: StateLayout, sections: tuple[Flat, ...], end: bytes = b"") -> bytes:
    """One copy, whatever the size of the state."""
    for section in sections:
        layout.check_flat(section)
    return b"".join([*(np.ascontiguousarray(section, dtype=FLOAT).data.cast("B") for section in sections), end])


def _sections_from_bytes(layout: StateLayout, data: bytes, num_sections: int) -> list[Flat]:
    return [
        np.frombuffer(data, dtype=FLOAT, count=layout.num_parameters, offset=number * layout.section_bytes)
        for number in range(num_sections)
    ]


def _check_length(layout: StateLayout, data: bytes, expected: int, what: str) -> None:
    if len(data) != expected:
        raise EvidenceError(
            f"expected {what} of stage {layout.index} in {expected} bytes, found {len(data)}; "
            "fetch it again from another peer"
        )
