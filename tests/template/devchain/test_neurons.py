"""Registration prices, uids and pruning follow the chain's rules."""

from collections.abc import Callable

import pytest

from template.devchain import neurons
from template.devchain.chain import Chain
from template.devchain.genesis import Genesis, development_address


@pytest.fixture
def small(genesis_for: Callable[..., Genesis]) -> Chain:
    """A chain whose subnet holds four uids, three of them taken by genesis."""
    chain = Chain(genesis_for(max_uids=4, immunity_period=5), start_ms=1)
    chain.storage.begin_block(1)
    return chain


def advance(chain: Chain, block: int) -> None:
    chain.storage.begin_block(block)


@pytest.mark.parametrize(
    ("half_life", "factor"),
    [(1, 2147483648), (2, 3037000500), (10, 4007346185), (100, 4265299790), (360, 4286705684)],
)
def test_the_price_factor_is_the_chains(half_life: int, factor: int) -> None:
    assert neurons.decay_factor(half_life) == factor


def test_the_price_halves_over_its_half_life_as_on_the_chain() -> None:
    price, factor = 10**9, neurons.decay_factor(360)
    for _ in range(360):
        price = price * factor >> 32
    assert price == 499999865


def test_a_registration_raises_the_price(small: Chain) -> None:
    small.context.put("Burn", 1, 100_000_000)
    neurons.bump_price(small.context, 1)
    assert small.storage.get("Burn", 1) == 126_000_000


def test_a_full_subnet_replaces_the_neuron_with_the_least_emission(small: Chain) -> None:
    ctx = small.context
    neurons.register(ctx, 1, development_address("//first"))
    ctx.put("Emission", 1, [0, 5, 3, 4])
    ctx.put("MinNonImmuneUids", 1, 0)
    ctx.put("Incentive", 1, [0, 0, 9, 0])
    ctx.put("Weights", 1, 1, [(2, 65535), (3, 7)])
    replaced = ctx.get("Keys", 1, 2)
    advance(small, 50)
    assert neurons.register(ctx, 1, development_address("//second")) == 2
    assert ctx.get("Keys", 1, 2) == development_address("//second")
    assert ctx.get("Uids", 1, replaced) is None
    assert ctx.get("Incentive", 1)[2] == 0
    assert ctx.get("Weights", 1, 1) == [(2, 0), (3, 7)]
    assert ctx.get("BlockAtRegistration", 1, 2) == 50
    assert ctx.get("LastUpdate", 1)[2] == 50


def test_the_subnet_owners_hotkey_is_never_replaced(small: Chain) -> None:
    ctx = small.context
    neurons.register(ctx, 1, development_address("//first"))
    ctx.put("Emission", 1, [0, 9, 9, 9])
    advance(small, 50)
    assert neurons.neuron_to_prune(ctx, 1) != 0


def test_an_immune_neuron_stays_while_enough_others_are_mortal(small: Chain) -> None:
    ctx = small.context
    advance(small, 50)
    newcomer = neurons.register(ctx, 1, development_address("//first"))
    ctx.put("Emission", 1, [0, 9, 8, 0])
    ctx.put("MinNonImmuneUids", 1, 1)
    assert neurons.neuron_to_prune(ctx, 1) == 2
    ctx.put("MinNonImmuneUids", 1, 10)
    assert neurons.neuron_to_prune(ctx, 1) == newcomer


def test_among_equals_the_oldest_leaves_first(small: Chain) -> None:
    ctx = small.context
    advance(small, 3)
    neurons.register(ctx, 1, development_address("//first"))
    ctx.put("BlockAtRegistration", 1, 1, 2)
    ctx.put("BlockAtRegistration", 1, 2, 1)
    ctx.put("MinNonImmuneUids", 1, 0)
    advance(small, 50)
    assert neurons.neuron_to_prune(ctx, 1) == 2
