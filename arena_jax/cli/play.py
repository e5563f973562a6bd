"""`arena-jax play`: a person in the agent's place."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console

from arena_jax.cli.cache import NoCache
from arena_jax.errors import ArenaError
from arena_jax.llm.journal import INFRA_ERROR, read_journal
from arena_jax.llm.play import Player
from arena_jax.llm.runs import (
    DAMAGED,
    IN_PROGRESS,
    NOT_BEGUN,
    RUN,
    journal_path,
    new_run,
    open_episode,
    parse_seeds,
    played_episodes,
)

OPEN = (NOT_BEGUN, IN_PROGRESS, INFRA_ERROR)


def play_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Run directory; made if it is not there.")] = Path(
        "runs/play"
    ),
    seed: Annotated[int | None, typer.Option(help="Seed of a new game; drawn at random if left out.")] = None,
    env_set: Annotated[list[str] | None, typer.Option(help="Parameter of a new game NAME=VALUE; repeatable.")] = None,
    scenario: Annotated[Path | None, typer.Option(help="World of one's own (CSV or TOML) for a new game.")] = None,
    no_cache: NoCache = False,
) -> None:
    """Play the CFO yourself, month by month; quit when you like and go on later with the same command.

    Examples:

      arena-jax play

      arena-jax play runs/easy --env-set delay_max=1
    """
    jax.config.update("jax_platforms", "cpu")
    if sys.stdin is None:
        raise ArenaError("play reads what you enter from standard input, which is closed")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # what is no text is a wrong entry, not an error
    if not (directory / RUN).exists():
        chosen = parse_seeds("random:1" if seed is None else str(seed))
        new_run(directory, chosen, env_set or [], scenario, seeds_drawn=seed is None)
    elif seed is not None or env_set or scenario is not None:
        raise ArenaError(f"{directory} holds a game already: go on with it without options, or choose another folder")
    episodes = played_episodes(directory)
    episode = next((played.episode for played in episodes if played.status in OPEN), None)
    damaged = next((played for played in episodes if played.status == DAMAGED), None)
    if damaged is not None:
        raise ArenaError(f"the game in {directory} can't go on: {damaged.reason}")
    if episode is None:
        raise ArenaError(f"the game in {directory} is over; arena-jax agent score shows it; choose another folder")
    console = Console(highlight=False)
    over = False
    try:
        with open_episode(directory, episode, agent="person") as session:
            lines = read_journal(journal_path(directory, episode))  # replayed, so its answers are sound
            verified = [
                (line["month"], float(line["answer"]["cash"]))
                for line in lines
                if line["type"] == "call" and line["tool"] == "verify_cash_position"
            ]
            if session.calls_made:
                console.print("Going on where you stopped.", style="dim")
            over = Player(session, console, verified).play()
    except EOFError:
        print(file=sys.stdout)
    if not over:
        console.print(f"Saved. Go on with: arena-jax play {directory}", markup=False, soft_wrap=True)
