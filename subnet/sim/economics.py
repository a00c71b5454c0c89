"""What cheating is worth: expected profit of strategies, over many simulated histories and as a best response.

Money is counted in segments: 1 is what an honest replica earns with one segment over the segment's life in the pay
window, in a network of many like it. Rates are those of the draw (`subnet.audit.draw.rate_of`), pay follows the real
books, once per shape of a life (`subnet.sim.payments`); only chance is simulated. Pure: randomness is handed in.

A *life* is one hotkey from its registration until a fail of it is upheld or its owner stops. A caught hotkey is barred
and voided; its owner may register a fresh one, at the chain's price, and starts again with the next round.
"""

from dataclasses import dataclass, replace

import numpy as np

from subnet.audit.draw import rate_of
from subnet.config import RunConfig
from subnet.ledger.window import window_rounds

NEVER = np.iinfo(np.int64).max


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
    burn: float = 62.5  # the price of a registration when the history starts
    least_burn: float = 0.3
    burn_factor: float = 1.26  # by which a registration raises the price
    burn_half_life_segments: float = 72.0
    rounds: int = 192  # of a history: three pay windows

    @property
    def per_round(self) -> int:
        """Whole segments of a full-time replica in a round."""
        return -(-self.run.train.steps_per_round // self.run.train.segment_steps)

    def rates(self, stakes: np.ndarray) -> np.ndarray:
        """The total rate of draw by how many segments of pay are at stake."""
        table = [rate_of(self.run.audit.rate_frac, 1, stake) for stake in range(int(stakes.max(initial=0)) + 1)]
        return np.array(table)[stakes]

    def seen(self, rates: np.ndarray) -> np.ndarray:
        """The chance that some honest validator draws a segment of this rate: each draws for itself."""
        missed = np.ones_like(rates)
        for part in self.shares:
            missed = missed * (1 - part * rates)
        return 1 - missed


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
    return np.minimum(np.arange(length) - expired, economy.run.pay.window_segments)


def simulate(
    economy: Economy, strategy: Strategy, pay: "Payments", *, rng: np.random.Generator, histories: int
) -> Outcome:
    raise NotImplementedError
