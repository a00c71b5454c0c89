"""Laws of summary.json: it has the shape of its schema, agrees with the board, and is written whole or not at all."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from subnet.board.facts import facts
from subnet.cli.summary import Outcome, summary, write_summary
from tests.board.small_run import CHEATER, T0_MS, Log, hotkey, small_run

LATER_MS = T0_MS + 10**6
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def faults(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """Where the value does not fit, by the part of JSON Schema that our schema uses; an unknown keyword is a fault."""
    known = {"type", "enum", "pattern", "minimum", "maximum", "properties", "required", "additionalProperties", "items"}
    found = [f"{where}: keyword {name}" for name in schema.keys() - known - {"$schema", "title", "description"}]
    kinds = schema.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool) or not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return [*found, f"{where}: {value!r} is not of {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is not one of {schema['enum']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{where}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{where}: {value!r} is out of range")
    if isinstance(value, dict) and "properties" in schema:
        names = schema["properties"]
        found += [f"{where}: {name} is missing" for name in schema["required"] if name not in value]
        found += [f"{where}: {name} is unknown" for name in value.keys() - names.keys()]
        found += [
            fault for name in names if name in value for fault in faults(value[name], names[name], f"{where}.{name}")
        ]
    if isinstance(value, list):
        found += [fault for n, item in enumerate(value) for fault in faults(item, schema["items"], f"{where}[{n}]")]
    return found


@pytest.fixture
def schema(repository: Path) -> dict[str, Any]:
    return json.loads((repository / "docs" / "summary.schema.json").read_text(encoding="utf-8"))


def made(log: Log | None = None, **changes: Any) -> dict[str, Any]:
    outcome = Outcome(
        network="local", seconds=12.34, checkpoint="out/round-0", cheats={hotkey(CHEATER): "scale"}, **changes
    )
    return summary((log or small_run()).fold(), None, LATER_MS, outcome)


def test_a_summary_fits_its_schema(schema: dict[str, Any]):
    document = json.loads(json.dumps(made(), allow_nan=False))
    assert faults(document, schema) == []
    assert len(document["miners"]) == 4
    assert {audit["verdict"] for audit in document["audits"]} == {"pass", "fail", "void"}


def test_a_run_that_has_just_begun_fits_too(schema: dict[str, Any]):
    log = Log()
    log.begin()
    assert faults(made(log), schema) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.pop("seconds"),
        lambda document: document.update(extra=1),
        lambda document: document["miners"][0].update(work_committed=1.5),
        lambda document: document["miners"][0].update(weight=2),
        lambda document: document["audits"][0].update(verdict="maybe"),
        lambda document: document["audits"][0].update(reason="Bad Reason"),
        lambda document: document.update(run_id="x"),
        lambda document: document["rounds"][0].update(steps=True),
    ],
)
def test_the_check_against_the_schema_can_fail(spoil: Any, schema: dict[str, Any]):
    document = made()
    spoil(document)
    assert faults(document, schema) != []


def test_the_summary_agrees_with_the_board():
    document, shown = made(), facts(small_run().fold(), None, LATER_MS)
    assert document["run_id"] == shown["run"]["id"]
    assert document["model"] == {"parameters": shown["model"]["parameters"], "stages": 2}
    assert document["rounds"] == shown["rounds"]
    assert [row["score"] for row in document["miners"]] == [row["score"] for row in shown["miners"]]
    assert document["miners"][-1] | {"cheat": None} == {
        name: shown["miners"][-1][name] for name in document["miners"][-1]
    }


def test_the_cheater_is_named_and_has_the_lowest_weight():
    miners = made()["miners"]
    (cheater,) = [row for row in miners if row["cheat"] == "scale"]
    assert cheater["weight"] < min(row["weight"] for row in miners if row is not cheater)
    assert cheater["work_refuted"] > 0


def test_weights_set_counts_the_validators_that_have_set_some():
    assert made(weights={1: {3: 1.0}, 2: {3: 0.5, 4: 0.5}, 0: {}})["chain"]["weights_set"] == 2


def test_it_is_written_whole_and_leaves_nothing_beside_it(tmp_path: Path):
    path = tmp_path / "out" / "summary.json"
    write_summary(path, made())
    write_summary(path, made() | {"seconds": 99.0})
    assert json.loads(path.read_text())["seconds"] == 99.0
    assert [entry.name for entry in path.parent.iterdir()] == ["summary.json"]


def test_what_cannot_be_written_leaves_the_old_summary(tmp_path: Path):
    path = tmp_path / "summary.json"
    write_summary(path, made())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="Out of range float"):
        write_summary(path, made() | {"seconds": float("nan")})
    assert path.read_bytes() == before
