"""A replica's state as its bytes would be, without a copy of it.

A state has several times the bytes of its stage's parameters, and an audit holds its start and its end at once; so what
is read of the end is read where the replica has it. Does not know torch or Merkle trees.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from subnet.stage.layout import COUNTER_BYTES, FLOAT, Flat, ReplicaState, StateLayout, state_from_bytes


class StateView:
    """The bytes of a state, sliced where they are asked for. It changes with the tensors that it was made of."""

    def __init__(
        self, layout: StateLayout, sections: Sequence[Mapping[str, npt.NDArray[np.float32]]], step: int
    ) -> None:
        """sections: parameters, first and second moments by name. step: the optimizer's counter."""
        self._tensors = [
            {name: np.ascontiguousarray(section[name], dtype=FLOAT).reshape(-1) for name in layout.shapes}
            for section in sections
        ]
        self._parts: list[npt.NDArray[np.uint8]] = [
            *(flat.view(np.uint8) for section in self._tensors for flat in section.values()),
            np.frombuffer(step.to_bytes(COUNTER_BYTES, "little"), dtype=np.uint8),
        ]
        self._starts = [0, *accumulate(part.size for part in self._parts)]
        self.step = step
        assert len(self) == layout.state_bytes, f"{len(self)} bytes in a state of {layout.state_bytes}"

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, span: slice) -> bytes:
        """The bytes of a span."""
        start, stop, stride = span.indices(len(self))
        assert stride == 1, f"stride {stride}"
        found, at = [], bisect_right(self._starts, start) - 1
        while start < stop:
            offset = start - self._starts[at]
            piece = self._parts[at][offset : offset + stop - start]
            found.append(piece.tobytes())
            start, at = start + piece.size, at + 1
        return b"".join(found)

    def tensor(self, section: int, name: str) -> Flat:
        """All elements of a tensor, in one row: of the parameters (0), the first (1) or the second moments (2)."""
        return self._tensors[section][name]


def view_of(layout: StateLayout, state: ReplicaState) -> StateView:
    """The view of a state that was taken apart already."""
    moments = state.moments
    sections = [layout.split(flat) for flat in (state.parameters, moments.exp_avg, moments.exp_avg_sq)]
    return StateView(layout, sections, moments.step)


def view_of_bytes(layout: StateLayout, data: bytes) -> StateView:
    """The view of a state's bytes. Raises EvidenceError on another length."""
    return view_of(layout, state_from_bytes(layout, data))
