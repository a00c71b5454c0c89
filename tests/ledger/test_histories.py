"""Laws of custody over arbitrary interleavings: steps, rollbacks, fresh starts, deaths, returns, fails, whole rounds.

What must hold is computed here a second time, from the log's receipts alone, without the fold's bookkeeping.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from subnet.errors import RefusedError
from subnet.incentive.score import books
from subnet.ledger.events import Assign, RoundBegin, Said
from subnet.ledger.fold import fold
from subnet.ledger.state import Segment, state_digest
from subnet.ledger.trained import receipt_work
from subnet.wire.messages import Join, Receipt, read_signed
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

NAMES = ("ann", "ben", "cem", "dov")
LATER_MS = 10**9
ANYBODY = st.sampled_from(NAMES)


def short_run() -> Simulation:
    """Rounds of five steps in segments of two, without end; who is refuted is back in the next round."""
    run = run_config(rounds=1000, steps=5)
    return Simulation(run=replace(run, pay=replace(run.pay, quarantine_rounds=1)))


def rooted(sim: Simulation) -> dict[str, set[str]]:
    """The receipts of each hotkey that a committed state covers, by the log alone: all since its root before, less
    what a rollback, a return, a new round or another stage voided."""
    open_: dict[str, list[str]] = {}
    covered: dict[str, set[str]] = {}
    for event in sim.events:
        match event.body:
            case RoundBegin():
                open_.clear()
            case Assign(hotkey=moved):
                open_.pop(moved, None)
            case Said(signed=signed) if signed.kind == "join":
                open_.pop(read_signed(signed, Join).hotkey, None)
            case Said(signed=signed) if signed.kind == "receipt":
                receipt = read_signed(signed, Receipt)
                mine = open_.setdefault(receipt.hotkey, [])
                if receipt.kind == "rollback":
                    mine.clear()
                elif receipt.kind != "fresh":
                    mine.append(signed.digest)
                    if receipt.state_root:
                        covered.setdefault(receipt.hotkey, set()).update(mine)
                        mine.clear()
    return covered


def built_on_a_failed_state(chain: list[Segment]) -> list[bool]:
    """Which segments of a hotkey go back to a refuted one without a fresh start between."""
    tainted, answer = False, []
    for segment in chain:
        tainted = tainted and bool(segment.start_root)
        answer.append(tainted)
        tainted = tainted or segment.upheld_event is not None
    return answer


class Histories(RuleBasedStateMachine):
    """Four miners on two stages; each rule does something that a miner, a validator or the world may do now."""

    @initialize()
    def begin(self) -> None:
        self.sim = short_run()
        self.sim.start(*NAMES)

    def member(self, name: str):
        return self.sim.state.members[hotkey(name)]

    def here(self, name: str) -> bool:
        member = self.member(name)
        return name in self.sim.alive and member.active and member.from_round <= self.sim.state.round

    def at_work(self, name: str) -> bool:
        member = self.member(name)
        return (
            self.here(name)
            and self.sim.lane_of(name) is not None
            and member.hotkey not in self.sim.state.current.receipts
        )

    @precondition(lambda self: self.sim.state.current is not None)
    @rule(silent=st.sets(ANYBODY, max_size=2))
    def step(self, silent: set[str]) -> None:
        self.sim.pass_time(500)
        for name in NAMES:
            if name not in silent and self.at_work(name):
                self.sim.say(name, self.sim.step_receipt(name))
        self.sim.decide()
        if self.sim.state.current is not None and silent:
            self.sim.time_out_step()

    @rule(again=st.sampled_from(["", *NAMES]))
    def go_on(self, again: str) -> None:
        """To the next round; there somebody may start afresh."""
        number = self.sim.state.round
        for _ in range(12):
            if self.sim.state.round > number:
                break
            if self.sim.state.current is not None:
                self.step(set())
            else:
                self.end_phase()
        if again:
            self.start_afresh(again)

    @rule()
    def end_phase(self) -> None:
        """Whatever the round's end wants; where a step cannot be made, everybody's patience."""
        sim = self.sim
        if sim.state.phase == "close":
            sim.do_close(silent=[name for name in NAMES if not self.here(name)])
        elif sim.state.phase == "merge":
            sim.do_merge()
        elif sim.state.current is not None:
            sim.time_out_step()
        sim.pass_time(max(1, sim.state.close_deadline_ms + 1 - sim.now_ms))
        sim.decide()

    @rule(name=ANYBODY)
    def roll_back(self, name: str) -> None:
        if self.member(name).active and self.member(name).stage is not None:
            self.sim.say(name, self.sim.rollback_receipt(name))

    @rule(name=ANYBODY)
    def start_afresh(self, name: str) -> None:
        """The door lets nobody do so in the middle of its round, or from nothing."""
        state, member = self.sim.state, self.member(name)
        entered = member.opened_round == state.round or bool(state.pending.get(member.hotkey))
        if not member.active or member.from_round > state.round:
            return
        if entered or not member.state_root:
            with pytest.raises(RefusedError, match="expected a fresh start"):
                self.sim.say(name, self.sim.fresh_receipt(name))
            return
        self.sim.say(name, self.sim.fresh_receipt(name))
        assert (member.state_root, member.root_steps, member.tainted) == ("", 0, False)
        self.sim.decide()

    @rule(name=ANYBODY, keeps=st.booleans())
    def die_and_return(self, name: str, keeps: bool) -> None:
        self.sim.alive.discard(name)
        self.sim.decide()
        self.sim.join(name, root=self.member(name).state_root if keeps else "")
        self.sim.decide()

    @precondition(lambda self: self.sim.state.segments)
    @rule(data=st.data(), verdict=st.sampled_from(["pass", "fail"]))
    def judge(self, data: st.DataObject, verdict: str) -> None:
        fresh = [s for s in self.sim.state.segments.values() if not s.verdicts]
        if fresh:
            segment = data.draw(st.sampled_from(fresh[-9:]))
            for validator in self.sim.validators:
                self.sim.say(validator, self.sim.verdict(validator, segment, verdict, draw=self.sim.some_draw()))
            self.sim.decide()

    @invariant()
    def work_is_paid_once(self) -> None:
        """Every hotkey is paid exactly for the receipts that a committed state covers and nothing refutes."""
        sim = self.sim
        covered, ledger = rooted(sim), books(sim.state, now_ms=sim.now_ms + LATER_MS, own=None)
        parts = Counter(part for segment in sim.state.segments.values() for part in segment.receipts)
        assert set(parts.values()) <= {1} and set(parts) == set().union(*covered.values(), set())
        for name in NAMES:
            worked = [receipt_work(sim.state, sim.state.receipts[part])[0] for part in covered.get(hotkey(name), ())]
            book = ledger.get(hotkey(name))
            assert sum(worked) == (book.committed if book else 0)
            assert book is None or book.committed == book.refuted + book.payable + book.unpaid

    @invariant()
    def the_chain_of_receipts_is_intact(self) -> None:
        heads = dict.fromkeys(map(hotkey, NAMES), "")
        for event in self.sim.events:
            if isinstance(event.body, Said) and event.body.signed.kind == "receipt":
                receipt = read_signed(event.body.signed, Receipt)
                assert receipt.previous == heads[receipt.hotkey]
                heads[receipt.hotkey] = event.body.signed.digest
        assert heads == {hotkey(name): self.member(name).head for name in NAMES}

    @invariant()
    def what_is_built_on_a_failed_state_is_tainted_until_a_fresh_start(self) -> None:
        for name in NAMES:
            chain = self.sim.segments(name)
            assert [segment.tainted for segment in chain] == built_on_a_failed_state(chain)
            member = self.member(name)
            last = bool(chain) and (chain[-1].tainted or chain[-1].upheld_event is not None)
            assert member.tainted == (last and bool(member.state_root))

    def teardown(self) -> None:
        """`the_state_is_the_log`, whatever happened."""
        if hasattr(self, "sim"):
            assert state_digest(fold(self.sim.events)) == state_digest(self.sim.state)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    max_examples=10,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def taint(sim: Simulation, name: str) -> None:
    """Train until this miner has a segment, and have it refuted."""
    while not sim.segments(name):
        sim.do_step()
    sim.judge(name)


def test_a_miner_that_failed_once_starts_afresh_after_its_quarantine_and_is_paid_again() -> None:
    """Until then it is in no lane; its moments begin at zero; the work after that is paid, the work before is not."""
    sim = short_run()
    sim.start(*NAMES)
    taint(sim, "ann")
    assert sim.state.members[hotkey("ann")].tainted
    sim.do_step(silent=("ann",))
    if sim.state.current and sim.lane_of("ann"):
        sim.time_out_step()
    sim.do_round()
    assert sim.state.round == 1 and not sim.lane_of("ann")
    sim.say("ann", sim.fresh_receipt("ann"))
    sim.do_step()
    sim.do_round()
    while not sim.segments("ann")[-1].round:
        sim.do_round()
    opening = next(segment for segment in sim.segments("ann") if segment.round > 0)
    assert (opening.opens_round, opening.start_root, opening.tainted) == (True, "", False)
    book = books(sim.state, now_ms=sim.now_ms + LATER_MS, own=None)[hotkey("ann")]
    assert book.payable == sum(s.work for s in sim.segments("ann") if s.round > 0) > 0
    assert book.refuted == sum(s.work for s in sim.segments("ann") if s.round == 0) > 0


def test_a_fail_that_comes_after_a_fresh_start_taints_only_what_came_before_it() -> None:
    sim = short_run()
    sim.start(*NAMES)
    sim.do_round()
    for name in NAMES:
        sim.say(name, sim.fresh_receipt(name))
    sim.do_round()
    name = next(name for name in NAMES if {0, 1} <= {segment.round for segment in sim.segments(name)})
    first = sim.segments(name)[0]
    for validator in sim.validators:
        sim.say(validator, sim.verdict(validator, first, draw=sim.some_draw()))
    for segment in sim.segments(name)[1:]:
        assert segment.tainted == (segment.round == 0)
    assert not sim.state.members[hotkey(name)].tainted


def test_a_tainted_miner_that_does_not_start_afresh_is_in_no_lane() -> None:
    sim = short_run()
    sim.start(*NAMES)
    taint(sim, "ann")
    for _ in range(2):
        sim.time_out_step() if sim.state.current and sim.lane_of("ann") else None
        sim.do_round()
    assert sim.state.round == 2 and not sim.lane_of("ann")
    assert {segment.round for segment in sim.segments("ann")} == {0}


@pytest.mark.parametrize("changes", [{"state_root": "a" * 64, "state_bytes": 8}, {"contribution": "a" * 64}])
def test_a_fresh_start_states_nothing(changes: dict[str, object]) -> None:
    sim = short_run()
    sim.start(*NAMES)
    taint(sim, "ann")
    with pytest.raises(RefusedError):
        sim.say("ann", sim.fresh_receipt("ann", **changes))


def test_a_fresh_start_counts_its_steps_from_zero() -> None:
    sim = short_run()
    sim.start(*NAMES)
    sim.do_round()
    with pytest.raises(RefusedError, match="expected the replica's step 0, found 3"):
        sim.say("ann", sim.fresh_receipt("ann", replica_steps=3))
