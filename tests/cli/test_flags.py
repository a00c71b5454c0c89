"""Laws of the older flags: guides and scripts of the network keep working with neurons/*.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from subnet.cli.flags import translated
from template.errors import UsageError


def test_the_flags_that_subnet_people_type_are_understood():
    typed = (
        "--netuid 3 --subtensor.network local --wallet.name alice --wallet.hotkey h1 --wallet.path /w --axon.port 8091 "
        "--axon.external_ip 203.0.113.7 --axon.external_port 9000 --neuron.device cuda:1 --logging.debug"
    )
    meant = (
        "--netuid 3 --network local --wallet alice --hotkey h1 --wallet-path /w --port 8091 "
        "--external-ip 203.0.113.7 --external-port 9000 --device cuda:1 --debug"
    )
    assert translated("miner", typed.split()) == meant.split()


def test_a_value_may_follow_an_equals_sign():
    assert translated("miner", ["--wallet.name=a=b", "--netuid=7"]) == ["--wallet", "a=b", "--netuid", "7"]


@pytest.mark.parametrize(
    "typed",
    [
        "--subtensor.network finney --subtensor.chain_endpoint ws://x:1",
        "--subtensor.chain_endpoint=ws://x:1 --subtensor.network finney",
    ],
)
def test_an_endpoint_wins_over_a_network_s_name(typed: str):
    assert translated("validator", typed.split()) == ["--network", "ws://x:1"]


def test_flags_of_strata_pass_as_they_are():
    typed = ["--data-dir", "/d", "-n", "local", "--stage", "2", "--help"]
    assert translated("miner", typed) == typed


@pytest.mark.parametrize(
    ("role", "flag"), [("orchestrator", "--neuron.device=cuda"), ("validator", "--axon.external_ip=203.0.113.7")]
)
def test_a_flag_that_means_nothing_to_a_role_is_taken_and_left_out(role: str, flag: str):
    assert translated(role, [flag, "--netuid", "1"]) == ["--netuid", "1"]


def test_an_unknown_dotted_flag_is_refused_by_name():
    with pytest.raises(UsageError, match=r"found --neuron\.epoch_length; leave it out"):
        translated("miner", ["--neuron.epoch_length", "100"])


def test_a_missing_value_is_said():
    with pytest.raises(UsageError, match=r"expected a value after --wallet\.name, found nothing"):
        translated("miner", ["--wallet.name"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--run http://x:1", "--run http://x:1 --web 8090"),
        ("--run http://x:1 --axon.port 9 --wallet.name a --netuid 2", "--run http://x:1 --web 9"),
        ("--ledger f --logging.debug --web 7", "--ledger f --web 7"),
        ("--ledger f --once", "--ledger f --once"),
    ],
)
def test_the_leaderboard_s_entry_point_serves_a_page(typed: str, meant: str):
    assert translated("leaderboard", typed.split()) == meant.split()


@pytest.mark.flow
def test_an_entry_point_runs_from_anywhere(repository: Path, tmp_path: Path):
    command = [sys.executable, str(repository / "neurons" / "leaderboard.py"), "--wallet.name", "a", "--once"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: expected either --run URL or --ledger FILE, found neither; give one of them\n"
