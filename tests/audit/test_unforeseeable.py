"""A miner's view before a draw gives no advantage: given its published rate, nothing that it can see predicts it.

The logistic score test over everything visible before the draw's block exists: U = X'(drawn - p), V = X' diag(p(1 - p))
X, and U' V^-1 U is chi-square with one degree per column if the rate is all that there is to know. A right draw
exceeds the bound for one seed in a million; the seeds are fixed, so it does not come and go. The same test finds
planted draws that spare somebody every other time.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from subnet.audit.draw import draw, rate, share
from subnet.canonical import digest
from tests.audit.histories import add_segment, audit_run, block_hash, history, see

FALSE_ALARM = 1e-6
MINERS = tuple(f"miner-{number}" for number in range(6))
TICKS = 400
BITS = 8


@dataclass(frozen=True)
class Seen:
    """One segment: what was visible before its draw, the rate it had, whether this validator drew it."""

    features: list[float]
    chance: float
    drawn: bool


def bits(text: str) -> list[float]:
    """The first bits of a digest."""
    return [float(int(text[:2], 16) >> place & 1) for place in range(BITS)]


def watch(validator: str) -> list[Seen]:
    """A run in which all miners commit segments of changing worth, and what each could know before the draw."""
    state = history(audit_run(rate=0.4, every=2, delay=2, window_segments=64), MINERS)
    made, luck, views = [], {name: [0.0] * 4 for name in MINERS}, {}
    for tick in range(TICKS):
        state.round, block = tick // 2, 10 + tick
        for number, name in enumerate(MINERS):
            work = 100 - 10 * (tick * (number + 3) % 5)
            segment = add_segment(state, name, stage=number % 3, round=state.round, work=work, time_ms=977 * tick)
            others = sum(luck[other][-1] for other in MINERS if other != name)
            views[segment.id] = [
                *(float(number == place) for place in range(len(MINERS) - 1)),  # who it is
                float(segment.stage == 1),
                float(block % 2),
                float(block % 4 >= 2),
                work / 100,
                float(segment.time_ms % 1000) / 1000,
                tick / TICKS,
                luck[name][-1],  # its own last draws, and the others'
                float(np.mean(luck[name])),
                others,
                *bits(segment.id),
                *bits(block_hash(block))[:4],  # the newest hash when it commits
            ]
        see(state, validator, block=block, count=state.count)
        if block % 2 == 0:
            _, drawn = draw(state, validator, block + 2, block_hash(block + 2))
            for name in views:
                segment = state.segments[name]
                chance = rate(state, segment, count=state.count) * share(state, validator, segment.hotkey)
                made.append(Seen(views[name], chance, name in drawn))
                luck[segment.hotkey] = [*luck[segment.hotkey][1:], float(name in drawn)]
            views.clear()
    return made


def upper_tail(value: float, degrees: int) -> float:
    """P(chi-square > value), exact for an even number of degrees."""
    assert degrees % 2 == 0
    half = value / 2
    return math.exp(-half) * math.fsum(half**k / math.factorial(k) for k in range(degrees // 2))


def chance_of_no_advantage(observed: list[Seen]) -> float:
    """How often a draw that follows its rates alone looks this dependent on what was visible."""
    table = np.array([each.features for each in observed])
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    chances = np.array([each.chance for each in observed])
    surprise = np.array([each.drawn for each in observed]) - chances
    columns = np.column_stack([np.ones(len(table)), table])
    if columns.shape[1] % 2:
        columns = np.column_stack([columns, np.log(chances)])
    gain = columns.T @ surprise
    spread = columns.T @ (columns * (chances * (1 - chances))[:, None])
    return upper_tail(float(gain @ np.linalg.solve(spread, gain)), columns.shape[1])


@pytest.fixture(scope="module")
def observed() -> list[Seen]:
    return watch("validator-a")


def test_a_miners_view_before_the_draw_gives_no_advantage(observed):
    assert len(observed) > 1000
    assert 0.25 < np.mean([each.drawn for each in observed]) < 0.4
    assert chance_of_no_advantage(observed) > FALSE_ALARM


@pytest.mark.parametrize("column", [6, 8, 11, 14, 22], ids=["block", "worth", "its luck", "its digest", "last hash"])
def test_a_draw_that_could_be_foreseen_would_be_found(observed, column):
    """Whoever has more than the mean of one visible number is spared half of its draws."""
    middle = float(np.mean([each.features[column] for each in observed]))
    planted = [
        Seen(each.features, each.chance, each.drawn and not (each.features[column] > middle and spared(number)))
        for number, each in enumerate(observed)
    ]
    assert chance_of_no_advantage(planted) < FALSE_ALARM


def spared(number: int) -> bool:
    return int(digest(f"spared {number}".encode())[:8], 16) % 2 == 0


def test_the_tail_is_the_chi_squares():
    """Values from a table: 5 % at 2 and at 10 degrees."""
    assert upper_tail(5.991, 2) == pytest.approx(0.05, rel=1e-3)
    assert upper_tail(18.307, 10) == pytest.approx(0.05, rel=1e-3)


def test_the_validators_draw_for_themselves(observed):
    """Given the rates, whether one draws a segment says nothing of whether another does: the covariance stays within
    4.9 standard deviations, which a right draw exceeds for one seed in a million."""
    first, second = observed, watch("validator-b")
    gain = np.array(
        [(a.drawn - a.chance) * (b.drawn - b.chance) for a, b in zip(first, second, strict=True)], dtype=float
    )
    spread = math.fsum(
        a.chance * (1 - a.chance) * b.chance * (1 - b.chance) for a, b in zip(first, second, strict=True)
    )
    assert abs(float(gain.sum())) < 4.9 * math.sqrt(spread)
