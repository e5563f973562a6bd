"""`arena-jax replay`: one episode after the fact, what the agent knew beside what was true."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated

import jax
import typer

from arena_jax.analysis.report.replay_page import replay_page
from arena_jax.arena import make
from arena_jax.cli.cache import NoCache
from arena_jax.cli.options import AsJson, EnvSet, World, check_page
from arena_jax.cli.output import print_json, table_console
from arena_jax.errors import ArenaError
from arena_jax.files import write_atomic
from arena_jax.llm.replay import Replay, replay_journal, replay_policy
from arena_jax.llm.replay_view import WARNING, month_lines, replay_json
from arena_jax.llm.run_file import RUN
from arena_jax.params import parse_overrides
from arena_jax.parts import MANIFEST


def replay_command(
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Run directory of agents.")] = None,
    episode: Annotated[int, typer.Option(help="Number of the episode, from 0.")] = 0,
    policy: Annotated[str | None, typer.Option(help="A policy in place of DIR: NAME[:option=value,...].")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the policy's run, as of evaluate.")] = 0,
    env_set: EnvSet = None,
    scenario: World = None,
    months: Annotated[str, typer.Option(help="Months to show, such as 20-36.")] = "",
    out: Annotated[Path | None, typer.Option(help="Page to write instead, NAME.html; needs plotly.")] = None,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """One episode month by month: asked, shown, decided, settled, and the exact statements.

    It sets what the agent knew beside what was true, and so is for researchers after the fact. An episode of agents is
    a journal, replayed; one of a policy is episode N of evaluate with that seed, played as agents play.

    Examples:

      arena-jax replay runs/mine --episode 3 --months 20-36

      arena-jax replay --policy late-raiser --seed 0 --episode 17 --out episode.html
    """
    jax.config.update("jax_platforms", "cpu")  # one episode needs no accelerator
    if (directory is None) == (policy is None):
        raise ArenaError("give a run directory of agents, or --policy and --seed; one of the two")
    if out is not None:
        check_page(out)
    if directory is not None:
        if (directory / MANIFEST).exists() and not (directory / RUN).exists():
            raise ArenaError(
                f"{directory} holds no journals; an episode of its policies: arena-jax replay --policy ... --seed ... "
                "--episode N with the same --env-set"
            )
        found = replay_journal(directory, episode)
    else:
        assert policy is not None
        env = make(scenario=scenario, **parse_overrides(env_set or []))
        found = replay_policy(env, policy, seed, episode)
    found = _only(found, months)
    if out is not None:
        write_atomic(out, replay_page(found))
        typer.echo(out)
    elif as_json:
        print_json(replay_json(found))
    else:
        _print(found)


def _only(found: Replay, months: str) -> Replay:
    """The months first-last of an episode; all of them if none are named."""
    if not months:
        return found
    bounds = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", months)
    kept = []
    if bounds:
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        kept = [month for month in found.months if first <= month.month <= last]
    if not kept:
        raise ArenaError(f"months must be such as 20-36, within 0 to {len(found.months) - 1}, got {months[:60]!r}")
    return dataclasses.replace(found, months=tuple(kept))


def _print(found: Replay) -> None:
    console = table_console()
    say = lambda text, style="": console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
    say(f"{found.player}, {found.episode}: {found.status} after {found.record['months_survived']} months", "bold")
    say(WARNING, "yellow")
    for month in found.months:
        say(f"\n{month.date}, month {month.month}, {month.regime}", "bold")
        for name, text in month_lines(month):
            say(f"  {name:<8}{text}", "dim" if name in ("asked", "shown") else "")
