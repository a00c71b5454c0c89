"""Tolerances: from the distances of honest work to the numbers that a run's audits hold.

A class is what a run pins: compute dtype, inner optimizer, wire codec. For each class and kind of comparison a
calibration keeps how the largest distance of an honest segment spreads, and the tolerance that the rule gives:

    tolerance = factor x what honest work exceeds once in a thousand segments,
    and not less than margin x the largest distance seen, nor than 2^-24 (float32 keeps no more)

The factor is 1.75. Above 3 a deviation could pass that is three times as large as that quantile; above 1.9 noise of 5 %
on bfloat16 steps would pass where a draw shows the smaller part of a tensor that a chunk's edge cuts. The margin, 1.1:
below 1 honest work that was measured would fail, and from 1.15 on 5 % of a bfloat16 moment would pass such a draw. A
quantile's multiple is steadier than a maximum's: the largest of many segments grows with their number.

Small runs drawn at random are one population; a model that was measured besides is one of its own. A run has the larger
tolerance of the two, and of what was measured with its own codec and with none: rounding on the wire brings nobody
closer. Whoever reads a calibration checks that its tolerances follow from its own numbers.
Knows nothing of how segments were computed, nor of files.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from subnet.config import CODECS, DTYPES, OPTIMIZERS
from subnet.errors import ConfigError

VERSION = 3
KINDS = ("activation", "gradient", "loss", "norm", "delta", "moment")
FACTOR = 1.75
MARGIN = 1.1
RULE = (
    f"tolerance = {FACTOR} x the 99.9th percentile of the largest distances of honest segments over all pairs of "
    f"conditions, at least {MARGIN} x the largest, at least 2^-24"
)
EVERYWHERE = "norm"  # every segment has one
SMALL_RUNS = ""  # the population of no named model
NO_CODEC = "none"
LEAST = 2.0**-24
DIGITS = 3  # significant ones that a number is kept with; a tolerance is rounded up

Class = tuple[str, str, str]  # dtype, optimizer, codec
Distances = Mapping[str, float]  # by kind, the largest of one segment


class Spread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the largest distance of a segment spreads within one class and kind, and the tolerance that follows."""

    dtype: str
    optimizer: str
    codec: str
    model: str  # the one that was measured; "" for small runs drawn at random
    kind: str
    settings: int  # runs of other sizes, shapes and schedules
    count: int  # honest segments, over all pairs of conditions
    max: float
    q50: float
    q99: float
    q999: float
    tolerance: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `strata calibrate` writes: where and under which conditions it measured, and what came out."""

    version: int
    quick: bool
    rule: str
    machine: dict[str, str]
    versions: dict[str, str]
    conditions: tuple[str, ...]
    spreads: tuple[Spread, ...]

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ConfigError(f"expected a calibration of version {VERSION}, found {self.version}; calibrate again")
        for spread in self.spreads:
            if not math.isclose(spread.tolerance, tolerance(spread.q999, spread.max), rel_tol=1e-9):
                raise ConfigError(
                    f"expected the tolerance {tolerance(spread.q999, spread.max)} of {spread.kind} from its own "
                    f"numbers, found {spread.tolerance}; calibrate again instead of editing the file"
                )

    @property
    def segments(self) -> int:
        """Honest segments compared, over all classes."""
        return sum(spread.count for spread in self.spreads if spread.kind == EVERYWHERE)

    @property
    def settings(self) -> int:
        """Runs measured, over all classes."""
        return sum(spread.settings for spread in self.spreads if spread.kind == EVERYWHERE)


def tolerance(q999: float, largest: float) -> float:
    """The tolerance for what honest work showed, rounded up to DIGITS digits. Raises ConfigError when it is no number.

    q999: what once in a thousand segments is exceeded.
    """
    if not (0 <= q999 < math.inf and 0 <= largest < math.inf):
        raise ConfigError(f"expected finite distances of honest work, found {q999} and {largest}; calibrate again")
    return _rounded_up(max(FACTOR * q999, MARGIN * largest, LEAST))


def _rounded_up(value: float) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    return float(f"{math.ceil(value / step * (1 - 1e-12)) * step:.{DIGITS - 1}e}")


def spread_of(
    values: Sequence[float], run_class: Class, kind: str, *, settings: int, model: str = SMALL_RUNS
) -> Spread:
    """The spread of one kind's distances, one for each segment."""
    dtype, optimizer, codec = run_class
    found = np.asarray(values, dtype=np.float64)
    q50, q99, q999 = (_rounded(float(q)) for q in np.quantile(found, (0.5, 0.99, 0.999)))
    largest = _rounded_up(float(found.max())) if found.max() > 0 else 0.0
    return Spread(
        dtype=dtype,
        optimizer=optimizer,
        codec=codec,
        model=model,
        kind=kind,
        settings=settings,
        count=len(values),
        max=largest,
        q50=q50,
        q99=q99,
        q999=q999,
        tolerance=tolerance(q999, largest),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS - 1}e}")


def spreads_of(
    run_class: Class, segments: Iterable[Distances], *, settings: int, model: str = SMALL_RUNS
) -> tuple[Spread, ...]:
    """The spreads of one class from its honest segments, over so many settings of one population."""
    gathered: dict[str, list[float]] = {}
    for distances in segments:
        for kind, value in distances.items():
            gathered.setdefault(kind, []).append(value)
    return tuple(
        spread_of(gathered[kind], run_class, kind, settings=settings, model=model) for kind in KINDS if kind in gathered
    )


def tolerances(
    calibration: Calibration, *, dtype: str, optimizer: str, codec: str, model: str = SMALL_RUNS
) -> dict[str, float]:
    """The tolerance of each kind in a class: the largest of small runs and the model by this name, with this codec and
    with none.

    Raises ConfigError when the class is not calibrated.
    """
    found: dict[str, float] = {}
    of_class = [spread for spread in calibration.spreads if (spread.dtype, spread.optimizer) == (dtype, optimizer)]
    if any(spread.codec == codec for spread in of_class):
        for spread in of_class:
            if spread.codec in (NO_CODEC, codec) and spread.model in (SMALL_RUNS, model):
                found[spread.kind] = max(spread.tolerance, found.get(spread.kind, 0.0))
    lacking = [kind for kind in KINDS if kind not in found]
    if lacking:
        raise ConfigError(
            f"expected a calibration of {dtype} with {optimizer} over the codec {codec}, found none for "
            f"{', '.join(lacking)}; run `strata calibrate`"
        )
    return found


def classes() -> list[Class]:
    """Every class that a run may be of."""
    return [(dtype, optimizer, codec) for dtype in DTYPES for optimizer in OPTIMIZERS for codec in CODECS]


def upper_bound(flagged: int, count: int) -> float:
    """The 95 % upper bound of the rate at which segments are flagged, when none of `count` was (the rule of three).

    With some flagged: the exact one-sided bound (Clopper and Pearson), found by bisection.
    """
    low, high = flagged / count, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(flagged, count, middle) > 0.05 else (low, middle)
    return high


def _at_most(flagged: int, count: int, rate: float) -> float:
    """The chance of at most so many among `count` at this rate."""
    if rate >= 1.0:
        return float(flagged >= count)
    term = total = math.exp(count * math.log1p(-rate))
    for number in range(flagged):
        term *= (count - number) / (number + 1) * rate / (1 - rate)
        total += term
    return total
