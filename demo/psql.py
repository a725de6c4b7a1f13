"""Statements as a person would type them, and what psql answers.

In: SQL. Out: the statement and psql's own output, on the screen.
"""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

PROMPT = "demo=# "


class Psql:
    """``command`` is a psql command line that connects."""

    def __init__(self, console: Console, command: Sequence[str]) -> None:
        self._console = console
        self._command = command

    def run(self, statement: str, *, expanded: bool = False) -> None:
        """Show a statement, run it and show the answer; ``expanded`` is psql's \\x.

        Raises RuntimeError when it fails, after the error was shown.
        """
        statement = textwrap.dedent(statement).strip()
        typed = statement.removesuffix(";") + r" \gx" if expanded else statement
        shown = PROMPT + typed.replace("\n", "\n" + " " * len(PROMPT))
        self._console.print(Text(shown, style="bold"), soft_wrap=True)
        done = subprocess.run(
            [*self._command, "-X", "-v", "ON_ERROR_STOP=1"],
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self._console.print(Text(done.stdout.rstrip() + "\n"), soft_wrap=True)
        if done.returncode != 0:
            raise RuntimeError("the statement above failed")
