"""Figures of the audit that need no training: how soon a cheat is caught, what auditing costs, whether honest
validators agree, whether splitting a machine pays. Real draws, books and weights over ledgers made here.

Pure: randomness comes from the seed given, through the draw's own hash.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from subnet.audit.draw import draw, draw_seed, is_drawn, lot, rate_of
from subnet.canonical import digest
from subnet.config import RunConfig
from subnet.incentive.score import books
from subnet.incentive.weights import to_weights
from subnet.ledger.state import RunState, Segment
from subnet.ledger.window import window_rounds
from subnet.sim.economics import Economy, stakes_of
from subnet.sim.payments import WORK, bare_state, commit, view_of
from subnet.wire.messages import WIRE_VERSION, Draw, Seen, Verdict

EQUAL_TEN = {f"validator-{number}": 1 for number in range(10)}


def first_fails(
    rate: float, *, cheated: float, caught: Sequence[bool], stakes: dict[str, int], histories: int, seed: str = "figure"
) -> np.ndarray:
    """Segments up to the first one that fails, in each history of a miner that cheats on a part of its segments.

    rate: the total rate of draw (of a long-honest miner: p). caught: whether the replays of real cheated segments
    failed; each drawn one meets one of these. The draws are the real ones, of every validator for itself.
    """
    total, made = sum(stakes.values()), []
    for history in range(histories):
        own = draw_seed(seed, "segments", f"{history}", "miner")
        number = 0
        while True:
            number += 1
            if not is_drawn(own, f"cheats {number}", cheated):
                continue
            block_hash = digest(f"{seed} {history} {number}".encode())
            seeds = (draw_seed(seed, f"{history}", block_hash, validator) for validator in stakes)
            drawn = any(
                is_drawn(of_validator, f"{number}", rate * stake / total)
                for of_validator, stake in zip(seeds, stakes.values(), strict=True)
            )
            if drawn and caught[lot(own, "replay", number) % len(caught)]:
                break
        made.append(number)
    return np.array(made)


def first_fail_quantile(quantile: float, *, rate: float, cheated: float, detection: float = 1.0) -> float:
    """Theory: by how many segments the first fail has come with this probability; 458 at 0.99, 5 % and 20 %."""
    return math.log(1 - quantile) / math.log(1 - rate * cheated * detection)


def audit_share(run: RunConfig, *, segments: int, audit_cost: float = 1.0) -> float:
    """Expected compute spent on audits, as a part of the compute of training, over an honest hotkey's first segments.

    audit_cost: compute of an audit over that of the audited segment. Of all validators together, however many.
    """
    economy = Economy(run=run)
    return float(economy.rates(stakes_of(economy, 1, segments)).mean()) * audit_cost


@dataclass(kw_only=True)
class Network:
    """A ledger of honest miners and validators in which everything drawn is judged, one segment of everybody a tick.

    bad: a miner whose every replay fails. delay: ticks from a draw to its verdicts, for each validator.
    """

    run: RunConfig
    miners: tuple[str, ...]
    stakes: dict[str, int]
    bad: str = ""
    segment_s: float = 60.0
    delay: int = 1

    def __post_init__(self) -> None:
        every = self.run.audit.draw_every_blocks
        self.state: RunState = bare_state(self.run, self.stakes, self.miners)
        self.per_round = -(-self.run.train.steps_per_round // self.run.train.segment_steps)
        self.blocks_per_tick = every
        self.block = every * (2 + -(-self.run.audit.draw_delay_blocks // every))
        self.tick = 0
        self.draws = 0
        self.due: list[tuple[int, str, str, Draw]] = []  # tick, validator, segment, where it was drawn

    @property
    def now_ms(self) -> int:
        """The time at the end of the last tick."""
        return round(1000 * self.segment_s * self.tick)

    def age(self, rounds: int) -> None:
        """Rounds that everybody worked and nobody audited, long ago."""
        for _ in range(rounds * self.per_round):
            self._commit()

    def _commit(self) -> None:
        self.state.round = self.tick // self.per_round
        self.tick += 1
        for miner in self.miners:
            if self.state.members[miner].barred_until_round <= self.state.round:
                name = digest(f"{miner} {self.tick}".encode())
                commit(self.state, miner, name, round_number=self.state.round, time_ms=self.now_ms)

    def step(self) -> None:
        """One tick: segments, countersigned heads, draws, and the verdicts that are due."""
        self._commit()
        for validator in self.stakes:
            seen = Seen(
                version=WIRE_VERSION,
                run_id=self.run.run_id,
                validator=validator,
                root=digest(f"head {self.state.count}".encode()),
                count=self.state.count,
                block=self.block,
            )
            self.state.seen.setdefault(validator, []).append(seen)
        self.block += self.blocks_per_tick
        for validator in self.stakes:
            where, drawn = draw(self.state, validator, self.block, digest(f"block {self.block}".encode()))
            self.draws += len(drawn)
            self.due += [(self.tick + self.delay, validator, name, where) for name in drawn]
        self._judge()

    def _judge(self) -> None:
        """Say what is due, and have everybody recheck a foreign fail one tick after it was said."""
        ready = [item for item in self.due if item[0] <= self.tick]
        self.due = [item for item in self.due if item[0] > self.tick]
        for _, validator, name, where in ready:
            segment = self.state.segments[name]
            if validator in segment.verdicts:
                continue
            self._say(segment, validator, where)
            if segment.hotkey == self.bad:
                others = (other for other in self.stakes if other not in segment.verdicts)
                self.due += [(self.tick + self.delay, other, name, where) for other in others]

    def _say(self, segment: Segment, validator: str, where: Draw) -> None:
        fails = segment.hotkey == self.bad
        segment.verdicts[validator] = Verdict(
            version=WIRE_VERSION,
            run_id=self.run.run_id,
            validator=validator,
            segment=segment.id,
            hotkey=segment.hotkey,
            stage=segment.stage,
            round=segment.round,
            verdict="fail" if fails else "pass",
            reason="delta" if fails else "ok",
            distance=0.0,
            tolerance=0.0,
            checks=(),
            evidence=(),
            draw=where,
            time_ms=self.now_ms,
        )
        event = self.state.count
        self.state.count += 1
        if segment.upheld_event is None and self.state.stands(segment):
            segment.upheld_event = self.state.voided[segment.hotkey] = event
            self.state.members[segment.hotkey].barred_until_round = self.state.round + self.run.pay.quarantine_rounds

    def weights(self, validator: str) -> dict[int, float]:
        """What this validator would submit now."""
        ledger = books(self.state, now_ms=self.now_ms, own=validator)
        return to_weights(ledger, view_of((*self.miners, *self.stakes)), self.run)


def distance(one: dict[int, float], other: dict[int, float]) -> float:
    """L1 distance of two weight vectors."""
    return math.fsum(abs(one.get(uid, 0.0) - other.get(uid, 0.0)) for uid in one.keys() | other.keys())


def weights_distances(network: Network, *, ticks: int) -> list[float]:
    """After each of so many ticks, the largest L1 distance between the weights of any two validators; ticks at which
    somebody would submit nothing are left out."""
    made = []
    for _ in range(ticks):
        network.step()
        vectors = [network.weights(validator) for validator in network.stakes]
        if all(vectors):
            made.append(max(distance(one, other) for one in vectors for other in vectors))
    return made


def sybil_gain(run: RunConfig, hotkeys: int, *, rounds: int, others: int = 15) -> float:
    """How much more weight one machine gets with so many hotkeys than with one, relative to that, after these rounds.

    The machine's steps go to its hotkeys in turn; each commits a state after every C steps of its own and at the end
    of the round, as replicas do. The others are steady machines with one hotkey each.
    """
    with_one, with_all = (_machine_weight(run, number, rounds=rounds, others=others) for number in (1, hotkeys))
    return with_all / with_one - 1


def _machine_weight(run: RunConfig, hotkeys: int, *, rounds: int, others: int) -> float:
    names = tuple(f"self-{number}" for number in range(hotkeys))
    honest = tuple(f"other-{number}" for number in range(others))
    state = bare_state(replace(run, pay=replace(run.pay, audit_window_s=0.0)), {}, (*names, *honest))
    steps, every = run.train.steps_per_round, run.train.segment_steps
    for round_number in range(max(0, rounds - window_rounds(run) - 1), rounds):
        state.round = round_number
        for name in names + honest:
            turns = (steps + hotkeys - 1 - names.index(name)) // hotkeys if name in names else steps
            for first in range(0, turns, every):
                part = min(every, turns - first)
                made = commit(state, name, f"{name} {round_number} {first}", round_number=round_number, time_ms=0)
                made.work = WORK * part // every
    shares = to_weights(books(state, now_ms=10**12, own=None), view_of((*names, *honest)), run)
    return math.fsum(shares.get(uid, 0.0) for uid in range(hotkeys))


def long_honest_rate(run: RunConfig) -> float:
    """The rate of a hotkey whose window is full."""
    return rate_of(run.audit.rate_frac, 1, run.pay.window_segments)
