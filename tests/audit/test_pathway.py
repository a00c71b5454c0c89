"""Marginal effects: right on average, free of the neighbours' bias, honest about their error, and worth no pay."""

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from subnet.audit.pathway import MOST_NATS, Pathway, effects, pathways, suspects
from subnet.incentive.score import books
from tests.audit.histories import audit_run, history
from tests.ledger.simulation import Simulation, without
from tests.ledger.small import run_config


def lanes(harm: dict[str, float], paths: list[list[tuple[str, ...]]], *, noise: float = 0.0, seed: int = 0):
    """Losses of these lanes by step: a level that falls, and what every member adds."""
    rng = np.random.default_rng(seed)
    return [
        Pathway(
            step=step,
            path=path,
            loss=float(5 - 0.1 * step + sum(harm.get(hotkey, 0.0) for hotkey in path) + noise * rng.standard_normal()),
        )
        for step, together in enumerate(paths)
        for path in together
    ]


def shuffled(steps: int, width: int = 4, stages: int = 3, seed: int = 1) -> list[list[tuple[str, ...]]]:
    rng = np.random.default_rng(seed)
    return [
        list(zip(*([f"{stage}/{number}" for number in rng.permutation(width)] for stage in range(stages)), strict=True))
        for _ in range(steps)
    ]


def test_without_noise_the_effects_are_exact():
    """Relative to the stage's mean: 0.3 among four is 0.225 above it, the others 0.075 below."""
    found = effects(lanes({"1/2": 0.3}, shuffled(40)), ridge=1e-9)
    assert found[1, "1/2"].effect == pytest.approx(0.225, abs=1e-6)
    assert found[1, "1/0"].effect == pytest.approx(-0.075, abs=1e-6)
    assert all(abs(found[stage, f"{stage}/0"].effect) < 1e-6 for stage in (0, 2))
    assert found[1, "1/2"].count == 40


def test_a_neighbour_is_not_blamed():
    """The partner of a cheater in two lanes of three has a bad mean and no effect of its own."""
    paths = [
        [("a", "bad"), ("b", "x")] if step % 3 else [("b", "bad"), ("a", "x")]
        for step in range(60)
    ]  # fmt: skip
    observed = lanes({"bad": 0.5}, paths, noise=0.01)
    mean = {name: np.mean([each.loss for each in observed if name in each.path]) for name in "ab"}
    found = effects(observed)
    assert mean["a"] - mean["b"] > 0.1
    assert abs(found[0, "a"].effect) < 0.02 and found[1, "bad"].errors_above > 10


def test_the_stated_errors_are_the_real_ones():
    """Over 200 runs without a cheater the effects in standard errors have variance 1: within 12 %, 4.9 deviations of
    the variance of 2,400 independent values would be 14 %."""
    values = []
    for seed in range(200):
        found = effects(lanes({}, shuffled(30, seed=seed), noise=0.2, seed=seed))
        values += [each.errors_above for each in found.values()]
    assert np.var(values) == pytest.approx(1.0, abs=0.14)


def test_without_two_lanes_in_a_step_nothing_is_said():
    assert effects([]) == {}
    assert effects(lanes({"a": 9.0}, [[("a", "b")], [("c", "b")]])) == {}


def test_paths_and_losses_come_from_the_ledger():
    """A plan's path and the loss of its last stage's receipt, in nats per token; only of the last rounds."""
    simulation = Simulation(run=run_config(steps=3))
    simulation.start("a", "b", "c", "d")
    simulation.do_step()
    state = simulation.state
    found = pathways(state)
    assert {each.path for each in found} == {plan.path for plan in list(state.plans.values())[:2]}
    assert {each.loss for each in found} == {100.0 / state.config.microbatch_tokens}
    assert suspects(state) == ()
    state.round = 2
    assert pathways(state) == []


def test_who_is_suspected_is_paid_the_same(repository: Path):
    """Pay, weights and the draw know nothing of pathways: none of their modules imports them."""
    readers = set()
    for path in (repository / "subnet").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if "pathway" in text else "")
        named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if "subnet.audit.pathway" in named:
            readers.add(path.relative_to(repository / "subnet").as_posix())
    assert readers == {"nodes/validator.py", "sim/pathways.py"}


def test_scores_are_the_same_with_and_without_an_estimate():
    simulation = Simulation(run=run_config(steps=3))
    simulation.start("a", "b", "c", "d")
    simulation.do_round()
    before = books(simulation.state, now_ms=10**15, own=None)
    suspects(simulation.state)
    effects(pathways(simulation.state))
    assert books(simulation.state, now_ms=10**15, own=None) == before
    assert suspects(history(audit_run())) == ()


def test_the_largest_number_as_a_loss_overflows_no_sum():
    """A loss is whatever the last stage says, and a validator must not fall over it (warnings are errors here)."""
    sim = Simulation(run=run_config(stages=1))
    sim.start("ann", "ben")
    for _ in range(2):
        sim.pass_time(1000)
        for name in ("ann", "ben"):
            honest = sim.step_receipt(name)
            loss = sys.float_info.max if name == "ann" else 100.0
            sim.say(name, replace(honest, work=tuple(without(each, loss=loss) for each in honest.work)))
        sim.decide()
    assert max(each.loss for each in pathways(sim.state)) == MOST_NATS
    suspects(sim.state)
