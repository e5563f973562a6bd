"""Every verb of `arena-jax`."""

from __future__ import annotations

from typing import Annotated

import typer

from arena_jax.cli import agent, clients
from arena_jax.cli.ablate import ablate_command
from arena_jax.cli.compare import compare_command
from arena_jax.cli.evaluate import evaluate_command
from arena_jax.cli.failures import failures_command
from arena_jax.cli.fidelity import fidelity_command
from arena_jax.cli.listing import list_command
from arena_jax.cli.mcp import mcp_command
from arena_jax.cli.merge import merge_command
from arena_jax.cli.play import play_command
from arena_jax.cli.replay import replay_command
from arena_jax.cli.report import report_command
from arena_jax.cli.scenario import scenario_app
from arena_jax.cli.sensitivity import sensitivity_command
from arena_jax.version import __version__

app = typer.Typer(
    help="EnterpriseArena, the CFO benchmark, simulated in JAX.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("evaluate")(evaluate_command)
app.command("compare")(compare_command)
app.command("sensitivity")(sensitivity_command)
app.command("ablate")(ablate_command)
app.command("fidelity")(fidelity_command)
app.command("failures")(failures_command)
app.command("report")(report_command)
app.command("replay")(replay_command)
app.command("merge")(merge_command)
app.command("list")(list_command)
app.add_typer(scenario_app, name="scenario")
app.command("play")(play_command)
agent.app.command("run")(clients.run_command)
agent.app.command("config")(clients.config_command)
agent.app.command("mcp")(mcp_command)
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
