"""The SDK behind our protocols while the chain, its node or the way to it fails: nothing is lost or done twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bittensor as bt
import pytest
from bittensor.sp_core import Keypair

from template.devchain.genesis import Genesis, GenesisValidator
from template.errors import (
    ChainRefused,
    ChainUnreachable,
    NotPermitted,
    RateLimited,
    SpendLimit,
    SubnetNotFound,
    UpdateNeeded,
)
from template.sdk import SdkChain, create_wallet
from template.session import Patience
from tests.template.conftest import ChainThread
from tests.template.proxy import Proxy, proxy_to

QUICK = Patience(connect_s=0.6, read_s=0.6, pause_s=0.02, outage_s=20.0)
BLOCK_S = 0.05
LAG_BLOCKS = 3
LIMIT_BLOCKS = 30
VALIDATORS = 8
RICH = 12


@dataclass(kw_only=True)
class Lab:
    """A chain that can be made to fail, with validators and rich people that each test takes for itself."""

    node: ChainThread
    validators: list[bt.Wallet]
    rich: list[bt.Wallet]
    owner: bt.Wallet
    folder: Path

    def ask(self, method: str, *params: object) -> object:
        """Use a test control."""
        return self.node.ask(method, *params)

    def heal(self) -> None:
        """End every fault."""
        for method, *params in (
            ("dev_setMute", False), ("dev_setDelay", 0), ("dev_setDrop", 0), ("dev_setClock", 0), ("dev_resume",),
        ):  # fmt: skip
            self.ask(method, *params)


def people(folder: Path) -> dict[str, list[bt.Wallet]]:
    """Wallets on disk, by what they are for."""
    counts = {"owner": 1, "validator": VALIDATORS, "rich": RICH}
    return {
        kind: [create_wallet(f"{kind}{n}", "default", folder) for n in range(count)] for kind, count in counts.items()
    }


def genesis_of(who: dict[str, list[bt.Wallet]], **changes: object) -> Genesis:
    """The subnet of these people: validators staked, rich people with coins."""
    owner = who["owner"][0]
    values: dict[str, object] = {
        "owner_coldkey": owner.coldkeypub.ss58_address,
        "owner_hotkey": owner.hotkey.ss58_address,
        "sudo": owner.coldkeypub.ss58_address,
        "validators": tuple(
            GenesisValidator(hotkey=each.hotkey.ss58_address, coldkey=each.coldkeypub.ss58_address)
            for each in who["validator"]
        ),
        "funds_tao": tuple((each.coldkeypub.ss58_address, 1000.0) for each in who["rich"]),
        "tempo": 1000,
        "weights_rate_limit": LIMIT_BLOCKS,
        "block_time_s": BLOCK_S,
        "finality_lag_blocks": LAG_BLOCKS,
    }
    return Genesis(**values | changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def chain_of_faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One chain for this file; its weights' rate limit is over when the first test begins."""
    folder = tmp_path_factory.mktemp("faults")
    who = people(folder)
    node = ChainThread(genesis_of(who), dev_controls=True)
    node.ask("dev_step", LIMIT_BLOCKS + LAG_BLOCKS)
    yield Lab(node=node, validators=who["validator"], rich=who["rich"], owner=who["owner"][0], folder=folder)
    node.stop()


@pytest.fixture
def lab(chain_of_faults: Lab) -> Iterator[Lab]:
    """That chain, healthy at the begin and at the end."""
    yield chain_of_faults
    chain_of_faults.heal()


@pytest.fixture
async def proxy(lab: Lab) -> AsyncIterator[Proxy]:
    """A way to the node that can be made worse."""
    async with proxy_to(lab.node.port) as proxy:
        yield proxy


Connect = Callable[..., SdkChain]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Open chain objects that are closed at the end."""
    opened: list[SdkChain] = []

    def connect(url: str, wallet: bt.Wallet, netuid: int = 1, **options: object) -> SdkChain:
        opened.append(SdkChain(url, netuid, wallet, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield connect
    for chain in opened:
        await chain.close()


async def submissions(chain: SdkChain, function: str, start: int) -> list[int]:
    """The blocks since `start` in which this hotkey called `function`, one entry for each time."""
    found = []
    for number in range(start, await chain.block() + 1):
        info = await chain._sessions.read("read a block", lambda session, n=number: session.client.block_info(n))
        for extrinsic in info.extrinsics:
            signer = extrinsic.get("address") if isinstance(extrinsic, dict) else None
            if signer == chain.hotkey and extrinsic["call"]["call_function"] == function:
                found.append(number)
    return found


# Endpoints


async def test_an_endpoint_that_is_down_at_the_start_is_waited_for_in_one_line(
    lab: Lab, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxy_to(lab.node.port) as proxy:
        proxy.refusing = True
        chain = connect(proxy.url, lab.rich[0], patience=QUICK)
        with caplog.at_level("INFO", "template.session"):
            waiting = asyncio.create_task(chain.wait_for_block(0))
            await asyncio.sleep(0.6)
            assert not waiting.done() and proxy.connections > 2
            proxy.refusing = False
            assert await waiting > 0
    said = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
    assert len(said) == 2 and "HTTP 503" in said[0] and "name another node as a fallback" in said[0]
    assert said[0].startswith("waiting for=chain") and said[1].startswith("chain=back")


async def test_with_an_endpoint_that_drops_everything_weights_are_set_and_sockets_stay_few(
    lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    """A connection lives for five blocks. Every view and the weights get through, and nothing is left open."""
    wallet = lab.validators[0]
    chain = connect(proxy.url, wallet, patience=QUICK)
    proxy.cut_after_s = 5 * BLOCK_S
    start = await chain.block()
    await chain.set_weights({1: 1.0, 2: 3.0})
    views = 0
    while proxy.connections < 8 or views < 50:
        assert (await chain.view()).neuron(chain.hotkey) is not None
        views += 1
    assert proxy.most_open <= 2
    proxy.cut_after_s = 0.0
    assert (await chain.weights())[1] == pytest.approx({1: 0.25, 2: 0.75}, abs=1e-4)
    assert len(await submissions(chain, "set_mechanism_weights", start)) == 1
    await chain.close()
    await asyncio.sleep(0.05)
    assert proxy.open == 0


@pytest.mark.parametrize("when", ["from the start", "in the middle"])
async def test_a_node_that_takes_connections_and_answers_nothing_gives_way_to_the_next(
    when: str, lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    chain = connect(proxy.url, lab.rich[0], patience=QUICK, fallback_endpoints=[lab.node.url])
    if when == "in the middle":
        assert await chain.block() > 0
    proxy.silent = True
    started_s = time.monotonic()
    assert (await chain.view()).netuid == 1
    assert time.monotonic() - started_s < 5.0
    assert (await chain.block_hash(1)).startswith("0x")
    assert proxy.connections == 1, "the silent node is not tried again while the other one answers"
    await chain.close()
    await asyncio.sleep(0.05)
    assert proxy.open == 0


async def test_a_node_that_stays_silent_is_named_and_its_connections_do_not_pile_up(
    lab: Lab, proxy: Proxy, connect: Connect
) -> None:
    chain = connect(proxy.url, lab.rich[0], patience=Patience(connect_s=0.1, read_s=0.1, close_s=0.1, pause_s=0.01))
    proxy.silent = True
    for _ in range(3):
        with pytest.raises(ChainUnreachable, match=r"within 0.1 s, found silence; .*name another node as a fallback"):
            await chain.view()
    await asyncio.sleep(0.3)
    assert proxy.connections == 9 and proxy.open <= 2


async def test_a_node_that_answers_slowly_is_waited_for_and_a_slower_one_named(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.rich[0], patience=Patience(read_s=5.0))
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
    chain = connect(proxy.url, lab.rich[0], patience=QUICK)
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
    chain = connect(node.url, lab.validators[0], patience=QUICK)
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


# Subnets


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


# Weights


async def test_a_rate_limit_says_how_many_blocks_to_wait_and_holds_no_longer(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.validators[1])
    await chain.set_weights({2: 1.0})
    with pytest.raises(RateLimited, match=r"rate limit is 30 blocks; wait \d+ blocks \(about \d+ s\)") as caught:
        await chain.set_weights({3: 1.0})
    wait = caught.value.blocks_to_wait
    assert wait is not None and 0 < wait <= LIMIT_BLOCKS
    lab.ask("dev_step", wait)
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
    lab.ask("dev_setClock", -60)
    lab.ask("dev_step", LAG_BLOCKS + 1)
    assert 55 < (await chain.view()).age_s(time.time()) < 75
    lab.ask("dev_setClock", 60)
    lab.ask("dev_step", LAG_BLOCKS + 1)
    assert 45 < (await chain.view()).time_s - time.time() <= 60
    lab.ask("dev_setClock", 0)
    lab.ask("dev_step", LAG_BLOCKS + 1)


# Halts and forks


async def test_a_chain_that_halts_for_a_hundred_blocks_loses_nothing(lab: Lab, connect: Connect) -> None:
    chain = connect(lab.node.url, lab.validators[2], patience=QUICK)
    before = await chain.view()
    lab.ask("dev_pause")
    setting = asyncio.create_task(chain.set_weights({4: 1.0}))
    waiting = asyncio.create_task(chain.wait_for_block(before.block + LAG_BLOCKS + 5))
    await asyncio.sleep(100 * BLOCK_S)
    halted = await chain.view()
    assert halted.block <= before.block + LAG_BLOCKS and halted.age_s(time.time()) > 90 * BLOCK_S
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
    chain = connect(lab.node.url, lab.validators[3 + keep], patience=QUICK)
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
    chain = connect(lab.node.url, lab.validators[5], patience=QUICK)
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
