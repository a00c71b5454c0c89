"""`strata`: which command is which function. Imports a command only when it is the one that was typed.

So `strata --help` is quick, and the chain and the board never load what a miner needs. Knows nothing of what the
commands do; how they end is `failure`'s business.
"""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, NamedTuple, NoReturn

import typer

from subnet.cli.console import line
from subnet.cli.failure import guarded
from subnet.cli.flags import translated


class Command(NamedTuple):
    """Where a command lives, what it does in one line, and an example of its use."""

    module: str
    attribute: str
    does: str
    example: str


COMMANDS = {
    "up": Command(
        *("subnet.cli.up", "up", "Run a whole network here: train, audit, pay, show the board."),
        "strata up --stages 2 --cheats scale:0.2=1 --out out/demo",
    ),
    "chain": Command(
        *("subnet.cli.chain", "chain", "Run the dev chain that --network local means."),
        "strata chain --fund 5Grwva...=1000",
    ),
    "register": Command(
        *("subnet.cli.register", "register", "Register a hotkey on the subnet, after showing the price."),
        "strata register --network local --wallet alice --hotkey default",
    ),
    "orchestrator": Command(
        *("subnet.cli.roles", "orchestrator", "Plan the run, keep its ledger, serve its page."),
        "strata orchestrator --network local --wallet owner --hotkey default",
    ),
    "miner": Command(
        *("subnet.cli.roles", "miner", "Train a stage of the model and be paid for it."),
        "strata miner --network local --wallet alice --hotkey default",
    ),
    "validator": Command(
        *("subnet.cli.roles", "validator", "Draw work, recompute it, judge it and set weights."),
        "strata validator --network local --wallet vali --hotkey default",
    ),
    "publisher": Command(
        *("subnet.cli.roles", "publisher", "Assemble each round's checkpoint, measure its held-out loss."),
        "strata publisher --network local --wallet owner --out checkpoints",
    ),
    "leaderboard": Command(
        *("subnet.cli.leaderboard", "leaderboard", "Watch a run: in the terminal, as JSON, or as a web page."),
        "strata leaderboard --run http://127.0.0.1:8080",
    ),
    "replay": Command(
        *("subnet.cli.replay", "replay", "Recompute a validator's verdict from public evidence."),
        "strata replay 3f9c2a71 --run http://127.0.0.1:8080",
    ),
    "calibrate": Command(
        *("subnet.cli.calibrate", "calibrate", "Measure how closely honest work repeats: tolerances."),
        "strata calibrate --model tiny --out tolerances.json --quick",
    ),
    "ledger": Command(
        *("subnet.cli.ledger", "app", "Check or copy a run's ledger."),
        "strata ledger verify out/demo/ledger.sqlite",
    ),
}


def program_version() -> str:
    """The installed package's version."""
    try:
        return version("strata-subnet")
    except PackageNotFoundError:
        return "not installed"


def load(name: str) -> typer.Typer:
    """The application behind a command; a single function becomes one."""
    command = COMMANDS[name]
    found = getattr(import_module(command.module), command.attribute)
    if isinstance(found, typer.Typer):
        return found
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    application.command(name, help=command.does, epilog=f"Example: {command.example}")(found)
    return application


def overview() -> typer.Typer:
    """The application that answers `strata --help`, `--version` and mistyped names; its commands are only listed."""
    application = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"max_content_width": 100},
        epilog="Example: strata up --out out/demo    `strata COMMAND --help` explains a command.",
    )

    def show_version(asked: bool) -> None:
        if asked:
            line(f"strata {program_version()}")
            raise typer.Exit

    @application.callback()
    def strata(
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and end.")
        ] = False,
    ) -> None:
        """Train one model in stages on machines that do not trust each other; pay for work that stands."""

    for name, command in COMMANDS.items():
        application.command(name, help=command.does)(_listed)
    return application


def _listed() -> None:
    """Stands for a command in the overview."""


def dispatch(arguments: list[str]) -> None:
    """Run the command line; ends by returning, or by SystemExit as typer does."""
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        load(name)(args=arguments[1:], prog_name=f"strata {name}")
    else:
        overview()(args=arguments, prog_name="strata")


def run(arguments: list[str]) -> int:
    """Run a command line to its exit code."""
    return guarded(lambda: dispatch(arguments))


def run_role(role: str, arguments: list[str]) -> int:
    """Run `strata ROLE` with an entry point's arguments, the older spellings included, to its exit code."""
    return guarded(lambda: dispatch([role, *translated(role, arguments)]))


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
