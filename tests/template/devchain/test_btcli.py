"""`btcli -n local` against the dev chain, end to end: one test per command that a subnet's people type.

One process imports and builds the command line once and runs it again and
again, each time as `btcli ARGUMENTS` would.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bittensor as bt
import pytest
from bittensor import Wallet
from bittensor.sp_core import Keypair

from template.devchain.blocks import blake2_256
from template.devchain.metadata import load_runtime

pytestmark = pytest.mark.flow

DRIVER = """
import contextlib, functools, io, json, sys
import typer.main
from bittensor.cli.main import main
typer.main.get_command = functools.cache(typer.main.get_command)
for line in sys.stdin:
    sys.argv = ["btcli", *json.loads(line)]
    text, code = io.StringIO(), 0
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    print(json.dumps([code, text.getvalue()]), file=sys.__stdout__, flush=True)
"""
VALIDATOR = Keypair.create_from_uri("//validator0//hot").ss58_address
OTHER = Keypair.create_from_uri("//validator1//hot").ss58_address

Btcli = Callable[..., Any]


def put_wallet(folder: Path, name: str, coldkey: str, hotkey: str) -> None:
    """Write development keys where btcli looks for wallets."""
    wallet = Wallet(name=name, hotkey="h1", path=str(folder))
    wallet.coldkey_file.set_keypair(Keypair.create_from_uri(coldkey), encrypt=False, overwrite=True)
    wallet.coldkeypub_file.set_keypair(Keypair.create_from_uri(coldkey), encrypt=False, overwrite=True)
    wallet.hotkey_file.set_keypair(Keypair.create_from_uri(hotkey), encrypt=False, overwrite=True)


@pytest.fixture(scope="module")
def lab(sdk_home: Path, start_chain: Any, genesis_for: Any) -> Iterator[Any]:
    """A chain of its own, with commit-reveal off, that starts subnets at once."""
    genesis = genesis_for(block_time_s=0.1, weights_rate_limit=0, start_call_delay=0, tempo=200)
    with start_chain(genesis, dev_controls=True) as running:
        yield running


@pytest.fixture(scope="module")
def btcli(lab: Any, sdk_home: Path) -> Iterator[Btcli]:
    """Run a command; gives its JSON, or its text where there is no JSON. A failure is an assertion with its output."""
    folder = sdk_home / "wallets"
    put_wallet(folder, "rich", "//Rich", "//Rich//cli")
    put_wallet(folder, "owner", "//Owner", "//Owner//hot")
    put_wallet(folder, "vali", "//validator0", "//validator0//hot")
    environment = {**os.environ, "BT_CHAIN_ENDPOINT": lab.url, "NO_COLOR": "1", "COLUMNS": "160"}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )

    def run(command: str, *, wallet: str = "rich", code: int = 0) -> Any:
        common = ["-n", "local", "-w", wallet, "-H", "h1", "--wallet-path", str(folder), "--json"]
        assert driver.stdin is not None and driver.stdout is not None
        driver.stdin.write(json.dumps([*command.split(), *common]) + "\n")
        driver.stdin.flush()
        found, text = json.loads(driver.stdout.readline())
        assert found == code, text
        with contextlib.suppress(ValueError):
            return json.loads(text)
        return text

    yield run
    driver.communicate(timeout=20)


def test_wallet_create(btcli: Btcli, sdk_home: Path) -> None:
    btcli("wallet create --no-password", wallet="made")
    assert (sdk_home / "wallets/made/hotkeys/h1").exists()


def test_wallet_balance(btcli: Btcli) -> None:
    assert "10,000" in str(btcli("wallet balance")) or "10000" in str(btcli("wallet balance"))


def test_subnets_list_show_and_price(btcli: Btcli) -> None:
    assert "strata" in str(btcli("subnets list"))
    assert "strata" in str(btcli("subnets show 1"))
    assert "1.0" in str(btcli("subnets price --netuid 1"))


def test_subnets_metagraph_and_hyperparameters(btcli: Btcli) -> None:
    assert VALIDATOR in str(btcli("subnets metagraph 1"))
    assert "weights_rate_limit" in str(btcli("subnets hyperparameters 1"))


def test_subnets_register_is_shielded(btcli: Btcli) -> None:
    assert btcli("subnets register --netuid 1 -y")["success"]
    hotkey = Keypair.create_from_uri("//Rich//cli").ss58_address
    assert hotkey in str(btcli("query neurons --netuid 1"))
    assert btcli(f"query uid --hotkey {hotkey} --netuid 1") == 3


def test_a_second_registration_fails_with_its_reason(btcli: Btcli) -> None:
    assert "HotKeyAlreadyRegisteredInSubNet" in str(btcli("subnets register --netuid 1 -y", code=1))


def test_axon_set(btcli: Btcli) -> None:
    assert btcli("axon set --netuid 1 --ip 203.0.113.7 --port 8091 -y")["success"]
    axons = btcli("subnets metagraph 1")["axons"]
    assert [(axon["ip"], axon["port"]) for axon in axons if axon["port"]] == [(0xCB007107, 8091)]


def test_stake_add_shielded_and_plain_list_and_remove(btcli: Btcli) -> None:
    assert btcli(f"stake add --netuid 1 --amount-tao 5 --hotkey {VALIDATOR} -y")["success"]
    assert btcli(f"stake add --netuid 1 --amount-tao 5 --hotkey {VALIDATOR} --no-mev-shield -y")["success"]
    assert VALIDATOR in str(btcli("stake list"))
    assert btcli(f"stake remove --netuid 1 --amount-alpha 3 --hotkey {VALIDATOR} -y")["success"]


def test_wallet_overview(btcli: Btcli) -> None:
    """What the coldkey has free, and what it has staked by now."""
    (row,) = btcli("wallet overview")
    assert row["coldkey"] == Keypair.create_from_uri("//Rich").ss58_address
    assert 9_980 < row["free_tao"] < 9_999
    assert [(each["hotkey"], each["netuid"]) for each in row["stakes"]] == [(VALIDATOR, 1)]
    assert row["stake_value_tao"] == pytest.approx(7.0, abs=1.0)


def test_wallet_transfer(btcli: Btcli) -> None:
    target = Keypair.create_from_uri("//cli target").ss58_address
    assert btcli(f"wallet transfer --dest {target} --amount-tao 1.5 -y")["success"]
    assert "1.5" in str(btcli(f"query balance --coldkey {target}"))


def test_stake_move(btcli: Btcli) -> None:
    ends = f"--origin-hotkey {VALIDATOR} --dest-hotkey {OTHER} --origin-netuid 1 --dest-netuid 1"
    assert btcli(f"stake move {ends} --amount-alpha 1 -y")["success"]
    assert OTHER in str(btcli("stake list"))


def test_subnets_create_and_sudo_start(btcli: Btcli) -> None:
    assert btcli("subnets create -y")["success"]
    assert [subnet["netuid"] for subnet in btcli("query subnets")] == [0, 1, 2]
    assert btcli("sudo start --netuid 2 -y")["success"]
    assert "FirstEmissionBlockNumberAlreadySet" in str(btcli("sudo start --netuid 2 -y", code=1))


def test_sudo_set(btcli: Btcli) -> None:
    assert btcli("sudo set --netuid 1 --name immunity_period --value 99 -y", wallet="owner")["success"]
    assert btcli("query immunity-period --netuid 1") == 99


def test_weights_set(btcli: Btcli) -> None:
    assert btcli("weights set --netuid 1 --uids 0,2 --weights 0.5,0.5 -y", wallet="vali")["success"]
    assert "1" in btcli("query weights --netuid 1")


def test_weights_commit_and_reveal(btcli: Btcli) -> None:
    """Timelocked commits open by themselves; a reveal by hand needs a commit by hash, so here it is refused by name."""
    owner = "sudo set --netuid 1 --name commit_reveal_weights_enabled --value {} -y"
    assert btcli(owner.format("true"), wallet="owner")["success"]
    assert btcli("weights commit --netuid 1 --uids 0,2 --weights 0.5,0.5 -y", wallet="vali")["success"]
    assert VALIDATOR in str(btcli("query timelocked-weight-commits --netuid 1"))
    reveal = "weights reveal --netuid 1 --uids 0 --weights 1.0 --salt 1,2,3 -y"
    assert "NoWeightsCommitFound" in str(btcli(reveal, wallet="vali", code=1))
    assert btcli(owner.format("false"), wallet="owner")["success"]


def test_weights_committed_by_hash_are_revealed(btcli: Btcli, lab: Any, connect: Any, rpc: Any) -> None:
    """btcli has no command that commits by hash any more, so the SDK does; the reveal is btcli's own."""
    owner = "sudo set --netuid 1 --name commit_reveal_weights_enabled --value {} -y"
    reveal = "weights reveal --netuid 1 --uids 0,2 --weights 0.5,0.5 --salt 7,8 -y"
    assert btcli(owner.format("true"), wallet="owner")["success"]
    codec = load_runtime(lab.genesis.block_time_s).codec
    parts = [("AccountId", VALIDATOR), ("u16", 1), ("Vec<u16>", [0, 2]), ("Vec<u16>", [65535, 65535])]
    data = b"".join(bytes(codec.encode(kind, value)) for kind, value in [*parts, ("Vec<u16>", [7, 8]), ("u64", 0)])
    commit = bt.calls.SubtensorModule.commit_weights(netuid=1, commit_hash="0x" + blake2_256(data).hex())
    key = Keypair.create_from_uri("//validator0//hot")
    with connect(lab.url) as sub:
        assert sub.submit_call(commit, key, signer="hotkey").success
        first = btcli("query next-epoch-start-block --netuid 1")
        assert "RevealTooEarly" in str(btcli(reveal, wallet="vali", code=1))
        rpc(lab.url, "dev_step", first - sub.block)
        assert btcli(reveal, wallet="vali")["success"]
        assert sub.weights.weights(1)[1] == {0: 0.5, 2: 0.5}
    assert btcli(owner.format("false"), wallet="owner")["success"]


def test_queries(btcli: Btcli) -> None:
    assert btcli("query block-time") == 0.1
    assert btcli("query next-epoch-start-block --netuid 1") > 0
    assert "tempo" in str(btcli("query subnet-hyperparameters --netuid 1"))
    assert VALIDATOR in str(btcli("query metagraph --netuid 1"))
    assert btcli(f"query commitment --netuid 1 --hotkey {VALIDATOR}") is None
    assert VALIDATOR in str(btcli("query delegates"))
