"""A neuron's own identity and place: network, wallet, addresses, data folder. Frozen, and checked when built.

Reads no flag, file or environment variable; entry points do, once. What nodes must agree on is not here.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from template.errors import NetworkError, UsageError
from template.values import Hotkey

U16_LIMIT = 65535
NETWORKS = ("finney", "test", "local")

LOCAL_STAND_IN_ADDRESS = "198.18.0.1"
"""The chain refuses 127.0.0.1, so a local run announces this address (RFC 2544, never routed) and maps it back."""

LOCAL_ADDRESS_MAP = {LOCAL_STAND_IN_ADDRESS: "127.0.0.1"}

DEFAULT_WALLET_PATH = "~/.bittensor/wallets"


def check_network(network: str) -> str:
    """The network's name or endpoint, unchanged. Raises NetworkError for anything else."""
    if network in NETWORKS or network.startswith(("ws://", "wss://")):
        return network
    raise NetworkError(
        f"expected a network that is one of {', '.join(NETWORKS)} or a ws:// or wss:// address, found {network!r}; "
        "give one of those with --network"
    )


def parse_address_map(entries: Iterable[str]) -> dict[str, str]:
    """Read entries such as "198.18.0.1=127.0.0.1" or "203.0.113.7:8091=10.0.0.5:8091"."""
    pairs = {}
    for entry in entries:
        announced, equals, actual = entry.partition("=")
        if not (equals and announced and actual) or (":" in announced) != (":" in actual):
            raise UsageError(
                f"expected an address map entry such as {LOCAL_STAND_IN_ADDRESS}=127.0.0.1 (both sides with a port, "
                f"or neither), found {entry!r}; write announced=actual"
            )
        pairs[announced] = actual
    return pairs


def resolve_peer(peer: str, address_map: Mapping[str, str]) -> str:
    """The base URL of a peer given as "ip:port" or as a URL; an announced address is mapped to the actual one."""
    if peer.startswith(("http://", "https://")):
        return peer.rstrip("/")
    if peer in address_map:
        return f"http://{address_map[peer]}"
    host, _, port = peer.rpartition(":")
    return f"http://{address_map.get(host, host)}:{port}"


@dataclass(frozen=True, kw_only=True)
class NeuronConfig:
    """One process's identity and place.

    `host` and `port` are bound (0 takes a free port); `external_host` and `external_port` are announced and default
    to the bound ones; a neuron that is `outbound_only` announces nothing. `orchestrator` overrides the subnet owner's
    hotkey for finding the orchestrator.
    """

    data_dir: Path
    network: str = "finney"
    netuid: int = 1
    wallet_name: str = "default"
    wallet_hotkey: str = "default"
    wallet_path: str = DEFAULT_WALLET_PATH
    fallback_endpoints: tuple[str, ...] = ()
    host: str = "0.0.0.0"
    port: int = 0
    external_host: str | None = None
    external_port: int | None = None
    address_map: Mapping[str, str] = field(default_factory=dict)
    orchestrator: Hotkey | None = None
    outbound_only: bool = False

    def __post_init__(self) -> None:
        check_network(self.network)
        if not 0 <= self.netuid <= U16_LIMIT:
            raise UsageError(f"expected a netuid from 0 to {U16_LIMIT}, found {self.netuid}; give it with --netuid")
        for name, port in (("port", self.port), ("external port", self.external_port or 0)):
            if not 0 <= port <= U16_LIMIT:
                raise UsageError(f"expected a {name} from 0 to {U16_LIMIT}, found {port}; choose another")
        if self.external_host is not None:
            self._check_external_host(self.external_host)
        if self.outbound_only and (self.external_host or self.external_port):
            raise UsageError(
                "expected an external address or --outbound-only, found both; leave out the one that is not meant"
            )
        for endpoint in self.fallback_endpoints:
            if not endpoint.startswith(("ws://", "wss://")):
                raise NetworkError(f"expected a fallback endpoint with ws:// or wss://, found {endpoint!r}; correct it")

    def _check_external_host(self, host: str) -> None:
        try:
            address = ipaddress.ip_address(host)
        except ValueError as error:
            raise UsageError(
                f"expected an external address that is an IPv4 or IPv6 number, found {host!r}; the chain stores "
                "numbers only, so give the address that the name stands for"
            ) from error
        if address.is_loopback or address.is_unspecified:
            raise UsageError(
                f"expected an external address that others can reach, found {host}; on one machine announce "
                f"{LOCAL_STAND_IN_ADDRESS} and map it with {LOCAL_STAND_IN_ADDRESS}=127.0.0.1"
            )
