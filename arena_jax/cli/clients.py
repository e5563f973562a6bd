"""`arena-jax agent run` and `agent config`: the paper's agent frameworks play a run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from arena_jax.cli.cache import NoCache
from arena_jax.cli.cluster import CPUS, RayAddress, RayCpus, cluster
from arena_jax.cli.options import AsJson, Directory
from arena_jax.cli.output import print_json, progress
from arena_jax.errors import ArenaError, check_count, unknown
from arena_jax.llm.clients import CLIENTS, Client
from arena_jax.llm.clients.driver import START, ended_by_signals, make_setup, play_episode
from arena_jax.llm.journal import JournalInUse
from arena_jax.llm.runs import DAMAGED, SCORED, played_episode, read_run, run_environment

ALL = "all"
MAX_NUDGES = 1_000
PLAYED, ENDED = "played", "ended before"
Model = Annotated[str, typer.Option(help="Its model, in the words of the client; its own default if left out.")]


def _client(name: str) -> Client:
    if name not in CLIENTS:
        raise unknown("client", name, CLIENTS)
    return CLIENTS[name]


def run_command(
    directory: Directory,
    client: Annotated[str, typer.Option(help=f"Who plays: {', '.join(CLIENTS)}.")],
    model: Model = "",
    episode: Annotated[str, typer.Option(metavar=f"N|{ALL}", help="Number of the episode, from 0.")] = ALL,
    nudges: Annotated[
        int, typer.Option(help="How often an agent that stops early is told to go on, in each episode.")
    ] = 20,
    ray: RayAddress = None,
    ray_cpus: RayCpus = CPUS,
    no_cache: NoCache = False,
) -> None:
    """Have an installed agent framework play a run's episodes; goes on where it was interrupted.

    Examples:

      arena-jax agent new runs/mine --seeds random:5

      arena-jax agent run runs/mine --client claude --model claude-opus-4-7

      arena-jax agent run runs/mine --client openclaw --model deepseek/deepseek-v4 --episode 0
    """
    _client(client)
    check_count("nudges", nudges, 0, MAX_NUDGES)
    episodes = _episodes(directory, episode)
    horizon = run_environment(directory, 0).scenario.horizon
    settings = (client, model, nudges, no_cache)
    with (
        cluster(ray, ray_cpus, 0, no_cache) as workers,
        progress(horizon * len(episodes), "months") as advance,
    ):
        if workers:
            outcomes = []
            for outcome in workers.map(_play, [(directory.absolute(), number, *settings) for number in episodes]):
                outcomes.append(outcome)
                advance(horizon)  # a worker tells of an episode's months when it has ended
        else:
            outcomes = [_play(directory, number, *settings, advance) for number in episodes]
    failed = [outcome for outcome in outcomes if outcome not in (PLAYED, ENDED)]
    ended = outcomes.count(ENDED)
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise ArenaError(f"{failed[0]}{more}; run the same command again to go on")
    played_now = len(episodes) - ended
    counted = f"{played_now} episode{'' if played_now == 1 else 's'} played"
    counted += f", {ended} had ended before" if ended else ""
    typer.echo(f"{directory}: {counted}; arena-jax agent score {directory} sums them up")


def _play(
    directory: Path,
    episode: int,
    client: str,
    model: str,
    nudges: int,
    no_cache: bool,
    on_month: Callable[[int], None] = lambda months: None,
) -> str:
    """Have a client play an episode unless it has ended: `PLAYED`, `ENDED` before, or what failed in it.

    Raises `ArenaError` if the client does not work at all, or if the episode is another player's or damaged.
    """
    chosen, horizon = _client(client), run_environment(directory, episode).scenario.horizon
    played = played_episode(directory, episode)
    if played.status == DAMAGED:
        raise ArenaError(f"episode {episode} of {directory} can't go on: {played.reason}")
    if played.agent not in ("", chosen.agent) or (played.agent and model not in ("", played.model)):
        raise ArenaError(f"{directory} is played by {played.player}; make a run for another: agent new")
    if played.status in SCORED:
        on_month(horizon)
        return ENDED
    on_month(played.months_played)
    try:
        setup = make_setup(directory, episode, chosen, model, no_cache)
        with ended_by_signals():
            play_episode(directory, episode, chosen, setup, nudges, on_month)
    except JournalInUse as failure:
        return str(failure)  # another player of this episode is no reason to end the others
    except ArenaError as failure:
        if played_episode(directory, episode).calls == played.calls:
            raise
        return str(failure)
    on_month(horizon - played_episode(directory, episode).months_played)  # it may have ended early
    return PLAYED


def _episodes(directory: Path, text: str) -> list[int]:
    count = read_run(directory)["episodes"]
    if text == ALL:
        return list(range(count))
    if not text.isdecimal() or int(text) >= count:
        raise ArenaError(f"episode must be {ALL} or a whole number from 0 to {count - 1}, got {text[:20]!r}")
    return [int(text)]


def config_command(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help=f"{', '.join(CLIENTS)}.")],
    directory: Directory,
    model: Model = "",
    episode: Annotated[int, typer.Option(help="Number of the episode, from 0.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the configuration that `agent run` gives a client: files, environment and command.

    Examples:

      arena-jax agent config codex runs/mine
    """
    chosen = _client(client)
    check_count("episode", episode, 0, read_run(directory)["episodes"] - 1)
    setup = make_setup(directory, episode, chosen, model)
    files = {str(path): text for path, text in chosen.files(setup).items()}
    # what is the user's own, keys among it, is passed on and not printed
    environment = {n: value for n, value in chosen.environment(setup).items() if not n.startswith(chosen.passed)}
    command = [chosen.program, *chosen.arguments(setup, START, "")]
    if as_json:
        print_json({"files": files, "environment": environment, "folder": str(setup.work), "command": command})
        return
    for path, text in files.items():
        typer.echo(f"# {path}\n{text}")
    typer.echo(f"# in {setup.work}")
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    typer.echo(" ".join([*variables, shlex.join(command)]))
