"""How verbs talk: tables or JSON on stdout, progress on stderr and only to a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from arena_jax.analysis.sources import Sources, count_episodes, read_sources
from arena_jax.arena import ENVIRONMENTS, Arena
from arena_jax.errors import printable
from arena_jax.policies.registry import trained_in
from arena_jax.version import __version__
from arena_jax.worlds import Worlds

PIPED_WIDTH = 180  # columns of a table when no terminal sets the width


def table_console() -> Console:
    """The console for tables on stdout: as wide as the terminal, of fixed width and plain when piped."""
    # no emoji: the path of a policy, package.module:factory:option, may read like the name of one
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, emoji=False)


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    print(json.dumps(value, indent=2, allow_nan=False))


def run_title(
    seed: int, env_set: Sequence[str] | None, scenario: Path | None = None, worlds: Worlds | None = None
) -> str:
    """What was played, as rich's markup for the title of a table."""
    where = f"{worlds.count:,} {worlds.about['kind']} worlds, " if worlds else f"{scenario}, " if scenario else ""
    changed = "".join(f", {pair}" for pair in env_set or [])
    return escape(f"{ENVIRONMENTS[0]}, arena_jax {__version__}, {where}seed {seed}{changed}")


def run_about(
    seed: int, env_set: Sequence[str] | None, scenario: Path | None = None, worlds: Worlds | None = None
) -> dict[str, Any]:
    """What was played, as plain data."""
    return {
        "arena_jax": __version__,
        "seed": seed,
        "env_set": list(env_set or []),
        "scenario": scenario and str(scenario),
        "scenarios": worlds and {"worlds": worlds.count, **worlds.about},
    }


def note_training(policies: Sequence[str], env: Arena) -> None:
    """Say on stderr which policies were trained in another variant than they are to play."""
    for spec in policies:
        variant = trained_in(spec)
        if variant not in (None, env.name):
            print(f"note: {printable(spec)} was trained in {variant}, and plays {env.name}", file=sys.stderr)


@contextmanager
def progress(total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields the function that moves it on by a count."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda count: bar.advance(task, count)


def read_with_progress(directories: list[Path], skip_unfinished: bool) -> Sources:
    """The sources, with a progress bar over their episodes."""
    with progress(count_episodes(directories), "episodes") as advance:
        return read_sources(directories, skip_unfinished=skip_unfinished, on_progress=advance)
