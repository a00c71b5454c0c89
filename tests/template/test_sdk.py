"""The SDK behind our protocols when things go wrong: dead nodes, cut connections, stale nonces, bad wallets."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from template.errors import ChainUnreachable, NetworkError, SubnetNotFound, WalletError
from template.sdk import HotkeySigner, SdkChain, create_wallet, load_wallet
from tests.ports import reserved_port
from tests.template.conftest import ChainThread, DevSubnet
from tests.template.faulty import HASTY, PROMPT
from tests.template.proxy import Proxy, proxy_to


@pytest.fixture
async def proxy(dev_chain: ChainThread) -> AsyncIterator[Proxy]:
    async with proxy_to(dev_chain.port) as proxy:
        yield proxy


@pytest.mark.flow
async def test_a_wait_for_a_block_survives_cut_connections(dev_subnet: DevSubnet, proxy: Proxy) -> None:
    chain = dev_subnet.connect("newcomer", proxy.url, patience=PROMPT)
    start = await chain.block()
    waiting = asyncio.create_task(chain.wait_for_block(start + 12))
    for _ in range(4):
        proxy.cut()
        await asyncio.sleep(0.2)
    assert await waiting >= start + 12
    assert proxy.connections > 1


@pytest.mark.flow
async def test_reads_survive_cut_connections(dev_subnet: DevSubnet, proxy: Proxy) -> None:
    chain = dev_subnet.connect("newcomer", proxy.url, patience=PROMPT)
    for _ in range(5):
        proxy.cut()
        assert (await chain.view()).netuid == 1


@pytest.mark.flow
async def test_a_write_whose_fate_is_unknown_is_looked_up_and_not_sent_twice(
    dev_subnet: DevSubnet, proxy: Proxy
) -> None:
    chain = dev_subnet.connect("newcomer", proxy.url, patience=PROMPT)
    await chain.register()
    start = await chain.block()
    proxy.cut_on = b"author_submitAndWatchExtrinsic"
    await chain.commit(b"once")
    assert proxy.cut_on is None, "the connection was cut in the middle of the submission"
    record = await chain.read_commit(chain.hotkey)
    assert record is not None and record.data == b"once"
    found = [
        (block, index)
        for block in range(start, await chain.block() + 1)
        for index in range(4)
        if (seen := await chain.commit_at(block, index)) and seen.hotkey == chain.hotkey
    ]
    assert found == [(record.block, record.extrinsic_index)]


@pytest.mark.flow
async def test_a_silent_node_costs_the_deadline(dev_subnet: DevSubnet, proxy: Proxy) -> None:
    chain = dev_subnet.connect("newcomer", proxy.url, patience=HASTY)
    await chain.block()
    proxy.silent = True
    with pytest.raises(ChainUnreachable, match="name another node as a fallback"):
        await chain.block()
    proxy.silent = False
    assert await chain.block() > 0


@pytest.mark.flow
async def test_a_node_that_restarts_is_found_again(dev_subnet: DevSubnet, make_genesis: Callable[..., object]) -> None:
    with reserved_port() as port:
        node = ChainThread(make_genesis(), port)
        chain = dev_subnet.connect("newcomer", node.url, patience=PROMPT)
        assert await chain.block() >= 0
        await asyncio.to_thread(node.stop)
        with pytest.raises(ChainUnreachable, match="check the address"):
            await chain.block()
        waiting = asyncio.create_task(chain.wait_for_block(3))
        again = await asyncio.to_thread(ChainThread, make_genesis(), port)
        assert await waiting >= 3
        await chain.close()
        await asyncio.to_thread(again.stop)


async def test_a_stale_nonce_is_got_over(dev_subnet: DevSubnet, dev_people: dict[str, list[object]]) -> None:
    """Two clients of one key outdate each other's memory of its nonce, as a shielded transaction does to its own."""
    first = dev_subnet.newcomer()
    second = SdkChain(dev_subnet.url, 1, first._wallet)
    dev_subnet.open.append(second)
    await first.register()
    for number in range(3):
        for chain in (first, second):
            data = f"{number} {id(chain)}".encode()
            await chain.commit(data)
            assert (await chain.read_commit(first.hotkey)).data == data


async def test_writes_asked_for_at_once_all_land(dev_subnet: DevSubnet) -> None:
    chain = dev_subnet.newcomer()
    await chain.register()
    landed = await asyncio.gather(*(chain.commit(f"{number}".encode()) for number in range(4)))
    assert len({(each.block, each.extrinsic_index) for each in landed}) == 4


async def test_a_fallback_endpoint_takes_over(dev_subnet: DevSubnet) -> None:
    chain = dev_subnet.connect("newcomer", "ws://127.0.0.1:9", fallback_endpoints=[dev_subnet.url])
    assert (await chain.view()).netuid == 1


async def test_an_unreachable_node_is_one_sentence(dev_subnet: DevSubnet) -> None:
    chain = dev_subnet.connect("newcomer", "ws://127.0.0.1:9", patience=PROMPT)
    with pytest.raises(ChainUnreachable, match=r"ws://127.0.0.1:9.*fallback") as caught:
        await chain.block()
    assert caught.value.exit_code == 75


async def test_a_subnet_that_does_not_exist_is_named(dev_subnet: DevSubnet) -> None:
    chain = SdkChain(dev_subnet.url, 77, dev_subnet.wallets["newcomer"][-1])
    dev_subnet.open.append(chain)
    with pytest.raises(SubnetNotFound, match=r"subnet 77.*--netuid"):
        await chain.view()


async def test_a_closed_chain_says_so(dev_subnet: DevSubnet) -> None:
    chain = dev_subnet.newcomer()
    await chain.block()
    await chain.close()
    with pytest.raises(ChainUnreachable, match="closed"):
        await chain.block()


async def test_an_unknown_network_is_refused_before_anything_is_dialled(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="finney, test, local"):
        SdkChain("mainnet", 1, create_wallet("w", "h", tmp_path))


def test_a_wallet_that_was_made_can_be_loaded(tmp_path: Path) -> None:
    made = create_wallet("alice", "miner", tmp_path)
    assert load_wallet("alice", "miner", str(tmp_path)).hotkey.ss58_address == made.hotkey.ss58_address
    assert create_wallet("alice", "miner", tmp_path).hotkey.ss58_address == made.hotkey.ss58_address


def test_a_hotkey_is_loaded_by_its_address_and_without_its_coldkey(tmp_path: Path) -> None:
    """A miner's machine has the hotkey alone."""
    create_wallet("alice", "first", tmp_path)
    made = create_wallet("alice", "miner", tmp_path)
    for file in (tmp_path / "alice").glob("coldkey*"):
        file.unlink()
    wallet = load_wallet("alice", made.hotkey.ss58_address, str(tmp_path))
    assert wallet.hotkey.ss58_address == made.hotkey.ss58_address
    assert len(HotkeySigner(wallet).sign(b"receipt")) == 64


@pytest.mark.parametrize("content", [b"", b"{", b'{"privateKey": "zz"}', b"\xff\xfe", b"[]"])
def test_a_corrupt_hotkey_is_named_with_the_way_to_restore_it(tmp_path: Path, content: bytes) -> None:
    create_wallet("alice", "miner", tmp_path)
    file = tmp_path / "alice" / "hotkeys" / "miner"
    file.write_bytes(content)
    with pytest.raises(WalletError, match="btcli wallet regen-hotkey") as caught:
        load_wallet("alice", "miner", str(tmp_path))
    assert str(file) in str(caught.value) and caught.value.exit_code == 2


def test_an_encrypted_hotkey_is_refused_without_asking(tmp_path: Path) -> None:
    wallet = create_wallet("alice", "miner", tmp_path)
    Path(wallet.hotkey_file.path).write_bytes(b"$NACL" + bytes(200))
    with pytest.raises(WalletError, match="BT_PW_"):
        load_wallet("alice", "miner", str(tmp_path))


async def test_a_locked_coldkey_is_refused_without_a_terminal(dev_subnet: DevSubnet, tmp_path: Path) -> None:
    wallet = create_wallet("alice", "miner", tmp_path)
    Path(wallet.coldkey_file.path).write_bytes(b"$NACL" + bytes(200))
    chain = SdkChain(dev_subnet.url, 1, load_wallet("alice", "miner", str(tmp_path)))
    dev_subnet.open.append(chain)
    assert not sys.stdin.isatty()
    with pytest.raises(WalletError, match="no terminal to ask on; set BT_WALLET_PASSWORD or"):
        await chain.register()


def loaded_after(statement: str) -> set[str]:
    command = f"{statement}; import sys; sys.stdout.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, env=os.environ)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.flow
def test_the_sdk_file_imports_no_torch() -> None:
    assert "bittensor" in (loaded := loaded_after("import template.sdk")) and "torch" not in loaded


@pytest.mark.flow
def test_the_rest_of_the_base_imports_neither_the_sdk_nor_torch() -> None:
    names = "chain, auth, transport, web, web_client, config, neuron, wallets, session, sdk_errors, sdk_decode, nonces"
    loaded = loaded_after(f"from template import {names}; from template.fake import chain, keys, transport")
    assert loaded & {"bittensor", "bittensor_core", "torch", "numpy"} == set()
