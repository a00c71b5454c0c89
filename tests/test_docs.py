"""The documents keep their word: command lines parse, links and anchors lead somewhere, functions exist.

A command line is a line of a fenced block, or a code span, that starts with `strata`, `./scripts/demo` (whose options
are those of `strata up`) or `python neurons/ROLE.py`. It is read by the real command's own parser, and not run.
"""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer

from subnet.cli.flags import translated
from subnet.cli.main import COMMANDS, load

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = {"flow.md", "run-a-miner.md", "run-a-validator.md", "run-the-orchestrator.md"}

FENCE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")
FUNCTION = re.compile(r"\[`([A-Za-z_][\w.]*)`\]\(\.\./([^)#\s]+\.py)\)")
ASSIGNMENT = re.compile(r"^[A-Z_]+=\S*$")
END_OF_COMMAND = re.compile(r"\s+#\s.*$|\s+[|>&]\s*.*$")


def command_lines(markdown: str) -> list[str]:
    """Every line of a fenced block and every code span that calls `strata`, without what the shell adds to it."""
    spans = SPAN.findall(FENCE.sub("", markdown))
    lines = [line for block in FENCE.findall(markdown) for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in (END_OF_COMMAND.sub("", each).strip() for each in lines + spans) if words_of(line)]


def words_of(line: str) -> list[str]:
    """The words of `strata` that a line means, or nothing when it calls something else."""
    if "strata" not in line and "scripts/demo" not in line and "neurons/" not in line:
        return []
    words = shlex.split(line)
    while words and ASSIGNMENT.match(words[0]):
        del words[0]
    match words:
        case ["strata", name, *_] if not name.isupper():
            return words[1:]
        case ["./scripts/demo", *options]:
            return ["up", *options]
        case ["python", entry, *flags] if entry.startswith("neurons/"):
            role = Path(entry).stem
            return [role, *translated(role, flags)]
    return []


def parse(words: list[str]) -> None:
    """Have the command's own parser read its words; it raises on an option that does not exist or a bad value."""
    command = typer.main.get_command(load(words[0]))
    arguments = words[1:]
    if hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if "--help" not in arguments:
        command.make_context(words[0], arguments)


CALLS = [
    pytest.param(line, id=f"{document.name}: {line}")
    for document in DOCUMENTS
    for line in dict.fromkeys(command_lines(document.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("line", CALLS)
def test_a_command_line_of_a_document_is_one_that_strata_takes(line: str):
    words = words_of(line)
    assert words[0] in COMMANDS, f"expected one of {', '.join(COMMANDS)}"
    parse(words)


def test_a_command_line_that_strata_does_not_take_is_noticed():
    with pytest.raises(Exception, match="--netuit"):
        parse(words_of("strata miner --netuit 1"))
    with pytest.raises(Exception, match="[Mm]issing"):
        parse(words_of("strata ledger export"))


def test_command_lines_are_found_and_cut_where_the_shell_takes_over():
    text = "See `strata chain`.\n```\nA=b strata up --json > x\n./scripts/demo --rounds 2  # two\nls strata\n```\n"
    assert command_lines(text) == ["A=b strata up --json", "./scripts/demo --rounds 2", "strata chain"]
    assert [words_of(line) for line in command_lines(text)] == [["up", "--json"], ["up", "--rounds", "2"], ["chain"]]


def test_the_pages_for_newcomers_are_there_and_the_readme_leads_to_each():
    readme = DOCUMENTS[0].read_text(encoding="utf-8")
    assert {page for page in PAGES if not (ROOT / "docs" / page).is_file()} == set()
    assert {page for page in PAGES if f"(docs/{page})" not in readme} == set()


def anchors(markdown: str) -> set[str]:
    """The anchors that a page's headings get: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", markdown), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_anchor_in_a_link_is_a_heading_of_its_page():
    dead = []
    for document in DOCUMENTS:
        for target, anchor in LINK.findall(document.read_text(encoding="utf-8")):
            page = document.parent / target if target else document
            if not page.is_file() or anchor not in anchors(page.read_text(encoding="utf-8")):
                dead.append(f"{document.name}: {target}#{anchor}")
    assert dead == []


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Functions, classes, and methods as Class.method, of a source file."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{each.name}" for each in inner)
    return frozenset(names)


def test_every_function_that_a_page_links_to_is_in_the_file_that_it_names():
    missing = []
    for document in DOCUMENTS[1:]:
        for name, path in FUNCTION.findall(document.read_text(encoding="utf-8")):
            if not (ROOT / path).is_file() or name not in defined_in(ROOT / path):
                missing.append(f"{document.name}: {name} in {path}")
    assert missing == []


def test_the_flow_has_a_function_for_every_arrow():
    rows = [line for line in (ROOT / "docs" / "flow.md").read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    arrows = [row for row in rows if row != "| in | function | out |"]
    assert len(arrows) > 30
    assert [row for row in arrows if not FUNCTION.search(row.split(" | ")[1])] == []


def test_the_readme_draws_the_flow_and_shows_a_board():
    blocks = FENCE.findall(DOCUMENTS[0].read_text(encoding="utf-8"))
    drawn = ("chain", "miner", "orchestrator", "validators", "ledger", "receipts", "plans", "weights", "──>")
    assert any(all(part in block for part in drawn) for block in blocks)
    assert any("held-out" in block and "refuted" in block and "hotkey" in block for block in blocks)
