"""`arena-jax VERB`. Tables for people, `--json` for machines; bad input is one line on stderr and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from arena_jax.cli.evaluate import evaluate_command
from arena_jax.cli.listing import list_command
from arena_jax.cli.merge import merge_command
from arena_jax.errors import ArenaError
from arena_jax.version import __version__

app = typer.Typer(
    help="EnterpriseArena, the CFO benchmark, simulated in JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("evaluate")(evaluate_command)
app.command("merge")(merge_command)
app.command("list")(list_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"arena-jax {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script."""
    sys.path.append(os.getcwd())  # policies by path may live in the current folder; last, so that they shadow nothing
    try:
        app()
    except ArenaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(130)
