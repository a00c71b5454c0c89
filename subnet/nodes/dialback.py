"""Dialling back: the orchestrator tries to reach a miner where it announced itself, and says what has to be opened.

The orchestrator connects to one place only: the address in the caller's own record on the chain, after a signed
request, rarely, for one small answer, without following redirects. Private addresses are dialled only where its
operator mapped them. Knows nothing of what the miner does with the answer.
"""

import asyncio
import ipaddress
import json
import os
import time
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from subnet.canonical import canonical
from subnet.nodes.orchestrator import Orchestrator
from subnet.nodes.orchestrator_routes import registered_caller
from template.errors import (
    BodyMismatch,
    BodyTooLarge,
    DeadlineExceeded,
    PeerRefused,
    PeerUnreachable,
    RefusedRequest,
    TransportError,
)
from template.transport import Incoming, Reply, Route, Transport

DIAL_S = 6.0
ANSWER_BYTES = 4096
BETWEEN_S = 5.0  # two calls of one hotkey
AT_ONCE = 8
ADDRESS_CHARS = 64


class DialBack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of it. `tested` is False when the orchestrator does not dial such an address at all."""

    address: str
    tested: bool
    reached: bool
    message: str


def dial_target(address: str) -> str:
    """The request target by which a miner asks to be dialled at the address that it announced."""
    return f"/v1/dial-back?address={quote(address, safe=':')}"


def routes(node: Orchestrator, transport: Transport, *, address_map: Mapping[str, str]) -> list[Route]:
    """The one door. `transport` signs nothing and maps addresses as `address_map` says."""
    return [Route(method="POST", path="/v1/dial-back", handler=_Dialler(node, transport, address_map).dial)]


class _Dialler:
    """The handler, and who has asked when."""

    def __init__(self, node: Orchestrator, transport: Transport, address_map: Mapping[str, str]) -> None:
        self._node = node
        self._transport = transport
        self._address_map = address_map
        self._asked_s: dict[str, float] = {}
        self._under_way = 0

    async def dial(self, request: Incoming) -> Reply:
        """Try to reach the caller at the address in its record on the chain."""
        caller = registered_caller(self._node, request)
        claimed = request.query.get("address", "")[:ADDRESS_CHARS]
        self._check_rate(caller)
        await self._check_announced(caller, claimed)
        if not self._may_dial(claimed):
            message = (
                f"expected a public address, found {claimed}, which is not dialled from here; miners elsewhere cannot "
                "reach it, announce a public one with --external-ip, or use --outbound-only"
            )
            return _reply(DialBack(address=claimed, tested=False, reached=False, message=message))
        self._under_way += 1
        try:
            found = await self._found(claimed, caller)
        finally:
            self._under_way -= 1
        return _reply(DialBack(address=claimed, tested=True, reached=not found, message=advice(claimed, found)))

    def _check_rate(self, caller: str) -> None:
        now_s = time.monotonic()
        wait_s = self._asked_s.get(caller, now_s - BETWEEN_S) + BETWEEN_S - now_s
        if wait_s > 0 or self._under_way >= AT_ONCE:
            raise RefusedRequest(
                f"expected {BETWEEN_S:.0f} s between two calls and at most {AT_ONCE} under way, found more; ask later",
                word="too_soon",
                status=429,
                retry_after_s=max(wait_s, 1.0),
            )
        self._asked_s[caller] = now_s

    async def _check_announced(self, caller: str, claimed: str) -> None:
        """Make sure that the address is the one on the chain; the chain may show it only a few blocks later."""
        if self._announced(caller) != claimed:
            await self._node.look_at_chain()
        announced = self._announced(caller)
        if announced != claimed:
            raise RefusedRequest(
                f"expected {caller} to have announced {claimed or 'an address'}, the chain shows "
                f"{announced or 'none'}; ask again in a few blocks",
                word="not_announced",
                status=503,
            )

    def _announced(self, caller: str) -> str:
        neuron = self._node.view.neuron(caller) if self._node.view else None
        return (neuron.endpoint or "") if neuron else ""

    def _may_dial(self, address: str) -> bool:
        host = address.rpartition(":")[0].strip("[]")
        if address in self._address_map or host in self._address_map:
            return True
        try:
            return ipaddress.ip_address(host).is_global
        except ValueError:
            return False

    async def _found(self, address: str, hotkey: str) -> str:
        """What is wrong at an address; empty when the miner of this hotkey answers there."""
        try:
            async with asyncio.timeout(DIAL_S):
                answer = self._transport.download(address, "/healthz", limit_bytes=ANSWER_BYTES, timeout_s=DIAL_S)
                body = b"".join([part async for part in answer])
        except TimeoutError:
            return f"no answer within {DIAL_S:.0f} s"
        except TransportError as error:
            return fault(error)
        return _who_else(body, hotkey)


def fault(error: TransportError) -> str:
    """A failed connection in a few words."""
    match error:
        case DeadlineExceeded():
            return f"no answer within {DIAL_S:.0f} s"
        case PeerUnreachable():
            number = getattr(getattr(error.__cause__, "os_error", error.__cause__), "errno", None)
            return os.strerror(number).lower() if number else "no connection"
        case PeerRefused():
            return f"a server that answers /healthz with {error.status}"
        case BodyTooLarge() | BodyMismatch():
            return "a server with another kind of answer"
    return "something that is not a miner"


def _who_else(body: bytes, hotkey: str) -> str:
    try:
        facts = json.loads(body)
    except ValueError:
        facts = None
    found = facts.get("hotkey") if isinstance(facts, dict) else None
    if not isinstance(found, str):
        return "a server that is not a miner"
    return "" if found == hotkey else f"the miner of another hotkey ({found[:ADDRESS_CHARS]})"


def advice(address: str, found: str) -> str:
    """The sentence for the miner's operator."""
    if not found:
        return f"reached {address}"
    port = address.rpartition(":")[2]
    if found.startswith("the miner of another"):
        remedy = "announce this machine's own address and port (--external-ip, --external-port)"
    else:
        remedy = f"open TCP port {port} on the firewall and forward it to this machine, or use --outbound-only"
    return f"expected to reach {address}, found: {found}; {remedy}"


def _reply(answer: DialBack) -> Reply:
    return Reply(body=canonical(answer), content_type="application/json")
