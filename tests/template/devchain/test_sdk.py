"""The unmodified SDK works against the dev chain: one test per operation that the subnet uses."""

import asyncio
from typing import Any

import bittensor as bt
import pytest
from bittensor._subtensor import _shared_clients
from bittensor.sp_core import Keypair

pytestmark = pytest.mark.usefixtures("sdk_home")


class Wallet:
    """A wallet made of two development keys."""

    def __init__(self, name: str) -> None:
        self.coldkey = self.coldkeypub = Keypair.create_from_uri(f"//{name}")
        self.hotkey = Keypair.create_from_uri(f"//{name}//hot")


@pytest.fixture(scope="module")
def sub(chain: Any, connect: Any) -> Any:
    with connect(chain.url) as subtensor:
        yield subtensor


@pytest.fixture
def rich() -> Wallet:
    return Wallet("Rich")


@pytest.fixture(scope="module")
def member(sub: Any) -> Wallet:
    """A registered miner with coins of its own."""
    wallet, rich = Wallet("member"), Wallet("Rich")
    assert sub.execute(bt.Transfer(wallet.coldkey.ss58_address, 100), rich)
    call = bt.calls.SubtensorModule.burned_register(netuid=1, hotkey=wallet.hotkey.ss58_address)
    assert sub.submit_call(call, wallet)
    return wallet


def test_it_connects_and_reads_block_time_and_balance(sub: Any, rich: Wallet) -> None:
    assert sub.wait_for_block(sub.block + 1, timeout=10).number >= 1
    assert sub.spec_version == 461
    assert sub.block_time() == 0.25
    assert sub.finalized_block <= sub.block
    assert sub.balances.get(rich.coldkey.ss58_address).tao > 1000


def test_new_heads_come_one_by_one(sub: Any) -> None:
    numbers = []
    for header in sub.blocks():
        numbers.append(header.number)
        if len(numbers) == 3:
            break
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_finalized_heads_come_too(sub: Any) -> None:
    header = next(iter(sub.blocks(finalized=True)))
    assert header.number <= sub.block


def test_a_raw_registration_gives_a_uid_and_a_fee(sub: Any, rich: Wallet) -> None:
    hotkey = Keypair.create_from_uri("//raw//hot").ss58_address
    price = sub.subnets.burn(1)
    result = sub.submit_call(bt.calls.SubtensorModule.burned_register(netuid=1, hotkey=hotkey), rich)
    assert result.success and result.fee.rao > 0
    assert sub.neurons.uid(hotkey, 1) is not None
    assert sub.subnets.burn(1) > price


def test_a_second_registration_is_refused_by_name(sub: Any, member: Wallet) -> None:
    call = bt.calls.SubtensorModule.burned_register(netuid=1, hotkey=member.hotkey.ss58_address)
    result = sub.submit_call(call, member)
    assert result.error.name == "HotKeyAlreadyRegisteredInSubNet"
    assert result.error.code is bt.ErrorCode.ALREADY_EXISTS


def test_registration_on_a_missing_subnet_and_without_coins_is_refused(sub: Any, rich: Wallet) -> None:
    missing = bt.calls.SubtensorModule.burned_register(netuid=77, hotkey=Keypair.create_from_uri("//x").ss58_address)
    assert sub.submit_call(missing, rich).error.code is bt.ErrorCode.SUBNET_NOT_EXISTS
    poor = Wallet("poor")
    sub.execute(bt.Transfer(poor.coldkey.ss58_address, 0.01), rich)
    call = bt.calls.SubtensorModule.burned_register(netuid=1, hotkey=poor.hotkey.ss58_address)
    assert sub.submit_call(call, poor).error.code is bt.ErrorCode.INSUFFICIENT_BALANCE


def test_an_account_without_coins_cannot_pay_a_fee(sub: Any) -> None:
    nobody = Wallet("nobody")
    result = sub.submit_call(bt.calls.System.remark(remark=b"hello"), nobody)
    assert not result.success
    assert result.error.code is bt.ErrorCode.INSUFFICIENT_BALANCE


def test_an_endpoint_is_served_and_seen(sub: Any, member: Wallet) -> None:
    assert sub.execute(bt.ServeAxon(1, "203.0.113.5", 8091), member)
    neuron = sub.subnets.metagraph(1).by_hotkey(member.hotkey.ss58_address)
    assert neuron.axon == "203.0.113.5:8091"


@pytest.mark.parametrize(
    ("ip", "port", "name"),
    [("127.0.0.1", 8091, "InvalidIpAddress"), ("::1", 8091, "InvalidIpAddress"), ("203.0.113.5", 0, "InvalidPort")],
)
def test_a_bad_endpoint_is_refused(sub: Any, member: Wallet, ip: str, port: int, name: str) -> None:
    sub.wait_for_block(sub.block + 2, timeout=10)
    address = int.from_bytes(bytes(map(int, ip.split("."))), "big") if "." in ip else 1
    args = {"version": 1, "ip": address, "port": port, "ip_type": 4 if "." in ip else 6}
    rest = {"protocol": 4, "placeholder1": 0, "placeholder2": 0}
    result = sub.submit_call(bt.calls.SubtensorModule.serve_axon(netuid=1, **args, **rest), member, signer="hotkey")
    assert result.error.name == name


def test_serving_unregistered_is_refused(sub: Any) -> None:
    result = sub.execute(bt.ServeAxon(1, "203.0.113.5", 8091), Wallet("stranger"))
    assert result.error.name == "HotKeyNotRegisteredInNetwork"


def test_the_metagraph_shows_owner_validators_and_stake(sub: Any) -> None:
    graph = sub.subnets.metagraph(1)
    assert graph.name == "strata"
    assert graph.neuron(0).hotkey == graph.owner_hotkey
    validator = graph.by_hotkey(Keypair.create_from_uri("//validator0//hot").ss58_address)
    assert validator.validator_permit and validator.total_stake.alpha >= 2000
    assert sub.subnets.metagraph(77) is None


def test_neurons_read_lite_and_full(sub: Any) -> None:
    lite, full = sub.neurons.all(1, lite=True), sub.neurons.all(1, lite=False)
    assert [neuron.hotkey for neuron in lite] == [neuron.hotkey for neuron in full]


def test_a_commitment_is_read_back_and_its_block_body_holds_it(sub: Any) -> None:
    owner, record = Wallet("Owner"), bytes(range(120))
    call = bt.calls.Commitments.set_commitment(netuid=1, info={"fields": [{f"Raw{len(record)}": record}]})
    result = sub.submit_call(call, owner, signer="hotkey")
    assert result.success
    found = sub.identity.commitment(1, owner.hotkey.ss58_address)
    assert bytes.fromhex(found.fields[0]["Raw120"][2:]) == record
    block, index = (int(part) for part in result.extrinsic_id.split("-"))
    extrinsic = sub.block_info(block).extrinsics[index]
    assert extrinsic["address"] == owner.hotkey.ss58_address
    arguments = {each["name"]: each["value"] for each in extrinsic["call"]["call_args"]}
    assert arguments["info"]["fields"] == [{"Raw120": "0x" + record.hex()}]
    assert sub.subnets.commitments(1)[owner.hotkey.ss58_address].block == block


def test_a_stranger_cannot_commit(sub: Any) -> None:
    call = bt.calls.Commitments.set_commitment(netuid=1, info={"fields": [{"Raw2": b"hi"}]})
    result = sub.submit_call(call, Wallet("stranger"), signer="hotkey")
    assert result.error.name == "AccountNotAllowedCommit"


def test_weights_lead_to_incentive_dividends_and_emission(sub: Any, member: Wallet) -> None:
    uid = sub.neurons.uid(member.hotkey.ss58_address, 1)
    for name in ("validator0", "validator1"):
        assert sub.execute(bt.SetWeights(netuid=1, weights={uid: 1.0}), Wallet(name))
    assert sub.weights.weights(1)[1] == {uid: 1.0}
    sub.wait_for_epoch(1, timeout=20)
    sub.wait_for_epoch(1, timeout=20)
    graph = sub.subnets.metagraph(1)
    assert graph.neuron(uid).incentive == 1.0
    assert graph.neuron(uid).emission.rao > 10**9
    assert graph.neuron(uid).total_stake.rao > 10**9
    assert graph.neuron(1).dividends > graph.neuron(2).dividends > 0
    assert sub.weights.bonds(1)[1] == {uid: 1.0}


def test_a_policy_is_kept_before_anything_is_signed(sub: Any, rich: Wallet) -> None:
    target = Keypair.create_from_uri("//policy").ss58_address
    with pytest.raises(bt.PolicyError, match="1.5|spend"):
        sub.execute(bt.Transfer(target, 1.5), rich, policy=bt.Policy(max_spend_tao=1))
    assert sub.balances.get(target).rao == 0
    assert sub.execute(bt.Transfer(target, 1.5), rich, policy=bt.Policy(max_spend_tao=2))


def test_weights_too_soon_after_the_last_are_refused_before_signing(sub: Any, member: Wallet) -> None:
    validator, uid = Wallet("validator0"), sub.neurons.uid(member.hotkey.ss58_address, 1)
    sub.wait_for_block(sub.block + 4, timeout=10)
    assert sub.execute(bt.SetWeights(netuid=1, weights={uid: 1.0}), validator)
    with pytest.raises(bt.ChainError) as caught:
        sub.execute(bt.SetWeights(netuid=1, weights={uid: 1.0}), validator)
    assert caught.value.code is bt.ErrorCode.RATE_LIMITED


def test_the_pool_refuses_weights_too_soon_with_the_chains_number(sub: Any) -> None:
    validator = Wallet("validator1")
    sub.wait_for_block(sub.block + 4, timeout=10)
    call = bt.calls.SubtensorModule.set_weights(netuid=1, dests=[0], weights=[65535], version_key=0)
    assert sub.submit_call(call, validator, signer="hotkey").success
    again = sub.submit_call(call, validator, signer="hotkey")
    assert again.error.code is bt.ErrorCode.RATE_LIMITED


def test_weights_are_set_in_one_call(sub: Any, chain: Any) -> None:
    """The SDK's own shortcut, over a connection of its own: what `sub` knows of this hotkey's nonce is old then."""
    validator = Wallet("validator1")
    sub.wait_for_block(sub.block + 4, timeout=10)
    try:
        assert bt.set_weights(1, {0: 1.0, 2: 3.0}, wallet=validator, network=chain.url).success
    finally:
        loops = [client._loop_thread._loop for client in _shared_clients.values()]
        bt.close_shared_clients()  # or it looks for the chain as long as the process lives
        for loop in loops:
            loop.close()
    assert sub.weights.weights(1)[2] == pytest.approx({0: 0.25, 2: 0.75}, abs=1e-4)


def test_weights_without_a_permit_are_refused_on_the_chain(sub: Any, rich: Wallet) -> None:
    """A new neuron has no stake, so no permit; the rate limit counts from its registration."""
    newcomer = Wallet("newcomer")
    register = bt.calls.SubtensorModule.burned_register(netuid=1, hotkey=newcomer.hotkey.ss58_address)
    assert sub.submit_call(register, rich)
    sub.wait_for_block(sub.block + 3, timeout=10)
    call = bt.calls.SubtensorModule.set_weights(netuid=1, dests=[0], weights=[65535], version_key=0)
    assert sub.submit_call(call, newcomer, signer="hotkey").error.name == "NeuronNoValidatorPermit"


def test_hyperparameters_and_the_epoch_schedule_read(sub: Any) -> None:
    every = sub.subnets.subnet_hyperparameters(1)
    assert every["tempo"] == 10 and every["weights_rate_limit"] == 3 and every["min_allowed_weights"] == 1
    assert every["commit_reveal_weights_enabled"] is False
    assert sub.hyperparameters.weights_rate_limit(1) == 3
    assert 0 <= sub.epochs.blocks_until_next_epoch(1) <= 10


def test_the_past_reads_as_it_was(sub: Any) -> None:
    sub.wait_for_block(6, timeout=10)
    assert [sub.query(bt.storage.System.Number, block=number) for number in (1, 3, 5)] == [1, 3, 5]
    first = sub.subnets.metagraph(1, block=1)
    assert first.block == 1 and len(first) == 3


def test_a_transfer_and_a_sudo_call_work(sub: Any, rich: Wallet) -> None:
    target = Keypair.create_from_uri("//target").ss58_address
    assert sub.execute(bt.Transfer(target, 1.5), rich)
    assert sub.balances.get(target).tao == 1.5
    inner = sub.compose(bt.calls.Balances.force_set_balance(who=target, new_free=7 * 10**9))
    assert sub.submit_call(bt.calls.Sudo.sudo(call=inner), Wallet("Sudo"))
    assert sub.balances.get(target).tao == 7
    refused = sub.submit_call(bt.calls.Sudo.sudo(call=inner), rich)
    assert refused.error.name == "RequireSudo"


def test_the_asynchronous_client_works_too(chain: Any) -> None:
    async def read() -> tuple[int, Any]:
        async with bt.Subtensor(chain.url) as client:
            header = await client.wait_for_block(await client.block() + 1, timeout=10)
            return header.number, await client.subnets.metagraph(1)

    number, graph = asyncio.run(read())
    assert number >= 1 and graph.netuid == 1


def test_two_chains_never_share_a_genesis(connect: Any, sub: Any, start_chain: Any, genesis_for: Any) -> None:
    with start_chain(genesis_for()) as other, connect(other.url) as second:
        assert second.block_info(0).hash != sub.block_info(0).hash


def test_a_busy_port_is_an_os_error(chain: Any, genesis_for: Any) -> None:
    from template.devchain.node import serve

    with pytest.raises(OSError):
        asyncio.run(serve(genesis_for(), port=chain.port))
