"""The orchestrator's doors: every one that changes something refuses what it must, and then nothing has changed."""

import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from subnet.canonical import canonical, digest, parse
from subnet.ledger.events import Said
from subnet.nodes import orchestrator_routes
from subnet.nodes.client import ROUTES, Brief, Orders
from subnet.nodes.clock import now_ms
from subnet.wire.merkle import merkle_leaves, merkle_root
from subnet.wire.messages import Checkpoint, Join, Plan, Position, Signed, check_signed, make_signed, read_signed
from template.auth import ALLOWED_SKEW_S, MAX_AGE_S
from template.fake.keys import FakeSigner, FakeVerifier
from template.nonces import FileNonceStore
from tests.ledger.log import hotkey, signer
from tests.ledger.simulation import Simulation
from tests.nodes.asking import ask
from tests.nodes.served import (
    MINERS,
    Request,
    ServedRun,
    blob_request,
    contribution,
    leave_message,
    message_request,
    served,
    simulated,
)

PHASES: dict[str, Simulation] = {}
FRESH_MS = 120_000


def in_phase(phase: str) -> Simulation:
    """A copy of the run in this phase, made once in a while: an orchestrator takes messages of the last ten minutes."""
    if phase not in PHASES or now_ms() - PHASES[phase].now_ms > FRESH_MS:
        PHASES[phase] = simulated(phase)
    return deepcopy(PHASES[phase])


def join(sim: Simulation) -> Request:
    values = {"hotkey": hotkey("eva"), "address": "eva:1", "memory_bytes": 0, "root": "", "time_ms": sim.now_ms}
    return message_request("eva", sim.of(Join, **values))


def lane_member(sim: Simulation) -> str:
    return next(name for name in sim.members() if sim.lane_of(name))


def receipt(sim: Simulation) -> Request:
    name = lane_member(sim)
    return message_request(name, sim.step_receipt(name))


def merged(sim: Simulation) -> Request:
    return message_request("ann", sim.merged("ann", sim.state.members[hotkey("ann")].stage or 0))


def verdict(sim: Simulation) -> Request:
    """A recheck of what validator-1 failed."""
    segment = next(segment for segment in sim.segments("ann") if segment.verdicts)
    return message_request("validator-0", sim.verdict("validator-0", segment, "pass"))


def checkpoint(sim: Simulation) -> Request:
    return message_request("owner", sim.of(Checkpoint, round=0, heldout_loss=5.5, files=(), time_ms=sim.now_ms))


GOOD: dict[str, tuple[str, Callable[[Simulation], Request]]] = {
    "POST /v1/join": ("train", join),
    "POST /v1/leave": ("train", lambda sim: message_request("ann", leave_message(sim, "ann"))),
    "POST /v1/receipts": ("train", receipt),
    "POST /v1/merged": ("merge", merged),
    "POST /v1/seen": ("train", lambda sim: message_request("validator-0", sim.seen("validator-0"))),
    "POST /v1/verdicts": ("train", verdict),
    "POST /v1/checkpoints": ("train", checkpoint),
    "PUT /v1/blobs/{name}": ("merge", lambda sim: blob_request("ann", contribution(sim, "ann"))),
}
MUTATING = list(GOOD)


SHARED: dict[str, ServedRun] = {}


async def shared(phase: str = "train") -> ServedRun:
    """One orchestrator for all tests that it must refuse: each of them sees that it is as it was."""
    if phase not in SHARED:
        SHARED[phase] = await served(in_phase(phase))
    return SHARED[phase]


async def to_refuse(route: str) -> tuple[ServedRun, Request]:
    """The shared orchestrator and a good request to this route."""
    phase, make = GOOD[route]
    run = await shared(phase)
    return run, make(run.sim)


async def to_accept(route: str) -> tuple[ServedRun, Request]:
    """An orchestrator of the test's own and a good request to this route."""
    phase, make = GOOD[route]
    run = await served(in_phase(phase))
    return run, make(run.sim)


async def refused(run: ServedRun, request: Request, headers: dict[str, str], *, body: bytes | None = None) -> str:
    """Send it, see that nothing changed; status and word of the refusal."""
    before = run.facts
    parts = (request.body if body is None else body,)
    answer = await ask(run.app, request.method, request.target, headers=headers, parts=parts)
    assert run.facts == before, "a refused request changed something"
    assert answer.sentence
    return f"{answer.status} {answer.word}"


async def test_the_table_has_every_route_that_changes_something() -> None:
    """A route that is not in it must be a reading one; and none that is signed is missing from `READING`."""
    run = await served(in_phase("train"))
    routes = orchestrator_routes.routes(run.node)
    signed = {f"{route.method} {route.path}" for route in routes if route.signed}
    assert signed == {*MUTATING, *READING}
    assert {f"{route.method} {route.path}" for route in routes if route.method != "GET"} == set(MUTATING)


READING = ["GET /v1/plans", "GET /v1/brief"]


@pytest.mark.parametrize("route", MUTATING)
async def test_a_good_request_passes_and_changes_something(route: str) -> None:
    run, request = await to_accept(route)
    before = run.facts
    answer = await ask(run.app, request.method, request.target, headers=request.headers(), parts=(request.body,))
    assert answer.status == 200, answer.sentence
    assert run.facts != before


EVERY = {
    "unsigned": "401 malformed_auth",
    "wrong signer": "401 bad_signature",
    "altered body": "400 ",
    "altered target": "401 bad_signature",
    "other route": "401 bad_signature",
    "other method": "401 bad_signature",
    "other receiver": "401 wrong_receiver",
    "no receiver": "401 wrong_receiver",
    "expired": "401 expired",
    "future-dated": "401 future_dated",
    "unregistered": "403 unregistered",
}


def headers_of(fault: str, request: Request) -> dict[str, str]:
    """The headers that a sender with this fault would send."""
    now_ns = time.time_ns()
    good = request.headers()
    return {
        "unsigned": {},
        "wrong signer": {**good, "X-Bittensor-Hotkey": hotkey("cem")},
        "altered body": good,
        "altered target": request.headers(target=request.target + "&more=1"),
        "other route": request.headers(target=request.target.replace("/v1/", "/v1/other/")),
        "other method": request.headers(method="DELETE"),
        "other receiver": request.headers(receiver=hotkey("cem")),
        "no receiver": {name: value for name, value in good.items() if name != "X-Bittensor-Receiver"},
        "expired": request.headers(FakeSigner(request.name, now_ns=lambda: now_ns - int((MAX_AGE_S + 5) * 1e9))),
        "future-dated": request.headers(
            FakeSigner(request.name, now_ns=lambda: now_ns + int((ALLOWED_SKEW_S + 5) * 1e9))
        ),
        "unregistered": request.headers(FakeSigner("stranger")),
    }[fault]


@pytest.mark.parametrize("fault", EVERY)
@pytest.mark.parametrize("route", MUTATING)
async def test_every_mutating_route_refuses(route: str, fault: str) -> None:
    """`every_mutating_route_refuses`: whoever signs badly changes nothing, whatever the route."""
    run, request = await to_refuse(route)
    body = bytes([request.body[0] ^ 1]) + request.body[1:] if fault == "altered body" else None
    assert (await refused(run, request, headers_of(fault, request), body=body)).startswith(EVERY[fault])


@pytest.mark.parametrize("fault", [fault for fault in EVERY if fault not in ("altered body",)])
@pytest.mark.parametrize("route", READING)
async def test_what_only_members_may_read_refuses_as_well(route: str, fault: str) -> None:
    """Asking for plans also says that one lives, so nobody may do it for another."""
    run = await shared()
    target = {"GET /v1/plans": "/v1/plans?from=0", "GET /v1/brief": "/v1/brief"}[route]
    request = Request(method="GET", target=target, body=b"", name="ann", receiver=hotkey("owner"))
    if fault == "altered target":
        request = Request(**{**vars(request), "target": target + ("&" if "?" in target else "?") + "x=0"})
        headers = FakeSigner("ann").sign_request("GET", target, hotkey("owner"))
    else:
        headers = headers_of(fault, request)
    assert (await refused(run, request, headers)).startswith(EVERY[fault])


@pytest.mark.parametrize("route", MUTATING)
async def test_a_replayed_request_is_refused_also_after_a_restart(route: str, tmp_path: Path) -> None:
    """The same headers twice; the store of nonces is on disk, so a new process knows them too."""
    phase, make = GOOD[route]
    sim = in_phase(phase)
    nonces = FileNonceStore(tmp_path / "nonces")
    run = await served(sim, nonces)
    request = make(sim)
    headers = request.headers()
    first = await ask(run.app, request.method, request.target, headers=headers, parts=(request.body,))
    assert first.status == 200, first.sentence
    assert await refused(run, request, headers) == "401 replayed"
    nonces.close()
    again = FileNonceStore(tmp_path / "nonces")
    assert await refused(run.restarted(again), request, headers) == "401 replayed"
    again.close()


@pytest.mark.parametrize("route", MUTATING)
async def test_nothing_is_read_of_the_body_of_an_unsigned_request(route: str) -> None:
    run, request = await to_refuse(route)
    answer = await ask(run.app, request.method, request.target, parts=(request.body,))
    assert (answer.status, answer.parts_read) == (401, 0)


MESSAGES = [route for route in MUTATING if route.startswith("POST")]


@pytest.mark.parametrize("route", MESSAGES)
async def test_a_message_signed_by_another_than_it_says_is_refused(route: str) -> None:
    """The request is honest (anybody may relay), the message in it is not its author's."""
    run, request = await to_refuse(route)
    signed = parse(request.body, Signed)
    for forged in (replace(signed, signature="00" * 64), replace(signed, hotkey=hotkey("cem"))):
        changed = message_request("ben", None, signed=forged)  # type: ignore[arg-type]
        assert await refused(run, changed, changed.headers()) == "400 malformed"


@pytest.mark.parametrize("route", MESSAGES)
async def test_a_message_on_another_kind_s_route_is_refused(route: str) -> None:
    run, request = await to_refuse(route)
    signed = parse(request.body, Signed)
    other = next(path for kind, path in ROUTES.items() if kind != signed.kind)
    changed = message_request(request.name, None, signed=signed, route=other)  # type: ignore[arg-type]
    assert await refused(run, changed, changed.headers()) == "400 malformed"


UNPLANNED: dict[str, Callable[[Simulation], Request]] = {
    "a join for another": lambda sim: message_request("ben", parse_join(sim)),
    "a leave of who never joined": lambda sim: message_request("eva", leave_message(sim, "eva")),
    "a receipt for no plan": lambda sim: message_request(
        lane_member(sim), replace(sim.step_receipt(lane_member(sim)), plan="0" * 64)
    ),
    "a receipt of who has no stage": lambda sim: message_request(
        "eva", replace(sim.step_receipt(lane_member(sim)), hotkey=hotkey("eva"))
    ),
    "a merge of no closed set": lambda sim: message_request("ann", sim.merged("ann", 0)),
    "a head that is none": lambda sim: message_request("validator-0", sim.seen("validator-0", root="0" * 64)),
    "a head seen by no validator": lambda sim: message_request("ann", sim.seen("ann")),
    "a verdict that nobody drew": lambda sim: message_request(
        "validator-0", sim.verdict("validator-0", sim.segments("ben")[0])
    ),
    "a verdict with a draw of one's own making": lambda sim: message_request(
        "validator-0", sim.verdict("validator-0", sim.segments("ben")[0], draw=sim.some_draw())
    ),
    "a checkpoint of another's": lambda sim: message_request(
        "ann", sim.of(Checkpoint, round=0, heldout_loss=5.5, files=(), time_ms=sim.now_ms)
    ),
    "a message of another run": lambda sim: message_request("ann", replace(leave_message(sim, "ann"), run_id="0" * 64)),
    "a message of long ago": lambda sim: message_request("ann", replace(leave_message(sim, "ann"), time_ms=1)),
}


def parse_join(sim: Simulation) -> Join:
    return parse(parse(join(sim).body, Signed).body.encode(), Join)


@pytest.mark.parametrize("case", UNPLANNED)
async def test_what_is_not_planned_is_refused(case: str) -> None:
    run = await shared()
    request = UNPLANNED[case](run.sim)
    assert await refused(run, request, request.headers()) == "409 refused"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "malformed"),
        (b"{}", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b'{"kind":"join"}', "malformed"),
        (b"[" * 5000, "malformed"),
    ],
    ids=["empty", "no fields", "no text", "few fields", "deep"],
)
@pytest.mark.parametrize("route", ["/v1/join", "/v1/receipts"])
async def test_a_malformed_body_is_refused(route: str, body: bytes, word: str) -> None:
    run = await shared()
    target = f"{route}?digest={digest(body)}&length={len(body)}"
    request = Request(method="POST", target=target, body=body, name="ann", receiver=hotkey("owner"))
    assert await refused(run, request, request.headers()) == f"400 {word}"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?digest=0",
        "?length=-1&digest=0",
        "?length=x&digest=0",
        "?length=1e3&digest=0",
        "?length=" + "9" * 30 + "&digest=0",
        f"?length={orchestrator_routes.MESSAGE_LIMIT_BYTES + 1}&digest=0",
    ],
)
async def test_a_length_that_is_none_or_too_large_is_refused_before_the_body_is_read(query: str) -> None:
    run = await shared()
    request = Request(method="POST", target=f"/v1/join{query}", body=b"x", name="ann", receiver=hotkey("owner"))
    answer = await ask(run.app, "POST", request.target, headers=request.headers(), parts=(b"x",))
    assert (answer.status, answer.word, answer.parts_read) == (400, "malformed", 0)


async def test_a_body_longer_than_its_target_says_is_cut_off() -> None:
    """Announced as long: not one byte is read. Not announced: reading stops at the first byte too many."""
    run = await shared()
    body = join(run.sim).body
    target = f"/v1/join?digest={digest(body)}&length={len(body)}"
    request = Request(method="POST", target=target, body=body, name="eva", receiver=hotkey("owner"))
    before = run.facts
    announced = await ask(run.app, "POST", target, headers=request.headers(), parts=(body, b"more"))
    assert (announced.status, announced.word, announced.parts_read) == (413, "too_large", 0)
    parts = (body, b"more", b"and more")
    hidden = await ask(run.app, "POST", target, headers=request.headers(), parts=parts, length_bytes=len(body))
    assert (hidden.status, hidden.word, hidden.parts_read) == (413, "too_large", 2)
    assert run.facts == before


async def test_a_body_shorter_than_its_target_says_is_refused() -> None:
    run = await shared()
    request = join(run.sim)
    assert await refused(run, request, request.headers(), body=request.body[:-1]) == "400 body_mismatch"


async def test_the_answer_is_the_orchestrator_s_signature_over_digest_and_position() -> None:
    run, request = await to_accept("POST /v1/receipts")
    answer = await ask(run.app, "POST", request.target, headers=request.headers(), parts=(request.body,))
    signed = parse(answer.body, Signed)
    position = check_signed(signed, Position, FakeVerifier(hotkey("ann")))
    assert signed.hotkey == hotkey("owner")
    assert position.digest == parse(request.body, Signed).digest
    assert position.event == run.node.state.count - 1
    assert run.node.ledger.position(position.digest) == position.event


@pytest.mark.parametrize("route", MESSAGES)
async def test_the_same_message_sent_anew_gets_the_same_position_and_is_logged_once(route: str) -> None:
    """A miner that did not hear the answer asks again."""
    run, request = await to_accept(route)
    answers = [
        await ask(run.app, "POST", request.target, headers=request.headers(), parts=(request.body,)) for _ in range(2)
    ]
    count = run.node.ledger.count
    positions = [check_signed(parse(a.body, Signed), Position, FakeVerifier(hotkey("ann"))) for a in answers]
    assert positions[0] == positions[1] and positions[0].event == count - 1


async def test_anybody_registered_may_relay_another_s_message() -> None:
    """An ignored miner hands its receipt to a validator."""
    sim = in_phase("train")
    run = await served(sim)
    name = lane_member(sim)
    signed = make_signed(sim.step_receipt(name), signer(name))
    request = message_request("validator-1", None, signed=signed)  # type: ignore[arg-type]
    answer = await ask(run.app, "POST", request.target, headers=request.headers(), parts=(request.body,))
    assert answer.status == 200
    assert run.node.state.members[hotkey(name)].head == signed.digest


async def test_an_old_leave_that_is_sent_again_keeps_nobody_from_being_planned() -> None:
    """The ledger is public, so everybody has everybody's old messages."""
    sim = in_phase("train")
    sim.leave("ann")
    left = make_signed(leave_message(sim, "ann"), signer("ann"))
    sim.pass_time(10)
    sim.join("ann", root=sim.state.members[hotkey("ann")].state_root)
    run = await served(sim)
    request = message_request("cem", None, signed=left)  # type: ignore[arg-type]
    answer = await ask(run.app, "POST", request.target, headers=request.headers(), parts=(request.body,))
    assert answer.status == 200
    assert run.node.state.members[hotkey("ann")].active and hotkey("ann") in run.node.outside().alive


async def test_a_stranger_s_blob_and_an_uncommitted_one_are_refused_before_they_are_read() -> None:
    sim = in_phase("merge")
    run = await served(sim)
    for name, data in (("cem", contribution(sim, "ann")), ("ann", b"anything"), ("eva", b"anything")):
        request = blob_request(name, data)
        before = run.facts
        answer = await ask(run.app, "PUT", request.target, headers=request.headers(), parts=(data,))
        assert (answer.status, answer.word, answer.parts_read) == (403, "not_planned", 0)
        assert run.facts == before


async def test_a_blob_is_the_one_that_was_committed() -> None:
    sim = in_phase("merge")
    run = await served(sim)
    data = contribution(sim, "ann")
    request = blob_request("ann", data)
    assert await refused(run, request, request.headers(), body=data[:-4] + b"\0\0\0\1") == "400 bad_evidence"
    too_long = Request(**{**vars(request), "target": f"/v1/blobs/{digest(data)}?length={len(data) + 4}"})
    assert await refused(run, too_long, too_long.headers(), body=data + b"\0\0\0\0") == "400 malformed"


@pytest.mark.parametrize("fault", ["cut", "not finite", "norm"])
async def test_a_contribution_that_nobody_could_reduce_is_not_stored(fault: str) -> None:
    """Committed by its digest all the same: it stays out of the store and so out of the closed set."""
    sim = simulated("close")
    values = np.frombuffer(contribution(sim, "ann"), dtype="<f4").copy()
    if fault == "not finite":
        values[1] = np.inf
    data = values.tobytes()[: -4 if fault == "cut" else None]
    claimed = 0.5 if fault != "norm" else 0.25
    sim.say("ann", sim.close_receipt("ann", contribution=digest(data), contribution_norm=claimed))
    run = await served(sim)
    request = blob_request("ann", data)
    status = await refused(run, request, request.headers())
    assert status == ("422 bad_input" if fault == "not finite" else "400 bad_evidence")
    assert digest(data) not in run.node.outside().stored


async def test_who_is_registered_but_no_member_gets_no_plans() -> None:
    run = await shared()
    for target in ("/v1/plans?from=0", "/v1/brief"):
        request = Request(method="GET", target=target, body=b"", name="eva", receiver=hotkey("owner"))
        assert await refused(run, request, request.headers()) == "403 no_member"


async def test_a_brief_tells_of_the_plan_that_was_made_while_the_miner_joined() -> None:
    """Between the join and the brief a step may be planned: its plan comes before the event to go on from."""
    sim = in_phase("train")
    if sim.state.current is None:
        sim.decide()
    assert sim.state.current is not None
    run = await served(sim)
    for name in MINERS:
        request = Request(method="GET", target="/v1/brief", body=b"", name=name, receiver=hotkey("owner"))
        answer = await ask(run.app, "GET", request.target, headers=request.headers())
        brief = msgspec.json.decode(answer.body, type=Brief)
        planned = [read_signed(e.body.signed, Plan) for e in brief.events if isinstance(e.body, Said)]
        lanes = [plan for plan in sim.state.current.plans.values() if hotkey(name) in plan.path]
        assert planned == lanes and all(peer in brief.peers for plan in lanes for peer in plan.path)


async def test_a_miner_is_told_who_else_may_have_its_stage_s_public_states() -> None:
    """Once it has a stage, with the manifests: never itself, nor replicas of other stages."""
    sim = in_phase("train")
    run = await served(sim)
    for name in MINERS:
        stage = sim.state.members[hotkey(name)].stage
        holders = {h: m.address for h, m in sim.state.members.items() if m.stage == stage and h != hotkey(name)}
        assert holders and all(holders.values())
        for target, kind in (("/v1/brief", Brief), ("/v1/plans?from=0", Orders)):
            request = Request(method="GET", target=target, body=b"", name=name, receiver=hotkey("owner"))
            answer = await ask(run.app, "GET", target, headers=request.headers())
            assert msgspec.json.decode(answer.body, type=kind).holders == holders
        later = Request(
            method="GET", target=f"/v1/plans?from={sim.state.count}", body=b"", name=name, receiver=hotkey("owner")
        )
        answer = await ask(run.app, "GET", later.target, headers=later.headers())
        assert msgspec.json.decode(answer.body, type=Orders).holders == {}


async def test_the_store_gives_ranges_and_the_leaves_that_prove_them() -> None:
    run = await served(in_phase("train"))
    data = bytes(range(251)) * 1000
    root = merkle_root(data)
    run.node.store.put_named(root, data)
    leaves = await ask(run.app, "GET", f"/v1/states/{root}/leaves")
    assert leaves.status == 200 and leaves.body == b"".join(merkle_leaves(data))
    part = await ask(run.app, "GET", f"/v1/blobs/{root}?start=70000&length=9")
    assert part.status == 200 and part.body == data[70000:70009]
    assert (await ask(run.app, "GET", f"/v1/blobs/{root}?start={len(data)}&length=9")).body == b""
    for query in ("start=-1&length=1", "start=0", "start=0&length=x", f"start={len(data) + 1}&length=1"):
        answer = await ask(run.app, "GET", f"/v1/blobs/{root}?{query}")
        assert (answer.status, answer.word) == (400, "malformed")
    missing = await ask(run.app, "GET", f"/v1/states/{'0' * 64}/leaves")
    assert (missing.status, missing.word) == (404, "not_found")


async def test_the_public_routes_answer_anybody() -> None:
    sim = in_phase("train")
    run = await served(sim)
    config = await ask(run.app, "GET", "/v1/config")
    assert config.status == 200 and sim.run.run_id in config.body.decode()
    page = await ask(run.app, "GET", "/v1/ledger?from=3")
    assert page.status == 200 and canonical(sim.events[3]) in page.body and canonical(sim.events[2]) not in page.body
    missing = await ask(run.app, "GET", f"/v1/blobs/{'0' * 64}")
    assert (missing.status, missing.word) == (404, "not_found")
    path = await ask(run.app, "GET", "/v1/blobs/..%2F..%2Fetc%2Fpasswd")
    assert path.status in (400, 404)
    unknown = await ask(run.app, "GET", "/v1/nothing")
    assert unknown.status == 404
