"""Who is flagged and who is caught: honest segments under every condition, cheats by name, and the smallest deviations.

Every number comes from real replays of real stages. Owns what is run and what is counted of it; the pairs of conditions
are those of `strata calibrate`, with other seeds than the tolerances were made from.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from subnet.audit.compare import Finding, tolerance_of
from subnet.audit.tolerance import SMALL_RUNS, tolerances, upper_bound
from subnet.cheats.base import Cheat, owner
from subnet.cheats.registry import make_cheat
from subnet.config import RunConfig
from subnet.edges.conditions import MOVEMENT, Condition, Setting, honest_segments
from subnet.edges.presets import RunOptions, build_run
from subnet.edges.rehearsal import Rehearsal, Rehearsed
from subnet.edges.small_runs import drawn_settings, setting_of
from subnet.edges.tolerances import read_calibration
from subnet.sim.segment import compared, judged, segment_corpus
from subnet.stage.layout import Moments

Class = tuple[str, str]  # compute dtype and inner optimizer
Case = tuple[str, float | None, tuple[int, ...]]
CLASSES: tuple[Class, ...] = (("float32", "adamw"), ("float32", "muon"), ("bfloat16", "adamw"), ("bfloat16", "muon"))
SMALL = {"float32": 0.01, "bfloat16": 0.05}  # the deviation that must be caught
SEED = 7_310_926  # not the calibration's
AUDITORS = 1  # of each segment: no segment counts twice
DRAWN = 20  # at least so many small runs are drawn, to take some from
ROUNDS = 6  # of each small run
FIRST, MIDDLE, LAST = 0, 1, 2
EVERYWHERE = (FIRST, MIDDLE, LAST)
KINDS = ("activation", "gradient", "loss", "norm", "delta", "moment")
PLANTED = (1.05, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)  # deviations, in tolerances

POISONS = ("scale", "signflip", "noise", "scale-update", "signflip-update", "noise-update")
AT_A_ROUNDS_BEGIN = ("stale-state", "forge")  # deviate in the segments that open a round, the others in all

# Kind, strength (None: the smallest that must be caught), stages.
CASES: tuple[Case, ...] = (
    *((kind, None, EVERYWHERE) for kind in POISONS),
    *(("stale-state", None, EVERYWHERE), ("forge", None, EVERYWHERE), ("misreport", None, (LAST,))),
    *(("idle", 0.1, EVERYWHERE), ("skip", 0.25, EVERYWHERE), ("skip-blocks", 0.5, EVERYWHERE)),
    *(("stale", 0.5, EVERYWHERE), ("stale", 1.0, EVERYWHERE), ("relabel", 0.25, (FIRST, LAST))),
    *(("lowrank", 0.5, EVERYWHERE), ("int4", 4.0, EVERYWHERE), ("equivocate", None, EVERYWHERE)),
)


@dataclass(frozen=True, kw_only=True)
class Honest:
    """Honest segments of one class: of each the distance of every kind of comparison, and what they must be within."""

    distances: list[dict[str, float]]
    within: dict[str, float]

    @property
    def segments(self) -> int:
        """How many."""
        return len(self.distances)

    @property
    def flagged(self) -> int:
        """Those over some tolerance."""
        return sum(any(each.get(kind, 0.0) > most for kind, most in self.within.items()) for each in self.distances)

    @property
    def upper(self) -> float:
        """The 95 % upper bound of the rate of flagged segments."""
        return upper_bound(self.flagged, self.segments)

    def q999(self, kind: str) -> float:
        """The 99.9th percentile of one kind; of movements as they are, as deviations of these are planted."""
        name = MOVEMENT if kind == "delta" else kind
        return float(np.quantile([each[name] for each in self.distances if name in each], 0.999))


def honest_settings(run_class: Class, count: int) -> list[Setting]:
    """Small runs of a class, over frames that lose nothing; each is followed for some rounds. The first has a first, a
    middle and a last stage."""
    dtype, optimizer = run_class
    settings = drawn_settings(max(count, DRAWN), dtype=dtype, optimizer=optimizer, seed=SEED)
    settings.sort(key=lambda each: each.run.stages != len(EVERYWHERE))
    return [replace(setting, skip_rounds=0, rounds=ROUNDS) for setting in _spread(settings, count)]


def _spread(settings: list[Setting], count: int) -> list[Setting]:
    """So many of them, evenly."""
    return [settings[number * len(settings) // count] for number in range(count)]


def usual_settings(run_class: Class, count: int) -> list[Setting]:
    """The default model, trained from other seeds than the calibration's."""
    dtype, optimizer = run_class
    run = build_run(RunOptions(dtype=dtype, optimizer=optimizer))
    run = replace(run, data=replace(run.data, corpus_digest=""))
    return [setting_of(replace(run, seed=SEED + number)) for number in range(count)]


def honest_distances(settings: Sequence[Setting], among: Sequence[Condition]) -> list[dict[str, float]]:
    """Compute each setting under one condition and audit its segments under another."""
    return [each.distances for each in honest_segments(settings, among, seed=SEED, auditors=AUDITORS)]


def within(run_class: Class, *, model: str = SMALL_RUNS) -> dict[str, float]:
    """The packaged tolerances."""
    dtype, optimizer = run_class
    return tolerances(read_calibration(), dtype=dtype, optimizer=optimizer, codec="none", model=model)


def nano_run(run_class: Class) -> RunConfig:
    """Three small stages: four microbatches a segment, two segments a round."""
    dtype, optimizer = run_class
    run = build_run(
        RunOptions(
            model="nano", stages=3, rounds=100, steps=4, segment_steps=2, microbatches=2, microbatch_sequences=1,
            dtype=dtype, optimizer=optimizer,
        )
    )  # fmt: skip
    return replace(run, audit=replace(run.audit, outbound_frac=0.2, chunk_frac=0.25))


def cheated_segments(
    run: RunConfig, stage: int, cheat: Cheat, *, rounds: int, opening: bool = False
) -> Iterator[Rehearsed]:
    """The segments of the cheat's rounds after its first, which is not followed: some need a state to be stale in.

    opening: only those that open a round.
    """
    lane = Rehearsal(run, segment_corpus(run), cheats={stage: cheat}, seed=bytes(range(32)))
    for rehearsed in lane.segments(1 + rounds):
        case = rehearsed.need.case
        if case.stage == stage and case.round > 0 and (case.opens_round or not opening):
            yield rehearsed


@dataclass(frozen=True, kw_only=True)
class Caught:
    """One cheat on one stage: of each drawn segment whether its audit failed."""

    kind: str
    strength: float
    stage: int
    fails: tuple[bool, ...]


def catch(
    run_class: Class, *, rounds: int, stages: Iterable[int] = EVERYWHERE, cases: Sequence[Case] = CASES
) -> list[Caught]:
    """Each of these cheats, on the stages that it can act on."""
    run, made = nano_run(run_class), []
    corpus, allowed = segment_corpus(run), set(stages)
    for kind, given, acts_on in cases:
        strength = SMALL[run_class[0]] if given is None else given
        for stage in sorted(allowed & set(acts_on)):
            segments = cheated_segments(
                run, stage, make_cheat(kind, strength), rounds=rounds, opening=kind in AT_A_ROUNDS_BEGIN
            )
            fails = tuple(judged(run, each.need, each.evidence, corpus=corpus).verdict == "fail" for each in segments)
            made.append(Caught(kind=kind, strength=strength, stage=stage, fails=fails))
    return made


class Deviate(Cheat):
    """Honest but for one kind of number, which is too large by the strength's part of it."""

    def __init__(self, kind: str, strength: float) -> None:
        super().__init__(strength)
        self.kind = kind

    def _off(self, kind: str, value: Any) -> Any:
        return value * (1 + self.strength) if kind == self.kind and value is not None else value

    def forward(self, honest: Callable[..., Any], microbatch: int, inputs: Any) -> Any:
        """The activation."""
        return self._off("activation", honest(microbatch, inputs))

    def backward(self, honest: Callable[..., Any], microbatch: int, gradient: Any, planned_tokens: int) -> Any:
        """The gradient."""
        return self._off("gradient", honest(microbatch, gradient, planned_tokens))

    def loss(self, honest: Callable[..., Any], microbatch: int, inputs: Any, labels: Any) -> Any:
        """The loss."""
        return self._off("loss", honest(microbatch, inputs, labels))

    def optimizer_step(self, honest: Callable[[int], float], global_step: int) -> float:
        """The norm, the step, or the memory of it."""
        replica = owner(honest)
        before = replica.stage.parameters_flat()
        norm = honest(global_step)
        after, moments = replica.stage.parameters_flat(), replica.optimizer.moments()
        if self.kind == "delta":
            replica.stage.load_flat(before + self._off("delta", after - before))
        if self.kind == "moment":
            first, second = (self._off("moment", part) for part in (moments.exp_avg, moments.exp_avg_sq))
            replica.optimizer.load(Moments(exp_avg=first, exp_avg_sq=second, step=moments.step))
        return float(self._off("norm", norm))


def smallest_caught(run_class: Class, kind: str, *, rounds: int) -> float:
    """The smallest planted deviation of this kind of number that every audit catches, of `PLANTED`."""
    run = nano_run(run_class)
    corpus, limit = segment_corpus(run), tolerance_of(run.audit, kind)
    stage = FIRST if kind == "activation" else LAST
    for planted in PLANTED:
        segments = cheated_segments(run, stage, Deviate(kind, planted * limit), rounds=rounds)
        if all(_shows(kind, compared(run, each.need, each.evidence, corpus=corpus)) for each in segments):
            return planted * limit
    return float("inf")


def _shows(kind: str, findings: Iterable[Finding]) -> bool:
    return any(finding.name == kind and not finding.holds for finding in findings)


def least_caught(caught: Iterable[Caught]) -> float:
    """The part of its drawn segments in which the luckiest of these cheats is caught."""
    return min(statistics.fmean(each.fails) for each in caught)
