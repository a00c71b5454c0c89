"""The layering of docs/style.md, executed: what may import what, what may touch the world, and what nobody may do.

The tests read the source, they do not import it. A layer that does not exist yet breaks nothing.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = (
    *("errors", "canonical", "config", "model", "data", "stage", "wire", "merge", "ledger", "audit", "scheduler"),
    *("incentive", "cheats", "edges", "board", "nodes", "sim", "cli"),
)
PURE = ORDER[: ORDER.index("cheats")]
PURE_BASE = {"values", "errors", "chain", "auth", "transport"}
WORLD = {
    *("aiohttp", "asyncio", "bittensor", "boto3", "httpx", "httpx2", "logging", "multiprocessing", "os", "pathlib"),
    *("random", "requests", "secrets", "shutil", "socket", "sqlalchemy", "sqlite3", "starlette", "subprocess"),
    *("tempfile", "threading", "time", "urllib", "uuid", "uvicorn", "websockets"),
}
WORLD_CALLS = {
    *("open", "input", "print", "torch.manual_seed", "torch.seed", "torch.rand", "torch.randn", "torch.randint"),
    *("torch.randperm", "torch.save", "datetime.now", "datetime.datetime.now", "datetime.utcnow"),
}
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
EVALUATORS = {"eval", "exec", "compile", "torch.load", "yaml.load", "yaml.unsafe_load", "pandas.read_pickle"}
UNSAFE_OPTIONS = {"weights_only": False, "allow_pickle": True, "trust_remote_code": True}
WAITS = {"asyncio.wait_for", "wait_for"}
SUPERVISOR = "template/neuron.py"
DEFAULT_LIMIT_LINES = 400
LIMIT_LINES = {"neurons": 40}


def sources(*roots: str) -> list[Path]:
    return [path.relative_to(ROOT) for root in roots for path in sorted((ROOT / root).rglob("*.py"))]


SOURCE = sources("template", "subnet", "neurons")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """Parsed and looked through once for all tests of this file, and not kept for those of others."""
    yield
    for each in (parse, walked, imported, called):
        each.cache_clear()


@cache
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree; every rule looks through them."""
    return tuple(ast.walk(tree))


@cache
def imported(tree: ast.AST) -> tuple[str, ...]:
    """Every imported name in full, those inside functions too; a relative import starts with a dot."""
    names: list[str] = []
    for node in walked(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names += (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
    return tuple(names)


@cache
def called(tree: ast.AST) -> tuple[tuple[str, ast.Call], ...]:
    """Every call whose target is a plain dotted name, with that name."""
    return tuple((ast.unparse(node.func), node) for node in walked(tree) if isinstance(node, ast.Call))


def layer_of(path: Path) -> str | None:
    return path.parts[1].removesuffix(".py") if path.parts[0] == "subnet" and path.name != "__init__.py" else None


def layer_faults(path: Path, tree: ast.AST) -> list[str]:
    """What this file of `subnet/` imports from a later layer, or from one that nobody has placed."""
    earlier = ORDER[: ORDER.index(layer_of(path) or "cli") + 1]
    names = [name.split(".") for name in imported(tree)]
    return [f"{path} imports {'.'.join(name)}" for name in names if name[0] == "subnet" and name[1] not in earlier]


def world_faults(path: Path, tree: ast.AST) -> list[str]:
    """What this file of a pure layer imports or calls that has an effect or an answer of its own."""
    faults = []
    for name in imported(tree):
        first, second = name.split(".")[0], name.split(".")[1] if "." in name else ""
        if first in WORLD or (first == "template" and second not in PURE_BASE):
            faults.append(f"{path} imports {name}")
    for name, call in called(tree):
        seeded = any(keyword.arg == "generator" for keyword in call.keywords)
        if (name in WORLD_CALLS and not seeded) or name.startswith(("np.random.", "numpy.random.")):
            faults.append(f"{path}:{call.lineno} calls {name}")
    return faults


def pickle_faults(path: Path, tree: ast.AST) -> list[str]:
    """Every way in which this file could turn received bytes into running code."""
    faults = [f"{path} imports {name}" for name in imported(tree) if name.split(".")[0] in UNPICKLERS]
    for name, call in called(tree):
        if name in EVALUATORS:
            faults.append(f"{path}:{call.lineno} calls {name}")
        for option in call.keywords:
            value = option.value.value if isinstance(option.value, ast.Constant) else None
            if option.arg in UNSAFE_OPTIONS and value is UNSAFE_OPTIONS[option.arg]:
                faults.append(f"{path}:{call.lineno} passes {option.arg}={value}")
    return faults


def blind_excepts(path: Path, tree: ast.AST) -> list[str]:
    """Handlers that catch everything, whatever it is."""
    blind = {"Exception", "BaseException"}
    faults = []
    for node in walked(tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(kind is None or ast.unparse(kind) in blind for kind in kinds):
                faults.append(f"{path}:{node.lineno}")
    return faults


def test_every_part_of_the_subnet_has_its_place_in_the_order():
    unplaced = [str(path) for path in SOURCE if (layer := layer_of(path)) and layer not in ORDER]
    assert unplaced == [], "add the layer to ORDER, or move the file into one that exists"


def test_a_layer_imports_only_earlier_layers():
    placed = [path for path in SOURCE if layer_of(path) in ORDER]
    faults = [fault for path in placed for fault in layer_faults(path, parse(path))]
    assert faults == [], "a layer imports itself and earlier layers only: move the code, or pass the value in"


def test_nothing_is_imported_relatively():
    faults = [f"{path} imports {name}" for path in SOURCE for name in imported(parse(path)) if name.startswith(".")]
    assert faults == [], "write the import in full, so that its layer can be read from the line"


def test_pure_layers_do_not_touch_the_world():
    pure = [path for path in SOURCE if layer_of(path) in PURE]
    faults = [fault for path in pure for fault in world_faults(path, parse(path))]
    assert faults == [], "pass time, chance, files and the network in from an edge"


def test_only_template_sdk_imports_bittensor():
    users = {str(path) for path in SOURCE if "bittensor" in {name.split(".")[0] for name in imported(parse(path))}}
    assert users <= {"template/sdk.py"}


def test_only_the_dev_chain_and_the_sdk_file_import_the_chain_codec():
    users = [path for path in SOURCE if "bittensor_core" in {name.split(".")[0] for name in imported(parse(path))}]
    outside = [str(path) for path in users if path.parts[:2] != ("template", "devchain") and path.name != "sdk.py"]
    assert outside == []


def test_template_knows_nothing_of_the_subnet():
    foreign = {"subnet", "neurons", "torch", "transformers"}
    base = [path for path in SOURCE if path.parts[0] == "template"]
    faults = [f"{path}: {name}" for path in base for name in imported(parse(path)) if name.split(".")[0] in foreign]
    assert faults == []


def test_nothing_imports_an_entry_point_or_a_test():
    faults = [
        f"{path} imports {name}"
        for path in SOURCE
        for name in imported(parse(path))
        if name.split(".")[0] in {"neurons", "tests"}
    ]
    assert faults == []


def test_nothing_is_unpickled():
    """Received bytes become numbers and records of known types, never objects that bring their own code."""
    faults = [fault for path in SOURCE for fault in pickle_faults(path, parse(path))]
    assert faults == [], "read tensors with safetensors or subnet/wire, records with msgspec"


def test_only_the_supervisor_catches_everything():
    faults = [fault for path in SOURCE if str(path) != SUPERVISOR for fault in blind_excepts(path, parse(path))]
    assert faults == [], f"name the errors that can happen; {SUPERVISOR} has the one handler for the rest"


def test_a_wait_with_a_limit_does_not_swallow_a_cancellation():
    """asyncio.wait_for does, before Python 3.12, when what it waits for comes in the same turn of the loop."""
    faults = [f"{path}:{call.lineno}" for path in SOURCE for name, call in called(parse(path)) if name in WAITS]
    assert faults == [], "write async with asyncio.timeout(...)"


def test_files_stay_short():
    for path in SOURCE:
        limit = LIMIT_LINES.get(path.parts[0], DEFAULT_LIMIT_LINES)
        lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        assert lines <= limit, f"{path} has {lines} lines, the limit is {limit}: split it by responsibility"


def test_every_module_opens_by_saying_what_it_owns_and_package_files_are_empty():
    for path in SOURCE:
        if path.name == "__init__.py":
            assert (ROOT / path).read_text(encoding="utf-8") == "", f"{path}: leave it empty, import from the module"
        else:
            assert ast.get_docstring(parse(path)), f"{path} does not say what it owns"


def test_no_module_shadows_the_standard_library_or_is_a_drawer():
    drawers = {"utils", "util", "helpers", "helper", "common", "manager", "handler", "handlers", "misc"}
    for path in SOURCE:
        assert path.stem not in sys.stdlib_module_names, f"{path} shadows a module of the standard library"
        assert not drawers & {part.removesuffix(".py") for part in path.parts}, f"{path}: name it after what it does"


PLANTED = {
    layer_faults: "from subnet.audit.verdict import Verdict",
    world_faults: "def f():\n    import time\n    return time.time()",
    pickle_faults: "import numpy\nx = numpy.load(y, allow_pickle=True)",
    blind_excepts: "try:\n    x()\nexcept (ValueError, Exception):\n    pass",
}


def test_each_check_finds_what_is_planted_for_it():
    """Guards the guards: a check that sees nothing would pass on any tree."""
    path = Path("subnet/stage/planted.py")
    for check, text in PLANTED.items():
        assert check(path, ast.parse(text)), f"{check.__name__} does not see {text!r}"
    for text in ("eval(x)", "import pickle", "torch.load(f)", "f(weights_only=False)", "from dill import loads"):
        assert pickle_faults(path, ast.parse(text)), text
    for text in ("open('x')", "torch.manual_seed(0)", "np.random.rand(3)", "from template.sdk import connect"):
        assert world_faults(path, ast.parse(text)), text
    assert world_faults(path, ast.parse("from template.values import Uid\ntorch.randn(3, generator=g)")) == []
    assert pickle_faults(path, ast.parse("model.eval()\nre.compile('a')\nf(weights_only=True)")) == []
