"""The example of each role's `.env`: every setting with what it does, made from the options themselves.

    python -m subnet.cli.env_example miner > miner.env.example

Owns the form of these files. The values that they leave out are the defaults.
"""

import sys
from typing import Any

import typer

from subnet.cli.console import line
from subnet.cli.main import load

ROLES = ("miner", "validator", "orchestrator", "publisher")
TAKEN_BY_FLAG = "STRATA_ENV_FILE"  # names this very file


def settings(role: str) -> list[Any]:
    """The options of a role that can be set in the environment, in the order of its help."""
    command: Any = typer.main.get_command(load(role))
    return [option for option in command.params if option.envvar and TAKEN_BY_FLAG not in names(option)]


def names(option: Any) -> list[str]:
    """The names of an option's variables; the first that is set counts."""
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar)


def example(role: str) -> str:
    """The text of a role's example."""
    lines = [
        f"# Settings of `strata {role}`: copy this file to .env, or name it with --env-file.",
        "# A flag counts more than the environment, the environment more than this file. Empty means the default.",
    ]
    for option in settings(role):
        first, *others = names(option)
        also = f" Also read: {', '.join(others)}." if others else ""
        lines += ["", f"# {option.help}{also}{_kind(option)}", f"{first}="]
    return "\n".join(lines) + "\n"


def _kind(option: Any) -> str:
    if option.is_flag:
        return " true or false; default false."
    if option.multiple:
        return " Several are parted by spaces."
    default = option.default
    return f" Default: {default}." if isinstance(default, str | int | float) and default != "" else ""


if __name__ == "__main__":
    line(example(sys.argv[1]).rstrip("\n"))
