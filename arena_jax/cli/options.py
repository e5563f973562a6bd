"""Options that verbs which play share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from arena_jax.analysis.report.web import graph_objects
from arena_jax.errors import ArenaError
from arena_jax.worlds import FORMS

Policies = Annotated[
    list[str],
    typer.Option("--policy", help="NAME[:option=value,...] or package.module:factory[:option=value,...]; repeatable."),
]
Seed = Annotated[int, typer.Option(help="Seed of the run; the same seed gives the same worlds.")]
EnvSet = Annotated[list[str] | None, typer.Option(help="Parameter override NAME=VALUE; repeatable.")]
World = Annotated[
    Path | None, typer.Option(help="World of your own: a trajectory CSV or a TOML (arena-jax scenario new).")
]
Scenarios = Annotated[
    str | None, typer.Option(help=f"Other trajectories for the same company and horizon: {escape(FORMS)}.")
]
Batch = Annotated[int, typer.Option(help="Episodes played at once.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Run directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Run directories of evaluate --out or of agent, or both.")
]
SkipUnfinished = Annotated[
    bool, typer.Option("--skip-unfinished", help="Leave out episodes of agents that have not ended.")
]


def check_page(out: Path) -> None:
    """Refuse a page of another kind, or without plotly, before anything is read or played."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ArenaError(f"a page is written as NAME.html, got {out}")
    graph_objects()
