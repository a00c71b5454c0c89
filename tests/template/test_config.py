"""A neuron's configuration: impossible values are refused with a sentence that says what to give instead."""

from pathlib import Path

import pytest

from template.config import NeuronConfig, check_network, parse_address_map, resolve_peer
from template.errors import NetworkError, UsageError


@pytest.mark.parametrize("network", ["finney", "test", "local", "ws://127.0.0.1:9944", "wss://a.example:443"])
def test_known_networks_and_endpoints_are_taken(network: str) -> None:
    assert check_network(network) == network


@pytest.mark.parametrize("network", ["", "Finney", "mainnet", "http://127.0.0.1:9944", "127.0.0.1:9944"])
def test_an_unknown_network_is_refused_with_the_names(network: str) -> None:
    with pytest.raises(NetworkError, match="finney, test, local or a ws:// or wss:// address") as caught:
        check_network(network)
    assert repr(network) in str(caught.value) and caught.value.exit_code == 2


def test_an_address_map_sends_announced_addresses_home() -> None:
    mapping = parse_address_map(["198.18.0.1=127.0.0.1", "203.0.113.7:8091=10.0.0.5:9000"])
    assert resolve_peer("198.18.0.1:8091", mapping) == "http://127.0.0.1:8091"
    assert resolve_peer("203.0.113.7:8091", mapping) == "http://10.0.0.5:9000"
    assert resolve_peer("203.0.113.7:8092", mapping) == "http://203.0.113.7:8092"
    assert resolve_peer("[2001:db8::1]:80", mapping) == "http://[2001:db8::1]:80"
    assert resolve_peer("http://host:1/", mapping) == "http://host:1"


@pytest.mark.parametrize("entry", ["", "=", "198.18.0.1", "a=", "=b", "a:1=b", "a=b:1"])
def test_an_unreadable_map_entry_is_refused(entry: str) -> None:
    with pytest.raises(UsageError, match="announced=actual"):
        parse_address_map([entry])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"network": "main"}, "finney"),
        ({"netuid": -1}, "netuid"),
        ({"netuid": 65536}, "netuid"),
        ({"port": 65536}, "port"),
        ({"external_port": -1}, "external port"),
        ({"external_host": "example.org"}, "numbers only"),
        ({"external_host": "127.0.0.1"}, "198.18.0.1"),
        ({"external_host": "0.0.0.0"}, "reach"),
        ({"fallback_endpoints": ("finney",)}, "ws://"),
    ],
)
def test_impossible_values_are_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        NeuronConfig(data_dir=tmp_path, **change)


def test_a_plain_configuration_is_taken(tmp_path: Path) -> None:
    config = NeuronConfig(data_dir=tmp_path, network="local", external_host="198.18.0.1", external_port=8091)
    assert config.port == 0 and config.orchestrator is None
