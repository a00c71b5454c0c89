"""A node's whole way to its chain when that fails: a process that starts first, a seat that changes hands meanwhile."""

import asyncio
import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from subnet.canonical import parse
from subnet.cli.ledger import read_ledger
from subnet.config import RunConfig
from subnet.ledger.events import Begin
from subnet.nodes.readiness import Readiness
from subnet.nodes.weighing import Weighing
from template.devchain.genesis import Genesis, GenesisValidator, genesis_to_dict
from template.errors import ChainUnreachable
from template.sdk import SdkChain, create_wallet
from template.values import ChainView
from tests.flow.conftest import LONGEST_S, Machine
from tests.template.conftest import ChainThread
from tests.template.faulty import PROMPT
from tests.template.proxy import proxy_to

pytestmark = pytest.mark.flow

BLOCK_S = 0.05
TEMPO = 20
TURN = 60  # pieces of what a client sends: enough for a connection's begin and a look at a block


def genesis_of(folder: Path, **changes: object) -> Genesis:
    """A subnet of an owner and one validator, and two people with coins; wallets lie in the folder."""
    who = {name: create_wallet(name, "default", folder) for name in ("owner", "validator", "ann", "eve")}
    cold = {name: wallet.coldkeypub.ss58_address for name, wallet in who.items()}
    values: dict[str, object] = {
        "owner_coldkey": cold["owner"],
        "owner_hotkey": who["owner"].hotkey.ss58_address,
        "sudo": cold["owner"],
        "validators": (GenesisValidator(hotkey=who["validator"].hotkey.ss58_address, coldkey=cold["validator"]),),
        "funds_tao": ((cold["ann"], 100.0), (cold["eve"], 100.0)),
        "tempo": TEMPO,
        "weights_rate_limit": 2,
        "block_time_s": BLOCK_S,
    }
    return Genesis(**values | changes)  # type: ignore[arg-type]


def test_a_miner_that_starts_before_its_chain_goes_on_when_that_is_up(machine: Machine, reserved: int) -> None:
    """In the meantime one line says what it waits for; then it finds that it is not registered, as it should."""
    wallets, port = machine.folder / "wallets", str(reserved)
    file = machine.folder / "genesis.json"
    file.write_text(json.dumps(genesis_to_dict(genesis_of(wallets))))
    place = ["--network", f"ws://127.0.0.1:{port}", "--wallet-path", str(wallets), "--wallet", "ann"]
    miner = machine.start("miner", *place, "--data-dir", str(machine.folder / "data"))
    miner.until("waiting for=chain endpoint=")
    chain = machine.start("chain", "--genesis", str(file), "--port", port)
    assert miner.process.wait(LONGEST_S) == 2
    assert "chain=back endpoint=" in miner.err and miner.err.count("waiting for=chain") == 1
    assert re.search(r"found it unregistered; run strata register .*--wallet ann", miner.err)
    assert "Traceback" not in miner.err
    chain.process.terminate()
    assert chain.process.wait(LONGEST_S) == 0


async def live(chain: SdkChain, weighing: Weighing, until: str) -> None:
    """Look at every block, as a validator does, until the weights are in this state, or a uid is inherited."""
    block = await chain.block()
    for _ in range(6 * TEMPO):
        try:
            block = await chain.wait_for_block(block + 1)
            await weighing.look(await chain.view())
        except ChainUnreachable:
            continue
        if weighing.state == until or (until == "inherited" and weighing.inherited):
            return
    raise AssertionError(f"no {until} within six tempos, but {weighing.state}: {weighing.message}")


@pytest.mark.parametrize("commit_reveal", [False, True], ids=["weights in the open", "weights committed"])
async def test_a_uid_that_changes_hands_is_noticed_shown_and_never_paid_for_another_s_work(
    commit_reveal: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ann's seat goes to Eve after Ann was given weight, over a connection that is cut every few looks."""
    node = ChainThread(genesis_of(tmp_path, max_uids=3, commit_reveal=commit_reveal))
    wallets = {name: create_wallet(name, "default", tmp_path) for name in ("validator", "ann", "eve")}
    ann, eve = (wallets[name].hotkey.ss58_address for name in ("ann", "eve"))

    def scores(view: ChainView) -> dict[int, float]:
        return {neuron.uid: 1.0 for neuron in view.neurons if neuron.hotkey == ann}

    async with proxy_to(node.port) as proxy:
        chain = SdkChain(proxy.url, 1, wallets["validator"], patience=PROMPT)
        others = [SdkChain(node.url, 1, wallets[name]) for name in ("ann", "eve")]
        proxy.cut_after = TURN
        assert await others[0].register() == 2
        registered = await others[0].block()
        while (await others[0].view()).last_epoch_block <= registered:
            await asyncio.sleep(BLOCK_S)  # after an epoch without weights only validators have emission: Ann is next
        weighing = Weighing(chain, scores)
        await live(chain, weighing, "committed" if commit_reveal else "set")
        assert weighing.weights == {2: 1.0}
        pending = weighing.pending
        assert [each.block for each in pending] == ([weighing.block] if commit_reveal else [])
        assert await others[1].register() == 2
        await live(chain, weighing, "inherited")
        assert weighing.inherited == {2: eve}
        assert f"weights=inherited uid=2 from={ann} by={eve}; the next submission corrects it" in caplog.messages
        assert await others[1].weights() == {}
        await live(chain, weighing, "no-scores")
        view = await others[1].view()
        taker = view.neuron(eve)
        assert taker is not None and taker.incentive_u16 == 0
        for each in (chain, *others):
            await each.close()
    await asyncio.to_thread(node.stop)


def test_a_run_is_made_for_the_blocks_of_its_chain(machine: Machine) -> None:
    """Also where a node of a slow chain is at an address of this machine: no segment is payable before its draw."""
    wallets, file = machine.folder / "wallets", machine.folder / "genesis.json"
    file.write_text(json.dumps(genesis_to_dict(genesis_of(wallets, block_time_s=12.0))))
    chain = machine.start("chain", "--genesis", str(file), "--port", "0")
    while (found := re.search(r"ws://[0-9.:]+", chain.out)) is None:
        assert chain.process.poll() is None, chain.err
    text = machine.folder / "text"
    text.mkdir()
    (text / "a.txt").write_text("The quick brown fox jumps over the lazy dog. " * 1000)
    ledger = machine.folder / "ledger.sqlite"
    words = ["--network", found.group(), "--wallet-path", str(wallets), "--wallet", "owner", "--model", "nano"]
    place = ["--data-dir", str(machine.folder / "data"), "--data", str(text), "--ledger", f"sqlite:///{ledger}"]
    orchestrator = machine.start("orchestrator", *words, *place, "--host", "127.0.0.1", "--port", "0")
    orchestrator.until("kind=roster")
    begun = read_ledger(str(ledger))[0].body
    assert isinstance(begun, Begin)
    assert parse(begun.config.encode(), RunConfig).pay.audit_window_s == 192.0, "20 s would be a second's blocks"
    for command in (orchestrator, chain):
        command.process.terminate()
        assert command.process.wait(LONGEST_S) in (0, 75)


async def test_a_node_that_answers_503_for_long_also_to_every_reconnect_stops_no_loop(tmp_path: Path) -> None:
    """A loop over blocks, as every role has: it ends on nothing, and its readiness tells how long nothing came."""
    node = ChainThread(genesis_of(tmp_path))
    clock_s = 1000.0
    readiness = Readiness(clock=lambda: clock_s)
    seen: list[int] = []
    async with proxy_to(node.port) as proxy:
        hasty = replace(PROMPT, outage_s=0.5)
        chain = SdkChain(proxy.url, 1, create_wallet("ann2", "default", tmp_path), patience=hasty)

        async def loop() -> None:
            block = 0
            while True:
                with contextlib.suppress(ChainUnreachable):
                    block = await chain.wait_for_block(block + 1)
                    await chain.view(block)
                    readiness.went_well("a finalised block of the chain")
                    seen.append(block)

        async def until(count: int) -> None:
            while len(seen) < count:
                assert not running.done()
                await asyncio.sleep(BLOCK_S)

        running = asyncio.create_task(loop())
        await until(5)
        assert readiness.faults() == []
        proxy.refusing = True
        proxy.cut()
        before, tries = len(seen) + 1, proxy.connections + 4  # one block may be under way
        while proxy.connections < tries:
            assert not running.done(), running.exception()
            await asyncio.sleep(BLOCK_S)
        clock_s += 121.0
        assert len(seen) <= before
        assert readiness.faults() == ["expected a finalised block of the chain within 120 s, found none for 121 s"]
        proxy.refusing = False
        await until(before + 5)
        assert readiness.faults() == [] and proxy.open == 1
        running.cancel()
        await asyncio.wait([running])
        await chain.close()
    node.stop()
