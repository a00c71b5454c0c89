"""What cheating is worth: expected profit of strategies, over many simulated histories and as a best response.

Money is counted in segments: 1 is what an honest replica earns with one segment over the segment's life in the pay
window, in a network of many like it. Rates are those of the draw (`subnet.audit.draw.rate_of`), pay follows the real
books, once per shape of a life (`subnet.sim.payments`); only chance is simulated. Pure: randomness is handed in.

A *life* is one hotkey from its registration until a fail of it is upheld or its owner stops. A caught hotkey is barred
and voided; its owner may register a fresh one, at the chain's price, and starts again with the next round.
"""

from dataclasses import dataclass

import numpy as np

from subnet.audit.draw import rate_of
from subnet.config import RunConfig
from subnet.ledger.window import window_rounds
from subnet.sim.payments import Payments


@dataclass(frozen=True, kw_only=True)
class Economy:
    """The setting: rules from the run, the rest of the network, prices in segments of pay.

    shares: the honest validators' parts of all stake (they sum to less than 1 where others are lazy). cost: what an
    honest segment costs; 1 is the hardest case, where honest work just breaks even and cheating saves all of the pay.
    latency_segments: from a segment's receipt to the fail that is upheld, in segments of a full-time replica.
    """

    run: RunConfig
    shares: tuple[float, ...] = (0.1,) * 10
    others: int = 63  # honest full-time replicas besides the strategy's own
    cost: float = 1.0
    latency_segments: int = 8
    burn: float = 0.75  # the price of a registration
    rounds: int = 192  # of a history: three pay windows

    @property
    def per_round(self) -> int:
        """Whole segments of a full-time replica in a round."""
        return -(-self.run.train.steps_per_round // self.run.train.segment_steps)

    def rates(self, stakes: np.ndarray) -> np.ndarray:
        """The total rate of draw by how many segments of pay are at stake."""
        table = [rate_of(self.run.audit.rate_frac, 1, stake) for stake in range(int(stakes.max(initial=0)) + 1)]
        return np.asarray(np.array(table)[stakes])

    def seen(self, rates: np.ndarray) -> np.ndarray:
        """The chance that some honest validator draws a segment of this rate: each draws for itself."""
        missed = np.ones_like(rates)
        for part in self.shares:
            missed = missed * (1 - part * rates)
        return np.asarray(1 - missed)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What a machine does with its hotkeys.

    cheated: the part of its segments on which it cheats. saved: the part of a cheated segment's cost that it does not
    spend. detection: the chance that a replay of a cheated segment fails. honest_first: segments of a life before it
    begins to cheat. burst: segments from there after which it is honest again (None: never). leaves_after: segments
    after which it stops for good (None: works to the end). fresh: whether it registers again once caught. hotkeys:
    among which one machine's work is divided.
    """

    name: str
    about: str
    cheated: float = 1.0
    saved: float = 1.0
    detection: float = 1.0
    honest_first: int = 0
    burst: int | None = None
    leaves_after: int | None = None
    fresh: bool = True
    hotkeys: int = 1

    def chances(self, length: int) -> np.ndarray:
        """The chance of cheating by the number of the segment in its life."""
        made = np.full(length, self.cheated)
        made[: self.honest_first] = 0.0
        if self.burst is not None:
            made[self.honest_first + self.burst :] = 0.0
        return made


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Profits over many histories, in segments of pay: the mean, its standard error, and the honest profit in the same
    time with the same machine."""

    strategy: Strategy
    profit: float
    error: float
    honest: float
    caught: float  # mean number of fails upheld in a history
    cheated_segments: float

    @property
    def gain(self) -> float:
        """What cheating brings over honest work."""
        return self.profit - self.honest

    @property
    def upper(self) -> float:
        """The upper end of the 99.9 % confidence interval of the gain."""
        return self.gain + 3.29 * self.error


def stakes_of(economy: Economy, hotkeys: int, length: int) -> np.ndarray:
    """Segments at stake by the number of the segment, for a hotkey with 1/hotkeys of a machine's work."""
    rounds = np.arange(length) * hotkeys // economy.per_round
    expired = np.searchsorted(rounds, rounds - window_rounds(economy.run), side="right")
    return np.asarray(np.minimum(np.arange(length) - expired, economy.run.pay.window_segments))


def horizon(economy: Economy, hotkeys: int) -> int:
    """Segments of one hotkey in a whole history."""
    return economy.rounds * economy.per_round // hotkeys


def hazards(economy: Economy, strategy: Strategy) -> tuple[np.ndarray, np.ndarray]:
    """By the number of a segment in its life: the chance that it is the one that fails, given that none did before,
    and the chance that it was a cheat, given that it did not fail."""
    length = horizon(economy, strategy.hotkeys)
    seen = economy.seen(economy.rates(stakes_of(economy, strategy.hotkeys, length)))
    cheats = strategy.chances(length)
    fails = cheats * seen * strategy.detection
    return fails, cheats * (1 - seen * strategy.detection) / np.maximum(1 - fails, 1e-300)


def simulate(
    economy: Economy, strategy: Strategy, payments: Payments, *, rng: np.random.Generator, histories: int
) -> Outcome:
    """Play the strategy many times. `payments` are of hotkeys with the same part of a machine's work."""
    profit, caught, cheated = (np.zeros(histories) for _ in range(3))
    for _ in range(strategy.hotkeys):
        played = _play(economy, strategy, payments, rng=rng, histories=histories)
        for total, part in zip((profit, caught, cheated), played, strict=True):
            total += part
    return Outcome(
        strategy=strategy,
        profit=float(profit.mean()),
        error=float(profit.std(ddof=1) / np.sqrt(histories)),
        honest=honest_profit(economy),
        caught=float(caught.mean()),
        cheated_segments=float(cheated.mean()),
    )


def honest_profit(economy: Economy) -> float:
    """What the same machine earns with one honest hotkey in the same time."""
    whole = Payments(economy.run, others=economy.others)
    segments = horizon(economy, 1)
    return whole.total(segments) - economy.cost * segments - economy.burn


def _play(
    economy: Economy, strategy: Strategy, payments: Payments, *, rng: np.random.Generator, histories: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One of the strategy's hotkeys, and those that follow it: profit, fails and cheated segments by history."""
    fails, cheats = hazards(economy, strategy)
    tables = _Tables(economy, strategy, payments, fails=fails, cheats=cheats)
    profit, caught, cheated = (np.zeros(histories) for _ in range(3))
    start = np.zeros(histories, dtype=np.int64)
    active = np.arange(histories)
    while active.size:
        limit = tables.limit(start[active])
        end = np.minimum(tables.first_fail(rng.random(active.size)), limit)
        failed = end < limit
        profit[active] += tables.income(end, limit, failed) - tables.cost(end, limit, failed) - economy.burn
        cheated[active] += tables.cheated(end, limit, failed)
        caught[active] += failed
        start[active] += tables.rounds_of(end, limit, failed)
        again = (start[active] < economy.rounds) & (failed | (strategy.leaves_after is not None)) & strategy.fresh
        active = active[again]
    return profit, caught, cheated


class _Tables:
    """What the lives of one hotkey come to, by where they end."""

    def __init__(
        self, economy: Economy, strategy: Strategy, payments: Payments, *, fails: np.ndarray, cheats: np.ndarray
    ) -> None:
        self.economy, self.strategy, self.payments = economy, strategy, payments
        self.latency = -(-economy.latency_segments // strategy.hotkeys)
        self.below = np.concatenate([[0.0], 1 - np.cumprod(1 - fails)])  # chance that one of the first n failed
        self.cheats_before = np.concatenate([[0.0], np.cumsum(cheats)])
        self.planned_before = np.concatenate([[0.0], np.cumsum(strategy.chances(len(fails)))])

    def limit(self, start: np.ndarray) -> np.ndarray:
        """How many segments a life from this round on can have."""
        left = (self.economy.rounds - start) * self.economy.per_round // self.strategy.hotkeys
        return left if self.strategy.leaves_after is None else np.minimum(left, self.strategy.leaves_after)

    def first_fail(self, luck: np.ndarray) -> np.ndarray:
        """The number of the first segment that fails; beyond every life where none does."""
        return np.searchsorted(self.below[1:], luck, side="right").astype(np.int64)

    def _stop(self, end: np.ndarray, limit: np.ndarray, failed: np.ndarray) -> np.ndarray:
        """Segments committed in the life: it goes on until the fail is upheld."""
        return np.where(failed, np.minimum(end + 1 + self.latency, limit), limit)

    def rounds_of(self, end: np.ndarray, limit: np.ndarray, failed: np.ndarray) -> np.ndarray:
        """Rounds until the machine is free for another life."""
        stop = self._stop(end, limit, failed)
        return np.asarray(np.maximum(1, -(-stop * self.strategy.hotkeys // self.economy.per_round)))

    def income(self, end: np.ndarray, limit: np.ndarray, failed: np.ndarray) -> np.ndarray:
        """Pay until the score is voided, or all of it."""
        whole = self.strategy.leaves_after or horizon(self.economy, self.strategy.hotkeys)
        upheld = (end + self.latency) * self.strategy.hotkeys // self.economy.per_round
        made = self.payments.paid(whole, upheld)
        for segments in np.unique(limit[~failed]):
            made[~failed & (limit == segments)] = self.payments.total(int(segments))
        return made

    def cheated(self, end: np.ndarray, limit: np.ndarray, failed: np.ndarray) -> np.ndarray:
        """Expected cheats of the life: one that failed, those before that did not, those until it was upheld."""
        stop = self._stop(end, limit, failed)
        after = self.planned_before[stop] - self.planned_before[np.minimum(end + 1, stop)]
        return np.asarray(self.cheats_before[np.minimum(end, limit)] + np.where(failed, 1 + after, 0.0))

    def cost(self, end: np.ndarray, limit: np.ndarray, failed: np.ndarray) -> np.ndarray:
        """What the life's segments cost to make."""
        spent = self._stop(end, limit, failed) - self.strategy.saved * self.cheated(end, limit, failed)
        return np.asarray(self.economy.cost * spent)


def best_response(economy: Economy, *, hotkeys: int = 1, burn: float | None = None) -> float:
    """The most that any plan of cheating gains over honest work, by one hotkey at a time, in segments of pay.

    The planner knows everything but the draws, saves the whole cost of a segment that it cheats on, fails whenever
    that is drawn, and may stop or register again at any time. Solved backwards over the history; a segment's pay is
    spread evenly over its time in the window, and what is left of it is lost with a fail. The price of the first
    registration is not in it: honest work pays that too.
    """
    length, price = horizon(economy, hotkeys), economy.burn if burn is None else burn
    window = int(stakes_of(economy, hotkeys, length).max())
    stakes = np.arange(window + 1)
    seen = economy.seen(economy.rates(stakes))
    latency = -(-economy.latency_segments // hotkeys)
    left = np.maximum(0.0, 1 - (np.arange(window) + 1 + latency) / window)  # of a segment's pay, by its age
    lost = np.concatenate([[0.0], np.cumsum(left)])
    paid_early = 1 - max(0.0, 1 - latency / window)  # of the cheated segment itself, before the fail is upheld
    grown = np.minimum(stakes + 1, window)
    values = [np.zeros(window + 1) for _ in range(latency + 2)]  # of the next segments on, nearest first
    for _ in range(length):
        after, fresh = values[0], max(0.0, float(values[latency][0]) - price)
        honest = 1 - economy.cost + after[grown]
        cheat = (1 - seen) * (1 + after[grown]) + seen * (paid_early - lost + fresh)
        values = [np.maximum(0.0, np.maximum(honest, cheat)), *values[:-1]]
    return float(values[0][0]) - length * (1 - economy.cost)
