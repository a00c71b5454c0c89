"""Laws of a benchmark's file: it fits its schema, says where it comes from, and a figure that fails fails the run."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.report import Figure, Parts, commit, document, machine, report, table

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "null": type(None),
}
KEYWORDS = {"type", "pattern", "properties", "required", "additionalProperties", "items"}
HOLDS = Figure(name="one", value=1.5, unit="s", must="less than 2", holds=True, how="measured once")
FAILS = replace(HOLDS, name="two", value=3, holds=False)
UNJUDGED = replace(HOLDS, name="three", value=None, holds=None)


def fits(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def faults(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """Where the value does not fit, by the part of JSON Schema that our schema uses; an unknown keyword is a fault."""
    found = [f"{where}: keyword {name}" for name in schema.keys() - KEYWORDS - {"$schema", "title", "description"}]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(fits(value, kind) for kind in kinds):
        return [*found, f"{where}: {value!r} is not of {kinds}"]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{where}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, dict):
        parts = schema["properties"]
        assert set(schema["required"]) == parts.keys() and schema["additionalProperties"] is False
        found += [f"{where}: {name} is missing or unknown" for name in parts.keys() ^ value.keys()]
        found += [
            each for name in parts.keys() & value.keys() for each in faults(value[name], parts[name], f"{where}.{name}")
        ]
    if isinstance(value, list):
        found += [each for n, item in enumerate(value) for each in faults(item, schema["items"], f"{where}[{n}]")]
    return found


@pytest.fixture
def schema(repository: Path) -> dict[str, Any]:
    return json.loads((repository / "docs" / "benchmarks" / "schema.json").read_text(encoding="utf-8"))


def test_every_committed_benchmark_fits_the_schema_and_is_whole(repository: Path, schema: dict[str, Any]):
    files = [path for path in (repository / "docs" / "benchmarks").glob("*.json") if path.name != "schema.json"]
    assert files
    for path in files:
        content = json.loads(path.read_text(encoding="utf-8"))
        assert faults(content, schema) == [], path.name
        assert content["name"] == path.stem
        assert (repository / "scripts" / "bench" / f"{path.stem}.py").is_file()
        assert content["quick"] is False, f"{path.name} comes from a quick run: commit a whole one"


def test_a_report_fits_the_schema(schema: dict[str, Any]):
    content = json.loads(json.dumps(document("made", [HOLDS, FAILS, UNJUDGED], quick=True), allow_nan=False))
    assert faults(content, schema) == []
    assert content["quick"] is True
    assert [figure["holds"] for figure in content["figures"]] == [True, False, None]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("machine"),
        lambda content: content.update(extra=1),
        lambda content: content.update(commit="main"),
        lambda content: content.update(when="yesterday"),
        lambda content: content.update(name="No Name"),
        lambda content: content["figures"][0].pop("how"),
        lambda content: content["figures"][0].update(value="fast"),
        lambda content: content["figures"][0].update(must=""),
    ],
)
def test_the_check_against_the_schema_can_fail(spoil: Any, schema: dict[str, Any]):
    content = document("made", [HOLDS], quick=False)
    spoil(content)
    assert faults(content, schema) != []


@pytest.mark.parametrize(("figures", "code"), [([HOLDS], 0), ([HOLDS, UNJUDGED], 0), ([HOLDS, FAILS], 1)])
def test_the_exit_code_says_whether_every_figure_holds(
    figures: list[Figure], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert report("made", figures, quick=False, folder=tmp_path / "new") == code
    written = json.loads((tmp_path / "new" / "made.json").read_text(encoding="utf-8"))
    assert [figure["name"] for figure in written["figures"]] == [figure.name for figure in figures]
    assert str(tmp_path / "new" / "made.json") in capsys.readouterr().out


def test_the_table_says_what_holds_in_words():
    lines = table([HOLDS, FAILS, UNJUDGED]).splitlines()
    assert [line.split()[0] for line in lines] == ["one", "two", "three"]
    assert [line.rstrip().endswith(end) for line, end in zip(lines, ("holds", "FAILS", "not judged here"), strict=True)]


def test_commit_and_machine_say_something_of_this_place():
    assert len(commit()) >= len("unknown")
    assert "cores" in machine() and "Python 3." in machine()


def test_a_part_that_is_there_is_not_measured_again(tmp_path: Path):
    folder = tmp_path / "parts"
    assert Parts(folder, quick=False).part("few", list[Figure], lambda: [HOLDS]) == [HOLDS]
    assert Parts(folder, quick=False).part("few", list[Figure], lambda: [FAILS]) == [HOLDS]
    assert Parts(folder, quick=False).part("others", list[Figure], lambda: [FAILS]) == [FAILS]
    assert Parts(None, quick=False).part("few", list[Figure], lambda: [FAILS]) == [FAILS]


def test_a_part_of_a_quick_run_is_refused_for_a_whole_one(tmp_path: Path):
    Parts(tmp_path, quick=True).part("few", int, lambda: 1)
    with pytest.raises(SystemExit, match="expected a part of .*False.*, found .*True.* in .*few.json; name another"):
        Parts(tmp_path, quick=False).part("few", int, lambda: 2)
