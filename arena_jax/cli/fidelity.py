"""`arena-jax fidelity`: does the simulator reproduce what was published?"""

from __future__ import annotations

from typing import Annotated

import typer

from arena_jax.analysis.fidelity import EPISODES, arms_of, fidelity, published_findings
from arena_jax.analysis.fidelity_view import fidelity_json, fidelity_table
from arena_jax.arena import ENVIRONMENTS
from arena_jax.cli.cache import NoCache
from arena_jax.cli.output import print_json, progress, table_console
from arena_jax.params import parse_overrides
from arena_jax.version import __version__


def fidelity_command(
    episodes: Annotated[int, typer.Option(help="Episodes per policy and environment.")] = EPISODES,
    seed: Annotated[int, typer.Option(help="Seed of the run; the same seed gives the same worlds.")] = 0,
    env_set: Annotated[list[str] | None, typer.Option(help="Parameter override NAME=VALUE; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Set published results beside simulated ones, each with its source; exit code 1 if one does not come out.

    Some 17 policies and environments are played: a minute or two on two cores.

    Examples:

      arena-jax fidelity

      arena-jax fidelity --env-set equity_logit=0.5     # does another calibration still reproduce them?
    """
    sources, findings = published_findings()
    with progress(len(arms_of(findings)), "policies") as advance:
        verdicts = fidelity(
            findings, episodes=episodes, seed=seed, overrides=parse_overrides(env_set or []), on_progress=advance
        )
    failed = sum(v.verdict == "fail" for v in verdicts)
    if as_json:
        about = {"arena_jax": __version__, "seed": seed, "episodes": episodes, "env_set": env_set or []}
        print_json(about | {"failed": failed, "findings": fidelity_json(verdicts, sources)})
    else:
        changed = "".join(f", {pair}" for pair in env_set or [])
        title = f"{ENVIRONMENTS[0]}, arena_jax {__version__}, seed {seed}, {episodes:,} episodes a row{changed}"
        console = table_console()
        console.print(fidelity_table(verdicts, sources, title))
        passed, known = (sum(v.verdict == verdict for v in verdicts) for verdict in ("pass", "known"))
        console.print(f"{passed} pass, {known} differ for a known reason, {failed} fail")
    if failed:
        raise typer.Exit(1)
