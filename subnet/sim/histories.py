"""A strategy played out segment by segment, with the real draw, the real verdict rules, books and weights.

Slow and exact, where `subnet.sim.economics` is fast: the two must agree. Also what false verdicts cost, by the chain's
own epoch. Pure: chance comes from the seed given, through the draw's hash.
"""

from collections.abc import Mapping

from subnet.audit.draw import draw, draw_seed, is_drawn
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.incentive.score import Book, books
from subnet.incentive.weights import to_weights
from subnet.ledger.events import RosterEntry
from subnet.ledger.state import Member
from subnet.ledger.trained import refute
from subnet.ledger.window import window_rounds
from subnet.sim.economics import Economy, Strategy
from subnet.sim.payments import OTHERS, WORK, bare_state, commit, view_of
from subnet.wire.messages import WIRE_VERSION, Draw, Seen, Verdict
from template.devchain.epoch import EpochInput, EpochParams, run_epoch

STAKE = 1_000_000


class History:
    """One machine with one hotkey at a time, validators that replay what they draw, and steady others."""

    def __init__(self, economy: Economy, strategy: Strategy, *, seed: str, segment_s: float = 60.0) -> None:
        assert strategy.hotkeys == 1, "hotkeys at the same time are independent: play them one by one"
        run = economy.run
        self.economy, self.strategy, self.seed = economy, strategy, seed
        self.stakes = {f"validator-{number}": round(STAKE * part) for number, part in enumerate(economy.shares)}
        self.state = bare_state(run, self.stakes, ())
        self.segment_ms = round(1000 * segment_s)
        self.every = run.audit.draw_every_blocks
        self.block = self.every * (2 + -(-run.audit.draw_delay_blocks // self.every))
        self.luck = draw_seed(seed, "luck", "", "")
        self.due: list[tuple[int, str, str, Draw]] = []
        self.guilty: set[str] = set()
        self.tick = 0
        self.money = 0.0
        self.fails = 0

    def play(self) -> float:
        """The profit of the whole history, until nothing of it is left in the window."""
        hotkey, number = self._register(), 0
        leaves = self.strategy.leaves_after or self.economy.rounds * self.economy.per_round
        for tick in range(self.economy.rounds * self.economy.per_round):
            self.tick, self.state.round = tick, tick // self.economy.per_round
            starts_round = tick % self.economy.per_round == 0
            over = number >= leaves or self.state.members[hotkey].barred_until_round > self.state.round
            if over and starts_round and self.strategy.fresh:
                hotkey, number, over = self._register(), 0, False
            if not over:
                self._work(hotkey, number)
                number += 1
            self._draw()
            self._judge()
            self._end_of_round()
        for _ in range(window_rounds(self.economy.run) + 1):
            self.state.round += 1
            self.tick += self.economy.per_round
            self._judge()
            self._end_of_round()
        return self.money

    def _register(self) -> str:
        name = f"self-{len(self.state.members)}"
        uid, coldkey = len(self.state.roster), f"{name}/coldkey"
        self.state.roster[name] = RosterEntry(uid=uid, hotkey=name, coldkey=coldkey, stake_rao=0, permit=False)
        self.state.members[name] = Member(hotkey=name, coldkey=coldkey, address="", stage=0)
        self.money -= self.economy.burn
        return name

    def _work(self, hotkey: str, number: int) -> None:
        name = digest(f"{self.seed} {hotkey} {number}".encode())
        commit(self.state, hotkey, name, round_number=self.state.round, time_ms=self.tick * self.segment_ms)
        cheats = is_drawn(self.luck, f"cheat {name}", float(self.strategy.chances(number + 1)[-1]))
        if cheats and is_drawn(self.luck, f"shows {name}", self.strategy.detection):
            self.guilty.add(name)
        self.money -= self.economy.cost * (1 - self.strategy.saved * cheats)

    def _draw(self) -> None:
        """Countersign and draw; what fails is said once it has been replayed."""
        root = digest(f"{self.seed} head {self.state.count}".encode())
        for validator in self.stakes:
            seen = Seen(
                version=WIRE_VERSION,
                run_id=self.state.config.run_id,
                validator=validator,
                root=root,
                count=self.state.count,
                block=self.block,
            )
            self.state.seen[validator] = [*self.state.seen.get(validator, [])[-4:], seen]
        self.block += self.every
        due_tick = self.tick + self.economy.latency_segments
        for validator in self.stakes:
            block_hash = digest(f"{self.seed} block {self.block}".encode())
            where, drawn = draw(self.state, validator, self.block, block_hash)
            self.due += [(due_tick, validator, name, where) for name in drawn if name in self.guilty]

    def _judge(self) -> None:
        """Say which replays failed by now."""
        for item in [item for item in self.due if item[0] <= self.tick]:
            self.due.remove(item)
            for judge in (item[1], *(other for other in self.stakes if other != item[1])):  # others recheck at once
                self._fail(judge, item[2], item[3])

    def _fail(self, validator: str, name: str, where: Draw) -> None:
        state, segment = self.state, self.state.segments[name]
        if validator in segment.verdicts or segment.upheld_event is not None:
            return
        segment.verdicts[validator] = Verdict(
            version=WIRE_VERSION,
            run_id=state.config.run_id,
            validator=validator,
            segment=name,
            hotkey=segment.hotkey,
            stage=0,
            round=segment.round,
            verdict="fail",
            reason="delta",
            distance=1.0,
            tolerance=0.0,
            checks=(),
            evidence=(),
            draw=where,
            time_ms=self.tick * self.segment_ms,
        )
        event, state.count = state.count, state.count + 1
        if state.stands(segment):
            segment.upheld_event = event
            refute(state, segment, event)
            self.fails += 1

    def _end_of_round(self) -> None:
        """Weights at the end of a round, and the round's emission."""
        per_round, window = self.economy.per_round, window_rounds(self.economy.run)
        if (self.tick + 1) % per_round and self.tick < self.economy.rounds * per_round:
            return
        now_ms = (self.state.round + 1) * per_round * self.segment_ms
        found = books(self.state, now_ms=now_ms, own=None)
        steady = Book(hotkey=OTHERS, score=self.economy.others * WORK * window * per_round)
        hotkeys = (OTHERS, *found)
        shares = to_weights({**found, OTHERS: steady}, view_of(hotkeys), self.state.config)
        emission = (self.economy.others + 1) * per_round
        self.money += emission * sum(share for uid, share in shares.items() if uid)


def lost_to_liars(run: RunConfig, stakes: Mapping[str, int], *, liars: int, miners: int) -> float:
    """The part of its incentive that a miner loses when so many validators give it no weight, by the chain's epoch.

    The books of the honest ones do not change by a fail that they could not repeat; what is lost here is only what the
    chain gives to any vector of a validator with that stake.
    """
    size = len(stakes) + miners
    victim = len(stakes)
    honest = {uid: 65535 // miners for uid in range(victim, size)}
    false = {uid: (0 if uid == victim else value) for uid, value in honest.items()}
    rows = {uid: list((false if uid < liars else honest).items()) for uid in range(len(stakes))}
    state = EpochInput(
        block=100,
        stake=[*stakes.values(), *([0] * miners)],
        last_update=[99] * size,
        registered_at=[0] * size,
        permits=[uid < len(stakes) for uid in range(size)],
        weights=rows,
        bonds={},
    )
    incentive = run_epoch(state, EpochParams(tempo=100)).incentive
    return 1 - incentive[victim] / incentive[victim + 1]
