"""The epoch gives the chain's own numbers, integer by integer."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from template.devchain.epoch import EpochInput, EpochParams, run_epoch
from template.devchain.vectors import VectorError, check_case

CASES = json.loads(Path(__file__).with_name("yuma_vectors.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_an_epoch_equals_the_chains_tests_and_the_exact_reference(case: dict[str, Any]) -> None:
    """Values that the chain's tests assert, and every integer of the reference: u16 lists, bonds and rao amounts."""
    report = check_case(case, reference=True)
    assert report.failures == []
    assert report.compared > 60
    fields = {line.split("[")[0].split()[-1] for line in report.lines}
    assert {"consensus", "incentive", "dividends", "emission"} <= fields


def test_a_wrong_expectation_is_found() -> None:
    case = json.loads(json.dumps(CASES[0]))
    case["steps"][1]["expected"]["bonds_u16"][0][2] += 1
    report = check_case(case)
    assert report.failures == ["step 1 bonds_u16[0][4]: expected 16384, found 16383.0"]
    assert report.largest == 1


@pytest.mark.parametrize(
    ("expected", "failures"),
    [
        ({"dividends": [[0, 6553], [1, 13106]]}, 0),
        ({"dividends": [6553, 13106, 19660, 26214, 0, 0, 0, 0]}, 0),
        ({"dividends": [[0, 6554]]}, 1),
        ({"bonds_u16": {"0": [[4, 16383]]}}, 0),
        ({"bonds_frac": [[16383 / 65535, 16383 / 65535, 16383 / 65535, 16383 / 65535]]}, 0),
    ],
)
def test_expectations_may_be_lists_pairs_or_rows(expected: dict[str, Any], failures: int) -> None:
    case = {**CASES[0], "steps": [{**CASES[0]["steps"][1], "expected": expected, "tolerance": 1e-9}]}
    assert len(check_case(case).failures) == failures


def test_an_unknown_output_is_an_error_and_an_unknown_parameter_a_note() -> None:
    case = {**CASES[0], "steps": [{**CASES[0]["steps"][1], "expected": {"nonsense": [0]}}]}
    with pytest.raises(VectorError, match="the output nonsense is not known"):
        check_case(case)
    noted = {**CASES[1], "params": {**CASES[1]["params"], "colour": 3}}
    assert check_case(noted).notes == ["the parameter colour is not one of the epoch's and was not used"]


def test_the_script_judges_a_file_it_has_never_seen(tmp_path: Path) -> None:
    """Exit 0 when all matches, 1 when a value differs, 2 when the file is something else."""
    script, file = Path(__file__).parents[3] / "scripts/yuma", tmp_path / "cases.json"

    def run(content: Any) -> tuple[int, str]:
        file.write_text(json.dumps(content))
        done = subprocess.run([sys.executable, script, file], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert run({"cases": CASES[:2]})[0] == 0
    wrong = json.loads(json.dumps(CASES[1]))
    wrong["steps"][0]["expected"]["emission"][3] += 7
    code, text = run({"cases": [wrong]})
    assert code == 1 and "largest difference 7" in text and "FAIL ten_self_weights" in text
    code, text = run([1, 2])
    assert code == 2 and "expected cases in the format" in text


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
