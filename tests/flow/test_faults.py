"""Faults of a network at work: nodes die, come back, arrive and take over, and training goes on (in one process)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from subnet.cheats.base import Cheat
from subnet.config import RunConfig
from subnet.edges.data import load_corpus
from subnet.edges.presets import RunOptions, build_run
from subnet.ledger.events import Assign, Event, Said, StepEnd
from subnet.ledger.fold import fold
from subnet.ledger.state import Segment, state_digest
from subnet.wire.messages import Join, Plan, read_signed
from template.fake.keys import FakeSigner
from tests.flow.network import DRAWS_ALL_RAO, LIMIT_S, Held, Network, network, unhurried

pytestmark = pytest.mark.flow

ALIVE_S = 8.0  # a poll lasts four seconds
DEADLINE_S = 12.0  # longer, so that who died in a step is known to be dead at its end


def small_run(*, rounds: int = 2, steps: int = 8, deadline_s: float = LIMIT_S) -> RunConfig:
    """The smallest model and short rounds; every segment is audited. Who dies in a step is waited for until its
    deadline."""
    run = build_run(RunOptions(model="nano", rounds=rounds, steps=steps, segment_steps=2))
    run = unhurried(run, deadline_s=deadline_s)
    return replace(run, audit=replace(run.audit, rate_frac=1.0), pay=replace(run.pay, audit_window_s=1.0))


def hotkey(name: str) -> str:
    return FakeSigner(name).hotkey


def start(net: Network, cheat: Cheat | None = None, *, alive_s: float = LIMIT_S) -> None:
    """All miners, with a cheat of the test's; how soon the orchestrator notices a death."""
    net.orchestrator.alive_s = alive_s
    for number in range(net.num_miners):
        net.start_miner(f"miner-{number}", cheat)


def segments(net: Network, name: str) -> list[Segment]:
    return [segment for segment in net.state.segments.values() if segment.hotkey == hotkey(name)]


def plans(events: list[Event]) -> Iterator[Plan]:
    """All plans among these events."""
    for body in (event.body for event in events):
        if isinstance(body, Said) and body.signed.kind == "plan":
            yield read_signed(body.signed, Plan)


def ends(events: list[Event]) -> list[StepEnd]:
    return [event.body for event in events if isinstance(event.body, StepEnd)]


def alone(net: Network) -> str:
    """The miner that is the only one of its stage."""
    stages = [member.stage for member in net.state.members.values()]
    key = next(k for k, member in net.state.members.items() if stages.count(member.stage) == 1)
    return next(name for name in net.miners if hotkey(name) == key)


async def bring_back(net: Network, name: str) -> None:
    """Start the process of a killed miner again, over the same folder."""
    net.miners[name].close()
    net.peers.down.discard(f"{name}:1")
    net.start_miner(name)


async def test_a_miner_dies_and_training_goes_on_within_one_step(tmp_path: Path) -> None:
    """Its last step runs to the deadline, what nobody has done of it is planned again, the next lanes leave it out."""
    run = small_run(deadline_s=DEADLINE_S)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        start(net, alive_s=ALIVE_S)
        await net.until(lambda: net.state.global_step >= 2)
        await net.kill("miner-0")
        killed = net.state.global_step
        await net.until(lambda: net.state.global_step >= killed + 4)
        after = ends(net.orchestrator.events)[killed:]
        assert sum(hotkey("miner-0") in end.missing for end in after) <= 1
        await net.until(lambda: net.state.phase == "close" or net.state.round > 0)
        lost = {index for end in after for index in end.requeued}
        done = {index for end in ends(net.orchestrator.events)[killed:] for index in (*end.done, *end.partial)}
        assert lost <= done


async def test_a_miner_that_restarts_inside_a_round_goes_on_from_its_last_committed_state(tmp_path: Path) -> None:
    """Also when it ended before it could write down which state that was: the log knows."""
    run = small_run(rounds=1, steps=14, deadline_s=DEADLINE_S)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        start(net)
        await net.until(lambda: bool(segments(net, "miner-0")))
        await net.kill("miner-0")
        before = segments(net, "miner-0")
        for note in tmp_path.rglob("replica.json*"):
            note.unlink()
        await bring_back(net, "miner-0")
        await net.until(lambda: net.state.phase in ("merge", "done"))
        bodies = [event.body for event in net.orchestrator.events]
        joins = [read_signed(b.signed, Join) for b in bodies if isinstance(b, Said) and b.signed.kind == "join"]
        again = [join for join in joins if join.hotkey == hotkey("miner-0")][1:]
        assert [join.root for join in again] == [before[-1].end_root]
        later = segments(net, "miner-0")[len(before) :]
        assert later and later[0].start_root == before[-1].end_root and not later[0].opens_round
        await net.until(lambda: 1 in net.state.manifests)
        assert net.state.manifests[1].dissenting == ()
        assert hotkey("miner-0") in {e.hotkey for closed in net.state.closed.values() for e in closed.contributions}


async def test_a_miner_that_restarts_while_its_round_closes_or_merges_goes_on(tmp_path: Path) -> None:
    """What it had said already is refused the second time, and that is no reason to end."""
    run = small_run(rounds=2, steps=4, deadline_s=DEADLINE_S)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        start(net)
        await net.until(lambda: net.state.phase in ("close", "merge") or net.state.round > 0)
        await net.kill("miner-1")
        await bring_back(net, "miner-1")
        await net.until(lambda: net.state.phase == "done")
        assert segments(net, "miner-1")[-1].round == 1


async def test_a_joiner_trains_from_the_next_round_s_first_step(tmp_path: Path) -> None:
    """It gets the stage, downloads its public state, and starts with zero moments."""
    run = small_run(rounds=2, steps=6)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2) as net:
        held = Held(4)  # the first round is not over before they have joined
        start(net, held)
        await net.until(lambda: net.state.global_step >= 1)
        for name in ("late-0", "late-1"):
            net.seat(name)
            await net.until(lambda name=name: hotkey(name) in net.state.roster)
            net.start_miner(name)
        await net.until(lambda: {hotkey("late-0"), hotkey("late-1")} <= net.state.members.keys())
        held.go.set()
        await net.until(lambda: net.state.phase == "done")
        late = {hotkey("late-0"), hotkey("late-1")}
        rounds_of = {plan.round for plan in plans(net.orchestrator.events) if late & set(plan.path)}
        assert rounds_of == {1}
        first = next(end for end in ends(net.orchestrator.events) if end.round == 1)
        ran = {
            key for plan in plans(net.orchestrator.events) if plan.round == 1 and plan.step == 0 for key in plan.path
        }
        assert late <= ran and first.missing == ()
        for name in ("late-0", "late-1"):
            opening = segments(net, name)[0]
            assert opening.opens_round and opening.start_root == "" and opening.round == 1
        assert net.state.manifests[2].dissenting == ()


async def test_the_orchestrator_is_stopped_in_mid_round_and_goes_on_from_its_ledger(tmp_path: Path) -> None:
    """The same state to the digest; nobody registers or joins again, nobody changes its stage, no step is lost."""
    run = small_run(rounds=1, steps=10)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=4) as net:
        start(net)
        await net.until(lambda: net.state.global_step >= 3)
        await net.kill("orchestrator")
        before, count = state_digest(net.state), net.state.count
        net.orchestrator.ledger.close()
        net.peers.down.discard("orchestrator:1")
        await net.start_orchestrator()
        assert (state_digest(net.state), net.state.count) == (before, count)
        await net.until(lambda: net.state.phase == "done")
        after = net.orchestrator.events[count:]
        assert not any(isinstance(event.body, Assign) for event in after)
        assert not any(isinstance(e.body, Said) and e.body.signed.kind == "join" for e in after)
        assert net.state.rounds[0].steps == 10 and net.state.manifests[1].dissenting == ()
        assert state_digest(fold(net.orchestrator.ledger.events())) == state_digest(net.state)


async def test_the_last_replica_of_a_stage_dies_and_another_takes_the_stage(tmp_path: Path) -> None:
    """Within one round: the round that cannot go on ends early, and the next one trains on every stage."""
    run = small_run(rounds=2, steps=6, deadline_s=DEADLINE_S)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=3) as net:
        start(net, alive_s=ALIVE_S)
        await net.until(lambda: net.state.global_step >= 2)
        last = alone(net)
        stage = net.state.members[hotkey(last)].stage
        await net.kill(last)
        await net.until(lambda: net.state.round == 1 and net.state.step >= 2)
        taker = next(
            member for member in net.state.members.values() if member.stage == stage and member.from_round == 1
        )
        assert taker.hotkey != hotkey(last)
        assert any(taker.hotkey == plan.path[stage or 0] for plan in plans(net.orchestrator.events))
        assert 0 < net.state.rounds[0].steps < 6


async def test_a_validator_that_restarts_resumes_its_open_audits(tmp_path: Path) -> None:
    """Alone it draws everything: each segment ends up with one verdict of its, those of before the restart included."""
    run = small_run(rounds=1, steps=6)
    async with network(run, load_corpus(run.data), tmp_path, num_miners=2, stakes_rao=(DRAWS_ALL_RAO,)) as net:
        start(net)
        net.start_validator("validator-0")
        await net.until(lambda: any(segment.verdicts for segment in net.state.segments.values()))
        await net.kill("validator-0")
        judged = {segment.id for segment in net.state.segments.values() if segment.verdicts}
        net.start_validator("validator-0")
        await net.until(lambda: net.state.phase == "done" and all(s.verdicts for s in net.state.segments.values()))
        verdicts = [verdict for segment in net.state.segments.values() for verdict in segment.verdicts.values()]
        assert {verdict.verdict for verdict in verdicts} == {"pass"}
        assert len(verdicts) == len(net.state.segments) > len(judged) > 0
