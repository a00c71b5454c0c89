"""Settings from a file of NAME=VALUE lines: `.env` in the working directory, or the one that `--env-file` names.

A flag counts more than the environment, the environment more than the file, the file more than the default. Values are
never shown, since some are secrets. Knows the names of the settings, not what they are for.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path

from subnet.cli.console import note
from subnet.errors import ConfigError

DEFAULT_FILE = Path(".env")
PREFIXES = ("STRATA_", "BT_")

NETWORK = ("BT_NETWORK", "BT_SUBTENSOR_CHAIN_ENDPOINT", "BT_SUBTENSOR_NETWORK")
WALLET = ("BT_WALLET", "BT_WALLET_NAME")
HOST = ("STRATA_HOST", "BT_AXON_IP")
PORT = ("STRATA_PORT", "BT_AXON_PORT")
EXTERNAL_IP = ("STRATA_EXTERNAL_IP", "BT_AXON_EXTERNAL_IP")
EXTERNAL_PORT = ("STRATA_EXTERNAL_PORT", "BT_AXON_EXTERNAL_PORT")
ALIASES = (NETWORK, WALLET, HOST, PORT, EXTERNAL_IP, EXTERNAL_PORT)
"""Settings of several names, the older ones of the network among them; the first that is set counts."""

SETTINGS = frozenset(
    {
        *(name for names in ALIASES for name in names),
        *("BT_FALLBACK_ENDPOINTS", "BT_NETUID", "BT_WALLET_HOTKEY", "BT_WALLET_PATH", "STRATA_DATA_DIR"),
        *("STRATA_OUTBOUND_ONLY", "STRATA_DEVICE", "STRATA_RECOMPUTE", "STRATA_DEBUG", "STRATA_ENV_FILE"),
        *(
            "STRATA_ORCHESTRATOR",
            "STRATA_ADDRESS_MAP",
            "STRATA_CANARIES",
            "STRATA_CONFIG",
            "STRATA_STAGES",
            "STRATA_ROUNDS",
        ),
        *("STRATA_STEPS", "STRATA_MODEL", "STRATA_DATA", "STRATA_WAIT_FOR", "STRATA_PATIENCE", "STRATA_OUT"),
        *("STRATA_DTYPE", "STRATA_OPTIMIZER", "STRATA_TOLERANCES", "STRATA_REDUCTION", "STRATA_OUTER"),
        *("STRATA_TOKENIZER", "STRATA_LR", "STRATA_SEQUENCE_TOKENS"),
        *("STRATA_LEDGER", "STRATA_KEEP_STATES"),
    }
)
"""Every setting of a role; a test holds this against the roles' options."""

OF_OTHERS = frozenset(
    {
        *("STRATA_PYTHON", "STRATA_TORCH_INDEX"),  # of scripts/setup
        *("BT_CHAIN_ENDPOINT", "BT_ARCHIVE_ENDPOINTS", "BT_EVM_ENDPOINT", "BT_RETRY_FOREVER", "BT_SIGNER_ADDRESS"),
        *("BT_WALLET_PASSWORD", "BT_WALLET_PASSWORD_FILE", "BT_EXTENSION_BRIDGE", "BT_EXTENSION_BROWSER"),
    }
)
"""Names with our prefixes that mean something to the set-up or to the SDK."""

FAMILIES = ("BT_PW_", "STRATA_TEST_")  # passwords of wallets, and where optional tests may go

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)")
_QUOTED = re.compile(r"""(?P<quote>['"])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def parse_env(text: str, where: str) -> dict[str, str]:
    """The settings of a file's text; the last of a name counts. Raises ConfigError with the number of a wrong line."""
    found = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        value = _value(match["value"]) if match else None
        if match is None or value is None:
            raise ConfigError(
                f"expected NAME=VALUE in line {number} of {where}, with quotes that are closed on the same line, found "
                "another form; correct the line or begin it with #"
            )
        found[match["name"]] = value
    return found


def _value(written: str) -> str | None:
    """A value without its quotes and remark; None when a quote is not closed."""
    if not written.startswith(("'", '"')):
        return re.split(r"(?:^|\s)#", written, maxsplit=1)[0].strip()
    quoted = _QUOTED.fullmatch(written)
    if quoted is None:
        return None
    if quoted["quote"] == "'":
        return quoted["text"]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), quoted["text"])


def read_env(path: Path | None, folder: Path) -> dict[str, str]:
    """The settings of the file that was named, else of the folder's `.env`, if there is one. Raises ConfigError."""
    if path is None and not (folder / DEFAULT_FILE).is_file():
        return {}
    chosen = path or folder / DEFAULT_FILE
    try:
        return parse_env(chosen.read_text(encoding="utf-8"), str(chosen))
    except OSError as error:
        raise ConfigError(
            f"expected a file of settings at {chosen}, found: {error.strerror}; correct --env-file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"expected a text file at {chosen}, found other bytes; correct --env-file") from error


def unknown(names: Iterable[str]) -> list[str]:
    """Those names that look like settings of ours and are none, sorted."""
    return sorted(
        name
        for name in set(names) - SETTINGS - OF_OTHERS
        if name.startswith(PREFIXES) and not name.startswith(FAMILIES)
    )


def warning(name: str) -> str:
    """What to say of an unknown name; never its value."""
    near = difflib.get_close_matches(name, sorted(SETTINGS | OF_OTHERS), n=1)
    hint = f"did you mean {near[0]}?" if near else "see --help for those there are"
    return f"warning: {name} is no setting of Strata and does nothing; {hint}"


def settle(environment: MutableMapping[str, str], settings: Mapping[str, str]) -> None:
    """Let a file's settings count where the environment has none; say once which names mean nothing."""
    given = {name for name, value in environment.items() if value}
    for name, value in settings.items():
        same = next((names for names in ALIASES if name in names), (name,))
        if not given.intersection(same):
            environment[name] = value
    for name in unknown(environment):
        note(warning(name))


def load_env(path: Path | None) -> Path | None:
    """The callback of `--env-file`: runs before any other option is read from the environment."""
    settle(os.environ, read_env(path, Path.cwd()))
    return path
