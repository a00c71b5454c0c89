"""The relay: a miner that nobody can connect to trains, is audited and is paid, and nobody can forge on the way."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.applications import Starlette

from subnet.canonical import digest, parse
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.edges.relay import Relay, RelayLimits
from subnet.errors import EvidenceError
from subnet.incentive.score import books
from subnet.nodes import miner_routes, orchestrator_routes, reach, relay_routes
from subnet.nodes.client import RunClient
from subnet.nodes.evidence import Asked, NetworkSource, State
from subnet.nodes.letters import Letters, bundle_limit_bytes
from subnet.nodes.reach import Peer, Reach
from subnet.wire.letter import Letter, make_letter, pack, unpack
from subnet.wire.merkle import merkle_leaves, merkle_root
from subnet.wire.messages import Delivery, Signed, check_signed
from template.auth import FORWARDED_AGE_S
from template.errors import PeerRefused
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.nonces import MemoryNonceStore
from template.web import application
from tests.flow.network import DRAWS_ALL_RAO, network
from tests.ledger.log import hotkey
from tests.nodes.asking import ask
from tests.nodes.served import ServedMiner, served, served_miner, simulated
from tests.nodes.test_rebuilding import ended, write_down

OPTIONS = RunOptions(model="nano", rounds=1, steps=4, segment_steps=2, audit_rate=1.0)
ORCHESTRATOR = "orchestrator:1"
ME, BEFORE, EVE = hotkey("me"), hotkey("before"), hotkey("eve")


@pytest.mark.flow
async def test_an_outbound_only_miner_is_acknowledged_audited_and_paid_like_the_others(tmp_path: Path) -> None:
    run = build_run(OPTIONS)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2, stakes_rao=(DRAWS_ALL_RAO,)) as net:
        hidden = net.start_miner("miner-0", outbound_only=True).signer.hotkey
        other = net.start_miner("miner-1").signer.hotkey
        net.start_validator("validator-0")
        await net.until(lambda: net.state.phase == "done")
        await net.until(lambda: all(segment.verdicts for segment in net.state.segments.values()))
        state = net.state
        assert state.members[hidden].address == "" and state.members[other].address == "miner-1:1"
        mine = [segment for segment in state.segments.values() if segment.hotkey == hidden]
        assert mine and {v.verdict for segment in mine for v in segment.verdicts.values()} == {"pass"}
        paid = books(state, now_ms=state.time_ms + 10**9, own=None)
        assert paid[hidden].payable > 0 and paid[hidden].refuted == 0
        assert net.relay.carried > 0 and net.relay.held_bytes == 0


@dataclass(kw_only=True)
class Post:
    """An orchestrator with a relay, a miner "me" behind it that nobody can connect to, and who writes to it."""

    relay: Relay
    peers: FakePeers
    app: Starlette
    served: ServedMiner
    nonces: MemoryNonceStore
    ahead_s: int = 0  # the miner's clock, to everybody else's

    def client(self, name: str, *, ahead_s: int = 0) -> RunClient:
        """ahead_s: how far its clock is ahead of everybody else's."""
        signer = FakeSigner(name, now_ns=lambda: time.time_ns() + ahead_s * 10**9)
        transport = FakeTransport(self.peers, signer)
        return RunClient(transport, ORCHESTRATOR, hotkey("owner"), signer=signer, verifier=FakeVerifier(signer.hotkey))

    def delivery(self, position: int = 0) -> tuple[str, bytes]:
        key = self.served.key(position)
        frame = self.served.frame(key)
        return self.served.request(key, frame).target, frame

    async def hand_in(self, letter: Letter, *, by: str = "before", to: str = ME, **changes: object) -> bytes:
        """Write to the relay as `Reach` does, with changes of the target's parts."""
        bundle = pack([letter])
        parts = {"digest": digest(bundle), "length": len(bundle), "answer": letter.head.answer_bytes} | changes
        target = f"/v1/relay/{to}?" + "&".join(f"{name}={value}" for name, value in parts.items())
        transport = FakeTransport(self.peers, FakeSigner(by))
        response = await transport.request("POST", ORCHESTRATOR, target, body=bundle, receiver=hotkey("owner"))
        return response.body


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    node = (await served(simulated("train"))).node
    state, relay, peers, nonces = node.state, Relay(), FakePeers(), MemoryNonceStore()
    for name in ("me", "before", "eve"):
        state.roster[hotkey(name)] = state.roster[hotkey("ann")]
    state.members[ME] = state.members[hotkey("ann")]
    routes = [*orchestrator_routes.routes(node), *relay_routes.routes(node, relay)]
    peers.apps[ORCHESTRATOR] = application(routes, node.verifier, refusals=orchestrator_routes.REFUSALS)
    miner = served_miner(tmp_path)
    forwarded = FakeVerifier(
        ME, nonces, max_age_s=FORWARDED_AGE_S, now_ns=lambda: time.time_ns() + post.ahead_s * 10**9
    )
    app = application(miner_routes.routes(miner.miner), forwarded, refusals=orchestrator_routes.REFUSALS)
    post = Post(relay=relay, peers=peers, app=app, served=miner, nonces=nonces)
    letters = Letters(post.client("me"), app, limit_bytes=bundle_limit_bytes(miner.miner.run))
    working = asyncio.create_task(letters.work())
    while not relay.waits_for(ME):
        await asyncio.sleep(0)
    yield post
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_a_delivery_by_letter_is_taken_and_signed_for_like_a_direct_one(post: Post) -> None:
    target, frame = post.delivery()
    response = await Reach(post.client("before")).deliver(Peer(hotkey=ME, address=""), target, frame)
    signed = parse(response.body, Signed)
    delivery = check_signed(signed, Delivery, FakeVerifier(BEFORE))
    assert (signed.hotkey, delivery.sender, delivery.receiver, delivery.digest) == (ME, BEFORE, ME, digest(frame))
    assert post.served.miner.blobs.get(digest(frame)) == frame


async def test_after_a_failed_connection_letters_are_used_without_trying_again(post: Post) -> None:
    client = post.client("before")
    peer = Peer(hotkey=ME, address="203.0.113.9:1")
    for position in (0, 1):
        assert Reach(client).directly(peer) == (position == 0)
        await Reach(client).deliver(peer, *post.delivery(position))
    assert post.relay.carried == 2


@pytest.mark.parametrize("seconds", [-60, 60])
async def test_a_neighbour_whose_clock_is_a_minute_off_delivers_all_the_same(post: Post, seconds: int) -> None:
    """Either may be the one that is wrong; what is refused for its date is signed again, by the receiver's clock."""
    post.peers.apps["me:1"] = application(
        miner_routes.routes(post.served.miner),
        FakeVerifier(ME, now_ns=lambda: time.time_ns() + seconds * 10**9),
        refusals=orchestrator_routes.REFUSALS,
    )
    client = post.client("before")
    for position in (0, 1):
        target, frame = post.delivery(position)
        assert (await Reach(client).deliver(Peer(hotkey=ME, address="me:1"), target, frame)).status == 200
    assert post.relay.carried == 0


@pytest.mark.parametrize("seconds", [-100, -60, 60, 3000])
async def test_a_letter_of_a_sender_whose_clock_is_off_is_dated_again(post: Post, seconds: int) -> None:
    """The relay says by how much, and nobody signs in the receiver's place for that."""
    client = post.client("before", ahead_s=seconds)
    for position in (0, 1):
        target, frame = post.delivery(position)
        response = await Reach(client).deliver(Peer(hotkey=ME, address=""), target, frame)
        assert parse(response.body, Signed).hotkey == ME
    assert post.relay.carried == 3


async def test_a_receiver_s_word_on_a_letter_s_date_says_nothing_of_the_relay_s_clock(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """The receiver's clock is a minute behind: letters to it are dated so, and requests to the relay as before."""
    post.ahead_s = -60
    client = post.client("before")
    target, frame = post.delivery()
    assert (await Reach(client).deliver(Peer(hotkey=ME, address=""), target, frame)).status == 200
    assert [record.getMessage().partition(";")[0] for record in caplog.records if record.name == "template.clocks"] == [
        f"clock=60.0 s ahead receiver={ME}"
    ]


async def test_a_peer_that_refuses_is_not_asked_again_by_letter(post: Post) -> None:
    peer = Peer(hotkey=ME, address="me:1")
    post.peers.apps["me:1"] = application(
        miner_routes.routes(post.served.miner), FakeVerifier(ME), refusals=orchestrator_routes.REFUSALS
    )
    target, frame = post.delivery()
    with pytest.raises(PeerRefused, match="refused"):
        await Reach(post.client("eve")).deliver(peer, target, frame)
    assert post.relay.carried == 0


async def refused(post: Post, letter: Letter, **changes: object) -> str:
    """Hand a letter in that must not be taken; the word of the refusal. Nothing at the miner may change."""
    before = post.served.facts
    with pytest.raises(PeerRefused) as caught:
        await post.hand_in(letter, **changes)
    assert post.served.facts == before and post.relay.held_bytes == 0
    return f"{caught.value.status} {caught.value.word}"


def signed_letter(post: Post, *, by: str = "before", to: str = ME, target: str = "", frame: bytes = b"") -> Letter:
    own_target, own_frame = post.delivery()
    headers = FakeSigner(by).sign_request("POST", own_target, to)
    return make_letter("POST", target or own_target, headers, frame or own_frame, answer_bytes=1000)


async def test_whoever_carries_a_letter_can_neither_alter_nor_forge_it(post: Post) -> None:
    """Each letter as a dishonest relay would hand it to the miner, past the relay's own checks."""
    target, frame = post.delivery()
    other, other_frame = post.delivery(1)
    altered = bytearray(frame)
    altered[-1] ^= 1
    stale = FakeSigner("before", now_ns=lambda: 1).sign_request("POST", target, ME)
    letters = {
        "401 bad_signature": signed_letter(post, target=other, frame=other_frame),
        "400 body_mismatch": signed_letter(post, frame=bytes(altered)),
        "401 wrong_receiver": signed_letter(post, to=EVE),
        "409 refused": signed_letter(post, by="eve"),
        "401 malformed_auth": make_letter("POST", target, {}, frame, answer_bytes=1000),
        "401 expired": make_letter("POST", target, stale, frame, answer_bytes=1000),
    }
    for expected, letter in letters.items():
        before = post.served.facts
        answer = await ask(post.app, "POST", letter.head.target, headers=letter.head.headers, parts=(letter.body,))
        assert f"{answer.status} {answer.word}" == expected and post.served.facts == before


async def test_a_letter_is_taken_once_and_not_again_directly(post: Post) -> None:
    letter = signed_letter(post)
    assert parse(await post.hand_in(letter), Signed).hotkey == ME
    assert await refused(post, letter) == "409 replayed"
    routes, verifier = miner_routes.routes(post.served.miner), FakeVerifier(ME, post.nonces)
    direct = application(routes, verifier, refusals=orchestrator_routes.REFUSALS)
    answer = await ask(direct, "POST", letter.head.target, headers=letter.head.headers, parts=(letter.body,))
    assert answer.word == "replayed"


async def test_what_the_relay_itself_refuses_is_not_carried(post: Post) -> None:
    letter = signed_letter(post)
    health = make_letter("GET", "/healthz", {}, b"", answer_bytes=10)
    found = {
        "of somebody else": await refused(post, letter, by="eve"),
        "by a stranger": await refused(post, letter, by="stranger"),
        "to nobody": await refused(post, letter, to=EVE),
        "another route": await refused(post, health),
        "too long": await refused(post, letter, length=1 << 40),
        "too long an answer": await refused(post, letter, answer=1 << 40),
        "another answer": await refused(post, letter, answer=1),
        "another digest": await refused(post, letter, digest="0" * 64),
    }
    assert found == {
        "of somebody else": "409 refused",
        "by a stranger": "403 unregistered",
        "to nobody": "404 no_member",
        "another route": "409 refused",
        "too long": "400 malformed",
        "too long an answer": "400 malformed",
        "another answer": "409 refused",
        "another digest": "400 body_mismatch",
    }
    assert post.relay.carried == 0


async def test_every_door_of_the_relay_is_signed(post: Post) -> None:
    unsigned = FakeTransport(post.peers, None)
    for method, target in (("GET", "/v1/relay"), ("POST", f"/v1/relay/{ME}"), ("POST", "/v1/relay/answers/1")):
        with pytest.raises(PeerRefused, match="malformed_auth"):
            await unsigned.request(method, ORCHESTRATOR, target)


async def test_nobody_takes_or_answers_the_letters_of_another(post: Post) -> None:
    eve = FakeTransport(post.peers, FakeSigner("eve"))
    taken = await eve.request("GET", ORCHESTRATOR, "/v1/relay?wait_s=0", receiver=hotkey("owner"))
    assert unpack(taken.body) == ()
    ann = FakeTransport(post.peers, FakeSigner("ann"))
    with pytest.raises(PeerRefused, match="no_letter"):
        await ann.request("POST", ORCHESTRATOR, "/v1/relay/answers/1?status=200&length=0", receiver=hotkey("owner"))


async def test_evidence_comes_by_letter_in_pieces_and_is_verified(post: Post) -> None:
    state = bytes(range(256)) * 300
    root, blobs = merkle_root(state), post.served.miner.blobs
    asker = Reach(post.client("before"), piece_bytes=1000)
    blobs.put_named(root, state)
    me = Peer(hotkey=ME, address="")
    for limit_bytes in (len(state), len(state) + 1):
        assert await asker.blob(me, root, limit_bytes=limit_bytes, patience_s=0.0) == state
    assert post.relay.carried == 2 * 77
    chunk = await asker.ask(me, f"/v1/states/{root}/chunks/1")
    assert b'"length_bytes":76800' in chunk.body
    assert await asker.leaves(me, root, size_bytes=len(state)) == b"".join(merkle_leaves(state))
    with pytest.raises(EvidenceError, match="expected the leaves of"):
        await asker.leaves_by_letter(me, root, size_bytes=len(state) - 1)
    with pytest.raises(PeerRefused, match="not_found"):
        await asker.blob(me, "0" * 64, limit_bytes=10, patience_s=0.0)
    with pytest.raises(EvidenceError):
        await asker.blob(me, root, limit_bytes=500, patience_s=0.0)


@pytest.mark.parametrize("what", ["whole", "leaves", "chunk"])
async def test_who_makes_a_state_again_says_later_and_not_no_also_by_letter(post: Post, what: str) -> None:
    """The relay hands a member's 503 on as 502: with its word, which is no refusal; and the validator gets its turn."""
    miner = post.served.miner
    mine = miner.rebuilding
    mine.newest, miner.validators = 1, (BEFORE,)
    roots, gate = write_down(mine), threading.Event()
    mine._thread.submit(gate.wait)  # what is being made is not ready before that
    end_s = asyncio.get_running_loop().time() + 20.0
    source = NetworkSource(client=post.client("before"), addresses={ME: ""}, end_s=end_s)
    dropped, frame = State(holder=ME, root=roots[1], size_bytes=1), "0" * 64
    request = {"whole": source.whole, "leaves": source.leaves, "chunk": lambda state: source.chunk(state, 0)}[what]
    assert await request(dropped) is None
    assert source.asked[ME] == Asked(later=1) and source.put_off(ME)
    assert mine.making == roots[1] and mine.wanted == {BEFORE: [roots[1]]}
    assert await source.blob(ME, frame, 8) is None
    assert source.asked[ME] == Asked(later=1, refused=1) and source.witnessed(ME)
    gate.set()
    await ended(mine)
    mine.close()


async def test_an_answer_longer_than_asked_for_is_refused_by_the_miner_itself(post: Post) -> None:
    state = bytes(20_000)
    post.served.miner.blobs.put_named(digest(state), state)
    letter = make_letter("GET", f"/v1/blobs/{digest(state)}", {}, b"", answer_bytes=100)
    assert await refused(post, letter) == "413 too_large"


async def test_a_miner_survives_what_a_relay_hands_it(post: Post) -> None:
    """Letters for other routes, wrong ones, and bundles that are none: each is answered or left, and work goes on."""
    for letter in (make_letter("GET", "/healthz", {}, b"", answer_bytes=10), signed_letter(post, to=EVE)):
        with post.relay.room("x", ME, 10):
            assert (await post.relay.send(ME, letter)).status in (401, 403)
    target, frame = post.delivery()
    assert (await Reach(post.client("before")).deliver(Peer(hotkey=ME, address=""), target, frame)).status == 200


def test_a_relay_keeps_more_than_a_letter_of_every_lane_neighbour() -> None:
    limits = RelayLimits()
    assert limits.bundle_bytes < limits.bytes_per_receiver < limits.bytes_in_all
    assert limits.life_s < reach.LETTER_S and limits.life_s < FORWARDED_AGE_S
