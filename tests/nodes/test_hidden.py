"""A neighbour that hides what it received: it shows the frames at an audit of its own, or is the one that withholds."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from subnet.audit.case import Hop
from subnet.audit.evidence import Evidence, Outbound, Wanted
from subnet.cheats.base import Cheat
from subnet.cheats.registry import make_cheat
from subnet.data.pack import Corpus
from subnet.edges.blobs import MemoryBlobs
from subnet.incentive.score import books
from subnet.ledger.state import Segment
from subnet.nodes.client import RunClient
from subnet.nodes.hidden import MOST_FRAMES, Hidden
from subnet.nodes.validator import Validator
from subnet.wire.messages import Draw, Message
from template.fake.chain import FakeChain
from template.fake.keys import FakeSigner
from template.fake.transport import FakePeers, FakeTransport
from tests.audit.lane import VALIDATORS, VERIFIER, Lane, lane_run
from tests.ledger.log import hotkey
from tests.nodes.served import ServedRun, served, served_miner
from tests.nodes.test_orchestrator_routes import in_phase

WHERE = Draw(block=40, block_hash="0x" + "0" * 64, root="0" * 64, count=1)


class Watched(Cheat):
    """Notes what it is asked for, and shows nothing of what is named."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.asked: Counter[str] = Counter()
        self.hides: set[str] = set()

    def serve_blob(self, honest: Any, digest: str) -> bytes | None:
        """The blob, unless it is hidden."""
        self.asked[digest] += 1
        data: bytes | None = None if digest in self.hides else honest(digest)
        return data


class Named(FakeSigner):
    """A signer whose hotkey is a name of the lane's roster."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._hotkey = name


class Speaker(RunClient):
    """What it says stands in the lane's ledger at once."""

    lane: Lane

    async def say(self, message: Message, *, patience_s: float | None = None) -> int:
        """Log it."""
        self.lane.say(self.signer.hotkey, message)
        return self.lane.state.count - 1


class Audited:
    """A lane whose miners answer, and validators that follow its ledger."""

    def __init__(self, lane: Lane, run: ServedRun, folder: Path) -> None:
        self.lane, self.run, self.peers = lane, run, FakePeers()
        self.peers.apps["orchestrator:1"] = run.app
        for root, data in lane.public.items():
            run.node.store.put_named(root, data)
        self.doors: dict[str, Watched] = {}
        for miner in lane.miners:
            door = served_miner(folder)
            self.doors[miner.hotkey] = door.miner.cheat = Watched()
            assert isinstance(door.miner.blobs, MemoryBlobs)
            for name, data in (miner.received | miner.deliveries | miner.states).items():
                door.miner.blobs.put_named(name, data)
            self.peers.apps[f"{miner.hotkey}:1"] = door.app
            lane.state.members[miner.hotkey].address = f"{miner.hotkey}:1"

    def validator(self, name: str) -> Validator:
        """One that has seen the whole ledger."""
        signer = Named(name)
        transport = FakeTransport(self.peers, signer)
        client = Speaker(transport, "orchestrator:1", hotkey("owner"), signer=signer, verifier=VERIFIER)
        client.lane = self.lane
        assert isinstance(self.run.node.chain, FakeChain)
        chain = FakeChain(self.run.node.chain._network, name, f"cold-{name}")
        corpus: Corpus = self.lane.corpus
        validator = Validator(chain, client, self.lane.run, corpus=corpus)
        validator.follower._state = self.lane.state
        return validator


async def audited(validator: Validator, segment: Segment) -> str:
    """Audit what is due of a segment until something is said; verdict and reason."""
    while segment.id in validator.dues.waiting:
        await validator._audit(validator.dues.waiting[segment.id])
    said = segment.verdicts[validator.hotkey]
    return f"{said.verdict} {said.reason}"


async def colluding(folder: Path) -> tuple[Audited, Segment, Segment]:
    """A sender that poisons what it sends, and a receiver that hides it; a segment of each."""
    run = lane_run(2)
    lane = Lane(
        msgspec.structs.replace(run, audit=msgspec.structs.replace(run.audit, grace_s=0.0)),
        {0: make_cheat("scale", 0.01)},
    )
    lane.round(0, close=False)
    net = Audited(lane, await served(in_phase("train")), folder)
    sender, receiver = lane.segments(0)[0], lane.segments(1)[0]
    sent = {work.output for part in sender.receipts for work in lane.state.receipts[part].work}
    net.doors[receiver.hotkey].hides |= sent
    return net, sender, receiver


@pytest.mark.flow
async def test_a_receiver_that_shows_the_frames_at_its_own_audit_alone_betrays_their_sender(tmp_path: Path) -> None:
    net, sender, receiver = await colluding(tmp_path)
    hides = net.doors[receiver.hotkey].hides
    validator = net.validator(VALIDATORS[0])
    validator.dues.put(sender.id, WHERE)
    assert await audited(validator, sender) == "void neighbour-missing"
    assert set(sender.verdicts[validator.hotkey].evidence) & hides

    validator._put_foreign()
    assert list(validator.dues.waiting) == [receiver.id], "the receiver owes these frames itself"
    hidden, net.doors[receiver.hotkey].hides = hides, set()
    assert await audited(validator, receiver) == "pass ok"
    net.doors[receiver.hotkey].hides = hidden

    validator.dues.put(sender.id, WHERE)
    assert await audited(validator, sender) == "fail activation"


@pytest.mark.flow
async def test_a_receiver_that_hides_the_frames_at_its_own_audit_too_loses_its_score_and_the_sender_none(
    tmp_path: Path,
) -> None:
    """The sender may be honest: a neighbour's fault costs it nothing."""
    net, sender, receiver = await colluding(tmp_path)
    first, second = (net.validator(name) for name in VALIDATORS)
    first.dues.put(sender.id, WHERE)
    assert await audited(first, sender) == "void neighbour-missing"
    for validator, said in ((first, "void withheld"), (second, "fail withheld"), (first, "fail withheld")):
        validator.dues.rests_until_s.clear()
        validator._put_foreign()
        assert await audited(validator, receiver) == said
    state = net.lane.state
    assert receiver.upheld_event is not None and sender.upheld_event is None
    paid = books(state, now_ms=state.time_ms + 10**12, own=None)
    assert paid[receiver.hotkey].payable == 0 and paid[receiver.hotkey].refuted > 0
    assert paid[sender.hotkey].payable == paid[sender.hotkey].committed > 0


@pytest.mark.flow
async def test_what_one_try_got_is_not_fetched_again_by_the_next(tmp_path: Path) -> None:
    """A miner that shows all but one frame is asked for that one; its states are large."""
    lane = Lane(lane_run(2))
    lane.round(0, close=False)
    net = Audited(lane, await served(in_phase("train")), tmp_path)
    segment = lane.segments(1)[1]
    door, validator = net.doors[segment.hotkey], net.validator(VALIDATORS[0])
    validator.dues.put(segment.id, WHERE)
    due = validator.dues.waiting[segment.id]
    missing = lane.state.receipts[segment.receipts[0]].work[0].input
    door.hides.add(missing)
    await validator._audit(due)
    assert segment.start_root in door.asked and segment.end_root in door.asked
    door.asked.clear()
    await validator._audit(due)
    assert set(door.asked) == {missing}
    door.hides.clear()
    assert await audited(validator, segment) == "pass ok"
    assert segment.start_root not in door.asked


def wanted(*names: str) -> Wanted:
    hop: Hop = (0, 1, "activation")
    return Wanted(frames=tuple(Outbound(hop=hop, digest=name, receiver="r") for name in names))


def test_only_frames_that_were_missing_are_kept_and_no_more_than_a_few() -> None:
    hidden = Hidden()
    hidden.missed("old", [f"old {number}" for number in range(MOST_FRAMES)])
    assert hidden.look_at(Evidence(frames={"old 0": b"0", "other": b"1"})) == {"old"}
    assert hidden.look_at(Evidence(frames={"old 0": b"0"})) == set(), "it was found before"
    assert hidden.of(wanted("old 0", "other")).frames == {"old 0": b"0"}
    hidden.missed("new", ["a"])
    assert hidden.of(wanted("old 0")).frames == {}, "the oldest is forgotten"
    assert hidden.look_at(Evidence(frames={"a": b"2", "old 0": b"0"})) == {"new"}
    hidden.settled("new")
    assert hidden.of(wanted("a")).frames == {} and hidden.look_at(Evidence(frames={"a": b"2"})) == set()
