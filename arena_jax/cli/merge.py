"""`arena-jax merge`: shards of one run, put side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena_jax.parts import manifest_split, merge_runs


def merge_command(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories of the shards.")],
    out: Annotated[Path, typer.Option(help="Run directory to create.")],
) -> None:
    """Merge the shards of one run; the result equals the run played in one go.

    Examples:

      arena-jax evaluate --policy random --episodes 100000 --shard 1/2 --out runs/a

      arena-jax evaluate --policy random --episodes 100000 --shard 2/2 --out runs/b

      arena-jax merge runs/a runs/b --out runs/whole
    """
    merged = merge_runs(directories, out)
    typer.echo(f"{out}: {manifest_split(merged).total:,} episodes of {len(merged['policies'])} policies")
