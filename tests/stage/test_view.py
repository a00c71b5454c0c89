"""A view of a state has the state's bytes, whatever span of them is asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.errors import EvidenceError
from subnet.stage.layout import SECTIONS, state_to_bytes
from subnet.stage.state import Replica
from subnet.stage.view import view_of_bytes
from tests.model.tiny import tiny_model, tiny_run


@pytest.fixture(scope="module")
def replica() -> Replica:
    """A stage whose moments are not zeros."""
    replica = Replica(tiny_run(tiny_model(), stages=2), 1)
    rng = np.random.default_rng(1)
    for parameter in replica.stage.parameters.values():
        parameter.grad = parameter.new_tensor(rng.normal(size=tuple(parameter.shape)))
    replica.step(0)
    return replica


def test_the_whole_of_it_is_what_the_replica_commits_to(replica):
    view = replica.view()
    assert view[:] == replica.commit() == state_to_bytes(replica.layout, replica.state())
    assert len(view) == replica.layout.state_bytes and view.step == 1


@given(data=st.data())
def test_any_span_is_that_of_the_whole(replica, data):
    whole = replica.commit()
    start, stop = (data.draw(st.integers(0, len(whole) + 5)) for _ in range(2))
    assert replica.view()[start:stop] == view_of_bytes(replica.layout, whole)[start:stop] == whole[start:stop]


def test_each_tensor_is_where_the_layout_has_it(replica):
    view, flat = replica.view(), np.frombuffer(replica.commit()[:-8], dtype=np.float32)
    for number in range(len(SECTIONS)):
        for name, within in replica.layout.slices.items():
            first = number * replica.layout.num_parameters
            assert np.array_equal(view.tensor(number, name), flat[first + within.start : first + within.stop])


def test_bytes_of_another_length_have_no_view(replica):
    with pytest.raises(EvidenceError, match="expected a replica's state"):
        view_of_bytes(replica.layout, replica.commit()[:-1])
