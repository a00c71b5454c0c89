"""No request, however wrong, does anything but answer or be refused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from template.devchain.chain import Chain
from template.devchain.context import PoolError
from template.devchain.genesis import Genesis
from template.devchain.methods import Methods, RpcError

HEX = st.binary(max_size=40).map(lambda data: "0x" + data.hex())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | HEX,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def methods(genesis_for: Callable[..., Genesis]) -> Methods:
    chain = Chain(genesis_for(), start_ms=1)
    for number in range(12):
        chain.produce(number)
    return Methods(chain)


@given(data=st.data(), params=st.lists(VALUES, max_size=4))
@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_parameters_are_answered_or_refused(methods: Methods, data: st.DataObject, params: list[Any]) -> None:
    name = data.draw(st.sampled_from(methods.call("rpc_methods", [])["methods"]))
    try:
        methods.call(name, params)
    except RpcError as error:
        assert error.message


@given(data=st.data(), argument=st.binary(max_size=80))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_runtime_calls_are_answered_or_refused(methods: Methods, data: st.DataObject, argument: bytes) -> None:
    apis = methods.chain.runtime.apis
    api = data.draw(st.sampled_from(sorted(apis)))
    method = data.draw(st.sampled_from(sorted(apis[api])))
    try:
        assert methods.call("state_call", [f"{api}_{method}", "0x" + argument.hex()]).startswith("0x")
    except RpcError as error:
        assert error.message.startswith("Client error")


@given(raw=st.binary(max_size=300))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_no_extrinsic(methods: Methods, raw: bytes) -> None:
    with pytest.raises(PoolError):
        methods.chain.submit(raw)
