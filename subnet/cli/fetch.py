"""Public reads from an orchestrator: its board and its ledger, unsigned. Knows no key and checks no content."""

import json
from typing import Any

import msgspec

from subnet.errors import MessageError
from subnet.ledger.events import Event
from subnet.nodes.client import LedgerPage
from template.transport import Transport
from template.web_client import HttpTransport

REQUEST_S = 20.0
BOARD = "/v1/board"


async def fetch_board(transport: Transport, url: str) -> dict[str, Any]:
    """The facts that the orchestrator shows. Raises TransportError kinds; MessageError for another answer."""
    response = await transport.request("GET", url, BOARD, timeout_s=REQUEST_S)
    try:
        value = json.loads(response.body)
    except ValueError as error:
        raise MessageError(f"expected a board's facts from {url}{BOARD}, found: {error}; check the address") from error
    if not isinstance(value, dict) or "run" not in value:
        raise MessageError(f"expected a board's facts from {url}{BOARD}, found another document; check the address")
    return value


async def fetch_ledger(url: str) -> list[Event]:
    """The whole log, page by page, up to the head of the last page."""
    transport = HttpTransport(None)
    events: list[Event] = []
    try:
        while True:
            response = await transport.request(
                "GET", url, f"/v1/ledger?from={len(events)}&wait_s=0", timeout_s=REQUEST_S
            )
            try:
                page = msgspec.json.decode(response.body, type=LedgerPage)
            except msgspec.MsgspecError as error:
                raise MessageError(f"expected a ledger from {url}, found: {error}; check the address") from error
            if not page.events:
                return events
            events += page.events
    finally:
        await transport.close()
