"""`arena-jax failures`: how companies fail, survivors against bankrupt ones (paper, RQ3)."""

from __future__ import annotations

from arena_jax.analysis.failures import failures, published_failures
from arena_jax.analysis.failures_view import failures_json, failures_tables
from arena_jax.analysis.sources import Sources
from arena_jax.cli.cache import NoCache
from arena_jax.cli.options import AsJson, Directories, SkipUnfinished
from arena_jax.cli.output import print_json, read_with_progress, table_console


def failures_command(
    directories: Directories,
    skip_unfinished: SkipUnfinished = False,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """How companies fail: first request against the cash peak, sizes, approvals, what tool calls look at, survival.

    Records may be simulated or journals, which are replayed before they count. All must be of the same game.

    Examples:

      arena-jax failures runs/random

      arena-jax failures runs/mine runs/theirs --json
    """
    sources = read_with_progress(directories, skip_unfinished)
    found = failures(sources)
    if as_json:
        print_json(
            about(sources) | {"results": failures_json(found), "published": published_failures(), "unit": "$, shares"}
        )
        return
    crises = sources.ground.crisis_months
    last = max(len(one.survival.share) for one in found) - 1
    console = table_console()
    for table in failures_tables(found, sources.ground.title, [*crises, last]):
        console.print(table, "")
    if sources.caveat:
        console.print(sources.caveat)
    if sources.left_out:
        console.print(left_out(sources))


def about(sources: Sources) -> dict[str, object]:
    """What was played, as plain data."""
    ground = sources.ground
    return {
        "arena_jax": ground.version,
        "env_set": list(ground.changed),
        "world": ground.world,
        "scenarios": ground.scenarios,
        "left_out": sources.left_out,
    }


def left_out(sources: Sources) -> str:
    """Episodes that do not count, by status."""
    return "left out: " + ", ".join(f"{count} {status}" for status, count in sorted(sources.left_out.items()))
