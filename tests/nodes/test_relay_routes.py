"""The relay's and the dial-back's doors: each refuses what every mutating door must, and then nothing has changed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from subnet.board.page import board_routes
from subnet.edges.relay import Answer, Relay
from subnet.nodes import dialback, orchestrator_routes, relay_routes
from subnet.nodes.dialback import dial_target
from subnet.wire.letter import answer_target, make_letter, pack, send_target, take_target
from template.auth import NonceStore
from template.errors import RefusedRequest
from template.fake.keys import FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.nonces import FileNonceStore
from template.transport import Incoming, Reply, Route, json_reply
from template.web import application
from tests.ledger.log import hotkey
from tests.nodes.asking import Answer as Asked
from tests.nodes.asking import ask
from tests.nodes.served import Request, ServedRun, served
from tests.nodes.test_orchestrator_routes import EVERY, MUTATING, READING, headers_of, in_phase

OWNER, ANN, BEN = hotkey("owner"), hotkey("ann"), hotkey("ben")
ADDRESS = "8.8.4.4:8091"
LETTER = make_letter("GET", "/v1/blobs/" + "0" * 64, {}, b"", answer_bytes=100)
BUNDLE = pack([LETTER])
THANKS = b"thanks"


@dataclass(kw_only=True)
class Doors:
    """An orchestrator's relay, in which ben comes for letters and one of ann's waits; and where ann can be dialled."""

    run: ServedRun
    relay: Relay
    peers: FakePeers
    app: Starlette
    number: int = 0  # of the letter that waits for ben's answer
    dialled: list[str] = field(default_factory=list)

    @property
    def facts(self) -> tuple[Any, ...]:
        """Everything that a refused request may not change."""
        relay = self.relay
        here = tuple(relay.waits_for(hotkey(name)) for name in ("ann", "ben", "cem"))
        return *self.run.facts, relay.held_bytes, relay.carried, here, self.waits, tuple(self.dialled)

    @property
    def waits(self) -> bool:
        """Whether the letter is still unanswered."""
        with contextlib.suppress(RefusedRequest):
            return bool(self.relay.expected_bytes(BEN, self.number))
        return False

    def application(self, nonces: NonceStore | None = None) -> Starlette:
        """The doors behind a server that has just started."""
        node = self.run.node
        dialling = dialback.routes(node, FakeTransport(self.peers, None), address_map={})
        doors = [*relay_routes.routes(node, self.relay), *dialling]
        return application(doors, FakeVerifier(OWNER, nonces), refusals=orchestrator_routes.REFUSALS)

    async def answering(self) -> None:
        """Ben, who takes one more letter and answers it."""
        letters = await self.relay.take(BEN, wait_s=5.0)
        for letter in letters:
            self.relay.answer(BEN, letter.head.number, Answer(status=200, body=THANKS))


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    run = await served(in_phase("train"))
    node, relay, peers = run.node, Relay(), FakePeers()
    assert node.view is not None
    announced = tuple(replace(n, endpoint=ADDRESS) if n.hotkey == ANN else n for n in node.view.neurons)
    node.view = replace(node.view, neurons=announced)
    made = Doors(run=run, relay=relay, peers=peers, app=application([], None))
    made.app = made.application()

    async def health(request: Incoming) -> Reply:
        made.dialled.append(request.target)
        return json_reply({"hotkey": ANN})

    peers.apps[ADDRESS] = application([Route(method="GET", path="/healthz", handler=health, signed=False)], None)
    await relay.take(BEN, wait_s=0.0)
    waiting = asyncio.create_task(relay.send(BEN, LETTER))
    made.number = (await relay.take(BEN, wait_s=5.0))[0].head.number
    yield made
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


def post(target: str, body: bytes, name: str) -> Request:
    return Request(method="POST", target=target, body=body, name=name, receiver=OWNER)


GOOD: dict[str, Callable[[Doors], Request]] = {
    "GET /v1/relay": lambda _: Request(method="GET", target=take_target(0.0), body=b"", name="ann", receiver=OWNER),
    "POST /v1/relay/{hotkey}": lambda _: post(send_target(BEN, BUNDLE, answer_bytes=100), BUNDLE, "ann"),
    "POST /v1/relay/answers/{number}": lambda d: post(answer_target(d.number, 200, THANKS), THANKS, "ben"),
    "POST /v1/dial-back": lambda _: post(dial_target(ADDRESS), b"", "ann"),
}
WITH_BODY = ("POST /v1/relay/{hotkey}", "POST /v1/relay/answers/{number}")
CASES = [(route, fault) for route in GOOD for fault in EVERY if fault != "altered body" or route in WITH_BODY]


async def passed(doors: Doors, route: str, request: Request, headers: dict[str, str], app: Starlette) -> Asked:
    """Send a good request; where it waits for ben, he answers."""
    helping: list[Awaitable[None]] = [doors.answering()] if route == "POST /v1/relay/{hotkey}" else []
    sending = ask(app, request.method, request.target, headers=headers, parts=(request.body,))
    answer, *_ = await asyncio.gather(sending, *helping)
    return answer


async def refused(doors: Doors, request: Request, headers: dict[str, str], *, body: bytes, app: Starlette) -> str:
    before = doors.facts
    answer = await ask(app, request.method, request.target, headers=headers, parts=(body,))
    assert doors.facts == before, "a refused request changed something"
    assert answer.sentence
    return f"{answer.status} {answer.word}"


async def test_no_door_of_the_orchestrator_is_left_out(doors: Doors) -> None:
    """Every route that changes something, and every signed one, is in one of the two tables."""
    node = doors.run.node
    dialling = dialback.routes(node, FakeTransport(doors.peers, None), address_map={})
    routes = [
        *orchestrator_routes.routes(node),
        *relay_routes.routes(node, doors.relay),
        *dialling,
        *board_routes(lambda: None),
    ]
    assert {f"{r.method} {r.path}" for r in routes if r.signed} == {*MUTATING, *READING, *GOOD}
    assert all(route.signed for route in routes if route.method != "GET")


@pytest.mark.parametrize("route", GOOD)
async def test_a_good_request_passes_and_changes_something(route: str, doors: Doors) -> None:
    request, before = GOOD[route](doors), doors.facts
    answer = await passed(doors, route, request, request.headers(), doors.app)
    assert answer.status == 200, answer.body
    assert doors.facts != before


@pytest.mark.parametrize(("route", "fault"), CASES)
async def test_every_mutating_route_refuses(route: str, fault: str, doors: Doors) -> None:
    """`every_mutating_route_refuses`: who signs badly takes, sends and answers no letter, and has nobody dialled."""
    request = GOOD[route](doors)
    body = bytes([request.body[0] ^ 1]) + request.body[1:] if fault == "altered body" else request.body
    found = await refused(doors, request, headers_of(fault, request), body=body, app=doors.app)
    assert found.startswith(EVERY[fault])


@pytest.mark.parametrize("route", GOOD)
async def test_a_replayed_request_is_refused_also_after_a_restart(route: str, doors: Doors, tmp_path: Path) -> None:
    nonces = FileNonceStore(tmp_path / "nonces")
    app, request = doors.application(nonces), GOOD[route](doors)
    headers = request.headers()
    assert (await passed(doors, route, request, headers, app)).status == 200
    assert await refused(doors, request, headers, body=request.body, app=app) == "401 replayed"
    nonces.close()
    again = FileNonceStore(tmp_path / "nonces")
    restarted = doors.application(again)
    assert await refused(doors, request, headers, body=request.body, app=restarted) == "401 replayed"
    again.close()


@pytest.mark.parametrize("route", GOOD)
async def test_nothing_is_read_of_the_body_of_an_unsigned_request(route: str, doors: Doors) -> None:
    request = GOOD[route](doors)
    answer = await ask(doors.app, request.method, request.target, parts=(request.body,))
    assert (answer.status, answer.parts_read) == (401, 0)
