"""How verbs talk: tables or JSON on stdout, progress on stderr and only to a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PIPED_WIDTH = 180  # columns of a table when no terminal sets the width


def table_console() -> Console:
    """The console for tables on stdout: as wide as the terminal, of fixed width and plain when piped."""
    # no emoji: the path of a policy, package.module:factory:option, may read like the name of one
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, emoji=False)


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    print(json.dumps(value, indent=2, allow_nan=False))


@contextmanager
def progress(total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields the function that moves it on by a count."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda count: bar.advance(task, count)
