#!/usr/bin/env python3
"""What cheating is worth: every strategy over thousands of histories, its best response, sybils, lazy and lying judges.

    scripts/bench/economics.py            # some minutes, leaves docs/benchmarks/economics.json and prints the table
    scripts/bench/economics.py --quick    # fewer histories

Rates are the draw's, scores and weights the product's own; the unit is what an honest replica earns with one segment.
Owns the setting (prices, who else is there) and the list of figures; the simulation is `subnet/sim`.
"""

import math
import sys
from pathlib import Path

import numpy as np
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from scripts.bench.report import Figure, options, report  # noqa: E402
from subnet.config import RunConfig  # noqa: E402
from subnet.edges.presets import RunOptions, build_run  # noqa: E402
from subnet.sim.economics import Economy, Outcome, Strategy, best_response, simulate, stakes_of  # noqa: E402
from subnet.sim.figures import sybil_gain  # noqa: E402
from subnet.sim.histories import History, lost_to_liars  # noqa: E402
from subnet.sim.payments import Payments  # noqa: E402
from subnet.sim.strategies import HONEST, catalogue  # noqa: E402
from template.devchain.genesis import Genesis  # noqa: E402

# The setting: 64 like miners share what a subnet pays its miners, 0.41 alpha a block, at 0.02 TAO; a segment is a
# minute, five blocks. A registration costs the floor of the dev chain's price; each one would raise it by 26 %.
OTHERS = 63
ALPHA_PER_BLOCK, TAO_PER_ALPHA, BLOCKS_PER_SEGMENT = 0.41, 0.02, 5
SEGMENT_TAO = ALPHA_PER_BLOCK * TAO_PER_ALPHA * BLOCKS_PER_SEGMENT / (OTHERS + 1)
RATES = {"p05": 0.05, "p33": 1 / 3}
JUDGES = {"p05": (0.1,) * 10, "p33": (0.5, 0.5)}
HISTORIES, QUICK_HISTORIES = 5_000, 500
PLAYED, QUICK_PLAYED = 150, 15
THRIFTY = 0.8  # the cost of a segment where honest work keeps a fifth of its pay
DEMO_MINERS = 4


def economy(run: RunConfig, which: str, **changes: object) -> Economy:
    """The setting at one of the rates; the hardest case unless a cost is given: honest work just breaks even."""
    of_rate = replace(run, audit=replace(run.audit, rate_frac=RATES[which]))
    values = {"shares": JUDGES[which], "others": OTHERS, "burn": Genesis.min_burn_tao / SEGMENT_TAO} | changes
    return Economy(run=of_rate, **values)  # type: ignore[arg-type]


def outcomes(setting: Economy, strategies: list[Strategy], histories: int) -> list[Outcome]:
    """Every strategy in one setting."""
    payments: dict[int, Payments] = {}
    made = []
    for number, strategy in enumerate(strategies):
        if strategy.hotkeys not in payments:
            payments[strategy.hotkeys] = Payments(setting.run, others=OTHERS, hotkeys=strategy.hotkeys)
        rng = np.random.default_rng(number)
        made.append(simulate(setting, strategy, payments[strategy.hotkeys], rng=rng, histories=histories))
    return made


def table(which: str, found: list[Outcome]) -> str:
    """The table, for a reader."""
    heads = ("strategy", "gain", "+-", "profit", "caught", "what it does")
    rows = [
        (
            each.strategy.name,
            f"{each.gain:,.1f}",
            f"{3.29 * each.error:.1f}",
            f"{each.profit:,.1f}",
            f"{each.caught:.1f}",
            each.strategy.about,
        )
        for each in found
    ]
    lines = [f"{row[0]:18}" + "".join(f"{cell:>10}" for cell in row[1:5]) + f"  {row[5]}" for row in [heads, *rows]]
    return f"\n{which}: p = {RATES[which]:.3g}, in segments of pay\n" + "\n".join(lines) + "\n"


def gains(run: RunConfig, histories: int) -> list[Figure]:
    """One figure per strategy and rate."""
    figures = []
    for which in RATES:
        setting = economy(run, which)
        found = outcomes(setting, [HONEST, *catalogue()], histories)
        sys.stdout.write(table(which, found))
        for each in found[1:]:
            figures.append(
                Figure(
                    name=f"gain_{each.strategy.name}_{which}",
                    value=round(each.gain, 3),
                    unit="segments of pay",
                    must="below 0 with 99.9 % confidence",
                    holds=each.upper < 0,
                    how=f"{each.strategy.about}; profit {each.profit:.1f} against {each.honest:.1f} of honest work, "
                    f"interval +-{3.29 * each.error:.2f}, {each.caught:.2f} fails, {histories} histories of "
                    f"{setting.rounds * setting.per_round} segments, p = {RATES[which]:.3g}, cost = pay, "
                    f"detection {each.strategy.detection:g}, registration {setting.burn:.2f}",
                )
            )
    return figures


def responses(run: RunConfig) -> list[Figure]:
    """The most that any plan could gain."""
    figures = []
    for which in RATES:
        thrifty, hard = economy(run, which, cost=THRIFTY), economy(run, which)
        best = max(hotkeys * best_response(thrifty, hotkeys=hotkeys) for hotkeys in (1, 2, 5, 10))
        most = max(best_response(hard, hotkeys=hotkeys) for hotkeys in (1, 2, 5, 10))
        figures += [
            Figure(
                name=f"best_response_{which}", value=round(best, 4), unit="segments of pay",
                must="0: no plan of cheating gains over honest work", holds=best <= 1e-6,
                how="dynamic programming over every plan that knows all but the draws, 1 to 10 hotkeys on a machine, "
                f"honest work costs {THRIFTY} of its pay",
            ),
            Figure(
                name=f"best_response_at_cost_{which}", value=round(most, 4), unit="segments of pay a hotkey",
                must=f"below the price of the registration, {hard.burn:.2f}", holds=most < hard.burn,
                how="the same where honest work earns nothing: what is left is the very first segment of a hotkey",
            ),
        ]  # fmt: skip
    return figures


def agreement(run: RunConfig, played: int) -> list[Figure]:
    """The fast simulation against histories played by the real draw, verdicts, books and weights."""
    short = replace(run, pay=replace(run.pay, window_segments=128))
    setting = economy(short, "p05", shares=(0.5, 0.5), rounds=48)
    strategies = [HONEST, *(each for each in catalogue() if each.name in ("idle_20", "hit_and_run_2", "farm_41"))]
    worst, fails = 0.0, 0
    for strategy, fast in zip(strategies, outcomes(setting, strategies, 50_000), strict=True):
        histories = [History(setting, strategy, seed=f"{strategy.name} {number}") for number in range(played)]
        profits = np.array([each.play() for each in histories[: 1 if strategy is HONEST else played]])
        if strategy is HONEST:
            fails = sum(each.fails for each in histories)
            assert math.isclose(profits[0], fast.profit, abs_tol=1e-6), "honest pay differs between the simulations"
        else:
            error = math.hypot(float(profits.std(ddof=1)) / math.sqrt(played), fast.error)
            worst = max(worst, abs(float(profits.mean()) - fast.profit) / error)
    return [
        Figure(
            name="simulations_differ", value=round(worst, 2), unit="standard errors",
            must="below 4 (a right simulation exceeds it once in 5,000)", holds=worst < 4,
            how=f"largest of 3 strategies, {played} histories each played segment by segment by the product's own "
            "draw, verdict, books and weights against 50,000 fast ones",
        ),
        Figure(
            name="honest_fails", value=fails, unit="fails", must="0: honest work loses nothing", holds=fails == 0,
            how="an honest miner in the same history",
        ),
    ]  # fmt: skip


def others(run: RunConfig) -> list[Figure]:
    """Sybils, lying and lazy validators."""
    gain = max(sybil_gain(run, hotkeys, rounds=rounds) for hotkeys in range(2, 11) for rounds in (1, 6, 70))
    equal = {f"validator {number}": 100 for number in range(10)}
    lost = lost_to_liars(run, equal, liars=1, miners=32)
    figures = [
        Figure(
            name="sybil_gain", value=round(gain, 6), unit="of the weight of one hotkey", must="at most 0.01",
            holds=gain <= 0.01,
            how="one honest machine as 2 to 10 hotkeys after 1, 6 and 70 rounds, real books and weights",
        ),
        Figure(
            name="lost_to_a_liar", value=round(lost, 4), unit="of a miner's incentive",
            must="at most the liar's part of the stake, 0.1", holds=lost <= 0.1005,
            how="one of ten equal validators gives a miner nothing; the chain's own epoch. The books of the others "
            "do not change by a fail that they cannot repeat",
        ),
    ]  # fmt: skip
    for lazy in (2, 5):
        setting = economy(run, "p05", shares=(0.1,) * (10 - lazy), cost=THRIFTY)
        best = max(hotkeys * best_response(setting, hotkeys=hotkeys) for hotkeys in (1, 2, 5, 10))
        alone = best_response(setting)
        figures.append(
            Figure(
                name=f"best_response_{lazy}_of_10_lazy", value=round(best, 3), unit="segments of pay in 1,536",
                must="a limit, stated: at the defaults nobody is lazy", holds=None,
                how=f"{lazy} of ten equal validators pass everything unseen, p = 0.05, 1 to 10 hotkeys, honest work "
                f"costs {THRIFTY}; with one hotkey {alone:.3f}",
            )
        )  # fmt: skip
    return figures


def demo(run: RunConfig) -> list[Figure]:
    """What the default `strata up` audits."""
    setting = economy(run, "p33")
    worked = run.train.rounds * setting.per_round
    rates = setting.rates(stakes_of(setting, 1, worked))
    closes = run.train.rounds  # segments without work, drawn at p
    share = (float(rates.sum()) + closes * run.audit.rate_frac) / (worked + closes)
    missed = float(np.prod(1 - setting.seen(rates[: setting.per_round])))
    return [
        Figure(
            name="demo_audited", value=round(share, 4), unit="replays per segment", must="at most 0.40",
            holds=share <= 0.40,
            how=f"expected over {worked} segments with work and {closes} closes of a replica that is never idle, by "
            "the rates of fresh hotkeys",
        ),
        Figure(
            name="demo_cheater_undrawn", value=missed, unit="chance", must="below 0.01", holds=missed < 0.01,
            how=f"no validator draws one of its first {setting.per_round} segments (one round); two equal validators",
        ),
    ]  # fmt: skip


def main() -> int:
    chosen = options(__doc__ or "")
    run = build_run(RunOptions())
    histories, played = (QUICK_HISTORIES, QUICK_PLAYED) if chosen.quick else (HISTORIES, PLAYED)
    figures = [*gains(run, histories), *responses(run), *agreement(run, played), *others(run), *demo(run)]
    return report("economics", figures, quick=chosen.quick, folder=chosen.out)


if __name__ == "__main__":
    sys.exit(main())
