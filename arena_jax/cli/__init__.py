"""`arena-jax VERB`. Tables for people, `--json` for machines; bad input is one line on stderr and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from arena_jax.cli import agent
from arena_jax.cli.evaluate import evaluate_command
from arena_jax.cli.fidelity import fidelity_command
from arena_jax.cli.listing import list_command
from arena_jax.cli.merge import merge_command
from arena_jax.cli.play import play_command
from arena_jax.cli.scenario import scenario_app
from arena_jax.errors import ArenaError
from arena_jax.version import __version__

# newer releases of typer carry click inside; its base class is found through a public one
ClickException: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

app = typer.Typer(
    help="EnterpriseArena, the CFO benchmark, simulated in JAX.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("evaluate")(evaluate_command)
app.command("fidelity")(fidelity_command)
app.command("merge")(merge_command)
app.command("list")(list_command)
app.add_typer(scenario_app, name="scenario")
app.command("play")(play_command)
app.add_typer(agent.app, name="agent")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"arena-jax {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    """Entry point of the console script."""
    if sys.stdout is None:
        sys.exit("error: standard output is closed")
    sys.path.append(os.getcwd())  # policies by path may live in the current folder; last, so that they shadow nothing
    try:
        sys.exit(app(standalone_mode=False))
    except ArenaError as error:
        _fail(str(error))
    except ClickException as error:
        _fail(" ".join(error.format_message().split()))
    except OSError as error:  # a full disk, a closed pipe, a path that can't be
        _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"[:300])
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(130)
