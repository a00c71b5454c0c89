"""Test cases of the epoch as files: reading one, running it, and saying how far off the result is.

Pure. Accepts any case of the format, not only those that ship with the tests:
an expected value may be a full list by uid, or pairs and triples of uids and
values; `*_frac` values are proportions of 65535.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from template.devchain.epoch import EpochInput, EpochParams, EpochResult, run_epoch
from template.devchain.fixed import U16_MAX

DEFAULT_EMISSION_RAO = 10**9
_PARAMS = {
    "tempo": "tempo",
    "kappa": "kappa",
    "max_validators": "max_validators",
    "bonds_penalty": "bonds_penalty",
    "bonds_ma": "bonds_moving_average",
    "yuma3": "yuma3",
    "liquid": "liquid_alpha",
    "steep": "alpha_steepness",
    "activity_cutoff": "activity_cutoff",
}


_INPUTS = {
    "block",
    "stake",
    "last_update",
    "block_at_registration",
    "validator_permit_in",
    "weights_u16",
    "bonds_in_u16",
    "owner_uid",
    "last_step_block",
}
_DEFAULT_CUTOFF_MILLI, _INITIAL_CUTOFF_BLOCKS = 13_889, 5_000


class VectorError(ValueError):
    """A case that is not in the format; the message says where."""


@dataclass
class Report:
    """How one case went."""

    name: str
    compared: int = 0
    largest: float = 0.0
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every expected value matched."""
        return not self.failures

    def compare(self, where: str, expected: float, found: float, tolerance: float) -> None:
        """Take one value into the report."""
        self.compared += 1
        difference = abs(expected - found)
        self.largest = max(self.largest, difference)
        line = f"{where}: expected {expected}, found {found}"
        self.lines.append(line)
        if difference > tolerance:
            self.failures.append(line)


def epoch_params(params: dict[str, Any]) -> EpochParams:
    """A case's parameters; what it does not state is the chain's default.

    The chain's activity cutoff is a factor of the tempo, and was a fixed
    number of blocks before; a case without one gets the shorter of the two.
    """
    values = {ours: params[theirs] for theirs, ours in _PARAMS.items() if theirs in params}
    by_tempo = max(1, _DEFAULT_CUTOFF_MILLI * params["tempo"] // 1000)
    values.setdefault("activity_cutoff", min(_INITIAL_CUTOFF_BLOCKS, by_tempo))
    if "alpha" in params:
        values["alpha_low"], values["alpha_high"] = params["alpha"]
    return EpochParams(**values)


def epoch_input(inputs: dict[str, Any]) -> EpochInput:
    """A step's inputs."""
    owner = {"owner_uid": inputs["owner_uid"]} if "owner_uid" in inputs else {}
    last_step = {"last_step_block": inputs["last_step_block"]} if "last_step_block" in inputs else {}
    return EpochInput(
        block=inputs["block"],
        stake=inputs["stake"],
        last_update=inputs["last_update"],
        registered_at=inputs["block_at_registration"],
        permits=inputs["validator_permit_in"],
        weights=_rows(inputs["weights_u16"]),
        bonds=_rows(inputs["bonds_in_u16"]),
        **owner,
        **last_step,
    )


def _rows(matrix: dict[str, Any]) -> dict[int, list[tuple[int, int]]]:
    return {int(uid): [(column, value) for column, value in row] for uid, row in matrix.items()}


def check_case(case: dict[str, Any], *, reference: bool = False) -> Report:
    """Run every step of a case and compare it with what the step expects."""
    report, params = Report(case["name"]), epoch_params(case["params"])
    for name in sorted(set(case["params"]) - set(_PARAMS) - {"alpha"}):
        report.notes.append(f"the parameter {name} is not one of the epoch's and was not used")
    for name in sorted({name for step in case["steps"] for name in step["inputs"]} - _INPUTS):
        report.notes.append(f"the input {name} is not one of the epoch's and was not used")
    emission = case.get("emission", DEFAULT_EMISSION_RAO)
    for index, step in enumerate(case["steps"]):
        result = run_epoch(epoch_input(step["inputs"]), params)
        found = _outputs(result, emission)
        tolerance = step.get("tolerance") or 0
        for name, expected in (step.get("expected") or {}).items():
            for where, value, ours in _pairs(name, expected, found, len(result.permits)):
                report.compare(f"step {index} {where}", value, ours, tolerance)
        if reference:
            for name, expected in (step.get("reference_output") or {}).items():
                for where, value, ours in _pairs(name, expected, found, len(result.permits)):
                    report.compare(f"step {index} reference {where}", value, ours, 0)
    return report


def _outputs(result: EpochResult, emission: int) -> dict[str, Any]:
    """An epoch's results under the names of the format."""
    return {
        "consensus": result.consensus,
        "incentive": result.incentive,
        "dividends": result.dividends,
        "validator_trust": result.validator_trust,
        "stake_weight": result.stake_weight,
        "permits": result.permits,
        "active": result.active,
        "emission": result.amounts(result.combined, emission),
        "server_emission": result.amounts(result.server, emission),
        "validator_emission": result.amounts(result.validator, emission),
        "bonds": {(uid, column): value for uid, row in result.bonds.items() for column, value in row},
    }


def _pairs(name: str, expected: Any, found: dict[str, Any], size: int) -> Iterator[tuple[str, float, float]]:
    """Every (place, expected value, our value) of one named output."""
    base, scale = (name.removesuffix("_frac"), U16_MAX) if name.endswith("_frac") else (name.removesuffix("_u16"), 1)
    if base not in found:
        raise VectorError(f"the output {name} is not known; known are {', '.join(sorted(found))}")
    ours = found[base]
    if base == "bonds":
        for uid, column, value in _bonds(expected, size, as_rows=scale != 1):
            yield f"{name}[{uid}][{column}]", value, ours.get((uid, column), 0) / scale
        return
    for uid, value in _by_uid(expected, size):
        yield f"{name}[{uid}]", float(value), float(ours[uid]) / scale


def _by_uid(expected: Any, size: int) -> Iterator[tuple[int, float]]:
    """A full list by uid, or pairs of uid and value."""
    if expected and isinstance(expected[0], list):
        yield from ((uid, value) for uid, value in expected)
    elif len(expected) == size:
        yield from enumerate(expected)
    else:
        raise VectorError(f"expected a list of {size} values or pairs of uid and value, found {len(expected)} values")


def _bonds(expected: Any, size: int, *, as_rows: bool) -> Iterator[tuple[int, int, float]]:
    """Rows by uid as pairs of column and value; else triples, or rows that hold the last columns."""
    if isinstance(expected, dict):
        yield from ((int(uid), column, value) for uid, row in expected.items() for column, value in row)
    elif not as_rows:
        yield from ((uid, column, value) for uid, column, value in expected)
    else:
        for uid, row in enumerate(expected):
            yield from ((uid, size - len(row) + offset, value) for offset, value in enumerate(row))
