"""The epoch gives the chain's own numbers, integer by integer."""

import json
from pathlib import Path
from typing import Any

import pytest

from template.devchain.epoch import EpochInput, EpochParams, EpochResult, run_epoch

CASES = json.loads(Path(__file__).with_name("yuma_vectors.json").read_text())["cases"]
EMISSION_RAO = 10**9
STEPS = [(case, index) for case in CASES for index in range(len(case["steps"]))]


def rows(matrix: dict[str, list[list[int]]]) -> dict[int, list[tuple[int, int]]]:
    return {int(uid): [(column, value) for column, value in row] for uid, row in matrix.items()}


def epoch_of(case: dict[str, Any], inputs: dict[str, Any]) -> EpochResult:
    params = case["params"]
    low, high = params.get("alpha", (45875, 58982))
    return run_epoch(
        EpochInput(
            block=inputs["block"],
            stake=inputs["stake"],
            last_update=inputs["last_update"],
            registered_at=inputs["block_at_registration"],
            permits=inputs["validator_permit_in"],
            weights=rows(inputs["weights_u16"]),
            bonds=rows(inputs["bonds_in_u16"]),
        ),
        EpochParams(
            tempo=params["tempo"],
            kappa=params["kappa"],
            max_validators=params["max_validators"],
            bonds_penalty=params.get("bonds_penalty", 65535),
            bonds_moving_average=params["bonds_ma"],
            yuma3=params.get("yuma3", False),
            liquid_alpha=params.get("liquid", False),
            alpha_low=low,
            alpha_high=high,
            alpha_steepness=params.get("steep", 1000),
        ),
    )


@pytest.mark.parametrize(
    ("case", "index"), STEPS, ids=lambda value: value["name"] if isinstance(value, dict) else value
)
def test_an_epoch_equals_the_exact_reference(case: dict[str, Any], index: int) -> None:
    """u16 lists, bonds and rao amounts: every integer of the reference, none within a tolerance."""
    step = case["steps"][index]
    result, reference = epoch_of(case, step["inputs"]), step["reference_output"]
    for name in ("consensus", "incentive", "dividends", "validator_trust", "stake_weight", "permits"):
        assert getattr(result, name) == reference[name], name
    assert result.amounts(result.combined, EMISSION_RAO) == reference["emission"]
    assert result.amounts(result.server, EMISSION_RAO) == reference["server_emission"]
    assert result.amounts(result.validator, EMISSION_RAO) == reference["validator_emission"]
    assert {uid: row for uid, row in result.bonds.items() if row} == rows(reference["bonds"])


@pytest.mark.parametrize(
    ("case", "index"), STEPS, ids=lambda value: value["name"] if isinstance(value, dict) else value
)
def test_an_epoch_equals_what_the_chains_own_tests_expect(case: dict[str, Any], index: int) -> None:
    """The values that the chain's tests assert: exact, or within their tolerance where they state one."""
    step = case["steps"][index]
    expected, result = step["expected"] or {}, epoch_of(case, step["inputs"])
    bonds = {(uid, column): value for uid, row in result.bonds.items() for column, value in row}
    tolerance = step["tolerance"] or 0
    for uid, column, value in expected.get("bonds_u16", ()):
        assert bonds.get((uid, column), 0) == value
    for name in ("consensus", "incentive", "dividends"):
        assert getattr(result, name) == expected.get(name, getattr(result, name))
    if "emission" in expected:
        assert result.amounts(result.combined, EMISSION_RAO) == expected["emission"]
    for uid, value in enumerate(expected.get("dividends_frac", ())):
        assert result.dividends[uid] / 65535 == pytest.approx(value, abs=tolerance)
    for uid, row in enumerate(expected.get("bonds_frac", ())):
        first = case["n"] - len(row)
        for offset, value in enumerate(row):
            assert bonds.get((uid, first + offset), 0) / 65535 == pytest.approx(value, abs=tolerance)


def test_without_weights_the_emission_follows_stake() -> None:
    params = EpochParams(tempo=10)
    state = EpochInput(
        block=10, stake=[3, 1], last_update=[5, 5], registered_at=[0, 0], permits=[True, True], weights={}, bonds={}
    )
    result = run_epoch(state, params)
    assert result.amounts(result.combined, 1000) == [750, 250]
    assert result.amounts(result.server, 1000) == [0, 0]


def test_a_vote_for_a_neuron_that_registered_later_does_not_count() -> None:
    """The voter spoke at block 5; uid 1 was replaced at block 6."""
    common: dict[str, Any] = {
        "block": 10,
        "stake": [1, 0, 0],
        "last_update": [5, 0, 0],
        "permits": [True, False, False],
        "weights": {0: [(1, 65535), (2, 65535)]},
        "bonds": {},
    }
    before = run_epoch(EpochInput(registered_at=[0, 0, 0], **common), EpochParams(tempo=5))
    after = run_epoch(EpochInput(registered_at=[0, 6, 0], **common), EpochParams(tempo=5))
    assert before.incentive == [0, 32767, 32767]
    assert after.incentive == [0, 0, 65535]
