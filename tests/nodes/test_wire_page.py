"""docs/wire.md is normative: it names every route with its golden target, and its bytes are the golden vectors."""

import ast
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from subnet.canonical import canonical, digest
from subnet.edges.relay import Relay
from subnet.ledger.record import make_record
from subnet.nodes import dialback, miner_routes, orchestrator_routes, relay_routes
from subnet.nodes.client import ROUTES, RunClient
from subnet.nodes.dialback import dial_target
from subnet.nodes.letters import WAIT_S
from subnet.nodes.reach import Peer, Reach
from subnet.wire.letter import answer_target, make_letter, pack, take_target, unpack
from subnet.wire.messages import make_signed
from template.errors import BadSignature, PeerRefused
from template.fake.keys import FakeSigner, FakeVerifier
from template.transport import Response, Route
from tests.ledger.simulation import Simulation
from tests.ledger.test_events import golden as golden_events
from tests.ledger.test_record import RECORD
from tests.nodes.served import served, served_miner
from tests.wire.golden import MINER, RUN_ID, VECTORS, messages, named, vectors


class Recorder:
    """Implements transport.Transport: notes what is asked for, and refuses it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bundles: list[bytes] = []

    async def request(self, method: str, peer: str, target: str, **more: Any) -> Response:
        self.asked.append(f"{method} {target}")
        if target.startswith("/v1/relay/"):
            self.bundles.append(more["body"])
        raise PeerRefused("expected nothing, found a request; this is a test", status=400, word="noted")

    async def download(self, peer: str, target: str, **_: Any) -> AsyncIterator[bytes]:
        self.asked.append(f"GET {target}")
        raise PeerRefused("expected nothing, found a request; this is a test", status=400, word="noted")
        yield b""

    async def close(self) -> None:
        return None


def page(repository: Path) -> str:
    return (repository / "docs" / "wire.md").read_text(encoding="utf-8")


async def golden_targets() -> list[str]:
    """What the real client asks for, with the golden values."""
    recorder, signer = Recorder(), FakeSigner("miner")
    client = RunClient(recorder, "", FakeSigner("other").hotkey, signer=signer, verifier=FakeVerifier(signer.hotkey))
    reach = Reach(client)
    peer = Peer(hotkey=MINER, address="203.0.113.7:8091")
    asking = [
        *(client.say(messages()[kind]) for kind in ROUTES),
        client.facts(),
        client.ledger(120, wait_s=5.0),
        client.orders(120, wait_s=4.0),
        client.brief(),
        client.put(named("contribution"), b"\0" * 8),
        client.get(named("public"), limit_bytes=8),
        client.state(named("public"), 8),
        reach.ask(peer, f"/v1/states/{named('state')}/chunks/7"),
        reach.leaves(peer, named("state"), size_bytes=8),
        reach.want(peer, named("state")),
        reach.blob(peer, named("frame"), limit_bytes=8, patience_s=1.0),
        reach.blob(Peer(hotkey=MINER, address=""), named("frame"), limit_bytes=8, patience_s=1.0),
    ]
    for request in asking:
        with pytest.raises(PeerRefused, match="this is a test"):
            await request
    key = (1, 2, 40, "activation")
    recorder.asked += [f"GET {letter.head.target}" for letter in unpack(recorder.bundles[0])]
    recorder.asked += ["GET " + take_target(WAIT_S), "POST " + answer_target(7, 200, b"\0" * 8)]
    recorder.asked.append("POST " + dial_target("203.0.113.7:8091"))
    recorder.asked.append("POST " + miner_routes.deliver_target(RUN_ID, key, named("frame"), 12_365))
    return recorder.asked


async def test_every_golden_request_target_stands_on_the_page(repository: Path) -> None:
    """Byte for byte: the signature covers the target, so another client must write it in the same way."""
    text = page(repository)
    targets = await golden_targets()
    assert len(set(targets)) == len(targets) == len(ROUTES) + 17
    missing = [target for target in targets if f"`{target}`" not in text]
    assert not missing


async def test_every_route_stands_on_the_page_and_no_other(repository: Path, tmp_path: Path) -> None:
    """With its method, and with whether it is signed."""
    sim = Simulation()
    sim.start("ann", "ben")
    run = await served(sim)
    dialling = dialback.routes(run.node, Recorder(), address_map={})
    at_orchestrator = [*orchestrator_routes.routes(run.node), *relay_routes.routes(run.node, Relay()), *dialling]
    served_by = {"orchestrator": at_orchestrator, "miner": miner_routes.routes(served_miner(tmp_path).miner)}
    rows = {name: section(page(repository), f"### Routes of the {name}") for name in served_by}
    for name, routes in served_by.items():
        assert sorted(map(row_of, routes)) == sorted(
            re.findall(r"^\| (`\w+ /\S+` \| (?:signed|open)) \|", rows[name], re.M)
        )


def section(text: str, title: str) -> str:
    """From this heading to the next."""
    return text.split(title + "\n", 1)[1].split("\n#", 1)[0]


def row_of(route: Route) -> str:
    return f"`{route.method} {route.path}` | {'signed' if route.signed else 'open'}"


@pytest.mark.parametrize("kind", sorted(vectors()))
def test_the_page_s_messages_are_the_golden_ones(repository: Path, kind: str) -> None:
    """Body, digest and domain."""
    part = section(page(repository), f"### `{kind}`")
    assert vectors()[kind]["body"] in part.splitlines()
    assert vectors()[kind]["digest"] in part
    assert vectors()[kind]["signing"].splitlines()[0] in part


def test_the_page_s_frame_record_and_events_are_the_golden_ones(repository: Path) -> None:
    text = page(repository)
    packed = re.sub(r"\s", "", text)
    frame = re.sub(r"\s", "", (VECTORS / "frame_activation_none.hex").read_text())
    assert frame in packed
    question = f"/v1/blobs/{named('frame')}?start=0&length=8"
    assert pack([make_letter("GET", question, {}, b"", answer_bytes=8)]).hex() in packed
    assert make_record(RECORD).hex() in packed
    for row in (golden_events()[0], golden_events()[-1]):
        assert row["event"] in text.splitlines() and row["digest"] in text


def refusals_in(path: Path) -> Iterator[tuple[int, str]]:
    """Status and word of every RefusedRequest that a source file raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RefusedRequest":
            given = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
            yield int(given.get("status") or 400), str(given["word"])


def test_every_refusal_that_a_route_can_give_stands_on_the_page(repository: Path) -> None:
    text = page(repository)
    raised = {found for path in (repository / "subnet").rglob("*.py") for found in refusals_in(path)}
    assert len(raised) > 10
    missing = {
        row for row in raised | set(orchestrator_routes.REFUSALS.values()) if f"| {row[0]} | `{row[1]}` |" not in text
    }
    assert not missing
    assert f"| {BadSignature.status} | `{BadSignature.word}` |" in text


def test_the_page_s_signed_message_is_what_is_sent(repository: Path) -> None:
    signed = make_signed(messages()["leave"], FakeSigner("miner"))
    assert canonical(signed).decode() in page(repository).splitlines()
    assert digest(canonical(signed)) in page(repository)
