"""The README keeps its word: its tree names every source file and no other, its commands and links exist.

The tree is the first fenced block of README.md in which a line begins with a branch. One name a line, a folder ends
with a slash, a remark follows after two spaces and a `#`; `__init__.py` files are left out:

    ```text
    .
    ├── neurons/                # entry points
    │   ├── miner.py            # start a miner
    │   └── validator.py
    └── pyproject.toml
    ```

Inside neurons/, template/, subnet/ and scripts/ every source file must be named; elsewhere naming one is a choice, but
whatever is named must exist.
"""

import os
import re
from pathlib import Path

LISTED_WHOLE = ("neurons", "template", "subnet", "scripts")
SOURCE_SUFFIXES = {".py", ".html", ".css", ".js", ""}
BRANCH = re.compile(r"^(?P<indent>(?:│   |    )*)(?:├── |└── )(?P<name>[^\s#]+)(?:\s+#.*)?$")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")


def fenced_blocks(markdown: str) -> list[list[str]]:
    return [block.splitlines()[1:] for block in markdown.split("```")[1::2]]


def named_paths(tree: list[str]) -> list[str]:
    """The paths of a tree block, folders with their slash. Refuses a line it cannot read."""
    paths, folders = [], []
    for line in tree:
        if not line.strip() or line.strip() == ".":
            continue
        match = BRANCH.match(line)
        if match is None:
            assert set(line.strip()) <= {"│", " "}, f"the tree holds a line in another format: {line!r}"
            continue
        depth = len(match["indent"]) // 4
        folders = folders[:depth]
        assert len(folders) == depth, f"no folder is open at the depth of {line!r}"
        paths.append("".join(folders) + match["name"])
        if match["name"].endswith("/"):
            folders.append(match["name"])
    return paths


def tree_of(readme: str) -> list[str]:
    trees = [block for block in fenced_blocks(readme) if any(BRANCH.match(line) for line in block)]
    assert trees, "README.md has no tree: see the docstring of this file for its form"
    return named_paths(trees[0])


def source_files(root: Path) -> set[str]:
    found = (path for top in LISTED_WHOLE for path in (root / top).rglob("*") if path.is_file())
    sources = (path for path in found if path.suffix in SOURCE_SUFFIXES and path.name != "__init__.py")
    return {path.relative_to(root).as_posix() for path in sources if "__pycache__" not in path.parts}


def test_the_tree_names_every_source_file(repository: Path):
    named = tree_of((repository / "README.md").read_text(encoding="utf-8"))
    assert sorted(source_files(repository) - set(named)) == []


def test_the_tree_names_nothing_that_does_not_exist(repository: Path):
    named = tree_of((repository / "README.md").read_text(encoding="utf-8"))
    missing = [name for name in named if not (repository / name).exists()]
    wrong_kind = [name for name in named if name.endswith("/") != (repository / name).is_dir()]
    assert (missing, wrong_kind) == ([], [])
    assert len(named) == len(set(named)), "a path is named twice"


def test_the_two_commands_of_the_readme_can_be_run(repository: Path):
    readme = (repository / "README.md").read_text(encoding="utf-8")
    for command in ("scripts/demo", "scripts/test"):
        assert f"./{command}" in readme
        assert os.access(repository / command, os.X_OK), f"{command} has no run bit"


def test_every_link_between_the_documents_leads_somewhere(repository: Path):
    documents = [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]
    dead = [
        f"{document.relative_to(repository)}: {target}"
        for document in documents
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert dead == []


def test_a_tree_is_read_as_its_form_says():
    tree = [".", "├── a/          # remark", "│   ├── b.py", "│   └── c/", "│       └── d.py", "│", "└── e.md  # x"]
    assert named_paths(tree) == ["a/", "a/b.py", "a/c/", "a/c/d.py", "e.md"]
