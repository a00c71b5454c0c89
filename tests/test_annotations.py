"""What signatures say is checked while the tests run: shapes by jaxtyping where they stand, types everywhere else."""

import ast
import tomllib
from pathlib import Path

import pytest
from beartype.roar import BeartypeCallHintParamViolation

from subnet.audit.draw import rate_of
from tests.test_architecture import SOURCE, imported, parse


def module_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def shape_names(tree: ast.Module) -> set[str]:
    """The names of a module that stand for a shape: imported from jaxtyping, or assigned from those."""
    names = {name.rpartition(".")[2] for name in imported(tree) if name.startswith("jaxtyping.")}
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(n, ast.Name) and n.id in names for n in ast.walk(node.value)
        ):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def shaped(trees: dict[str, ast.Module]) -> set[str]:
    """The modules that have shapes, of their own or by another module's name."""
    own = {f"{module}.{name}" for module, tree in trees.items() for name in shape_names(tree)}
    return {module for module, tree in trees.items() if shape_names(tree) or own & set(imported(tree))}


def test_the_modules_with_a_shape_in_them_are_checked_for_shapes_and_no_others(repository: Path):
    options = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    *checked, checker = options.partition("--jaxtyping-packages=")[2].split()[0].split(",")
    texts = {path: (repository / path).read_text(encoding="utf-8") for path in SOURCE}
    own = {module_of(path): parse(path) for path, text in texts.items() if "jaxtyping" in text}
    names = {name for tree in own.values() for name in shape_names(tree)}
    others = (path for path, text in texts.items() if any(name in text for name in names))
    found = shaped(own | {module_of(path): parse(path) for path in others})
    assert checker == "beartype.beartype" and len(found) > 10
    assert set(checked) == found


def test_a_shape_by_another_module_s_name_is_one_too():
    trees = {
        "a": ast.parse("from jaxtyping import Float32\nRow = Float32[Array, 'row']"),
        "b": ast.parse("from a import Row"),
        "c": ast.parse("from a import other"),
    }
    assert shaped(trees) == {"a", "b"}


def test_a_call_with_another_type_than_the_signature_s_fails_where_there_are_no_shapes():
    with pytest.raises(BeartypeCallHintParamViolation):
        rate_of(0.05, "100", 0)
