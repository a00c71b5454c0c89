"""A miner's doors: a delivery is taken only as its plan has it, and whatever is refused leaves nothing behind."""

import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from subnet.audit.tensors import frame_bytes, make_frame
from subnet.canonical import digest, parse
from subnet.cheats.base import Cheat
from subnet.cheats.withhold import Withhold
from subnet.edges.blobs import LocalBlobs, MemoryBlobs
from subnet.errors import InputError
from subnet.nodes import miner_routes
from subnet.nodes.download import Pace, Source, Tally, Wanted, download_state
from subnet.nodes.inbox import Key, header_of
from subnet.nodes.reach import wanted_target
from subnet.wire.delivery import line_holds, make_line
from subnet.wire.merkle import check_chunk, check_leaves, merkle_leaves, merkle_root, num_chunks
from subnet.wire.messages import Delivery, Signed, check_signed
from template.auth import ALLOWED_SKEW_S, MAX_AGE_S
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.nonces import FileNonceStore
from tests.ledger.log import hotkey
from tests.nodes.asking import Answer, ask
from tests.nodes.served import Request, ServedMiner, served_miner
from tests.nodes.test_rebuilding import write_down


async def deliver(served: ServedMiner, request: Request, headers: dict[str, str] | None = None) -> Answer:
    """Send a delivery, honestly signed unless other headers are given."""
    sent = request.headers() if headers is None else headers
    return await ask(served.app, request.method, request.target, headers=sent, parts=(request.body,))


async def refused(served: ServedMiner, request: Request, headers: dict[str, str] | None = None) -> tuple[str, int]:
    """Send it, see that nothing changed; status and word of the refusal, and how much was read."""
    before = served.facts
    answer = await deliver(served, request, headers)
    assert served.facts == before, "a refused delivery changed something"
    return f"{answer.status} {answer.word}", answer.parts_read


async def test_two_routes_change_something_and_are_signed(tmp_path: Path) -> None:
    routes = miner_routes.routes(served_miner(tmp_path).miner)
    changing = ["/v1/deliver", "/v1/states/{name}/wanted"]
    assert [(r.method, r.path) for r in routes if r.method != "GET"] == [("POST", path) for path in changing]
    assert [r.path for r in routes if r.signed] == changing


@pytest.mark.parametrize(("stage", "kind", "name"), [(1, "activation", "before"), (0, "gradient", "after")])
async def test_a_planned_frame_is_taken_kept_and_signed_for(tmp_path: Path, stage: int, kind: str, name: str) -> None:
    served = served_miner(tmp_path, stage=stage)
    key = served.key(kind=kind)
    frame = served.frame(key)
    answer = await deliver(served, served.request(key, frame, name=name))
    assert answer.status == 200, answer.sentence
    signed = parse(answer.body, Signed)
    delivery = check_signed(signed, Delivery, FakeVerifier(hotkey("before")))
    assert (signed.hotkey, delivery.sender, delivery.receiver) == (hotkey("me"), hotkey(name), hotkey("me"))
    assert (delivery.round, delivery.step, delivery.microbatch, delivery.kind) == key
    assert delivery.digest == digest(frame)
    assert served.miner.blobs.get(digest(frame)) == frame
    assert served.miner.inbox.slots[key].arrived.result()[0] == digest(frame)


def headers_of(fault: str, request: Request) -> dict[str, str]:
    """The headers that a sender with this fault would send."""
    now_ns = time.time_ns()
    good = request.headers()
    return {
        "unsigned": {},
        "wrong signer": {**good, "X-Bittensor-Hotkey": hotkey("after")},
        "other route": request.headers(target=request.target.replace("deliver", "blobs")),
        "other microbatch": request.headers(target=request.target.replace("microbatch=6", "microbatch=7")),
        "other receiver": request.headers(receiver=hotkey("after")),
        "expired": request.headers(FakeSigner("before", now_ns=lambda: now_ns - int((MAX_AGE_S + 5) * 1e9))),
        "future-dated": request.headers(FakeSigner("before", now_ns=lambda: now_ns + int((ALLOWED_SKEW_S + 5) * 1e9))),
        "unregistered": request.headers(FakeSigner("stranger")),
        "not its neighbour": request.headers(FakeSigner("after")),
    }[fault]


FAULTS = {
    "unsigned": "401 malformed_auth",
    "wrong signer": "401 bad_signature",
    "other route": "401 bad_signature",
    "other microbatch": "401 bad_signature",
    "other receiver": "401 wrong_receiver",
    "expired": "401 expired",
    "future-dated": "401 future_dated",
    "unregistered": "409 refused",
    "not its neighbour": "409 refused",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_mutating_route_refuses(tmp_path: Path, fault: str) -> None:
    """`every_mutating_route_refuses`: before a byte of the frame is read."""
    served = served_miner(tmp_path, stages=3)
    request = served.request(served.key(), served.frame(served.key()))
    assert await refused(served, request, headers_of(fault, request)) == (FAULTS[fault], 0)


def thrifty(tmp_path: Path) -> tuple[ServedMiner, str]:
    """A miner that has dropped a state which it can make again, and the root of that."""
    served = served_miner(tmp_path)
    miner = served.miner
    miner.rebuilding.newest, miner.validators = 1, (hotkey("judge"),)
    assert isinstance(miner.blobs, MemoryBlobs)
    return served, write_down(miner.rebuilding)[1]


WANTED_FAULTS = {**FAULTS, "unregistered": "403 no_permit", "not its neighbour": "403 no_permit"}


@pytest.mark.parametrize(
    "fault", [fault for fault in WANTED_FAULTS if fault not in ("other route", "other microbatch")]
)
async def test_every_mutating_route_refuses_who_may_not_want_a_state(tmp_path: Path, fault: str) -> None:
    """`every_mutating_route_refuses`: a state is made again in a validator's turn for nobody else."""
    served, root = thrifty(tmp_path)
    request = Request(method="POST", target=wanted_target(root), body=b"", name="judge", receiver=hotkey("me"))
    assert (await refused(served, request, headers_of(fault, request)))[0] == WANTED_FAULTS[fault]
    assert served.miner.rebuilding.task is None and not served.miner.rebuilding.wanted


async def test_a_validator_has_a_state_made_again_in_its_own_turn(tmp_path: Path) -> None:
    """And is told that it is there, or that it is none, without anything being made."""
    served, root = thrifty(tmp_path)
    mine = served.miner.rebuilding
    here = next(name for name in served.miner.blobs.digests() if name in mine.recipes)
    found = {}
    for what, name in (("here", here), ("nobody's", "0" * 64), ("dropped", root)):
        assert mine.task is None
        request = Request(method="POST", target=wanted_target(name), body=b"", name="judge", receiver=hotkey("me"))
        answer = await deliver(served, request)
        found[what] = answer.status
    assert found == {"here": 200, "nobody's": 404, "dropped": 503}
    assert {who: list(made) for who, made in mine.rebuilt.items()} == {hotkey("judge"): [here]}, (
        "it stays for the judge"
    )
    assert mine.task is not None and mine.making == root
    await mine.task
    assert set(mine._rests_until_s) == {hotkey("judge")}
    mine.close()


@pytest.mark.parametrize(
    "place", [(1, 3, 6, "activation"), (0, 4, 6, "activation"), (0, 3, 8, "activation"), (0, 3, 6, "gradient")]
)
async def test_a_delivery_that_nobody_planned_is_refused_before_its_body_is_read(tmp_path: Path, place: Key) -> None:
    """Another round, step, microbatch, or a gradient to the last stage."""
    served = served_miner(tmp_path)
    request = served.request(place, served.frame(served.key()))
    assert await refused(served, request) == ("409 refused", 0)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("run=", "run=00"),
        ("length=", "length=1"),
        ("length=", "length=-"),
        ("length=", "length=x"),
        ("length=", "longer="),
        ("kind=activation", "kind=weights"),
        ("microbatch=6", "microbatch=six"),
        ("step=3", "step=-3"),
        ("step=3", "step=" + "9" * 25),
        ("round=0", "round="),
    ],
)
async def test_a_target_that_is_not_this_run_s_is_refused_before_the_body_is_read(
    tmp_path: Path, part: str, other: str
) -> None:
    served = served_miner(tmp_path)
    good = served.request(served.key(), served.frame(served.key()))
    assert part in good.target
    changed = Request(**{**vars(good), "target": good.target.replace(part, other)})
    assert await refused(served, changed) == ("409 refused", 0)


@pytest.mark.parametrize("spelling", ["step=03", "kind=activation&kind=activation", "length=0{}", "&more=1"])
async def test_a_delivery_spelled_otherwise_is_refused(tmp_path: Path, spelling: str) -> None:
    """Its signature would be one that nobody could check by plan and receipt alone: no evidence for the receiver."""
    served = served_miner(tmp_path)
    good = served.request(served.key(), served.frame(served.key()))
    size = str(frame_bytes(served.miner.run))
    part = {"step=03": "step=3", "length=0{}": f"length={size}", "&more=1": f"length={size}"}.get(spelling)
    changed = good.target.replace(
        part or "kind=activation", (f"{part}&more=1" if "more" in spelling else spelling).format(size)
    )
    assert changed != good.target
    assert await refused(served, Request(**{**vars(good), "target": changed})) == ("409 refused", 0)


async def test_the_sender_s_signed_line_is_kept_with_what_came(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    key = served.key()
    frame = served.frame(key)
    request = served.request(key, frame)
    headers = request.headers()
    assert (await deliver(served, request, headers)).status == 200
    line = served.miner.inbox.slots[key].line
    assert line == make_line(int(headers["X-Bittensor-Nonce"]), headers["X-Bittensor-Signature"])
    told = {"sender": hotkey("before"), "receiver": hotkey("me"), "verifier": FakeVerifier("anybody")}
    assert line_holds(line, request.target, **told)


async def test_an_altered_cut_or_longer_frame_is_refused(tmp_path: Path) -> None:
    """The signed target holds digest and length of what may follow."""
    served = served_miner(tmp_path)
    key = served.key()
    frame = served.frame(key)
    good = served.request(key, frame)
    for body, word in (
        (frame[:-1] + bytes([frame[-1] ^ 1]), "400 body_mismatch"),
        (frame[:-1], "400 body_mismatch"),
        (frame + b"\0", "413 too_large"),
    ):
        assert (await refused(served, Request(**{**vars(good), "body": body})))[0] == word
    assert (await deliver(served, good)).status == 200


async def test_a_replayed_delivery_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    nonces = FileNonceStore(tmp_path / "nonces")
    served = served_miner(tmp_path, nonces=nonces)
    request = served.request(served.key(), served.frame(served.key()))
    headers = request.headers()
    assert (await deliver(served, request, headers)).status == 200
    assert await refused(served, request, headers) == ("401 replayed", 0)
    nonces.close()
    again = FileNonceStore(tmp_path / "nonces")
    restarted = served_miner(tmp_path, nonces=again)
    assert await refused(restarted, request, headers) == ("401 replayed", 0)
    again.close()


async def test_the_same_frame_delivered_anew_is_signed_for_again(tmp_path: Path) -> None:
    """Its sender did not hear the answer."""
    served = served_miner(tmp_path)
    request = served.request(served.key(), served.frame(served.key()))
    answers = [await deliver(served, request) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].body == answers[1].body


async def test_equivocation_is_refused(tmp_path: Path) -> None:
    """A second frame for the same place with another digest: the first one stands."""
    served = served_miner(tmp_path)
    key = served.key()
    first = served.frame(key)
    assert (await deliver(served, served.request(key, first))).status == 200
    status, _ = await refused(served, served.request(key, served.frame(key, scale=2.0)))
    assert status == "409 refused"
    assert served.miner.inbox.slots[key].arrived.result()[0] == digest(first)


def unfit(served: ServedMiner, fault: str) -> tuple[bytes, str]:
    """A frame of the right size that is refused for what is in it, and the refusal."""
    key = served.key()
    header = header_of(served.miner.run, key)
    values = np.arange(np.prod(header.shape), dtype=np.float32).reshape(header.shape) % 97 / 97
    if fault == "too large":
        return make_frame(header, values * np.float32(1e6)), "422 bad_input"
    if fault == "too small":
        return make_frame(header, values * np.float32(1e-6)), "422 bad_input"
    if fault == "one row":
        return make_frame(header, np.broadcast_to(values[:1, :1], header.shape).copy()), "422 bad_input"
    if fault == "not finite":
        frame = bytearray(make_frame(header, values))
        frame[-4:] = np.float32(np.nan).tobytes()
        return bytes(frame), "422 bad_input"
    if fault == "another header":
        return make_frame(header_of(served.miner.run, served.key(1)), values), "400 malformed_frame"
    return b"\0" * frame_bytes(served.miner.run), "400 malformed_frame"


@pytest.mark.parametrize("fault", ["too large", "too small", "one row", "not finite", "another header", "garbage"])
async def test_an_unfit_frame_is_refused_and_its_microbatch_is_dropped(tmp_path: Path, fault: str) -> None:
    """It is not kept, nobody signs for it, and who waits for it goes on at once: the microbatch pays nobody."""
    served = served_miner(tmp_path)
    key = served.key()
    frame, word = unfit(served, fault)
    answer = await deliver(served, served.request(key, frame))
    assert f"{answer.status} {answer.word}" == word
    assert served.miner.blobs.digests() == [] and not served.miner.inbox.payloads
    with pytest.raises(InputError, match="drop the microbatch"):
        await served.miner.inbox.take(key, until_s=float("inf"))
    status, _ = await refused(served, served.request(key, served.frame(key)))
    assert status == "409 refused", "there is no second try"
    other = served.key(1)
    assert (await deliver(served, served.request(other, served.frame(other)))).status == 200


async def test_the_same_tensor_for_another_microbatch_is_refused(tmp_path: Path) -> None:
    """A repeated digest: whoever sends one activation for all has computed one."""
    served = served_miner(tmp_path)
    first, second = served.key(0), served.key(1)
    values = np.arange(np.prod(header_of(served.miner.run, first).shape), dtype=np.float32)
    tensor = values.reshape(header_of(served.miner.run, first).shape)
    frames = [make_frame(header_of(served.miner.run, key), tensor / 100) for key in (first, second)]
    assert (await deliver(served, served.request(first, frames[0]))).status == 200
    answer = await deliver(served, served.request(second, frames[1]))
    assert (answer.status, answer.word) == (422, "bad_input")
    assert "expected a new tensor, found one that this step had already" in answer.sentence


async def test_a_new_plan_forgets_the_frames_of_the_last_step(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    key = served.key()
    frame = served.frame(key)
    assert (await deliver(served, served.request(key, frame))).status == 200
    served.miner.inbox.open(served.plan, served.stage)
    assert not served.miner.inbox.slots[key].arrived.done()
    assert (await deliver(served, served.request(key, frame))).status == 200


async def test_evidence_is_served_by_name_and_a_name_is_never_a_path(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    data = bytes(range(256)) * 300
    name = served.miner.blobs.put(data)
    answer = await ask(served.app, "GET", f"/v1/blobs/{name}")
    assert (answer.status, answer.body) == (200, data)
    assert (await ask(served.app, "GET", f"/v1/blobs/{'0' * 64}")).status == 404
    for path in ("..", "..%2F..%2Fetc%2Fpasswd", "A" * 64, "%00"):
        assert (await ask(served.app, "GET", f"/v1/blobs/{path}")).status in (400, 404)


async def test_a_chunk_of_a_state_comes_with_its_proof(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    data = bytes(range(251)) * 1000
    root = merkle_root(data)
    served.miner.blobs.put_named(root, data)
    for index in range(4):
        answer = await ask(served.app, "GET", f"/v1/states/{root}/chunks/{index}")
        reply = msgspec.json.decode(answer.body, type=miner_routes.ChunkReply)
        assert reply.length_bytes == len(data)
        assert check_chunk(root, len(data), index, reply.data, reply.proof)
    for index in ("4", "-1", "x", "1e3"):
        answer = await ask(served.app, "GET", f"/v1/states/{root}/chunks/{index}")
        assert (answer.status, answer.word) == (404, "not_found")


async def test_a_state_is_downloaded_by_ranges_that_its_leaves_prove(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    data = bytes(range(251)) * 1000
    root = merkle_root(data)
    served.miner.blobs.put_named(root, data)
    peers = FakePeers()
    peers.apps["me:1"] = served.app
    source, wanted = Source(name="me", peer="me:1"), Wanted(root=root, size_bytes=len(data))
    transport, pace = FakeTransport(peers, None), Pace(piece_chunks=1)
    assert await download_state(transport, [source], wanted, tally=Tally(), pace=pace) == data
    answer = await ask(served.app, "GET", f"/v1/states/{'0' * 64}/leaves")
    assert (answer.status, answer.word) == (404, "not_found")


async def test_the_leaves_of_a_state_are_those_of_its_root(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    data = bytes(range(251)) * 1000
    root, leaves = merkle_root(data), b"".join(merkle_leaves(data))
    served.miner.blobs.put_named(root, data)
    answer = await ask(served.app, "GET", f"/v1/states/{root}/leaves")
    assert (answer.status, answer.body) == (200, leaves) and check_leaves(root, len(data), answer.body)
    part = await ask(served.app, "GET", f"/v1/states/{root}/leaves?start=32&length=64")
    assert part.body == leaves[32:96]
    for path, status in ((f"{'0' * 64}/leaves", 404), (f"{root}/leaves?start=-1&length=5", 409)):
        assert (await ask(served.app, "GET", f"/v1/states/{path}")).status == status


class Counting(MemoryBlobs):
    """Knows how many bytes were read."""

    read_bytes = 0

    def get_range(self, name: str, start: int, length_bytes: int) -> bytes:
        data = super().get_range(name, start, length_bytes)
        self.read_bytes += len(data)
        return data


async def test_a_range_or_a_chunk_reads_no_more_than_that(tmp_path: Path) -> None:
    """A state is read and hashed once for all its proofs; whoever fetches it piece by piece costs what it gets."""
    served = served_miner(tmp_path)
    served.miner.blobs = blobs = Counting(limit_bytes=1 << 24)
    data = bytes(range(251)) * 4000
    root = merkle_root(data)
    blobs.put_named(root, data)
    assert (await ask(served.app, "GET", f"/v1/blobs/{root}?start=5&length=10")).body == data[5:15]
    assert blobs.read_bytes == 10
    for _ in range(2):
        assert (await ask(served.app, "GET", f"/v1/states/{root}/leaves")).status == 200
    assert blobs.read_bytes == 10 + len(data)
    for index in range(num_chunks(len(data))):
        assert (await ask(served.app, "GET", f"/v1/states/{root}/chunks/{index}")).status == 200
    assert blobs.read_bytes == 10 + 2 * len(data)


async def test_a_range_ends_where_the_blob_ends(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    blobs = served.miner.blobs = LocalBlobs(tmp_path / "blobs", limit_bytes=1 << 20)
    name, most = blobs.put(b"0123456789"), "9" * 19
    for start, length, found in (("7", most, b"789"), (most, most, b""), ("0", "0", b"")):
        answer = await ask(served.app, "GET", f"/v1/blobs/{name}?start={start}&length={length}")
        assert (answer.status, answer.body) == (200, found)


class Altering(Cheat):
    """Shows other bytes than it was asked for."""

    def serve_blob(self, honest, digest):
        """The last byte, changed."""
        data = honest(digest)
        return data and data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("cheat", [Altering(1.0), Withhold(1.0)])
async def test_every_way_to_a_state_goes_by_the_cheat(tmp_path: Path, cheat: Cheat) -> None:
    served = served_miner(tmp_path)
    data = bytes(range(251)) * 1000
    root = merkle_root(data)
    served.miner.blobs.put_named(root, data)
    served.miner.cheat = cheat
    for path in (f"blobs/{root}", f"blobs/{root}?start=0&length=9", f"states/{root}/chunks/1", f"states/{root}/leaves"):
        answer = await ask(served.app, "GET", f"/v1/{path}")
        if isinstance(cheat, Withhold):
            assert answer.status == 404
            continue
        served.miner.cheat = Cheat(0.0)
        assert answer.status == 200 and answer.body != (await ask(served.app, "GET", f"/v1/{path}")).body
        served.miner.cheat = cheat


async def test_the_health_page_says_who_works_on_what(tmp_path: Path) -> None:
    served = served_miner(tmp_path)
    answer = await ask(served.app, "GET", "/healthz")
    assert answer.status == 200 and hotkey("me") in answer.body.decode()
