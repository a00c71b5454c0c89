"""`strata calibrate`: measure how closely honest work repeats, and write the tolerances that follow.

Owns which classes and how many runs are measured, what is said of this machine, and the file. The pairs themselves are
`subnet.edges.conditions`' business, the rule `subnet.audit.tolerance`'s. Loads no torch: the workers do.
"""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from subnet.audit.tolerance import (
    KINDS,
    RULE,
    SMALL_RUNS,
    VERSION,
    Calibration,
    Class,
    Distances,
    Spread,
    classes,
    spreads_of,
)
from subnet.cli import flags
from subnet.cli.console import line, note, show_json, write_whole
from subnet.config import RunConfig
from subnet.edges.conditions import Setting, conditions, honest_segments
from subnet.edges.presets import DRAWN_LR, RunOptions, build_data, build_model, model_name
from subnet.edges.small_runs import drawn_settings, setting_of
from subnet.edges.tolerances import calibration_bytes, read_calibration
from subnet.errors import ConfigError

SETTINGS = 60  # of each class
QUICK_SETTINGS = 2
USUAL_MODEL, USUAL_STAGES = "tiny", 2
MODEL_SEEDS = 4
SEED = 20_260_101
SAY_EVERY_S = 2.0
LIBRARIES = ("torch", "transformers", "numpy")


def calibrate(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the tolerances go.")] = Path("tolerances.json"),
    model: Annotated[
        str | None,
        typer.Option(help="Measure this model too, besides tiny: a folder or config.json of a transformers model."),
    ] = None,
    stages: Annotated[int, typer.Option(help="Stages that the model is cut into.")] = 2,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE/OPTIMIZER/CODEC", help="Measure one class, float32/adamw/none; FILE keeps its others."
        ),
    ] = None,
    settings: Annotated[int, typer.Option(min=1, help="Small runs drawn for each class.")] = SETTINGS,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = SEED,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"Only {QUICK_SETTINGS} small runs for each class; marked as quick.")
    ] = False,
    json: flags.Json = False,
) -> None:
    """Compute honest segments under one condition, audit them under others, and write the tolerances."""
    begun_s = time.monotonic()
    number, spreads = QUICK_SETTINGS if quick else settings, kept(out, only)
    for run_class in classes() if only is None else [named_class(only)]:
        for name, chosen in drawn(run_class, number, model, stages, seed).items():
            spreads += spreads_of(run_class, measured(chosen, seed), settings=len(chosen), model=name)
    calibration = Calibration(
        version=VERSION,
        quick=quick,
        rule=RULE,
        machine=machine(),
        versions=versions(),
        conditions=tuple(condition.name for condition in conditions()),
        spreads=tuple(sorted(spreads, key=lambda s: (s.dtype, s.optimizer, s.codec, s.model, KINDS.index(s.kind)))),
    )
    write_whole(out, calibration_bytes(calibration))
    if json:
        show_json(msgspec.to_builtins(calibration))
    else:
        line("\n".join(table(calibration.spreads)))
        line(f"{calibration.segments} honest segments, {time.monotonic() - begun_s:.0f} s; tolerances in {out}")


def named_class(text: str) -> Class:
    """The class of this name. Raises ConfigError when there is none."""
    names = {"/".join(run_class): run_class for run_class in classes()}
    if text not in names:
        raise ConfigError(f"expected --only of {', '.join(names)}, found {text!r}; choose one of these")
    return names[text]


def kept(out: Path, only: str | None) -> tuple[Spread, ...]:
    """What the file has of other classes. Raises ConfigError when another machine, or other libraries, measured it."""
    if only is None or not out.exists():
        return ()
    before = read_calibration(out)
    if (before.machine, before.versions) != (machine(), versions()):
        raise ConfigError(f"expected a calibration of this machine in {out}, found another's; choose another --out")
    return tuple(s for s in before.spreads if (s.dtype, s.optimizer, s.codec) != named_class(only))


def versions() -> dict[str, str]:
    """Of what computes here."""
    return {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()}


def drawn(run_class: Class, number: int, model: str | None, stages: int, seed: int) -> dict[str, list[Setting]]:
    """The settings of one class by population: small runs, the usual model, and the one that was named, by its name."""
    dtype, optimizer, codec = run_class
    found = {SMALL_RUNS: drawn_settings(number, dtype=dtype, optimizer=optimizer, codec=codec, seed=seed)}
    for named, cut in {USUAL_MODEL: USUAL_STAGES, model or USUAL_MODEL: stages}.items():
        run = _of_model(found[SMALL_RUNS][0].run, named, cut)
        seeds = [msgspec.structs.replace(run, seed=run.seed + n) for n in range(MODEL_SEEDS)]
        found[model_name(named)] = [setting_of(each) for each in seeds]
    return found


def _of_model(run: RunConfig, model: str, stages: int) -> RunConfig:
    """The run with a model of the user's, cut into its stages, at its own sequence length."""
    options = RunOptions(model=model, stages=stages)
    config = build_model(model)
    train = msgspec.structs.replace(
        run.train,
        lr=DRAWN_LR,
        microbatch_sequences=options.microbatch_sequences,
        microbatches_per_step=options.microbatches,
        segment_steps=options.segment_steps,
    )
    pay = msgspec.structs.replace(run.pay, stage_price_milli=(1000,) * stages)
    data = build_data(options, config)
    return msgspec.structs.replace(run, model=config, stages=stages, data=data, train=train, pay=pay)


def measured(chosen: Sequence[Setting], seed: int) -> Iterator[Distances]:
    """The honest segments of the settings, with a line of progress now and then."""
    said_s = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal said_s
        if time.monotonic() - said_s > SAY_EVERY_S:
            said_s = time.monotonic()
            note(f"measured {done} of {total} runs")

    note(f"measuring {len(chosen)} runs under {len(conditions())} conditions")
    for segment in honest_segments(chosen, conditions(), seed=seed, progress=progress):
        yield segment.distances


def machine() -> dict[str, str]:
    """What this machine is."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for text in cpuinfo.read_text(encoding="utf-8").splitlines():
            if text.startswith("model name"):
                name = text.split(":", 1)[1].strip()
                break
    return {"processor": name, "cores": str(os.cpu_count() or 1), "system": platform.system(), "accelerator": "none"}


def table(spreads: Sequence[Spread]) -> Iterator[str]:
    """What came out, a line for each class and kind."""
    yield f"{'class, model':34} {'kind':11} {'segments':>8} {'median':>8} {'99.9 %':>8} {'largest':>8} {'tolerance':>9}"
    for spread in spreads:
        name = f"{spread.dtype} {spread.optimizer} {spread.codec} {spread.model}"
        yield (
            f"{name:34} {spread.kind:11} {spread.count:>8} {spread.q50:>8.1e} {spread.q999:>8.1e} "
            f"{spread.max:>8.1e} {spread.tolerance:>9.1e}"
        )
