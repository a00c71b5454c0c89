"""What the chain's rules refuse, through the SDK: said before it is sent, with what to do; and its halts and forks."""

import asyncio
import time

import bittensor as bt
import pytest

from template.errors import ChainUnreachable, NotPermitted, RateLimited, SpendLimit, SubnetNotFound, UpdateNeeded
from tests.template.conftest import ChainThread
from tests.template.faulty import (
    BLOCK_S,
    HASTY,
    LAG_BLOCKS,
    LIMIT_BLOCKS,
    PROMPT,
    Connect,
    Lab,
    genesis_of,
    submissions,
)

pytestmark = pytest.mark.flow


async def test_a_price_that_rises_before_the_registration_lands_is_not_paid(lab: Lab, connect: Connect) -> None:
    chain, rival = connect(lab.node.url, lab.rich[2]), connect(lab.node.url, lab.rich[3])
    price_rao, balance_rao = await chain.burn_rao(), await chain.balance_rao()
    await rival.register()
    assert await chain.burn_rao() > price_rao
    with pytest.raises(SpendLimit, match=r"at most 0\.\d+ TAO, found 0\.\d+; raise the limit, or wait"):
        await chain.register(limit_rao=price_rao)
    call = bt.calls.SubtensorModule.register_limit(netuid=1, hotkey=chain.hotkey, limit_price=price_rao)
    wallet = lab.rich[2]
    with pytest.raises(SpendLimit, match="the price rose meanwhile"):  # what the chain says when it is later still
        await chain._write("register", lambda client: client.submit_call(call, wallet), never)
    assert (await chain.view()).neuron(chain.hotkey) is None
    assert balance_rao - await chain.balance_rao() < 10**7, "only the fee of what was refused"


async def never(start: int) -> bool:
    return False


async def test_a_subnet_that_was_not_started_is_seen_as_such(lab: Lab, connect: Connect) -> None:
    founder = lab.rich[4]
    chain = connect(lab.node.url, founder)
    found = bt.calls.SubtensorModule.register_network(hotkey=founder.hotkey.ss58_address)
    made = await chain._sessions.read("found", lambda session: session.client.submit_call(found, founder))
    assert made.success
    young = connect(lab.node.url, lab.rich[5], netuid=2)
    view = await young.view()
    assert not view.started and (await chain.view()).started
    stake = bt.calls.SubtensorModule.add_stake(hotkey=founder.hotkey.ss58_address, netuid=2, amount_staked=10**9)
    with pytest.raises(SubnetNotFound, match="has not been started; its owner has to start it"):
        await chain._write("stake", lambda client: client.submit_call(stake, founder), never)


async def test_a_rate_limit_says_how_many_blocks_to_wait_and_holds_no_longer(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.validators[1])
    await chain.set_weights({2: 1.0})
    lab.ask("dev_pause")  # the limit would be over at some time
    with pytest.raises(RateLimited, match=rf"is {LIMIT_BLOCKS} blocks; wait \d+ blocks \(about \d+ s\)") as caught:
        await chain.set_weights({3: 1.0})
    wait = caught.value.blocks_to_wait
    assert wait is not None and 0 < wait <= LIMIT_BLOCKS
    lab.ask("dev_step", wait)
    lab.ask("dev_resume")
    await chain.set_weights({3: 1.0})
    assert (await chain.weights())[2] == {3: 1.0}


async def test_an_old_version_of_weights_is_an_update_needed_and_not_a_silent_success(
    lab: Lab, connect: Connect
) -> None:
    """Also where weights are committed, which the chain would take and then drop unseen at the reveal."""
    who = {"owner": [lab.owner], "validator": lab.validators, "rich": lab.rich}
    for changes in ({}, {"commit_reveal": True}):
        node = ChainThread(genesis_of(who, weights_version_key=11, weights_rate_limit=0, **changes))
        old = connect(node.url, lab.validators[0], version_key=10)
        with pytest.raises(UpdateNeeded, match="version 11 or later .* makes version 10; update it") as caught:
            await old.set_weights({2: 1.0})
        assert caught.value.name == "IncorrectWeightVersionKey" and caught.value.exit_code == 2
        assert await old.weights() == {} and await old.pending_weights() == ()
        new = connect(node.url, lab.validators[1], version_key=11)
        done = await new.set_weights({2: 1.0})
        assert (done.reveal_round is not None) == bool(changes)
        pending = await new.pending_weights()
        assert [each.reveal_round for each in pending] == ([done.reveal_round] if changes else [])
        assert all(each.block == done.block and each.reveal_time_s > time.time() - 10 for each in pending)
        assert await old.pending_weights() == () and await old.pending_weights(everybody=True) == pending
        assert {each.hotkey for each in pending} <= {new.hotkey}
        for chain in (old, new):
            await chain.close()
        await asyncio.to_thread(node.stop)


async def test_without_a_permit_nothing_is_sent(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.rich[6])
    await chain.register()
    start = await chain.block()
    with pytest.raises(NotPermitted, match=r"permit .* found none; stake more on it and wait for an epoch \(the next"):
        await chain.set_weights({1: 1.0})
    assert await submissions(chain, "set_mechanism_weights", start) == []


@pytest.mark.parametrize("commit_reveal", [False, True])
async def test_too_little_stake_is_said_before_weights_are_sent(
    lab: Lab, connect: Connect, commit_reveal: bool
) -> None:
    """A commitment takes no look at the stake; its reveal would then fail unseen."""
    who = {"owner": [lab.owner], "validator": lab.validators, "rich": lab.rich}
    for tao, refused in ((10**6, True), (1.0, False)):
        rules = {"stake_threshold_tao": float(tao), "weights_rate_limit": 0, "commit_reveal": commit_reveal}
        node = ChainThread(genesis_of(who, **rules))
        chain = connect(node.url, lab.validators[0])
        if refused:
            with pytest.raises(NotPermitted, match=r"a stake of at least 1000000 on .*found \d.*btcli stake add"):
                await chain.set_weights({2: 1.0})
            assert await chain.pending_weights() == ()
        else:
            assert ((await chain.set_weights({2: 1.0})).reveal_round is not None) == commit_reveal
        await chain.close()
        await asyncio.to_thread(node.stop)


async def test_a_subnet_that_grows_while_it_is_read_is_read_at_one_block(lab: Lab, connect: Connect) -> None:
    reader = connect(lab.node.url, lab.validators[0])
    before = len((await reader.view()).neurons)
    newcomers = [connect(lab.node.url, wallet) for wallet in lab.rich[7:11]]
    growing = asyncio.gather(*(chain.register() for chain in newcomers))
    views = []
    while not growing.done():
        views.append(await reader.view())
    uids = await growing
    assert len(set(uids)) == 4 and len((await reader.view()).neurons) == before + 4
    for view in views:
        assert [neuron.uid for neuron in view.neurons] == list(range(len(view.neurons)))
        assert all(neuron.registered_at <= view.block for neuron in view.neurons)
        assert await reader.view(view.block) == view


async def test_a_chain_whose_clock_is_off_shows_it_in_the_age_of_its_views(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.validators[0])
    for off_s in (-60, 60):
        begun_s = time.time()
        lab.ask("dev_setClock", off_s)
        lab.ask("dev_step", LAG_BLOCKS + 1)
        view, now_s = await chain.view(), time.time()
        assert begun_s - 0.1 <= view.time_s - off_s <= now_s + 0.1
        assert view.age_s(now_s) == (0.0 if off_s > 0 else now_s - view.time_s)
    lab.ask("dev_setClock", 0)
    lab.ask("dev_step", LAG_BLOCKS + 1)


async def test_a_chain_that_halts_for_a_hundred_blocks_loses_nothing(lab: Lab, connect: Connect) -> None:
    """What was sent meanwhile, a second time too when nothing was heard of the first, is on the chain once."""
    chain = connect(lab.node.url, lab.validators[2], patience=HASTY)
    lab.ask("dev_pause")
    before = await chain.view()
    setting = asyncio.create_task(chain.set_weights({4: 1.0}))
    waiting = asyncio.create_task(chain.wait_for_block(before.block + LAG_BLOCKS + 5))
    await asyncio.sleep(100 * BLOCK_S)
    while len(lab.ask("author_pendingExtrinsics")) < 2:  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
    halted = await chain.view()
    assert halted == before and halted.age_s(time.time()) > 90 * BLOCK_S
    assert not waiting.done()
    lab.ask("dev_resume")
    assert await waiting > before.block
    await asyncio.wait([setting])
    if setting.exception() is not None:  # it was given up while nothing moved; the next one is not refused
        assert isinstance(setting.exception(), ChainUnreachable)
    lab.ask("dev_step", LAG_BLOCKS)
    assert (await chain.weights())[3] == {4: 1.0}
    assert len(await submissions(chain, "set_mechanism_weights", before.block)) == 1


@pytest.mark.parametrize("keep", [True, False], ids=["its extrinsic waits again", "its extrinsic is gone"])
async def test_a_fork_of_two_blocks_changes_no_final_view_and_sends_nothing_twice(
    keep: bool, lab: Lab, connect: Connect
) -> None:
    chain = connect(lab.node.url, lab.validators[3 + keep], patience=HASTY)
    view = await chain.view()
    lab.ask("dev_pause")
    setting = asyncio.create_task(chain.set_weights({5: 1.0}))
    while not lab.ask("author_pendingExtrinsics"):
        await asyncio.sleep(0.01)
    head = lab.ask("dev_step", 2)
    assert lab.ask("dev_fork", 2, keep) == head - 2
    lab.ask("dev_resume")
    done = await setting
    assert await chain.view(view.block) == view
    assert await chain.block_hash(view.block) == view.block_hash
    assert (await chain.weights())[4 + keep] == {5: 1.0}
    assert len(await submissions(chain, "set_mechanism_weights", view.block)) == 1
    assert done.block is None or (await submissions(chain, "set_mechanism_weights", done.block))


async def test_reads_go_on_across_forks_of_blocks_that_are_not_final(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.validators[5], patience=PROMPT)
    lab.ask("dev_pause")
    for _ in range(4):
        lab.ask("dev_step", 4)
        seen = await chain.view()
        lab.ask("dev_fork", 2)
        again = await chain.view(seen.block)
        assert again == seen and again.block_hash == await chain.block_hash(seen.block)
    lab.ask("dev_resume")
    await chain.set_weights({6: 1.0})
    assert (await chain.weights())[6] == {6: 1.0}
