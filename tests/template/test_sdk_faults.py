"""The SDK behind our protocols while its node or the way to it fails: nothing is lost or done twice."""

import asyncio

import bittensor as bt
import pytest
from bittensor.sp_core import Keypair

from template.errors import ChainRefused, ChainUnreachable
from template.session import Patience
from tests.template.conftest import ChainThread
from tests.template.faulty import HASTY, PROMPT, Connect, Lab, genesis_of, submissions
from tests.template.proxy import Proxy, proxy_to

pytestmark = pytest.mark.flow


async def test_an_endpoint_that_is_down_at_the_start_is_waited_for_in_one_line(
    lab: Lab, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxy_to(lab.node.port) as proxy:
        proxy.refusing = True
        chain = connect(proxy.url, lab.rich[0], patience=PROMPT)
        with caplog.at_level("INFO", "template.session"):
            waiting = asyncio.create_task(chain.wait_for_block(0))
            await proxy.until_tried(5)
            assert not waiting.done()
            proxy.refusing = False
            assert await waiting > 0
    said = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
    assert len(said) == 2 and "HTTP 503" in said[0] and "name another node as a fallback" in said[0]
    assert said[0].startswith("waiting for=chain") and said[1].startswith("chain=back")


async def test_with_an_endpoint_that_drops_everything_weights_are_set_and_sockets_stay_few(
    lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    """A connection lives for two views or so. Every view and the weights get through, and nothing is left open."""
    wallet = lab.validators[0]
    chain = connect(proxy.url, wallet, patience=PROMPT)
    proxy.cut_after = 30
    start = await chain.block()
    await chain.set_weights({1: 1.0, 2: 3.0})
    views = 0
    while proxy.connections < 8 or views < 50:
        assert (await chain.view()).neuron(chain.hotkey) is not None
        views += 1
    assert proxy.most_open <= 2
    proxy.cut_after = 0
    assert (await chain.weights())[1] == pytest.approx({1: 0.25, 2: 0.75}, abs=1e-4)
    assert len(await submissions(chain, "set_mechanism_weights", start)) == 1
    await chain.close()
    await proxy.until_open(0)


async def test_a_connection_that_was_closed_while_idle_is_opened_again_and_no_read_opens_another(
    lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    """A way that closes what is idle, and more views than any tempo has blocks."""
    chain = connect(proxy.url, lab.rich[0], patience=PROMPT)
    first = await chain.view()
    for cut in range(3):
        proxy.cut()
        await proxy.until_open(0)
        assert (await chain.view()).block >= first.block
        assert proxy.connections == 2 + cut
    for _ in range(500):
        await chain.block()
    for _ in range(50):
        await chain.view()
    assert proxy.connections == 4 and proxy.most_open <= 2 and proxy.open == 1


@pytest.mark.parametrize("when", ["from the start", "in the middle"])
async def test_a_node_that_takes_connections_and_answers_nothing_gives_way_to_the_next(
    when: str, lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    chain = connect(proxy.url, lab.rich[0], patience=HASTY, fallback_endpoints=[lab.node.url])
    if when == "in the middle":
        assert await chain.block() > 0
    proxy.silent = True
    assert (await chain.view()).netuid == 1
    assert (await chain.block_hash(1)).startswith("0x")
    assert proxy.connections == 1, "the silent node is not tried again while the other one answers"
    await chain.close()
    await proxy.until_open(0)


async def test_a_node_that_stays_silent_is_named_and_its_connections_do_not_pile_up(
    lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    chain = connect(proxy.url, lab.rich[0], patience=Patience(connect_s=0.1, read_s=0.1, close_s=0.1, pause_s=0.01))
    proxy.silent = True
    for _ in range(3):
        with pytest.raises(ChainUnreachable, match=r"within 0.1 s, found silence; .*name another node as a fallback"):
            await chain.view()
    await proxy.until_tried(9)
    await proxy.until_open(2)
    assert proxy.connections == 9


async def test_a_node_that_answers_slowly_is_waited_for_and_a_slower_one_named(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.rich[0], patience=PROMPT)
    first = await chain.view()
    lab.ask("dev_setDelay", 0.05)
    later = await chain.view()
    assert later.block >= first.block and later.neurons == first.neurons
    hasty = connect(lab.node.url, lab.rich[1], patience=Patience(connect_s=0.1, read_s=0.1, close_s=0.1, pause_s=0.01))
    lab.ask("dev_setDelay", 0.3)
    with pytest.raises(ChainUnreachable, match="name another node as a fallback"):
        await hasty.view()


async def test_a_write_whose_updates_never_arrive_is_looked_up_and_not_sent_twice(
    lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    """The subscription that would tell of the block is lost while the connection lives on."""
    chain = connect(proxy.url, lab.rich[0], patience=HASTY)
    await chain.register()
    start = await chain.block()
    proxy.swallowed = b"author_extrinsicUpdate"
    done = await chain.commit(b"heard of only by looking")
    assert done.message == "found on the chain"
    proxy.swallowed = None
    assert len(await submissions(chain, "set_commitment", start)) == 1


async def test_a_node_of_an_older_runtime_has_the_missing_item_named(lab: Lab, connect: Connect) -> None:
    """What needs none of the missing items still works."""
    missing = ("SubnetEpochConsensus", "ServingRateLimit", "TimelockedWeightCommits")
    items = tuple(f"SubtensorModule.{each}" for each in missing)
    who = {"owner": [lab.owner], "validator": lab.validators, "rich": lab.rich}
    node = ChainThread(genesis_of(who, without_items=items, weights_rate_limit=0))
    chain = connect(node.url, lab.validators[0], patience=PROMPT)
    calls = (chain.set_weights({2: 1.0}), chain.publish_endpoint("198.18.0.1", 8091), chain.pending_weights())
    for item, call in zip(missing, calls, strict=True):
        with pytest.raises(ChainRefused, match=rf"{item}.*lacks that item; use a node that is up to date"):
            await call
    assert (await chain.view()).neuron(chain.hotkey) is not None
    await chain.commit(b"still works")
    await chain.close()
    await asyncio.to_thread(node.stop)


# Nonces


async def test_after_a_shielded_registration_the_same_client_writes_on(lab: Lab, connect: Connect) -> None:
    """The SDK remembers a nonce too low afterwards. One key is coldkey and hotkey here, so that it signs both."""
    both, mnemonic = bt.Wallet(name="both", hotkey="default", path=str(lab.folder)), Keypair.generate_mnemonic(12)
    both.regenerate_coldkey(mnemonic=mnemonic, use_password=False, suppress=True)
    both.regenerate_hotkey(mnemonic=mnemonic, use_password=False, suppress=True)
    giver = connect(lab.node.url, lab.rich[1])
    gift = bt.calls.Balances.transfer_keep_alive(dest=both.coldkey.ss58_address, value=10**10)
    await giver._sessions.read("give", lambda session: session.client.submit_call(gift, lab.rich[1]))
    chain = connect(lab.node.url, both)
    shielded = bt.BurnedRegister(netuid=1)
    result = await chain._sessions.read("register", lambda session: session.client.execute(shielded, both))
    assert result.success and result.data["shielded"]
    start = await chain.block()
    await chain.commit(b"after the shield")
    record = await chain.read_commit(chain.hotkey)
    assert record is not None and record.data == b"after the shield"
    assert len(await submissions(chain, "set_commitment", start)) == 1
