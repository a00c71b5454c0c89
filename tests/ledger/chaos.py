"""Random histories of a simulated run: miners die, lie, come late, come back, arrive and leave; everything restarts."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest
from msgspec.structs import replace

from subnet.errors import RefusedError
from tests.ledger.log import hotkey
from tests.ledger.simulation import Simulation
from tests.ledger.small import run_config

SEEDS = 3  # histories are those of the seeds below this
MOVES = 52
MINERS = ("ann", "ben", "cem", "dov", "eva")


@cache
def shaken(seed: int, *, stages: int = 2) -> Simulation:
    """The history that this seed gives: two miners of one coldkey among five, short quarantine, rounds without end.

    Made once for all tests that look at it, so look at it only.
    """
    run = run_config(stages=stages, rounds=1000)
    sim = Simulation(run=replace(run, pay=replace(run.pay, quarantine_rounds=1)))
    sim.seat("ben", coldkey="ann/coldkey")
    sim.start(*MINERS)
    Chaos(sim=sim, random=Random(seed)).shake(MOVES)
    return sim


@dataclass(kw_only=True)
class Chaos:
    """Random moves over a simulation; each is legal at the time, and the door refuses what is not."""

    sim: Simulation
    random: Random
    newcomers: int = 0

    def shake(self, moves: int) -> None:
        """Make this many moves."""
        choices = [self.work] * 14 + [self.die, self.come_back, self.come_back, self.arrive, self.judge, self.judge]
        choices += [self.expire, self.unregister, self.roll_back, self.come_too_late]
        choices += [self.start_afresh] * 2
        for _ in range(moves):
            self.random.choice(choices)()
            self.sim.decide()

    def work(self) -> None:
        """Whatever the phase wants, by a random part of those who are alive."""
        sim = self.sim
        sim.pass_time(self.random.randint(1, 3000))
        if sim.state.phase == "train" and sim.state.current:
            self._train()
        elif sim.state.phase == "close":
            for name in self._some(name for name in sim.members() if sim.trained(name)):
                member = sim.state.members[hotkey(name)]
                if member.active and member.from_round <= sim.state.round:
                    receipt = sim.close_receipt(name)
                    sim.say(name, receipt)
                    sim.stored.add(receipt.contribution)
        elif sim.state.phase == "merge":
            self._merge()

    def _train(self) -> None:
        """Each lane's members, last stage first, give receipts for ever fewer of its microbatches."""
        sim = self.sim
        names = {hotkey(name): name for name in sim.members()}
        for plan in list(sim.state.current.plans.values()) if sim.state.current else []:
            done = list(plan.microbatches)
            for key in reversed(plan.path):
                done = [index for index in done if self.random.random() < 0.9]
                member = sim.state.members[key]
                current = sim.state.current
                able = (
                    key in names
                    and member.active
                    and member.from_round <= plan.round
                    and member.stage == plan.path.index(key)
                )
                if able and done and current and key not in current.receipts and self.random.random() < 0.8:
                    sim.say(names[key], sim.step_receipt(names[key], done))

    def _merge(self) -> None:
        sim = self.sim
        for stage in range(sim.run.stages):
            reported = sim.state.merged.get((sim.state.round + 1, stage), {})
            for name in (*self._some(sim.members()), "owner"):
                member = sim.state.members.get(hotkey(name))
                if hotkey(name) not in reported and (member is None or member.stage == stage):
                    sim.say(name, sim.merged(name, stage))

    def _some(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.random.random() < 0.7]

    def die(self) -> None:
        """A miner stops answering."""
        if self.sim.alive:
            self.sim.alive.discard(self.random.choice(sorted(self.sim.alive)))

    def come_back(self) -> None:
        """A dead miner restarts, with or without its last committed state."""
        dead = [n for n in self.sim.seats if n not in self.sim.alive and hotkey(n) in self.sim.state.members]
        if dead:
            name = self.random.choice(dead)
            kept = self.random.random() < 0.7
            self.sim.join(name, root=self.sim.state.members[hotkey(name)].state_root if kept else "")

    def arrive(self) -> None:
        """A new miner registers and joins."""
        if self.newcomers < 4:
            self.newcomers += 1
            name = f"newcomer-{self.newcomers}"
            self.sim.seat(name)
            self.sim.join(name)

    def judge(self) -> None:
        """A validator judges some segment; of one that somebody failed it thinks the same."""
        validator = self.random.choice(self.sim.validators)
        verdicts = [s for s in self.sim.state.segments.values() if hotkey(validator) not in s.verdicts]
        failed = [s for s in verdicts if any(v.verdict == "fail" for v in s.verdicts.values())]
        if verdicts:
            segment = self.random.choice(failed or verdicts)
            verdict = "fail" if failed else self.random.choice(["pass", "pass", "pass", "void", "fail"])
            self.sim.say(validator, self.sim.verdict(validator, segment, verdict, draw=self.sim.some_draw()))

    def come_too_late(self) -> None:
        """A miner sends the receipt of a step that has just ended: the door refuses it."""
        lanes = [name for name in self.sim.members() if self.sim.lane_of(name)]
        able = [n for n in lanes if hotkey(n) not in self.sim.state.current.receipts] if self.sim.state.current else []
        if able:
            name = self.random.choice(able)
            receipt = self.sim.step_receipt(name)
            self.sim.time_out_step()
            with pytest.raises(RefusedError):
                self.sim.say(name, receipt)

    def expire(self) -> None:
        """Every deadline passes."""
        self.sim.pass_time(200_000)

    def unregister(self) -> None:
        """A newcomer loses its seat."""
        seated = [name for name in self.sim.seats if name.startswith("newcomer")]
        if seated and self.random.random() < 0.3:
            name = self.random.choice(seated)
            self.sim.alive.discard(name)
            self.sim.unseat(name)

    def roll_back(self) -> None:
        """A miner voids what it did since its last root."""
        names = [n for n in self.sim.members() if self.sim.state.members[hotkey(n)].stage is not None]
        if names:
            name = self.random.choice(names)
            if self.sim.state.members[hotkey(name)].active:
                self.sim.say(name, self.sim.rollback_receipt(name))

    def start_afresh(self) -> None:
        """A replica gives up its moments before its first step of a round; one on a tainted state has to."""
        state = self.sim.state
        able = [
            name
            for name in self.sim.members()
            if (member := state.members[hotkey(name)]).state_root
            and (member.tainted or self.random.random() < 0.2)
            and member.active
            and member.from_round <= state.round != member.opened_round
            and not state.pending.get(member.hotkey)
        ]
        for name in able[:1]:
            self.sim.say(name, self.sim.fresh_receipt(name))
