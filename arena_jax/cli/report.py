"""`arena-jax report`: run directories as a page that people look at, and as PNGs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena_jax.analysis.report.build import report_figures, report_page
from arena_jax.analysis.report.png import check_png, png
from arena_jax.cli.cache import NoCache
from arena_jax.cli.options import Directories, SkipUnfinished, check_page
from arena_jax.cli.output import read_with_progress
from arena_jax.files import write_atomic


def report_command(
    directories: Directories,
    out: Annotated[Path, typer.Option(help="Page to write, NAME.html.")],
    png_folder: Annotated[
        Path | None, typer.Option("--png", metavar="FOLDER", help="Folder for the same figures as PNGs.")
    ] = None,
    ablation: Annotated[
        Path | None, typer.Option(help="What arena-jax ablate --json printed for the same rules, to be drawn too.")
    ] = None,
    skip_unfinished: SkipUnfinished = False,
    no_cache: NoCache = False,
) -> None:
    """One self-contained page: Table 1, survival, scores, cash, first requests, λ and m, ablations, failures.

    Every figure says its n, seed and version, and has its data in a table. Cash by month needs evaluate --record cash,
    or journals, which are replayed.

    Examples:

      arena-jax evaluate --policy greedy-equity --policy late-raiser --record cash --out runs/two

      arena-jax report runs/two --out two.html --png two

      arena-jax ablate --policy late-raiser --json > relaxed.json

      arena-jax report runs/two runs/agents --ablation relaxed.json --out page.html
    """
    check_page(out)
    if png_folder is not None:
        check_png(png_folder)
    sources = read_with_progress(directories, skip_unfinished)
    figures = report_figures(sources, ablation)
    pictures = {} if png_folder is None else {f"{one.key}.png": png(one) for one in figures if not one.missing}
    write_atomic(out, report_page(sources, figures))
    typer.echo(out)
    for name, picture in pictures.items():
        assert png_folder is not None
        write_atomic(png_folder / name, picture)
        typer.echo(png_folder / name)
