"""A replica's trajectory: committed bytes continue it exactly."""

import msgspec
import numpy as np
import pytest

from subnet.config import RunConfig
from subnet.errors import EvidenceError
from subnet.stage.state import Replica, StateLayout, state_from_bytes, state_to_bytes
from tests.model.tiny import tiny_microbatches, tiny_run

RUN = tiny_run(stages=1)


def train(replica: Replica, steps: range) -> list[float]:
    """One microbatch per step; the gradient norms."""
    microbatches = tiny_microbatches(10)
    norms = []
    for step in steps:
        tokens, labels = microbatches[step]
        replica.stage.loss(step, tokens, labels)
        replica.stage.backward(step, None, tokens.numel())
        norms.append(replica.step(step))
    return norms


def trained_with(optimizer: str, dtype: str) -> RunConfig:
    return msgspec.structs.replace(RUN, train=msgspec.structs.replace(RUN.train, optimizer=optimizer, dtype=dtype))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_restored_replica_continues_bit_for_bit(optimizer: str, dtype: str) -> None:
    run = trained_with(optimizer, dtype)
    straight, resumed = Replica(run, 0), Replica(run, 0)
    train(straight, range(3))
    middle = straight.commit()
    expected = train(straight, range(3, 6))
    train(resumed, range(2))
    resumed.restore(middle)
    assert resumed.commit() == middle
    assert train(resumed, range(3, 6)) == expected
    assert resumed.commit() == straight.commit()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_committed_bytes_are_those_of_the_state(optimizer: str) -> None:
    replica = Replica(trained_with(optimizer, "float32"), 0)
    train(replica, range(2))
    assert replica.commit() == state_to_bytes(replica.layout, replica.state())


def test_a_fresh_replica_has_the_initial_parameters_and_no_memory() -> None:
    replica = Replica(RUN, 0)
    state = state_from_bytes(replica.layout, replica.commit())
    assert state.parameters.tobytes() == replica.stage.parameters_flat().tobytes()
    assert not state.moments.exp_avg.any() and not state.moments.exp_avg_sq.any()
    assert state.moments.step == 0


def test_a_round_starts_at_public_parameters_with_the_moments_kept() -> None:
    replica = Replica(RUN, 0)
    train(replica, range(2))
    before = replica.state()
    public = before.parameters * np.float32(0.5)
    replica.start(public, before.moments)
    after = replica.state()
    assert after.parameters.tobytes() == public.tobytes()
    assert after.moments.exp_avg.tobytes() == before.moments.exp_avg.tobytes()
    assert after.moments.step == 2
    replica.start(public)
    assert replica.state().moments.step == 0


def test_starting_forgets_gradients_of_the_step_before() -> None:
    replica = Replica(RUN, 0)
    tokens, labels = tiny_microbatches(1)[0]
    replica.stage.loss(0, tokens, labels)
    replica.stage.backward(0, None, tokens.numel())
    replica.restore(replica.commit())
    assert replica.step(0) == 0.0


def test_a_committed_state_is_a_copy() -> None:
    replica = Replica(RUN, 0)
    state = replica.state()
    kept = (state.parameters.tobytes(), state.moments.exp_avg.tobytes())
    train(replica, range(1))
    assert (state.parameters.tobytes(), state.moments.exp_avg.tobytes()) == kept


def test_the_state_of_another_stage_is_refused() -> None:
    replica = Replica(tiny_run(stages=4), 1)
    other = StateLayout(tiny_run(stages=4), 0)
    with pytest.raises(EvidenceError, match="expected a replica's state of stage 1 in"):
        replica.restore(bytes(other.state_bytes))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_lowers_the_loss(optimizer: str, dtype: str) -> None:
    replica = Replica(trained_with(optimizer, dtype), 0)
    tokens, labels = tiny_microbatches(1)[0]
    before = replica.stage.evaluate(tokens, labels)
    for step in range(20):
        replica.stage.loss(step, tokens, labels)
        replica.stage.backward(step, None, tokens.numel())
        replica.step(step)
    assert replica.stage.evaluate(tokens, labels) < 0.5 * before


def test_a_replica_can_begin_at_given_parameters() -> None:
    given = Replica(RUN, 0).stage.parameters_flat() * np.float32(0.5)
    state = Replica(RUN, 0, parameters=given).state()
    assert state.parameters.tobytes() == given.tobytes()
    assert state.moments.step == 0
    with pytest.raises(EvidenceError, match="float32 parameters of stage 0, found"):
        Replica(RUN, 0, parameters=given[1:])
