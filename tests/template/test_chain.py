"""The chain's contract, the same in memory and through the real SDK; the reading half on a live network too."""

import math

import pytest

from template.chain import Chain
from template.errors import (
    ChainRefused,
    InsufficientBalance,
    NotPermitted,
    NotRegistered,
    RateLimited,
    SpendLimit,
)
from template.fake.chain import FakeChain, FakeNetwork
from template.fake.keys import fake_address
from tests.template.conftest import RATE_LIMIT_BLOCKS, TEMPO, VALIDATORS, Subnet

UNCHANGED = (None, None, "unchanged")


async def test_a_view_is_pinned_to_its_block(reader: Chain) -> None:
    first = await reader.view()
    await reader.wait_for_block(first.block + 2)
    assert await reader.view(first.block) == first
    assert (await reader.view()).block >= first.block + 2
    assert await reader.block_hash(first.block) == first.block_hash
    assert first.block_hash.startswith("0x") and len(first.block_hash) == 66


async def test_a_view_knows_its_subnet(reader: Chain) -> None:
    view = await reader.view()
    assert view.netuid == reader.netuid and view.started
    assert view.tempo > 0 and view.block_time_s > 0 and view.time_s > 1_600_000_000
    assert view.neuron(view.neurons[0].hotkey) == view.at_uid(0) == view.neurons[0]
    assert view.neuron("nobody") is None and view.at_uid(-1) is None and view.at_uid(len(view.neurons)) is None
    assert [neuron.uid for neuron in view.neurons] == list(range(len(view.neurons)))


async def test_a_block_that_does_not_exist_yet_has_no_hash(reader: Chain) -> None:
    with pytest.raises(ChainRefused, match="wait until"):
        await reader.block_hash(await reader.block() + 1000)


async def test_waiting_for_a_block_returns_once_it_is_there(reader: Chain) -> None:
    now = await reader.block()
    assert await reader.wait_for_block(now + 2) >= now + 2
    assert await reader.wait_for_block(0) >= now


async def test_who_is_not_registered_has_no_commitment(reader: Chain) -> None:
    assert await reader.read_commit(reader.hotkey) is None
    assert (await reader.view()).neuron(reader.hotkey) is None


async def test_owner_and_validators_are_seen(subnet: Subnet) -> None:
    view = await subnet.validator().view()
    assert view.owner is not None and view.owner.coldkey == view.owner_coldkey
    assert len([neuron for neuron in view.validators if neuron.hotkey != view.owner_hotkey]) == VALIDATORS + 1
    assert view.tempo == TEMPO and view.weights_rate_limit_blocks == RATE_LIMIT_BLOCKS
    assert view.next_epoch_block > view.block - 1


async def test_registering_gives_a_uid_once_and_costs_once(subnet: Subnet) -> None:
    chain = subnet.newcomer()
    before, price = await chain.balance_rao(), await chain.burn_rao()
    uid = await chain.register()
    after = await chain.balance_rao()
    assert 0 < before - after <= 1.01 * price  # the price falls a little with every block
    assert await chain.register() == uid
    assert await chain.balance_rao() == after
    neuron = (await chain.view()).neuron(chain.hotkey)
    assert neuron is not None and neuron.uid == uid and not neuron.validator_permit and neuron.endpoint is None


async def test_registering_stops_at_the_users_limit(subnet: Subnet) -> None:
    chain = subnet.newcomer()
    with pytest.raises(SpendLimit, match="at most 0.000000001 TAO, found 0.1"):
        await chain.register(limit_rao=1)
    assert (await chain.view()).neuron(chain.hotkey) is None
    assert await chain.register(limit_rao=10**10) > 0


async def test_registering_without_funds_says_so(subnet: Subnet) -> None:
    chain = subnet.pauper()
    assert await chain.balance_rao() == 0
    with pytest.raises(InsufficientBalance, match="fund"):
        await chain.register()


async def test_who_is_not_registered_can_write_nothing(subnet: Subnet) -> None:
    chain = subnet.newcomer()
    with pytest.raises(NotRegistered, match="register"):
        await chain.commit(b"x")
    with pytest.raises(NotRegistered, match="register"):
        await chain.publish_endpoint("198.18.0.1", 8091)
    with pytest.raises(NotRegistered, match="register"):
        await chain.set_weights({0: 1.0})


async def test_an_endpoint_is_published_only_when_it_changed(subnet: Subnet) -> None:
    chain = subnet.newcomer()
    await chain.register()
    first = await chain.publish_endpoint("198.18.0.1", 8091)
    assert first.block is not None and first.extrinsic_index is not None
    again = await chain.publish_endpoint("198.18.0.1", 8091)
    assert (again.block, again.extrinsic_index, again.message) == UNCHANGED
    assert (await chain.view()).neuron(chain.hotkey).endpoint == "198.18.0.1:8091"
    await subnet.pass_blocks(2)
    await chain.publish_endpoint("2001:db8::1", 9000)
    assert (await chain.view()).neuron(chain.hotkey).endpoint == "[2001:db8::1]:9000"


async def test_the_loopback_address_cannot_be_announced(subnet: Subnet) -> None:
    chain = subnet.newcomer()
    await chain.register()
    with pytest.raises(ChainRefused, match=r"InvalidIpAddress.*announce"):
        await chain.publish_endpoint("127.0.0.1", 8091)
    assert (await chain.view()).neuron(chain.hotkey).endpoint is None


async def test_a_commitment_is_read_back_with_its_place(subnet: Subnet) -> None:
    chain = subnet.newcomer()
    await chain.register()
    for data in (b"hello", bytes(range(128)), b"0xnot hex", b"\xff\x00", "τ".encode()):
        landed = await chain.commit(data)
        record = await chain.read_commit(chain.hotkey)
        assert record is not None and record.data == data and record.hotkey == chain.hotkey
        assert (record.block, record.extrinsic_index) == (landed.block, landed.extrinsic_index)
        assert await chain.commit_at(record.block, record.extrinsic_index) == record
    assert await chain.commit_at(record.block, 0) is None
    assert await chain.commit_at(record.block, 99) is None


@pytest.mark.parametrize("data", [b"", b"x" * 129])
async def test_a_commitment_has_1_to_128_bytes(subnet: Subnet, data: bytes) -> None:
    with pytest.raises(ChainRefused, match=f"expected 1 to 128 bytes, found {len(data)}"):
        await subnet.validator().commit(data)


async def test_weights_are_set_read_and_limited(subnet: Subnet) -> None:
    chain = subnet.validator()
    uid = (await chain.view()).neuron(chain.hotkey).uid
    await subnet.pass_blocks(RATE_LIMIT_BLOCKS)
    await chain.set_weights({0: 1.0, 1: 3.0})
    assert (await chain.weights())[uid] == pytest.approx({0: 0.25, 1: 0.75}, abs=1e-4)
    with pytest.raises(RateLimited) as caught:
        await chain.set_weights({0: 1.0})
    assert 0 < caught.value.blocks_to_wait <= RATE_LIMIT_BLOCKS


async def test_weights_that_are_set_in_the_open_leave_nothing_pending(subnet: Subnet) -> None:
    chain = subnet.validator()
    await subnet.pass_blocks(RATE_LIMIT_BLOCKS)
    assert (await chain.set_weights({0: 1.0})).reveal_round is None
    assert await chain.pending_weights() == ()


async def test_weights_need_a_permit_a_positive_value_and_known_uids(subnet: Subnet) -> None:
    chain, validator = subnet.newcomer(), subnet.validator()
    await chain.register()
    await subnet.pass_blocks(RATE_LIMIT_BLOCKS)
    with pytest.raises(NotPermitted, match="permit"):
        await chain.set_weights({0: 1.0, 1: 1.0})
    for weights in ({}, {0: 0.0}, {60_000: 1.0}):
        with pytest.raises(ChainRefused):
            await validator.set_weights(weights)


SPOILED: list[tuple[dict[int, float], str]] = [
    ({0: 0.5, 1: math.nan, 2: 0.2}, "found nan for uid 1; correct the scores"),
    ({0: math.nan, 1: math.nan}, "found nan for uid 0"),
    ({0: 0.3, 1: -1.0}, "found -1.0 for uid 1"),
    ({0: 1.0, 1: math.inf}, "found inf for uid 1"),
    ({0: -math.inf}, "found -inf for uid 0"),
    ({0: 0.0, 1: 0.0}, "expected a positive weight, found none"),
    ({}, "expected a positive weight, found none"),
]


async def test_a_vector_that_is_not_finite_or_not_positive_is_never_sent(subnet: Subnet) -> None:
    """Nobody's weight is made of it: what stood on the chain stays, and the next good vector is taken at once."""
    chain = subnet.validator()
    await subnet.pass_blocks(RATE_LIMIT_BLOCKS)
    before = await chain.weights()
    for weights, said in SPOILED:
        with pytest.raises(ChainRefused, match=said):
            await chain.set_weights(weights)
    assert await chain.weights() == before
    await chain.set_weights({0: 1.0})


async def test_an_epoch_turns_weights_into_incentive(subnet: Subnet) -> None:
    chain, validator = subnet.newcomer(), subnet.majority()
    uid = await chain.register()
    await subnet.pass_blocks(RATE_LIMIT_BLOCKS)
    await validator.set_weights({uid: 1.0})
    await subnet.pass_blocks(2 * TEMPO)
    neuron = (await chain.view()).neuron(chain.hotkey)
    assert neuron.incentive_u16 > 0 and 0 < neuron.incentive <= 1 and neuron.emission_rao > 0


async def test_an_earlier_view_does_not_change_when_somebody_registers(subnet: Subnet) -> None:
    chain = subnet.newcomer()
    before = await chain.view()
    await chain.register()
    assert await chain.view(before.block) == before
    assert before.neuron(chain.hotkey) is None and (await chain.view()).neuron(chain.hotkey) is not None


async def test_a_uid_that_was_given_away_belongs_to_the_new_hotkey() -> None:
    network = FakeNetwork()
    uid = network.add(fake_address("old"), fake_address("old/cold"))
    chain = FakeChain(network, fake_address("old"), fake_address("old/cold"))
    before = await chain.view()
    network.advance()
    network.replace(uid, fake_address("new"), fake_address("new/cold"))
    after = await chain.view()
    assert before.neuron(fake_address("old")) and not after.neuron(fake_address("old"))
    assert after.at_uid(uid).hotkey == fake_address("new")
    with pytest.raises(NotRegistered):
        await chain.commit(b"x")
