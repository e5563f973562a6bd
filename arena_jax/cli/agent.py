"""`arena-jax agent`: runs of agents, people and scripted policies, one episode at a time with a journal each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.markup import escape

from arena_jax.analysis.table import money, plain_table
from arena_jax.checks import check_monthly
from arena_jax.cli.cache import NoCache
from arena_jax.cli.cluster import CPUS, PATIENCE, RayAddress, RayCpus, cluster
from arena_jax.cli.options import AsJson, Directory
from arena_jax.cli.output import print_json, progress, table_console
from arena_jax.cli.submission import check_command, score_command
from arena_jax.errors import ArenaError, printable
from arena_jax.llm.dates import date_label
from arena_jax.llm.journal import read_journal
from arena_jax.llm.paging import compact
from arena_jax.llm.runs import (
    SCORED,
    cost,
    journal_path,
    new_run,
    parse_seeds,
    plain_episode,
    played_episodes,
    read_prices,
    read_run,
)
from arena_jax.llm.scripted import play_scripted
from arena_jax.policies import make_policy
from arena_jax.worlds import FORMS

app = typer.Typer()


@app.callback(invoke_without_command=True)
def _on_cpu(context: typer.Context) -> None:
    """Runs of agents and people, an episode at a time with a journal each."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    jax.config.update("jax_platforms", "cpu")  # one episode at a time needs no accelerator


@app.command("new")
def new_command(
    directory: Directory,
    seeds: Annotated[str, typer.Option(help="0-4, or 3,7, or random:5 for seeds that nobody knows.")] = "random:5",
    env_set: Annotated[list[str] | None, typer.Option(help="Parameter override NAME=VALUE; repeatable.")] = None,
    scenario: Annotated[Path | None, typer.Option(help="World of one's own (CSV or TOML) for all episodes.")] = None,
    scenarios: Annotated[str | None, typer.Option(help=f"Worlds, one for each episode: {FORMS}.")] = None,
    disclose_horizon: Annotated[bool, typer.Option(help="Tell the agent how many months there are.")] = False,
) -> None:
    """Make a run directory: one episode per seed, for one agent to play.

    Examples:

      arena-jax agent new runs/mine --seeds 0-4

      arena-jax agent new runs/no-delay --seeds random:5 --env-set delay_max=1

      arena-jax agent new runs/held-out --seeds random:5 --scenarios secret:held-out.key,worlds=5
    """
    chosen = parse_seeds(seeds)
    new_run(directory, chosen, env_set or [], scenario, scenarios, disclose_horizon, seeds.startswith("random"))
    typer.echo(f"{directory}: {len(chosen)} episodes to play")


@app.command("list")
def list_command(
    directory: Directory,
    prices: Annotated[Path | None, typer.Option(help="JSON of $ per million tokens by model and kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """The episodes of a run: status, player, months played, calls, tokens, cost."""
    priced = {} if prices is None else read_prices(prices)
    episodes = played_episodes(directory)
    if as_json:
        print_json([plain_episode(played) | {"cost": cost(played, priced)} for played in episodes])
        return
    headings = ("episode", "status", "player", "months played", "calls", "refused", "nudges", "tokens", "cost", "score")
    table = plain_table()
    for heading in headings:
        table.add_column(heading)
    for played in episodes:
        spent = cost(played, priced)
        table.add_row(
            str(played.episode),
            played.status,
            escape(played.player) if played.calls or played.agent else "",
            str(played.months_played),
            str(played.calls),
            str(played.refused),
            str(played.nudges),
            "" if played.tokens is None else f"{sum(played.tokens.values()):,}",
            "" if spent is None else f"${spent:,.2f}",
            "" if played.record is None or played.status not in SCORED else money(float(played.record.score)),
        )
    table_console().print(table)


app.command("check")(check_command)
app.command("score")(score_command)


@app.command("show")
def show_command(
    directory: Directory,
    episode: Annotated[int, typer.Argument(help="Number of the episode, from 0.")] = 0,
    as_json: AsJson = False,
) -> None:
    """The journal of an episode, call by call."""
    path = journal_path(directory, episode)
    if not 0 <= episode < read_run(directory)["episodes"] or not path.exists():
        raise ArenaError(f"episode {episode} of {directory} has not begun")
    lines = read_journal(path)
    if as_json:
        print_json(lines)
        return
    console = table_console()
    for line in lines:
        if line["type"] == "call":
            text = f"{date_label(line['month'])}  {line['tool']} {compact(line['arguments'])}"
            text += f"\n    {compact(line['answer'])}"
        elif line["type"] == "refused":
            text = f"{date_label(line['month'])}  {line['tool']} refused: {line['error']}"
        else:
            text = compact(line)
        console.print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True)


@app.command("scripted")
def scripted_command(
    directory: Directory,
    policy: Annotated[str, typer.Option(help="NAME[:option=value,...] or package.module:factory[:option=value,...].")],
    ray: RayAddress = None,
    ray_cpus: RayCpus = CPUS,
    no_cache: NoCache = False,
) -> None:
    """Play a run's episodes with a policy, through the session that agents use.

    Examples:

      arena-jax agent new runs/prudent --seeds 0-19

      arena-jax agent scripted runs/prudent --policy prudent-cfo

      arena-jax agent score runs/prudent

      arena-jax agent scripted /shared/runs/prudent --policy prudent-cfo --ray auto
    """
    check_monthly(policy, make_policy(policy))  # before an episode is begun
    count = read_run(directory)["episodes"]
    with cluster(ray, ray_cpus, 0, no_cache) as workers, progress(count, "episodes") as advance:
        if workers:
            calls = [(directory.absolute(), episode, policy, PATIENCE) for episode in range(count)]
            for _ in workers.map(play_scripted, calls):
                advance(1)
        else:
            for episode in range(count):
                play_scripted(directory, episode, policy)
                advance(1)
    typer.echo(f"{directory}: {count} episodes played; arena-jax agent score {directory} sums them up")
