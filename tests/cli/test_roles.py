"""Laws of the role commands: what a command line means for one process's identity and place."""

from pathlib import Path

import pytest

from subnet.cli.roles import neuron_config, on_this_machine
from template.config import NeuronConfig


def config(tmp_path: Path, network: str, address_map: list[str] | None = None) -> NeuronConfig:
    return neuron_config(network, 1, "w", "h", wallet_path="x", data_dir=tmp_path, address_map=address_map)


@pytest.mark.parametrize(
    "network", ["local", "ws://127.0.0.1:9944", "ws://localhost:9944", "ws://[::1]:1", "ws://127.1.2.3"]
)
def test_a_chain_at_a_loopback_address_is_on_this_machine(network: str):
    assert on_this_machine(network)


@pytest.mark.parametrize(
    "network", ["finney", "test", "ws://192.168.1.2:9944", "wss://chain.example:443", "ws://128.0.0.1"]
)
def test_any_other_chain_is_not(network: str):
    assert not on_this_machine(network)


def test_what_the_environment_says_of_local_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BT_CHAIN_ENDPOINT", "ws://10.0.0.7:9944")
    assert not on_this_machine("local")
    monkeypatch.setenv("BT_CHAIN_ENDPOINT", "ws://127.0.0.1:12345")
    assert on_this_machine("local")


def test_on_one_machine_the_address_that_stands_for_it_is_reached_at_the_loopback_one(tmp_path: Path):
    assert config(tmp_path, "local").address_map == {"198.18.0.1": "127.0.0.1"}
    assert config(tmp_path, "test").address_map == {}


def test_what_the_user_maps_is_added_and_wins(tmp_path: Path):
    given = ["203.0.113.7=10.0.0.5", "198.18.0.1=127.0.0.2"]
    expected = {"203.0.113.7": "10.0.0.5", "198.18.0.1": "127.0.0.2"}
    assert config(tmp_path, "local", given).address_map == expected
    assert config(tmp_path, "finney", given).address_map == expected
