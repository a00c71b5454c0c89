"""Facts that change, on a terminal: redrawn in place where somebody watches, a line per change where nobody does.

Used by `strata up` while it trains and by `strata leaderboard`. Knows the facts' text forms from `subnet.board.table`
and nothing of where facts come from.
"""

import sys
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from subnet.board.table import board, progress_line
from subnet.cli.console import line, note

Facts = dict[str, Any]


class Screen:
    """`with Screen() as screen: screen.update(facts)`. `quiet` shows nothing until `end`, for `--json`.

    In place: the whole board. As lines: progress to stderr, whenever phase, round, step or judged segments changed.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._told: tuple[object, ...] = ()
        self._live: Live | None = None
        if not quiet and sys.stdout.isatty():
            console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
            self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, facts: Facts) -> None:
        """Show the facts as they are now."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(Text(board(facts), no_wrap=True, overflow="crop"), refresh=True)
            return
        run, audit = facts["run"], facts["audit"]
        key = (run["phase"], run["round"], run["step"], audit["audited"], audit["failed"])
        if key != self._told:
            self._told = key
            note(f"{progress_line(facts)}  {audit['passed']} passed {audit['failed']} refuted")

    def say(self, text: str) -> None:
        """One line of news, above what is redrawn."""
        if self._live is not None:
            self._live.console.print(Text(text))
        else:
            note(text)


def show_board(facts: Facts) -> None:
    """Print the whole board once."""
    line(board(facts))
