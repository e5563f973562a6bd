"""`arena-jax agent check` and `agent score`: runs to be submitted, and the paper's Table 1 of those that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from arena_jax.analysis.board import board_html, board_markdown, board_rows
from arena_jax.analysis.metrics import Estimate, Tallies
from arena_jax.analysis.table import published_json, results_json, results_tables
from arena_jax.arena import ENVIRONMENTS
from arena_jax.cli.output import print_json, progress, table_console
from arena_jax.errors import ArenaError
from arena_jax.files import write_atomic
from arena_jax.llm.runs import (
    COMPARED,
    SCORED,
    Played,
    confirm_episode,
    plain_episode,
    played_episodes,
    read_run,
    run_seeds,
    stacked,
)
from arena_jax.llm.submission import disclosed, problems_of, seeds_policy
from arena_jax.version import __version__


def check_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Whether a run can be submitted: every episode ended and replayed, by one player, as this version has it.

    Exit code 1 if it can't, with a line for each reason.
    """
    run = read_run(directory)
    with progress(run["episodes"], "episodes") as advance:
        problems = problems_of(directory, advance)
    episodes = played_episodes(directory)
    about = {"episodes": run["episodes"], "player": episodes[0].player, "seeds": seeds_policy(run)} | disclosed(run)
    if as_json:
        print_json({"run": str(directory), "valid": not problems, "problems": problems} | about)
    elif problems:
        print(*problems, sep="\n")
    else:
        print(f"{directory} is valid")
        print(*(f"  {name}: {value}" for name, value in about.items()), sep="\n")
    if problems:
        raise typer.Exit(1)


def score_command(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    out: Annotated[Path | None, typer.Option(help="Board to write, .md or .html; every run must be valid.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The paper's Table 1 for the players of runs, beside the published rows; infra_error counts for nobody.

    Examples:

      arena-jax agent score runs/mine

      arena-jax agent score runs/* --out board.md
    """
    if out is not None and out.suffix not in (".md", ".html"):
        raise ArenaError(f"--out must end in .md or .html, got {out}")
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise ArenaError("a run directory is named twice; its episodes would count twice")
    runs = {directory: read_run(directory) for directory in directories}
    episodes = [(directory, played) for directory in directories for played in played_episodes(directory)]
    scored = [(directory, played) for directory, played in episodes if played.status in SCORED]
    _check_comparable(runs, scored)
    if not scored:
        raise ArenaError("no episode has ended yet: arena-jax agent list shows where they stand")
    with progress(len(scored), "episodes") as advance:
        for directory in directories if out is not None else ():
            problems = problems_of(directory, advance)
            if problems:
                raise ArenaError(f"{directory} is not valid: {problems[0]}; arena-jax agent check tells all")
        for directory, played in scored if out is None else ():
            confirm_episode(directory, played.episode)  # a file says what it likes
            advance(1)
    results = _estimates(scored)
    run = runs[directories[0]]
    if out is not None:
        seeds: dict[str, set[str]] = {}
        for directory, played in scored:
            seeds.setdefault(played.player, set()).add(seeds_policy(runs[directory]))
        render = board_html if out.suffix == ".html" else board_markdown
        write_atomic(out, render(board_rows(results, seeds), ENVIRONMENTS[0], disclosed(run)).encode())
    if as_json:
        rows = [{"run": str(directory)} | plain_episode(played) for directory, played in episodes]
        about = {"arena_jax": __version__, "env_set": run["env_set"]}
        print_json(about | {"results": results_json(results), "episodes": rows, "published": published_json()})
        return
    changed = "".join(f", {pair}" for pair in run["env_set"])
    console = table_console()
    title = f"{ENVIRONMENTS[0]}, arena_jax {__version__}{changed}"
    console.print(*results_tables(results, title, console.width, run["disclose_horizon"]), sep="\n")
    left = [played.status for _, played in episodes if played.status not in SCORED]
    if left:
        counts = ", ".join(f"{left.count(status)} {status}" for status in sorted(set(left)))
        console.print(f"left out: {counts}")


def _estimates(scored: list[tuple[Path, Played]]) -> dict[str, dict[str, Estimate]]:
    """Table 1 by player, in the order of their first episodes."""
    results = {}
    for player in dict.fromkeys(played.player for _, played in scored):
        tallies = Tallies()
        tallies.add(stacked(played.record for _, played in scored if played.player == player and played.record))
        results[player] = tallies.estimates()
    return results


def _check_comparable(runs: dict[Path, dict[str, Any]], scored: list[tuple[Path, Played]]) -> None:
    """Refuse runs that were not played alike, and an episode that would count twice."""
    for name in ("parameters_sha256", "scenarios", "disclose_horizon"):
        _check_alike("runs", name, [run[name] for run in runs.values()])
    trajectories = [None if run["scenarios"] else run["trajectories_sha256"][0] for run in runs.values()]
    _check_alike("runs", "trajectory", trajectories)
    for name in COMPARED:
        _check_alike("episodes", name, [played.played_as[name] for _, played in scored])
    found: dict[tuple[str, str, int], str] = {}
    for directory, played in scored:
        where, episode = f"episode {played.episode} of {directory}", played.episode
        key = (played.player, runs[directory]["trajectories_sha256"][episode], run_seeds(directory)[episode])
        if key in found:
            raise ArenaError(f"{found[key]} and {where} are of one player and seed; they would count twice")
        found[key] = where


def _check_alike(what: str, name: str, values: list[Any]) -> None:
    if any(value != values[0] for value in values):
        label = {"arena_jax": "the version of arena_jax"}.get(name, name.removesuffix("_sha256"))
        raise ArenaError(f"the {what} differ in {label}; score them apart")
