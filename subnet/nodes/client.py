"""A node's way to the orchestrator: say something and get its acknowledgement, follow the ledger, use the store.

Retries what is temporary with growing pauses (or after as long as the other side asks for), each time signed anew,
until the caller's patience is over. Everything
between a node and the orchestrator is started here, by the node. Decides nothing about training.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from subnet.audit.evidence import Leading, leading_bytes
from subnet.canonical import canonical, digest, parse
from subnet.config import RunConfig
from subnet.edges.blobs import check_blob
from subnet.edges.partial import Partial
from subnet.errors import EvidenceError, MessageError, UnreachableError
from subnet.ledger.events import Event
from subnet.nodes.download import Source, Tally, Wanted, download_leading, download_state
from subnet.wire.merkle import num_chunks
from subnet.wire.messages import Head, Message, Position, Signed, check_signed, make_signed
from template.auth import Signer, Verifier
from template.clocks import Clocks
from template.errors import ClockSkew, PeerRefused, TransportError
from template.transport import Transport

T = TypeVar("T")

log = logging.getLogger("strata.client")

ROUTES = {
    "join": "/v1/join",
    "leave": "/v1/leave",
    "receipt": "/v1/receipts",
    "merged": "/v1/merged",
    "seen": "/v1/seen",
    "verdict": "/v1/verdicts",
    "checkpoint": "/v1/checkpoints",
}
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 3.0
PATIENCE_S = 120.0
FOR_EVER_S = float("inf")  # the patience of a node at work: what it has done is not lost by an outage, however long
SAID_AFTER_S = 5.0  # an outage that lasts longer, and is waited for, is said once, and its end too
REQUEST_S = 20.0
STILL_S = 10.0  # a download that stands still for so long is begun again where it stopped
LATE_TRIES = 3
"""A request that is refused as too old may have been held up; with a wrong clock the next ones are refused too."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the orchestrator states about its run: the canonical configuration and its own hotkey."""

    config: str
    run_id: str
    orchestrator: str
    netuid: int


class LedgerPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events from some number on, and the signed head of the whole log."""

    head: Signed
    events: tuple[Event, ...]


class Orders(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events that concern one miner, where to go on from, and the addresses of the replicas in its plans."""

    following: int
    events: tuple[Event, ...]
    peers: dict[str, str]
    tainted: bool = False  # whether its last state goes back to a segment of which a fail is upheld
    holders: dict[str, str] = {}  # addresses of those who may have the public states of its manifests
    validators: tuple[str, ...] = ()  # hotkeys with a permit


class Brief(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a joining or returning miner stands: what it needs to go on from event `following`."""

    following: int
    phase: str
    round: int
    stage: int | None
    from_round: int
    head: str
    root: str
    root_steps: int
    opened_round: int
    round_tokens: int  # that its receipts of this round count
    failed_rounds: tuple[int, ...]  # whose evidence it has to keep, because a validator failed a segment of them
    events: tuple[Event, ...]  # the manifests, the current round and what is still to be done in it
    peers: dict[str, str]
    tainted: bool = False  # as in `Orders`
    holders: dict[str, str] = {}
    validators: tuple[str, ...] = ()


def understood(body: bytes, kind: type[T]) -> T:
    """An answer as a value of `kind`. Raises MessageError when it is none."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise MessageError(
            f"expected a {kind.__name__} from the orchestrator, found another answer ({error}); update"
        ) from error


def temporary(error: TransportError) -> bool:
    """Whether the same request may work later: no answer, or an answer that the other side is not ready."""
    return not isinstance(error, PeerRefused) or error.status >= 500 or error.status == 429


async def retried(attempt: Callable[[], Awaitable[T]], *, what: str, patience_s: float = PATIENCE_S) -> T:
    """Run `attempt` until it works. Raises its own error when that is final, UnreachableError when patience is over."""
    clock = asyncio.get_running_loop().time
    begun_s, pause_s, late, said = clock(), FIRST_PAUSE_S, 0, False
    while True:
        try:
            answer = await attempt()
            if said:
                log.info("answered what=%r after=%.0f s", what, clock() - begun_s)
            return answer
        except TransportError as error:
            late += isinstance(error, ClockSkew)
            if not temporary(error) and not (isinstance(error, ClockSkew) and late <= LATE_TRIES):
                raise
            asked_s = (error.retry_after_s if isinstance(error, PeerRefused) else None) or 0.0
            if clock() + max(pause_s, asked_s) > begun_s + patience_s:
                raise UnreachableError(f"expected {what} within {patience_s:.0f} s; {error}") from error
            if not said and patience_s >= PATIENCE_S and clock() - begun_s >= SAID_AFTER_S:
                said = True
                log.warning("waiting for=%r reason=%r", what, str(error))
        await asyncio.sleep(max(pause_s, asked_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class RunClient:
    """One node's requests to the orchestrator at `peer`, whose hotkey is `orchestrator`."""

    def __init__(
        self, transport: Transport, peer: str, orchestrator: str, *, signer: Signer, verifier: Verifier
    ) -> None:
        self.transport = transport
        self.peer = peer
        self.orchestrator = orchestrator
        self.signer = signer
        self.verifier = verifier
        self.patience_s = PATIENCE_S  # with the orchestrator, where a call names none of its own
        self.tally = Tally()  # of those who send states
        self.avoid_until_s: dict[str, float] = {}  # addresses of miners that could not be connected to
        self.letter_clocks = Clocks()  # of those who get letters; what is sent directly has its own

    async def facts(self, *, patience_s: float = PATIENCE_S) -> RunConfig:
        """The run's configuration. Raises MessageError when the orchestrator is not the one that was looked for."""

        async def ask() -> RunFacts:
            response = await self.transport.request("GET", self.peer, "/v1/config", timeout_s=REQUEST_S)
            return parse(response.body, RunFacts)

        facts = await retried(ask, what=f"the orchestrator at {self.peer} to answer", patience_s=patience_s)
        config = parse(facts.config.encode(), RunConfig)
        if facts.orchestrator != self.orchestrator or facts.run_id != config.run_id:
            raise MessageError(
                f"expected the orchestrator {self.orchestrator}, found {facts.orchestrator} at {self.peer}; "
                "check the subnet and its owner's endpoint"
            )
        return config

    async def say(self, message: Message, *, patience_s: float | None = None) -> int:
        """Sign a message and have it logged; the number of its event, by the orchestrator's signed word."""
        signed = make_signed(message, self.signer)
        return await self.relay(signed, patience_s=patience_s)

    async def relay(self, signed: Signed, *, patience_s: float | None = None) -> int:
        """Have a signed message logged, one's own or another's; the number of its event."""
        patience_s = self.patience_s if patience_s is None else patience_s
        body = canonical(signed)
        target = f"{ROUTES[signed.kind]}?digest={digest(body)}&length={len(body)}"

        async def send() -> Signed:
            response = await self.transport.request(
                "POST", self.peer, target, body=body, receiver=self.orchestrator, timeout_s=REQUEST_S
            )
            return parse(response.body, Signed)

        answer = await retried(send, what=f"the orchestrator to log a {signed.kind}", patience_s=patience_s)
        position = self._spoken(answer, Position)
        if position.digest != signed.digest:
            raise MessageError(
                f"expected an acknowledgement of {signed.digest[:12]}, found {position.digest[:12]}; ask again"
            )
        return position.event

    async def ledger(self, first: int, *, wait_s: float = 0.0) -> tuple[Head, tuple[Event, ...]]:
        """Events from `first` on (waiting up to `wait_s` for one), and the head that covers them."""

        async def ask() -> LedgerPage:
            target = f"/v1/ledger?from={first}&wait_s={wait_s:g}"
            response = await self.transport.request("GET", self.peer, target, timeout_s=REQUEST_S + wait_s)
            return understood(response.body, LedgerPage)

        page = await retried(ask, what="the orchestrator to send its ledger", patience_s=self.patience_s)
        return self._spoken(page.head, Head), page.events

    async def orders(self, first: int, *, wait_s: float) -> Orders:
        """What this miner is to do, from event `first` on (waiting up to `wait_s`)."""

        async def ask() -> Orders:
            target = f"/v1/plans?from={first}&wait_s={wait_s:g}"
            response = await self.transport.request(
                "GET", self.peer, target, receiver=self.orchestrator, timeout_s=REQUEST_S + wait_s
            )
            return understood(response.body, Orders)

        return await retried(ask, what="plans from the orchestrator", patience_s=self.patience_s)

    async def brief(self) -> Brief:
        """Where this miner stands, after it joined."""

        async def ask() -> Brief:
            response = await self.transport.request(
                "GET", self.peer, "/v1/brief", receiver=self.orchestrator, timeout_s=REQUEST_S
            )
            return understood(response.body, Brief)

        return await retried(ask, what="the orchestrator to tell where this miner stands", patience_s=self.patience_s)

    async def put(self, name: str, data: bytes) -> None:
        """Put bytes into the run's store under their digest or root."""
        target = f"/v1/blobs/{name}?length={len(data)}"

        async def send() -> None:
            await self.transport.request(
                "PUT", self.peer, target, body=data, receiver=self.orchestrator, timeout_s=REQUEST_S + len(data) / 1e6
            )

        await retried(send, what="the run's store to take a blob", patience_s=self.patience_s)

    async def get(self, name: str, *, limit_bytes: int) -> bytes:
        """Bytes from the run's store, verified."""
        return await fetch_blob(self.transport, self.peer, name, limit_bytes=limit_bytes)

    async def state(
        self, root: str, size_bytes: int, *, others: Mapping[str, str] | None = None, partial: Partial | None = None
    ) -> bytes:
        """A state by its root, chunk by chunk, from the run's store and from `others`, hotkeys with their addresses."""
        held_by = [Source(name=hotkey, peer=address) for hotkey, address in (others or {}).items() if address]
        sources = [Source(name=self.orchestrator, peer=self.peer), *held_by]
        wanted = Wanted(root=root, size_bytes=size_bytes, partial=partial)
        return await download_state(self.transport, sources, wanted, tally=self.tally)

    async def leading(self, root: str, size_bytes: int, *, first_bytes: int) -> Leading:
        """The chunks that hold the first bytes of a state of the run's store, with the hashes of all chunks."""
        chunks = num_chunks(leading_bytes(size_bytes, first_bytes))
        wanted = Wanted(root=root, size_bytes=size_bytes, chunks=chunks)
        sources = [Source(name=self.orchestrator, peer=self.peer)]
        data, leaves = await download_leading(self.transport, sources, wanted, tally=self.tally)
        return Leading(data=data, leaves=leaves)

    def _spoken(self, signed: Signed, kind: type[T]) -> T:
        if signed.hotkey != self.orchestrator:
            raise MessageError(
                f"expected an answer signed by {self.orchestrator}, found {signed.hotkey}; do not rely on it"
            )
        return check_signed(signed, kind, self.verifier)  # type: ignore[type-var]


async def fetch_blob(
    transport: Transport, peer: str, name: str, *, limit_bytes: int, patience_s: float = 30.0
) -> bytes:
    """Download bytes and check them against their name. Raises TransportError kinds, or EvidenceError."""
    data = bytearray()

    async def ask() -> None:
        await fetch_rest(transport, peer, name, data, limit_bytes=limit_bytes)

    await retried(ask, what=f"{peer} to send {name[:12]}", patience_s=patience_s)
    if not data:
        raise EvidenceError(f"expected the bytes of {name[:12]} from {peer}, found none; ask another source")
    check_blob(name, data)
    return bytes(data)


async def fetch_rest(transport: Transport, peer: str, name: str, data: bytearray, *, limit_bytes: int) -> None:
    """Append to `data` what is missing of a blob; what came before a fault stays in it. Raises TransportError kinds."""
    target, left_bytes = f"/v1/blobs/{name}", limit_bytes - len(data)
    if data:
        target += f"?start={len(data)}&length={left_bytes}"
    if left_bytes or not data:
        async for part in transport.download(peer, target, limit_bytes=left_bytes, timeout_s=STILL_S):
            data += part
