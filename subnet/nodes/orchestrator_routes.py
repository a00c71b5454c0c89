"""What the orchestrator answers: messages in, plans and ledger out, the run's store. One small handler per route.

Every route that changes something is signed, and is refused before its body is read where the target alone shows that
it may not pass. Decides nothing; see `subnet.scheduler`.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

import msgspec

from subnet.audit.pinned import pinned_by
from subnet.canonical import canonical, digest, parse
from subnet.errors import (
    BlobMissing,
    EvidenceError,
    FrameError,
    InputError,
    LedgerError,
    MessageError,
    PeerError,
    RefusedError,
    StoreError,
    StoreFull,
)
from subnet.incentive.owed import failed_rounds
from subnet.ledger.events import Assign, ClosedSet, Done, Event, Manifest, RoundBegin, RoundClose, Said
from subnet.ledger.receiving import tokens_trained
from subnet.merge.contribution import norm, read_contribution
from subnet.model.cost import parameters, spans
from subnet.nodes.client import ROUTES, Brief, LedgerPage, Orders, RunFacts
from subnet.nodes.orchestrator import Orchestrator
from subnet.nodes.rates import ALLOWED, Rates
from subnet.wire.merkle import merkle_leaves
from subnet.wire.messages import (
    KINDS,
    WIRE_VERSION,
    Plan,
    Position,
    Receipt,
    Signed,
    Verdict,
    check_signed,
    make_signed,
    read_signed,
)
from template.errors import RefusedRequest
from template.transport import Handler, Incoming, Reply, Route
from template.web import Refusals

MESSAGE_LIMIT_BYTES = 1 << 18
PAGE_EVENTS = 500
PAGE_BYTES = 8 << 20  # clients refuse answers that are much larger
LOOK_AGAIN_S = 1.0
LONGEST_WAIT_S = 10.0
FLOAT_BYTES = 4
REMEMBERED_STATES = 64  # of which the hashes of the chunks are kept at hand

REFUSALS: Refusals = {
    MessageError: (400, "malformed"),
    FrameError: (400, "malformed_frame"),
    InputError: (422, "bad_input"),
    EvidenceError: (400, "bad_evidence"),
    RefusedError: (409, "refused"),
    PeerError: (400, "refused"),
    LedgerError: (404, "not_found"),
    StoreFull: (507, "store_full"),
    BlobMissing: (404, "not_found"),
    StoreError: (503, "store_unavailable"),
}


def routes(node: Orchestrator) -> list[Route]:
    """All routes but the board's."""
    doors = _Doors(node)
    said = [Route(method="POST", path=path, handler=doors.message(kind)) for kind, path in ROUTES.items()]
    return [
        *said,
        Route(method="GET", path="/v1/config", handler=doors.config, signed=False),
        Route(method="GET", path="/v1/ledger", handler=doors.ledger, signed=False),
        Route(method="GET", path="/v1/plans", handler=doors.plans),
        Route(method="GET", path="/v1/brief", handler=doors.brief),
        Route(method="GET", path="/v1/blobs/{name}", handler=doors.get_blob, signed=False),
        Route(method="PUT", path="/v1/blobs/{name}", handler=doors.put_blob),
        Route(method="GET", path="/v1/states/{name}/leaves", handler=doors.get_leaves, signed=False),
    ]


class _Doors:
    """The handlers of one orchestrator."""

    def __init__(self, node: Orchestrator) -> None:
        self._node = node
        self._rates = Rates()
        self._looked_s = -LOOK_AGAIN_S
        self._leaves: dict[str, bytes] = {}

    async def config(self, request: Incoming) -> Reply:
        state = self._node.state
        facts = RunFacts(
            config=canonical(state.config).decode(),
            run_id=state.config.run_id,
            orchestrator=state.orchestrator,
            netuid=state.netuid,
        )
        return _json(facts)

    def message(self, kind: str) -> Handler:
        """The handler for one kind of signed message."""

        async def handle(request: Incoming) -> Reply:
            if kind == "join":
                await self._look_for(request)
            caller = registered_caller(self._node, request)
            length_bytes = whole(request, "length", limit=MESSAGE_LIMIT_BYTES)
            body = await request.body(length_bytes=length_bytes, digest=request.query.get("digest", ""))
            signed = parse(body, Signed)
            if signed.kind != kind:
                raise MessageError(f"expected a {kind} on this route, found a {signed.kind}; use the route of its kind")
            if kind == "verdict":
                await self._node.check_drawn(signed)
            self._check_rate(signed)
            event = self._node.log_message(signed)
            self._node.polled[caller] = time.monotonic()
            position = Position(
                version=WIRE_VERSION, run_id=self._node.state.config.run_id, digest=signed.digest, event=event
            )
            return _json(make_signed(position, self._node.signer))

        return handle

    def _check_rate(self, signed: Signed) -> None:
        """Refuse what its author says too often; a message that is in the log already is not said again."""
        kind = signed.kind
        if kind == "receipt":
            kind = read_signed(signed, Receipt).kind
        if kind in ALLOWED and self._node.ledger.position(signed.digest) is None:
            check_signed(signed, KINDS[signed.kind], self._node.verifier)  # else a stranger could use it up
            self._rates.take(signed.hotkey, kind)

    async def _look_for(self, request: Incoming) -> None:
        """A hotkey that is not on the roster may have registered since: look at the chain once a second, no more."""
        assert request.caller is not None
        unknown = request.caller.hotkey not in self._node.state.roster
        if unknown and time.monotonic() - self._looked_s > LOOK_AGAIN_S:
            self._looked_s = time.monotonic()
            await self._node.look_at_chain()

    async def ledger(self, request: Incoming) -> Reply:
        first = whole(request, "from", limit=1 << 53)
        if first >= self._node.state.count:
            await self._node.news(asked_wait_s(request))
        events = tuple(_page(self._node.events[first : first + PAGE_EVENTS]))
        return _json(LedgerPage(head=self._node.head(), events=events))

    async def plans(self, request: Incoming) -> Reply:
        """What concerns the caller, from event `from` on; waits for the first such event."""
        caller, first = joined_caller(self._node, request), whole(request, "from", limit=1 << 53)
        end_s = time.monotonic() + asked_wait_s(request)
        while True:
            self._node.polled[caller] = time.monotonic()
            events = tuple(event for event in self._node.events[first:] if self._concerns(event, caller))
            left_s = end_s - time.monotonic()
            if events or left_s <= 0:
                break
            first = self._node.state.count
            await self._node.news(left_s)
        state = self._node.state
        return _json(
            Orders(
                following=state.count,
                events=events,
                peers=self._peers(events),
                tainted=state.members[caller].tainted,
                holders=self._holders(events, caller),
                validators=tuple(sorted(state.validators())),
            )
        )

    async def brief(self, request: Incoming) -> Reply:
        """Where the caller stands, and the orders of this round that it may still have to follow."""
        caller, state = joined_caller(self._node, request), self._node.state
        member = state.members[caller]
        events = tuple(event for event in self._node.events if self._still_open(event, caller))
        return _json(
            Brief(
                following=state.count,
                phase=state.phase,
                round=state.round,
                stage=member.stage,
                from_round=member.from_round,
                head=member.head,
                root=member.state_root,
                root_steps=member.root_steps,
                opened_round=member.opened_round,
                round_tokens=tokens_trained(state, caller),
                failed_rounds=failed_rounds(state, caller),
                events=events,
                peers=self._peers(events),
                tainted=member.tainted,
                holders=self._holders(events, caller),
                validators=tuple(sorted(state.validators())),
            )
        )

    def _still_open(self, event: Event, caller: str) -> bool:
        state, body = self._node.state, event.body
        if isinstance(body, Said):
            current = state.current
            if current is None or body.signed.digest not in current.plan_digests.values():
                return False
            return self._concerns(event, caller) and caller not in current.receipts
        if isinstance(body, Manifest):
            return body.round >= state.round
        if isinstance(body, RoundBegin | RoundClose | ClosedSet):
            return body.round == state.round and self._concerns(event, caller)
        return isinstance(body, Done)

    def _concerns(self, event: Event, caller: str) -> bool:
        body = event.body
        if isinstance(body, Said):
            return _concerns_by_word(body.signed, caller)
        if isinstance(body, Assign):
            return body.hotkey == caller
        if isinstance(body, ClosedSet):
            return body.stage == self._node.state.members[caller].stage
        return isinstance(body, Manifest | RoundBegin | RoundClose | Done)

    def _peers(self, events: tuple[Event, ...]) -> dict[str, str]:
        bodies = [event.body for event in events]
        said = [body.signed for body in bodies if isinstance(body, Said)]
        plans = [read_signed(signed, Plan) for signed in said if signed.kind == "plan"]
        members = self._node.state.members
        return {hotkey: members[hotkey].address for plan in plans for hotkey in plan.path}

    def _holders(self, events: tuple[Event, ...], caller: str) -> dict[str, str]:
        """Who else may have the public states that these events name: the replicas of the caller's stage."""
        if not any(isinstance(event.body, Manifest) for event in events):
            return {}
        members = self._node.state.members
        stage = members[caller].stage
        return {
            hotkey: member.address
            for hotkey, member in members.items()
            if hotkey != caller and member.active and member.stage == stage is not None and member.address
        }

    async def get_blob(self, request: Incoming) -> Reply:
        """A blob as it lies in the store, or `length` bytes from `start` on; whoever asked checks it by the name."""
        store, name = self._node.store, request.path["name"]
        size_bytes = store.size(name)
        if "start" not in request.query:
            return Reply(body=store.get_range(name, 0, size_bytes))
        start = whole(request, "start", limit=size_bytes)
        return Reply(body=store.get_range(name, start, whole(request, "length", limit=size_bytes)))

    async def get_leaves(self, request: Incoming) -> Reply:
        """The hashes of a state's chunks, which its root proves: by them each chunk of a range can be checked."""
        store, name = self._node.store, request.path["name"]
        if name not in self._leaves:
            data = store.get_range(name, 0, store.size(name))
            self._leaves[name] = b"".join(await asyncio.to_thread(merkle_leaves, data))
            while len(self._leaves) > REMEMBERED_STATES:
                del self._leaves[next(iter(self._leaves))]
        return Reply(body=self._leaves[name])

    async def put_blob(self, request: Incoming) -> Reply:
        """Take a contribution from who committed it, a public state from the publisher, evidence from an accuser."""
        caller, name = registered_caller(self._node, request), request.path["name"]
        limit = self._expected_bytes(caller, name)
        length_bytes = whole(request, "length", limit=limit)
        data = await request.body(length_bytes=length_bytes)
        self._fit(caller, data)
        self._node.store.put_named(name, data)
        return Reply(body=b"{}", content_type="application/json")

    def _fit(self, caller: str, data: bytes) -> None:
        """Refuse what no reducer could read, or whose norm (by which it is clipped) is not the one it was given."""
        for receipt in (closes[caller] for closes in self._node.state.closes.values() if caller in closes):
            if receipt.contribution != digest(data):
                continue
            found = norm(read_contribution(data, self._parameters()[receipt.stage]))
            if found != receipt.contribution_norm:
                raise EvidenceError(
                    f"expected a contribution of norm {receipt.contribution_norm}, as its close says, found {found}; "
                    "it is left out of the merge"
                )

    def _parameters(self) -> list[int]:
        config = self._node.state.config
        return [parameters(config, span) for span in spans(config)]

    def _expected_bytes(self, caller: str, name: str) -> int:
        """The size that this caller may store under this name. Raises RefusedRequest when it may store nothing."""
        state = self._node.state
        sizes = [FLOAT_BYTES * count for count in self._parameters()]
        if caller == state.orchestrator:
            return 2 * max(sizes)
        for closes in state.closes.values():
            receipt = closes.get(caller)
            if receipt is not None and receipt.contribution == name:
                return sizes[receipt.stage]
        if caller in state.validators() and name in (pinned := pinned_by(state, caller)):
            return pinned[name]
        raise RefusedRequest(
            f"expected a blob that {caller} has committed in a close or failed a segment by, found {name[:12]}; say "
            "that first",
            word="not_planned",
            status=403,
        )


def registered_caller(node: Orchestrator, request: Incoming) -> str:
    """The caller's hotkey. Raises RefusedRequest when it has no uid on the subnet."""
    assert request.caller is not None
    hotkey, state, view = request.caller.hotkey, node.state, node.view
    unknown = view is None or view.neuron(hotkey) is None
    if hotkey not in state.roster and hotkey != state.orchestrator and unknown:
        raise RefusedRequest(
            f"expected a hotkey registered on subnet {state.netuid}, found {hotkey}; run strata register",
            word="unregistered",
            status=403,
        )
    return hotkey


def joined_caller(node: Orchestrator, request: Incoming) -> str:
    """The caller's hotkey. Raises RefusedRequest when it has not joined the run."""
    hotkey = registered_caller(node, request)
    if hotkey not in node.state.members:
        raise RefusedRequest(f"expected a member of the run, found {hotkey}; join first", word="no_member", status=403)
    return hotkey


def _concerns_by_word(signed: Signed, caller: str) -> bool:
    """A plan with the caller in its lane, or a verdict on one of its segments."""
    if signed.kind == "plan":
        return caller in read_signed(signed, Plan).path
    if signed.kind == "verdict":
        return read_signed(signed, Verdict).hotkey == caller
    return False


def _json(value: msgspec.Struct) -> Reply:
    return Reply(body=canonical(value), content_type="application/json")


def whole(request: Incoming, name: str, *, limit: int) -> int:
    """A whole number of the query. Raises RefusedRequest when it is missing, malformed or above the limit."""
    text = request.query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > limit:
        raise RefusedRequest(
            f"expected {name} as a whole number up to {limit}, found {text[:40]!r}; correct the request",
            word="malformed",
            status=400,
        )
    return int(text)


def asked_wait_s(request: Incoming) -> float:
    """How long the caller wants to wait for news, within what is allowed; nothing readable means not at all."""
    text = request.query.get("wait_s", "0")
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = 0.0
    return min(max(wait_s, 0.0), LONGEST_WAIT_S) if wait_s == wait_s else 0.0


def _page(events: Sequence[Event]) -> Iterator[Event]:
    """The first of these events that fit into one answer; always at least one."""
    room = PAGE_BYTES
    for number, event in enumerate(events):
        room -= len(canonical(event))
        if room < 0 and number:
            return
        yield event
