"""`arena-jax scenario new|check|show|commit|verify`: worlds of one's own, generated and held-out ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.scenario_view import LEGEND, figure, rows, summary
from arena_jax.analysis.table import plain_table
from arena_jax.arena import Arena, make
from arena_jax.cli.output import print_json, table_console
from arena_jax.errors import ArenaError
from arena_jax.files import write_atomic
from arena_jax.llm.runs import RUN, check_worlds, read_run
from arena_jax.parts import read_manifest
from arena_jax.scenario import HORIZON, default_scenario
from arena_jax.secret import commitment, read_secret, secret_key
from arena_jax.world_file import World, read_world, write_world
from arena_jax.worlds import FORMS, Worlds, generator, parse_worlds

scenario_app = typer.Typer(
    help="Worlds of your own, generated and held-out ones.", no_args_is_help=True, rich_markup_mode="rich"
)
_WORLD = typer.Argument(
    metavar="WORLD", help=f"default, a trajectory CSV, a world's TOML, or the first world of {escape(FORMS)}."
)
_SECRET = typer.Option(help="File with the secret, mode 0600; without it the variable ARENA_JAX_SECRET.")


def _world(name: str) -> World:
    if name == "default":
        return World(default_scenario(), {})
    if re.match("(generated|secret)([:,]|$)", name):
        return World(parse_worlds(name).scenario(0, HORIZON), {})
    return read_world(name)


def _env(name: str) -> Arena:
    world = _world(name)
    return make(scenario=world.scenario, **world.parameters)


@scenario_app.command("new")
def new_command(
    path: Annotated[Path, typer.Argument(metavar="NAME.toml", help="World to write; its CSV goes beside it.")],
    source: Annotated[str, typer.Option("--from", metavar="WORLD", help="World to start from.")] = "default",
) -> None:
    """Write a world to edit: a TOML with the company and the horizon, and the CSV of its trajectory.

    Examples:

      arena-jax scenario new mine.toml

      arena-jax scenario new mine.toml --from generated:1,seed=7
    """
    if path.suffix != ".toml":
        raise ArenaError(f"a world is written as NAME.toml, got {path}")
    mode = 0o600 if source.startswith("secret") else 0o644  # a held-out trajectory stays its owner's
    for file in write_world(path, _world(source), mode):
        typer.echo(file)


@scenario_app.command("check")
def check_command(
    world: Annotated[str, _WORLD], as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Validate a world and say what is in it; what is wrong is one line with the file, month and column.

    Examples:

      arena-jax scenario check mine.toml

      arena-jax scenario check mine.csv --json
    """
    found = summary(_env(world))
    if as_json:
        print_json(found)
        return
    crises = ", ".join(map(str, found["crisis_months"]))
    console = table_console()
    console.print(f"{world}: {found['months']} months, crises in months {crises}", markup=False, highlight=False)
    for name, phase in found["regimes"].items():
        lengths = ", ".join(map(str, phase["spells"])) or "none"
        console.print(f"  {name}: {phase['share']:.0%} of the months, spells of {lengths}", highlight=False)
    table = plain_table()
    table.add_column("column")
    table.add_column("unit")
    for heading in ("low", "mean", "high"):
        table.add_column(heading, justify="right")
    for name, column in found["columns"].items():
        table.add_row(name, column["unit"], *[f"{column[key]:.4g}" for key in ("low", "mean", "high")])
    console.print(table)


@scenario_app.command("show")
def show_command(
    world: Annotated[str, _WORLD],
    out: Annotated[Path | None, typer.Option(help="PNG to write instead; needs matplotlib.")] = None,
) -> None:
    """Plot a world's columns, regimes and crises: in the terminal, or as a PNG.

    Examples:

      arena-jax scenario show default

      arena-jax scenario show generated:1,seed=7 --out world.png
    """
    env = _env(world)
    if out is not None:
        if out.suffix.lower() != ".png":
            raise ArenaError(f"a plot is written as NAME.png, got {out}")
        write_atomic(out, figure(env, world))
        typer.echo(out)
        return
    console = table_console()
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    for line in rows(env, max(20, console.width - 54)):
        table.add_row(*line)
    console.print(table, LEGEND, highlight=False)


@scenario_app.command("commit")
def commit_command(secret: Annotated[Path | None, _SECRET] = None) -> None:
    """Print the commitment to a secret: what to publish before its worlds are played.

    Examples:

      arena-jax scenario commit --secret held-out.key
    """
    typer.echo(commitment(read_secret(secret)))


@scenario_app.command("verify")
def verify_command(
    run: Annotated[str, typer.Argument(metavar="RUN|HASH", help="Run directory, or a commitment as published.")],
    secret: Annotated[Path | None, _SECRET] = None,
) -> None:
    """Prove that a secret is the one behind a run (of policies or agents) or a published commitment; else exit code 2.

    Examples:

      arena-jax scenario verify runs/held-out --secret held-out.key
    """
    about = {"commitment_sha256": run, **generator()}
    if Path(run).is_dir():
        directory = Path(run)
        about = (read_run if (directory / RUN).exists() else read_manifest)(directory).get("scenarios") or {}
        if "commitment_sha256" not in about:
            raise ArenaError(f"{run} was not played in held-out worlds")
    if about["commitment_sha256"] != commitment(read_secret(secret)):
        raise ArenaError(f"the secret is not the one behind {run}")
    if not generator().items() <= about.items():
        raise ArenaError(f"the secret is the one behind {run}, but its worlds are of another version of the generator")
    if (Path(run) / RUN).exists():
        check_worlds(Path(run), Worlds(read_run(Path(run))["episodes"], secret_key(read_secret(secret)), about, True))
    typer.echo(f"the secret is the one behind {run}")
