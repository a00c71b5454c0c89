#!/usr/bin/env python3
"""What the shadow audit finds, what it misses, and what it costs: every figure of docs/audit.md.

    scripts/bench/audit.py            # about 20 minutes alone on two cores, leaves docs/benchmarks/audit.json and
                                      # its table in docs/audit.md
    scripts/bench/audit.py --quick    # fewer of everything
    scripts/bench/audit.py --parts DIR    # keeps each part in DIR as it is measured, and takes those that are there

Costs are measured first, while nothing else runs here; then one thread drives the workers that count honest segments,
while this process catches cheats and looks for the smallest deviations. Owns the list of figures.
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from scripts.bench import calibration_page  # noqa: E402
from scripts.bench.audit_costs import Fetched, compute, cost_run, fetched, memory_ratio  # noqa: E402
from scripts.bench.audit_counts import (  # noqa: E402
    CASES,
    CLASSES,
    EVERYWHERE,
    KINDS,
    LAST,
    MIDDLE,
    POISONS,
    SMALL,
    Caught,
    Class,
    Honest,
    catch,
    honest_distances,
    honest_settings,
    least_caught,
    smallest_caught,
    usual_settings,
    within,
)  # fmt: skip
from scripts.bench.report import Figure, Parts, options, report  # noqa: E402
from subnet.audit.tolerance import upper_bound  # noqa: E402
from subnet.edges.conditions import Condition, conditions  # noqa: E402
from subnet.edges.presets import RunOptions, build_run  # noqa: E402
from subnet.sim.figures import (  # noqa: E402
    EQUAL_TEN,
    Network,
    audit_share,
    first_fail_quantile,
    first_fails,
    sybil_gain,
    weights_distances,
)  # fmt: skip

RATE_FRAC, CHEATED_FRAC = 0.05, 0.2
HONEST_SETTINGS = dict(zip(CLASSES, (230, 30, 160, 20), strict=True))
QUICK_SETTINGS = 1
USUAL = "tiny"  # the default model
USUAL_SEEDS = 12
MUST_SEGMENTS = 10_000
FOLLOWED_ROUNDS, QUICK_ROUNDS = 4, 1  # of each cheat, two segments in each
PLANTED_ROUNDS = 6
HISTORIES, QUICK_HISTORIES = 8_000, 2_000
TICKS, QUICK_TICKS = 40, 8
LABEL = {run_class: " ".join(run_class) for run_class in CLASSES}


def costs(*, quick: bool) -> tuple[list[Figure], float]:
    """Compute, memory and bytes; and the compute ratio for the network's."""
    with tempfile.TemporaryDirectory() as folder:
        small = cost_run(larger=False, segments=3 if quick else 8, folder=Path(folder))
        larger = small if quick else cost_run(larger=True, segments=6, folder=Path(folder))
        little, segments = compute(small, rounds=2)
        much, others = (little, segments) if quick else compute(larger)
        stages = (MIDDLE,) if quick else EVERYWHERE
        memory = max(memory_ratio(larger, others, stage) for stage in stages)
    counted = {alike: [fetched(small, each, alike=alike) for each in segments] for alike in (True, False)}
    how = "CPU time of auditing a lane's three segments over that of training them, by turns, median of {} turns; {}"
    worst = max(little.ratio, much.ratio)
    figures = [
        Figure(
            name=f"audit_compute_{name}", value=round(each.ratio, 4), unit="of the audited segment", must="at most 1.1",
            holds=each.ratio <= 1.1, how=how.format(len(each.trained_s), about),
        )
        for name, each, about in (
            ("default_model", little, "the default model in three stages"),
            ("larger_stage", much, "hidden 256, 9 blocks, three stages of 2.4 M parameters"),
        )
        if not quick or name == "default_model"
    ]  # fmt: skip
    figures += [
        Figure(
            name="audit_peak_memory", value=round(memory, 4), unit="of training the stage", must="at most 1.2",
            holds=memory <= 1.2, how=f"growth of the process's peak resident memory over what it has with everything "
            f"imported, one process each; largest of stages {stages} of the "
            f"{'default' if quick else 'larger'} model",
        ),
        *byte_figures(counted[True], counted[False]),
    ]  # fmt: skip
    return figures, worst


def byte_figures(alike: list[Fetched], apart: list[Fetched]) -> list[Figure]:
    """Bytes of audits on machines like the miner's, and where everything differs in its last bits."""
    about = "evidence less one start state and a quarter of an end state, over the segment's traffic"
    where = "two rounds of the default model and schedule"
    chosen = (
        ("bytes_worst_segment", alike, True, f"largest of all segments of {where}, on a machine like the miner's"),
        ("bytes_plain_segment_apart", [each for each in apart if each.plain], True, "largest of all segments that "
         f"neither open nor close a round, of {where}, where everything differs in its last bits"),
        ("bytes_any_segment_apart", [each for each in apart if not each.plain], False, "largest of those that open or "
         "close a round, where everything differs: besides, these take the public parameters, and a close all those of "
         "the end state"),
    )  # fmt: skip
    return [
        Figure(
            name=name, value=round(max(each.traffic_frac for each in counted), 4), unit="of the segment's traffic",
            must="at most 0.6" if judged else "stated",
            holds=max(each.traffic_frac for each in counted) <= 0.6 if judged else None, how=f"{about}; {how}",
        )
        for name, counted, judged, how in chosen
    ]  # fmt: skip


def among(*, quick: bool) -> tuple[Condition, ...]:
    """The calibration's conditions; in a quick run only those of two instruction sets, one thread."""
    known = conditions()
    if not quick:
        return known
    sets = list(dict.fromkeys(each.environment for each in known))
    return tuple(each for each in known if each.environment in (sets[0], sets[-1]) and each.threads == 1)[::2]


def honest_figures(found: dict[Class, Honest], *, quick: bool) -> list[Figure]:
    """Who was flagged of the honest."""
    figures = [flagged_figure("_".join(each), "small random runs", LABEL[each], found[each]) for each in found]
    flagged, segments = (sum(getattr(each, part) for each in found.values()) for part in ("flagged", "segments"))
    return [
        *figures,
        Figure(
            name="honest_segments", value=segments, unit="segments", must=f"at least {MUST_SEGMENTS:,}",
            holds=None if quick else segments >= MUST_SEGMENTS,
            how="each computed under one condition and audited under another; all classes, first, middle, last and "
            f"only stages, pairs of {len(among(quick=quick))} conditions: threads, instruction sets, attention "
            "kernels, recompute, microbatches in parts",
        ),
        Figure(
            name="honest_flagged_upper_bound", value=upper_bound(flagged, segments), unit="of honest segments",
            must="stated", holds=None, how="one-sided 95 %, Clopper and Pearson, over all classes",
        ),
    ]  # fmt: skip


def flagged_figure(name: str, runs: str, label: str, honest: Honest) -> Figure:
    """How many of one population were flagged."""
    return Figure(
        name=f"honest_flagged_{name}", value=honest.flagged, unit="segments", must="0", holds=honest.flagged == 0,
        how=f"{honest.segments} segments of {runs}, {label}, other seeds than the calibration's; 95 % upper bound "
        f"{honest.upper:.2e}",
    )  # fmt: skip


def cheat_figures(run_class: Class, caught: list[Caught]) -> list[Figure]:
    """Each cheat by name, the least over stages and strengths."""
    least, must = SMALL[run_class[0]], run_class[1] == "adamw"
    figures = []
    for kind in dict.fromkeys(each.kind for each in caught):
        own = [each for each in caught if each.kind == kind]
        value, drawn = least_caught(own), sum(len(each.fails) for each in own)
        strengths = ", ".join(f"{each:g}" for each in dict.fromkeys(each.strength for each in own))
        missed = sorted({each.stage for each in own if not all(each.fails)})
        figures.append(
            Figure(
                name=f"caught_{kind}_{'_'.join(run_class)}", value=value, unit="of drawn segments",
                must=f"1 at {least:.0%} or more" if must else "stated", holds=value == 1.0 if must else None,
                how=f"{drawn} drawn segments, strengths {strengths}; least of all stages"
                + (f"; not always on stages {missed}" if missed else ""),
            )
        )  # fmt: skip
    return figures


def smallest_deviations(run_class: Class, *, quick: bool) -> dict[str, float]:
    """By kind of comparison, the smallest deviation that every audit catches."""
    rounds = QUICK_ROUNDS if quick else PLANTED_ROUNDS
    return {kind: smallest_caught(run_class, kind, rounds=rounds) for kind in KINDS}


def deviation_figures(run_class: Class, honest: Honest, smallest: dict[str, float], *, quick: bool) -> list[Figure]:
    """How sharp each comparison is."""
    must, figures = run_class[1] == "adamw", []
    for kind, caught in smallest.items():
        usual = honest.q999(kind)
        ratio = caught / usual if usual else float("inf")
        figures.append(
            Figure(
                name=f"smallest_{kind}_{'_'.join(run_class)}", value=round(ratio, 3), unit="of the honest q99.9",
                must="at most 3" if must else "stated",
                holds=ratio <= 3 if must and not quick else None,  # few segments have no 99.9th percentile
                how=f"a deviation of {caught:.2e} is caught in every one of {2 * PLANTED_ROUNDS} audits, honest 99.9th "
                f"percentile {usual:.2e}",
            )
        )  # fmt: skip
    return figures


def odds(caught: list[Caught], cost: float, *, quick: bool) -> list[Figure]:
    """What chance and money make of it."""
    run = build_run(RunOptions(audit_rate=RATE_FRAC))
    outcomes = [fails for each in caught for fails in each.fails]
    histories = QUICK_HISTORIES if quick else HISTORIES
    firsts = first_fails(RATE_FRAC, cheated=CHEATED_FRAC, caught=outcomes, stakes=EQUAL_TEN, histories=histories)
    theory = first_fail_quantile(0.99, rate=RATE_FRAC, cheated=CHEATED_FRAC)
    found = float(np.quantile(firsts, 0.99))
    window = run.pay.window_segments
    steady, begun = (audit_share(run, segments=count, audit_cost=cost) for count in (100 * window, window))
    miners = tuple(f"miner-{number}" for number in range(32))
    network = Network(run=run, miners=miners, stakes=EQUAL_TEN, bad=miners[0])
    apart = max(weights_distances(network, ticks=QUICK_TICKS if quick else TICKS))
    ages = (1, 6) if quick else (1, 6, 70)
    gains = [sybil_gain(run, hotkeys, rounds=rounds) for hotkeys in range(2, 11) for rounds in ages]
    return [
        Figure(
            name="first_fail_99th_percentile", value=found, unit="segments", must=f"at most {1.1 * theory:.0f}",
            holds=found <= 1.1 * theory, how=f"{histories} histories, real draws of ten equal validators at p = 5 %, "
            f"20 % of segments cheated, each drawn one is one of {len(outcomes)} real replays; theory {theory:.0f}",
        ),
        Figure(
            name="network_audit_compute", value=round(steady, 4), unit="of training", must="at most 0.06",
            holds=steady <= 0.06, how=f"p = 5 % at the rates of each hotkey's own history over 100 pay windows, "
            f"times the measured {cost:.3f} of an audit",
        ),
        Figure(
            name="network_audit_compute_first_window", value=round(begun, 4), unit="of training", must="stated",
            holds=None, how="the same while every hotkey is new and is drawn more often",
        ),
        Figure(
            name="weights_apart", value=round(apart, 5), unit="L1", must="at most 0.05", holds=apart <= 0.05,
            how="largest between any two of ten honest validators after any segment, 32 miners, one of which always "
            "cheats, verdicts one segment after the draw, rechecks one after those",
        ),
        Figure(
            name="sybil_gain", value=round(max(gains), 5), unit="of one hotkey's weight", must="at most 0.01",
            holds=max(gains) <= 0.01, how=f"one machine as k = 2 to 10 hotkeys after {ages} rounds; largest",
        ),
    ]  # fmt: skip


def counted(parts: Parts, *, quick: bool) -> dict[Class, Honest]:
    """Honest segments, each class a part."""
    found = {}
    for run_class in CLASSES:
        settings = honest_settings(run_class, QUICK_SETTINGS if quick else HONEST_SETTINGS[run_class])
        measure = partial(honest_distances, settings, among(quick=quick))
        distances = parts.part("_".join(("honest", *run_class)), list[dict[str, float]], measure)
        found[run_class] = Honest(distances=distances, within=within(run_class))
    return found


def usual(parts: Parts, *, quick: bool) -> list[Figure]:
    """Honest segments of the default model, each dtype a part."""
    figures = []
    for run_class in (CLASSES[0],) if quick else (CLASSES[0], CLASSES[2]):
        settings = usual_settings(run_class, QUICK_SETTINGS if quick else USUAL_SEEDS)
        measure = partial(honest_distances, settings, among(quick=quick))
        name = "_".join((USUAL, *run_class))
        honest = Honest(
            distances=parts.part(name, list[dict[str, float]], measure), within=within(run_class, model=USUAL)
        )
        figures.append(flagged_figure(name, "the default model", LABEL[run_class], honest))
    return figures


def cheated(parts: Parts, *, quick: bool) -> dict[Class, tuple[list[Caught], dict[str, float]]]:
    """Cheats and the smallest deviations, each class two parts."""
    found = {}
    for run_class in CLASSES:
        usual = run_class == CLASSES[0]
        stages = EVERYWHERE if not quick else (LAST,) if usual else (MIDDLE,)
        cases = CASES if usual or not quick else CASES[: len(POISONS)]
        rounds = QUICK_ROUNDS if quick else FOLLOWED_ROUNDS
        caught = parts.part(
            "_".join(("caught", *run_class)),
            list[Caught],
            partial(catch, run_class, rounds=rounds, stages=stages, cases=cases),
        )
        sharp = not quick or run_class[1] == "adamw"
        measure = partial(smallest_deviations, run_class, quick=quick) if sharp else dict
        found[run_class] = caught, parts.part("_".join(("smallest", *run_class)), dict[str, float], measure)
    return found


def main() -> int:
    chosen = options(__doc__ or "", parts=True)
    quick, parts = chosen.quick, Parts(chosen.parts, quick=chosen.quick)
    torch.set_num_threads(1)
    figures, cost = parts.part("costs", tuple[list[Figure], float], partial(costs, quick=quick))
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # of the workers: threads that wait must not take the core from others
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(counted, parts, quick=quick)
        found, larger = cheated(parts, quick=quick), usual(parts, quick=quick)
        honest = counting.result()
    figures += [*honest_figures(honest, quick=quick), *larger]
    for run_class, (caught, smallest) in found.items():
        figures += cheat_figures(run_class, caught)
        figures += deviation_figures(run_class, honest[run_class], smallest, quick=quick)
    figures += odds(found[CLASSES[0]][0], cost, quick=quick)
    code = report("audit", figures, quick=quick, folder=chosen.out)
    if chosen.out / "audit.json" == calibration_page.FIGURES:
        calibration_page.main()
    return code


if __name__ == "__main__":
    sys.exit(main())
