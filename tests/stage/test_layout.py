"""The canonical bytes of a state."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.errors import EvidenceError
from subnet.stage.layout import (
    Moments,
    PublicState,
    ReplicaState,
    StateLayout,
    public_from_bytes,
    public_to_bytes,
    state_from_bytes,
    state_to_bytes,
)
from tests.model.tiny import tiny_model, tiny_run

LAYOUT = StateLayout(tiny_run(tiny_model(vocab_size=1, hidden_size=4, intermediate_size=1, head_dim=2), stages=4), 1)

numbers = st.binary(min_size=4 * LAYOUT.num_parameters, max_size=4 * LAYOUT.num_parameters)


@given(numbers, numbers, numbers, st.integers(0, 2**64 - 1))
def test_any_state_survives_its_bytes(parameters: bytes, exp_avg: bytes, exp_avg_sq: bytes, step: int) -> None:
    """Bit for bit, non-finite numbers too: what a cheat commits to must be representable as evidence."""
    flats = [np.frombuffer(part, dtype="<f4") for part in (parameters, exp_avg, exp_avg_sq)]
    moments = Moments(exp_avg=flats[1], exp_avg_sq=flats[2], step=step)
    data = state_to_bytes(LAYOUT, ReplicaState(parameters=flats[0], moments=moments))
    assert data == parameters + exp_avg + exp_avg_sq + step.to_bytes(8, "little")
    found = state_from_bytes(LAYOUT, data)
    assert found.moments.step == step
    assert state_to_bytes(LAYOUT, found) == data


@given(numbers, numbers)
def test_any_public_state_survives_its_bytes(parameters: bytes, momentum: bytes) -> None:
    state = public_from_bytes(LAYOUT, parameters + momentum)
    assert public_to_bytes(LAYOUT, state) == parameters + momentum
    assert state.outer_momentum.tobytes() == momentum


@given(st.integers(0, 4 * 1024))
def test_bytes_of_another_length_are_refused(length: int) -> None:
    if length != LAYOUT.state_bytes:
        with pytest.raises(EvidenceError, match=f"expected a replica's state of stage 1 in {LAYOUT.state_bytes} bytes"):
            state_from_bytes(LAYOUT, bytes(length))
    if length != LAYOUT.public_bytes:
        with pytest.raises(EvidenceError, match=f"found {length}"):
            public_from_bytes(LAYOUT, bytes(length))


def test_a_section_of_another_length_or_dtype_is_refused() -> None:
    right = np.zeros(LAYOUT.num_parameters, dtype=np.float32)
    for wrong in (right[1:], right.astype(np.float64)):
        with pytest.raises(EvidenceError, match=f"expected {LAYOUT.num_parameters} float32 parameters of stage 1"):
            LAYOUT.check_flat(wrong)
    with pytest.raises(EvidenceError, match="fetch the state of this stage and run"):
        public_to_bytes(LAYOUT, PublicState(parameters=right, outer_momentum=right[1:]))


def test_sections_follow_each_other_and_end_with_the_step() -> None:
    size = LAYOUT.section_bytes
    edges = [0, size - 1, size, 2 * size - 1, 2 * size, 3 * size - 1, 3 * size, 3 * size + 7]
    names = ["parameters"] * 2 + ["exp_avg"] * 2 + ["exp_avg_sq"] * 2 + ["step"] * 2
    assert [LAYOUT.section_of(offset) for offset in edges] == names
    assert LAYOUT.state_bytes == 3 * size + 8


def test_tensors_lie_in_canonical_order_and_split_gives_views() -> None:
    flat = np.arange(LAYOUT.num_parameters, dtype=np.float32)
    tensors = LAYOUT.split(flat)
    assert list(tensors) == list(LAYOUT.shapes)
    assert next(iter(tensors)) == "model.layers.1.self_attn.q_proj.weight"
    assert np.concatenate([tensor.reshape(-1) for tensor in tensors.values()]).tolist() == flat.tolist()
    assert all(np.shares_memory(tensor, flat) for tensor in tensors.values())
    assert LAYOUT.join(tensors).tolist() == flat.tolist()


def test_the_bytes_of_a_state_are_golden() -> None:
    """Another implementation must make these bytes; a change is a new protocol version."""
    flat = np.arange(LAYOUT.num_parameters, dtype=np.float32) / 8
    state = ReplicaState(parameters=flat, moments=Moments(exp_avg=-flat, exp_avg_sq=flat * 2, step=258))
    data = state_to_bytes(LAYOUT, state)
    assert (len(data), data[4:12].hex(), data[-8:].hex()) == (1400, "0000003e0000803e", "0201000000000000")
    assert hashlib.sha256(data).hexdigest() == "ff23e71a42439b719ed78e344f1e43d7ea3badbe56c5d70b4ef4cc2080674ef7"
