"""The cheats by name, and cheats from a file of the user's own: what `--cheats KIND[:STRENGTH][=N]` means.

Reads no file and imports no cheat until one is made, so naming them costs nothing. A plug-in is the user's own code
on the user's own machine, named on its command line; nothing that came over the network ever gets here.
"""

import importlib
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

from subnet.cheats.base import Cheat
from subnet.errors import ConfigError

CHEATS = {
    "badmerge": ("subnet.cheats.badmerge", "BadMerge"),
    "copy": ("subnet.cheats.copying", "Copy"),
    "equivocate": ("subnet.cheats.equivocate", "Equivocate"),
    "flood": ("subnet.cheats.flood", "Flood"),
    "forge": ("subnet.cheats.forge", "Forge"),
    "idle": ("subnet.cheats.idle", "Idle"),
    "int4": ("subnet.cheats.cheaper", "Int4"),
    "lowrank": ("subnet.cheats.cheaper", "LowRank"),
    "misreport": ("subnet.cheats.relabel", "Misreport"),
    "noise": ("subnet.cheats.noise", "Noise"),
    "noise-update": ("subnet.cheats.noise", "NoiseUpdate"),
    "relabel": ("subnet.cheats.relabel", "Relabel"),
    "replay": ("subnet.cheats.replay", "Replay"),
    "scale": ("subnet.cheats.scale", "Scale"),
    "scale-update": ("subnet.cheats.scale", "ScaleUpdate"),
    "signflip": ("subnet.cheats.signflip", "SignFlip"),
    "signflip-update": ("subnet.cheats.signflip", "SignFlipUpdate"),
    "skip": ("subnet.cheats.skip", "Skip"),
    "skip-blocks": ("subnet.cheats.skip", "SkipBlocks"),
    "stale": ("subnet.cheats.stale", "Stale"),
    "stale-state": ("subnet.cheats.stale", "StaleState"),
    "starve": ("subnet.cheats.starve", "Starve"),
    "sybil": ("subnet.cheats.sybil", "Sybil"),
    "withhold": ("subnet.cheats.withhold", "Withhold"),
}
NAMES = ", ".join(CHEATS)


def parse_cheats(text: str) -> list[tuple[str, float | None, int]]:
    """Kind, strength (None: the cheat's own default) and count of each entry of a comma-separated list.

    A kind is a name of CHEATS or FILE.py:Class. Raises ConfigError for one that is neither, or numbers that are none.
    """
    return [_parse(entry.strip()) for entry in text.split(",") if entry.strip()]


def _parse(entry: str) -> tuple[str, float | None, int]:
    name, equals, count_text = entry.rpartition("=") if "=" in entry else (entry, "", "1")
    kind, strength_text = _split_strength(name)
    _check_kind(kind)
    count = _number(count_text if equals else "1", entry, "a whole number of miners after the =", whole=True)
    if count < 1:
        raise ConfigError(f"expected at least 1 miner of cheat {entry!r}, found {count_text}; leave it out instead")
    strength = _number(strength_text, entry, "a number after the colon", whole=False) if strength_text else None
    return kind, strength, int(count)


def _split_strength(name: str) -> tuple[str, str]:
    """The kind and the strength's text; a plug-in's kind has a colon of its own."""
    file, separator, rest = name.partition(".py:")
    if separator:
        class_name, _, strength = rest.partition(":")
        return f"{file}.py:{class_name}", strength
    kind, _, strength = name.partition(":")
    return kind, strength


def _number(text: str, entry: str, expected: str, *, whole: bool) -> float:
    try:
        value = float(int(text)) if whole else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"expected {expected} in the cheat {entry!r}, found {text!r}; write scale:0.2=1, for example")
    return value


def _check_kind(kind: str) -> None:
    if kind not in CHEATS and ".py:" not in kind:
        raise ConfigError(f"expected a cheat of {NAMES}, or FILE.py:Class, found {kind!r}; choose one of these")


def make_cheat(kind: str, strength: float | None = None) -> Cheat:
    """An instance of the cheat. Raises ConfigError when there is none of this name, in our list or in the file."""
    _check_kind(kind)
    found = _plugin(kind) if ".py:" in kind else _ours(kind)
    return found(found.default_strength if strength is None else strength)


def _ours(kind: str) -> type[Cheat]:
    module, name = CHEATS[kind]
    found: type[Cheat] = getattr(importlib.import_module(module), name)
    return found


def _plugin(kind: str) -> type[Cheat]:
    file, _, name = kind.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"expected a file of cheats at {path}, found none; check the path before the colon")
    found = getattr(_load(path), name, None)
    if not (isinstance(found, type) and issubclass(found, Cheat)):
        raise ConfigError(
            f"expected a subclass {name!r} of subnet.cheats.base.Cheat in {path}, found none; check the class's name"
        )
    return found


def _load(path: Path) -> ModuleType:
    name = f"strata_cheat_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"expected a Python file at {path}, found another kind; name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        raise ConfigError(
            f"expected a cheat that can be imported from {path}, found {error}; correct the file"
        ) from error
    return module
