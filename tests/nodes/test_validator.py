"""A validator's own failures, and time that ran out: no judgement of the miner, nothing paid otherwise, tried again."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from subnet.audit.evidence import Evidence, Needed, needed
from subnet.audit.judge import Begun, Judgement, audit, examine, make_verdict
from subnet.data.pack import Corpus
from subnet.errors import BlobMissing, CorpusError, StoreError
from subnet.incentive.owed import pinned_until
from subnet.incentive.score import books
from subnet.nodes.checking_merges import MergeChecks
from subnet.nodes.client import RunClient
from subnet.nodes.dues import LEAST_TRIES, Due, Dues
from subnet.nodes.evidence import NetworkSource, gather
from subnet.nodes.orchestrator_routes import REFUSALS
from subnet.nodes.readiness import REFUSED_IN_A_ROW
from subnet.nodes.validator import NO_PERMIT, Validator
from subnet.wire.messages import Draw
from template.fake.chain import FakeChain
from template.fake.keys import FakeSigner, FakeVerifier
from template.fake.transport import FakePeers, FakeTransport
from template.transport import Incoming, Reply, Route, json_reply
from template.web import application
from tests.audit.lane import SEED, VERIFIER, Lane, lane_run
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config
from tests.nodes.served import ServedRun, served
from tests.nodes.test_orchestrator_routes import in_phase

pytestmark = pytest.mark.flow

WHERE = Draw(block=40, block_hash="0x" + "0" * 64, root="0" * 64, count=1)


def client_of(name: str, peers: FakePeers) -> RunClient:
    signer = FakeSigner(name)
    transport = FakeTransport(peers, signer)
    return RunClient(transport, "orchestrator:1", hotkey("owner"), signer=signer, verifier=FakeVerifier(signer.hotkey))


def validator_of(run: ServedRun, name: str = "validator-0") -> Validator:
    """A validator that follows this orchestrator; its chain is the orchestrator's."""
    peers, me = FakePeers(), FakeSigner(name).hotkey
    peers.apps["orchestrator:1"] = run.app
    assert isinstance(run.node.chain, FakeChain)
    chain = FakeChain(run.node.chain._network, me, hotkey(f"{name}/coldkey"))
    empty = Corpus(tokens=np.zeros(0, dtype=np.uint8), digest="0" * 64, vocabulary=256)
    return Validator(chain, client_of(name, peers), run.sim.run, corpus=empty)


@pytest.fixture(scope="module")
def lane() -> Lane:
    """Honest miners on two stages, one round."""
    made = Lane(lane_run(2))
    made.round(0)
    return made


def ready(lane: Lane, stage: int) -> tuple[Needed, Evidence]:
    need = needed(lane.state, lane.segments(stage)[0], seed=SEED)
    return need, lane.evidence(need)


def corpus_of(lane: Lane, num_tokens: int) -> Corpus:
    """A shard that has nothing, or less than one sequence to train on, and passes for the run's."""
    return Corpus(tokens=np.zeros(num_tokens, dtype=np.uint8), digest=lane.corpus.digest, vocabulary=256)


@pytest.mark.parametrize("num_tokens", [0, 1, 5])
async def test_an_empty_or_too_short_shard_is_the_validator_s_fault(lane: Lane, num_tokens: int) -> None:
    """Only the first stage's replay reads tokens, and the last one's its labels: neither costs the miner anything."""
    validator = validator_of(await served(in_phase("train")))
    for stage in (0, 1):
        need, evidence = ready(lane, stage)
        judging = partial(audit, need, evidence, lane.run, corpus=corpus_of(lane, num_tokens), verifier=VERIFIER)
        judgement = await validator._judge(partial(judging, refused=True))
        assert (judgement.verdict, judgement.reason) == ("void", "validator-fault")
        assert "expected at least" in judgement.details[0]


FAULTS = [
    StoreError("expected the store to answer, found 500; try again"),
    BlobMissing("expected a blob, found none"),
    CorpusError("expected text, found none"),
    OverflowError("too large"),
    ZeroDivisionError("division by zero"),
    AssertionError("our own bug"),
    IndexError("sample larger than population"),
    KeyError("plan"),
    MemoryError("out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ValueError("sample larger than population"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_whatever_fails_in_a_replay_is_no_judgement(fault: Exception) -> None:
    validator = validator_of(await served(in_phase("train")))

    def broken() -> Judgement:
        raise fault

    judgement = await validator._judge(broken)
    assert (judgement.verdict, judgement.reason, judgement.details) == ("void", "validator-fault", (str(fault),))


def void(lane: Lane, need: Needed, judgement: Judgement, validator: str) -> None:
    """Have a validator say it, as the fold takes it."""
    verdict = make_verdict(need, judgement, run_id=lane.run.run_id, validator=validator, draw=WHERE, time_ms=1)
    lane.state.segments[need.case.id].verdicts[validator] = verdict


async def test_a_void_changes_no_score(lane: Lane) -> None:
    """By the ledger alone, and through the eyes of the validator that said it."""
    need, _ = ready(lane, 0)
    judgement = Judgement(verdict="void", reason="validator-fault")

    def seen() -> list[Any]:
        return [books(lane.state, now_ms=now_ms, own=own) for now_ms in (0, 10**12) for own in (None, "validator")]

    before = seen()
    void(lane, need, judgement, "validator")
    assert seen() == before
    del lane.state.segments[need.case.id].verdicts["validator"]


def store_that(answers: Callable[[Incoming], Reply]) -> FakePeers:
    """A run's store behind the orchestrator's address."""

    async def handle(request: Incoming) -> Reply:
        return answers(request)

    peers = FakePeers()
    routes = [Route(method="GET", path="/v1/blobs/{name}", handler=handle, signed=False)]
    peers.apps["orchestrator:1"] = application(routes, None, refusals=REFUSALS)
    return peers


def failing(request: Incoming) -> Reply:
    raise StoreError("expected the store to answer, found it down; try again")


async def fetched(
    lane: Lane, need: Needed, peers: FakePeers, *, limit_s: float, last_s: float = 0.0
) -> tuple[Evidence, NetworkSource]:
    """The evidence that a validator gets within the limit."""
    end_s = asyncio.get_running_loop().time() + limit_s
    addresses = {member: f"{member}:1" for member in lane.state.members}
    client = client_of("validator-0", peers)
    source = NetworkSource(client=client, addresses=addresses, end_s=end_s, last_s=last_s)
    return await gather(source, lane.run, need), source


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: Reply(status=500, body=b"Internal Server Error"),
        lambda request: Reply(status=503),
        failing,
        lambda request: Reply(body=b""),
        lambda request: Reply(body=b"other bytes"),
    ],
    ids=["500", "503", "store down", "nothing", "other bytes"],
)
async def test_a_store_that_fails_is_not_the_miner_s_fault(lane: Lane, answer: Callable[[Incoming], Reply]) -> None:
    """The public state cannot be had; the miner has shown all of its own."""
    need, evidence = ready(lane, 0)
    got, _ = await fetched(lane, need, store_that(answer), limit_s=0.5)
    assert need.public_root and got.public is None
    shown = replace(evidence, public=None)
    judgement = audit(need, shown, lane.run, corpus=lane.corpus, verifier=VERIFIER, refused=True)
    assert (judgement.verdict, judgement.reason) == ("void", "validator-fault")


async def test_who_stalls_directly_until_time_is_over_is_asked_before_the_relay_all_the_same(lane: Lane) -> None:
    """Else it could withhold what it likes: no letter would be left time for, and nobody would have seen a refusal."""

    async def silent(request: Incoming) -> Reply:
        return json_reply({"error": "relay_expired", "message": "found no answer"}, status=504)

    async def nothing(request: Incoming) -> Reply:
        raise BlobMissing("expected a blob, found none; ask for another")

    need, _ = ready(lane, 1)
    peers, relay = FakePeers(), Route(method="POST", path="/v1/relay/{hotkey}", handler=silent, signed=False)
    store = Route(method="GET", path="/v1/blobs/{name}", handler=nothing, signed=False)
    peers.apps["orchestrator:1"] = application([relay, store], None, refusals=REFUSALS)
    peers.hanging = {f"{member}:1" for member in lane.state.members}
    for address in peers.hanging:
        peers.apps[address] = application([], None)
    got, source = await fetched(lane, need, peers, limit_s=0.3, last_s=20.0)
    assert got.frames == {} and source.witnessed(need.case.hotkey)


async def test_time_that_runs_out_is_not_bad_work(lane: Lane) -> None:
    """A miner that answers nothing in time is asked again; a void so far, with its reason, and no fail."""
    need, evidence = ready(lane, 1)
    peers = FakePeers()
    peers.hanging = {f"{member}:1" for member in lane.state.members} | {"orchestrator:1"}
    for address in peers.hanging:
        peers.apps[address] = application([], None)
    got, source = await fetched(lane, need, peers, limit_s=0.3)
    assert got.frames == {} and not source.witnessed(need.case.hotkey), "the relay did not see a refusal"
    late = Evidence(public=evidence.public, start=got.start, frames=got.frames, chunks=got.chunks)
    judgement = audit(need, late, lane.run, corpus=lane.corpus, verifier=VERIFIER, refused=False)
    assert (judgement.verdict, judgement.reason) == ("void", "withheld")
    dues, due = Dues(), Due(segment=need.case.id, draw=WHERE)
    dues.waiting[due.segment] = due
    for number in range(LEAST_TRIES + 2):
        assert not dues.tried(due, float(number), withheld=True, grace_s=60.0)
    assert due.segment in dues.waiting and due.not_before_s > LEAST_TRIES
    whole = audit(need, evidence, lane.run, corpus=lane.corpus, verifier=VERIFIER, refused=False)
    assert whole.verdict == "pass", "the same segment passes once it is shown"


async def test_a_replay_is_not_repeated_for_bytes_that_come_after_it(lane: Lane) -> None:
    """What one try came to is there for the next: this validator has no tokens to compute anything with."""
    validator = validator_of(await served(in_phase("train")))
    await validator.follower.catch_up()
    validator.run = lane.run
    need, evidence = ready(lane, 0)
    begun = examine(need, replace(evidence, chunks={}), lane.run, corpus=lane.corpus, verifier=VERIFIER)
    due = Due(segment=need.case.id, draw=WHERE, begun=begun)
    tried = await validator._tried(due, need)
    assert tried.judgement.verdict == "pass" and isinstance(begun, Begun) and tried.replayed is begun.replayed
    with pytest.raises(CorpusError):
        examine(need, evidence, lane.run, corpus=validator.corpus, verifier=VERIFIER)


async def test_a_restarted_validator_gives_every_miner_the_same_weight() -> None:
    """It keeps no scores of its own, so there is nothing to lose, and nothing old to take up: the ledger has all."""
    run = await served(in_phase("train"))
    first, second = validator_of(run), validator_of(run)
    for validator in (first, second):
        await validator.follower.catch_up()
        validator.view = await validator.chain.view()
    view = first.view
    assert view is not None
    later_ms = first.state.time_ms + 10**9
    scores = [books(v.state, now_ms=later_ms, own=v.hotkey) for v in (first, second)]
    assert scores[0] == scores[1] and any(book.score for book in scores[0].values())
    assert first.scores(view) == second.scores(view)


@pytest.mark.parametrize(("name", "said"), [("validator-0", "permit=yes: segments are drawn"), ("ann", NO_PERMIT)])
async def test_a_validator_says_once_whether_it_has_a_permit_and_what_to_do_without(
    name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    validator = validator_of(await served(in_phase("train")), name)
    await validator.follower.catch_up()
    with caplog.at_level("INFO", "strata.validator"):
        assert [validator._permitted() for _ in range(3)] == [name != "ann"] * 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(said) and ("stake more" in line) == (name == "ann")


class Asked(FakeChain):
    """A chain that notes of which blocks the hash was asked for: once for each draw."""

    blocks: tuple[int, ...] = ()

    async def block_hash(self, block: int) -> str:
        self.blocks += (block,)
        return await super().block_hash(block)


async def test_a_validator_that_starts_again_repeats_no_draw_that_it_has_finished() -> None:
    """In a long run each of them would ask the chain, and look at all segments, for nothing."""
    sim, me = in_phase("train"), hotkey("validator-0")
    sim.pass_time(1_000)
    sim.say("validator-0", sim.seen("validator-0"))
    sim.pass_time(100 * 1_000)
    for segment in sim.state.segments.values():
        sim.say("validator-0", sim.verdict("validator-0", segment, "pass", draw=sim.some_draw()))
    validator = validator_of(await served(sim))
    assert isinstance(validator.chain, FakeChain)
    validator.chain = chain = Asked(validator.chain._network, me, hotkey("validator-0/coldkey"))
    validator.follower._state = sim.state
    await validator._draw(sim.block)
    finished = chain.blocks
    next(iter(sim.state.segments.values())).verdicts.pop(me)
    validator.drawn_block = -1
    await validator._draw(sim.block)
    assert len(chain.blocks) - len(finished) == len(finished) + 1


class Silent(RunClient):
    """A store that never sends a state."""

    def __init__(self, name: str) -> None:
        self.signer, self.asked = FakeSigner(name), asyncio.Event()

    async def state(self, root: str, size_bytes: int, **_: Any) -> bytes:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError("it was waited for")


async def test_a_merge_that_takes_for_ever_holds_up_no_audit() -> None:
    """Somebody fails a segment while a disputed merge is being looked into: the segment is rechecked meanwhile."""
    sim = in_phase("merge")
    stage = sim.state.members[hotkey("ann")].stage or 0
    sim.say("ann", sim.merged("ann", stage, round_number=1, root="e" * 64))
    sim.do_merge(silent=("ann",))
    assert sim.state.dissents == {(1, stage): [hotkey("ann")]}
    validator = validator_of(await served(sim))
    validator.merges = MergeChecks(silent := Silent("validator-0"), sim.run)
    work = asyncio.create_task(validator.work())
    await asyncio.wait_for(silent.asked.wait(), 60.0)
    async with asyncio.timeout(60.0):
        while not any(due.tries for due in validator.dues.waiting.values()):
            await asyncio.sleep(0.05)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_old_fails_are_not_rechecked_for_ever() -> None:
    """Nobody owes their evidence any more; a validator that comes late to a long run has its draws to look at."""
    sim = in_phase("train")
    segment = next(segment for segment in sim.segments("ann") if segment.verdicts)
    assert {who: said.verdict for who, said in segment.verdicts.items()} == {hotkey("validator-1"): "fail"}
    validator = validator_of(await served(sim))
    validator.follower._state = sim.state
    segment.time_ms = 0
    sim.state.round = last = pinned_until(sim.run, segment.round)
    validator._put_foreign()
    assert list(validator.dues.waiting) == [segment.id]
    validator.dues.waiting.clear()
    sim.state.round = last + 1
    validator._put_foreign()
    assert not validator.dues.waiting


def until_done() -> Simulation:
    """A run of one round that is over, long enough ago that its work is no longer pending."""
    sim = Simulation(run=run_config(rounds=1), now_ms=time.time_ns() // 1_000_000 - 600_000)
    for name in ("ann", "ben"):
        sim.seat(name)
    sim.start("ann", "ben")
    sim.do_round()
    assert sim.state.phase == "done"
    return sim


async def ended(sim: Simulation) -> Validator:
    """A validator that has caught up, done every draw, and set the weights that follow."""
    validator = validator_of(await served(sim))
    await validator.follower.catch_up()
    validator.view = await validator.chain.view()
    validator.drawn_block = 10**9
    validator.weighing.weights = validator.scores()
    return validator


async def test_a_validator_is_settled_when_nothing_is_left_to_draw_to_judge_to_pay_or_to_say() -> None:
    """Whoever waits for the end of a run waits for that; each thing that is missing alone keeps it from it."""
    sim = until_done()
    assert not (await ended(sim)).settled(), "it has countersigned no head: nothing can be drawn"
    sim.say("validator-0", sim.seen("validator-0"))
    validator = await ended(sim)
    assert validator.settled() and validator.weights
    last = next(reversed(validator.state.segments))

    validator.weighing.weights = {}
    assert not validator.settled(), "the weights on the chain are others"
    validator.weighing.weights = validator.scores()

    validator.drawn_block = -1
    assert not validator.settled(), "the draw that the last head allows is not done"
    validator.drawn_block = 10**9

    validator.dues.put(last, WHERE)
    assert not validator.settled(), "it has drawn a segment, and not said a word of it"
    judgement = Judgement(verdict="void", reason="withheld")
    need = needed(validator.state, validator.state.segments[last], seed=SEED)
    said = make_verdict(need, judgement, run_id=sim.run.run_id, validator=validator.hotkey, draw=WHERE, time_ms=1)
    validator.state.segments[last].verdicts[validator.hotkey] = said
    assert validator.settled(), "what was found void is said, though it is asked for again"

    validator.state.phase = "merge"
    assert not validator.settled()


async def test_a_validator_is_not_settled_while_work_is_pending() -> None:
    sim = Simulation(run=run_config(rounds=1), now_ms=time.time_ns() // 1_000_000)
    for name in ("ann", "ben"):
        sim.seat(name)
    sim.start("ann", "ben")
    sim.do_round()
    sim.say("validator-0", sim.seen("validator-0"))
    assert sim.run.pay.audit_window_s >= 10.0
    assert not (await ended(sim)).settled()


async def test_a_validator_is_not_settled_while_a_segment_is_after_the_last_head_that_it_saw() -> None:
    sim = until_done()
    first = next(iter(sim.state.segments.values()))
    sim.say("validator-0", sim.seen("validator-0", count=first.event, root=sim.events[first.event - 1].digest))
    assert not (await ended(sim)).settled()


async def test_verdicts_that_are_refused_in_a_row_are_an_alarm() -> None:
    """Else it would audit on for hours, and nothing of it would count."""
    run = await served(in_phase("train"))
    validator = validator_of(run)
    await validator.follower.catch_up()
    validator.readiness.went_well("an answer of the orchestrator")
    segment = next(iter(validator.state.segments.values()))
    need = needed(validator.state, segment, seed=SEED)
    void, stranger = Judgement(verdict="void", reason="validator-fault"), validator_of(run, "nobody")
    for _ in range(REFUSED_IN_A_ROW):
        assert validator.readiness.faults() == []
        client, validator.client = validator.client, stranger.client
        assert not await validator._say(need, None, void)
        validator.client = client
    (fault,) = validator.readiness.faults()
    assert fault.startswith(f"expected what is sent to be taken, found the last {REFUSED_IN_A_ROW} refused: orch")
    assert await validator._say(need, None, void)
    assert validator.readiness.faults() == []
