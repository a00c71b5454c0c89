"""Where a miner says it can be reached: on the chain, once its port is bound, and then tried by the orchestrator.

A miner that turns out not to be reachable, or does not want to be, has the empty address: others write to it through
the relay. What has to be opened is said once. Knows nothing of how requests arrive.
"""

import ipaddress
import logging
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from subnet.canonical import parse
from subnet.errors import PeerError, UnreachableError
from subnet.nodes.client import REQUEST_S, RunClient, retried
from subnet.nodes.dialback import DialBack, dial_target
from subnet.nodes.starting import Joined
from template.config import LOCAL_STAND_IN_ADDRESS, resolve_peer
from template.errors import TransportError
from template.web import WebServer

log = logging.getLogger("strata.start")

PUBLIC_NETWORKS = ("finney", "test")
PATIENCE_S = 60.0  # the chain shows a new address only when its block is final


async def announced(node: Joined, server: WebServer) -> str:
    """The address of this miner for others, announced and tried; empty when they have to use the relay."""
    config = node.config
    if config.outbound_only:
        log.info("address=none outbound-only: deliveries and evidence go through the relay")
        return ""
    host = config.external_host or bound_host(server.host, node.client.peer, config.address_map)
    if ipaddress.ip_address(host).is_loopback and LOCAL_STAND_IN_ADDRESS in config.address_map:
        host = LOCAL_STAND_IN_ADDRESS
    number, port = ipaddress.ip_address(host), config.external_port or server.port
    hidden = config.network in PUBLIC_NETWORKS and config.external_host is None and not number.is_global
    if hidden or number.is_unspecified:
        log.warning(
            "address=none found only the private address %s on this machine: forward TCP port %d to it and give the "
            "public one with --external-ip, or --outbound-only; deliveries and evidence go through the relay",
            host, port,
        )  # fmt: skip
        return ""
    await node.chain.publish_endpoint(str(number), port)
    address = f"[{number}]:{port}" if number.version == 6 else f"{number}:{port}"
    return address if await stands(node.client, address) else ""


def bound_host(host: str, peer: str, address_map: Mapping[str, str]) -> str:
    """The address that a server bound to `host` has: for one on all interfaces, that of the way to `peer`."""
    if not ipaddress.ip_address(host).is_unspecified:
        return host
    there = urlsplit(resolve_peer(peer, address_map))
    family = socket.AF_INET6 if ":" in (there.hostname or "") else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((there.hostname, there.port or 80))  # sends nothing
        except OSError:
            return host
        return str(sock.getsockname()[0])


async def stands(client: RunClient, address: str) -> bool:
    """Whether to go on with an announced address. Says once, if the orchestrator cannot reach it, what to open."""
    answer = await dial_back(client, address)
    if answer is None:
        return True
    if answer.reached:
        log.info("address=%s reached by the orchestrator", address)
        return True
    if not answer.tested:
        log.warning("address=%s untested: %s", address, answer.message)
        return True
    log.warning(
        "address=%s unreachable: %s; until then deliveries and evidence go through the relay", address, answer.message
    )
    return False


async def dial_back(client: RunClient, address: str, *, patience_s: float = PATIENCE_S) -> DialBack | None:
    """Have the orchestrator try to reach this address; None when it does not say."""
    target = dial_target(address)

    async def ask() -> DialBack:
        response = await client.transport.request(
            "POST", client.peer, target, receiver=client.orchestrator, timeout_s=REQUEST_S
        )
        return parse(response.body, DialBack)

    try:
        return await retried(ask, what="the orchestrator to dial back", patience_s=patience_s)
    except (TransportError, UnreachableError, PeerError) as error:
        log.warning("address=%s untested: %s", address, error)
        return None
