"""The heuristics' options, tuned by differential evolution for the paper's score and for the disciplined variant.

    python -m baselines.tune
    python -m baselines.tune --policy runway --policy cash-threshold --generations 20 --out mine.json

The objective is the mean of what the environment pays (score, or value kept), half over episodes of the default world,
half over as many of generated ones. All candidates play the same episodes, so that most of the luck cancels; the
options' metadata says where to look, on a log scale for money, and a generation is one call. Options are tuned as they
are written, to four digits. Held-out objectives are of other episodes and other worlds. A finished family is kept: the
same command goes on with the next one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.table import Table
from scipy.optimize import differential_evolution
from scipy.stats import qmc

import arena_jax
from arena_jax.analysis.table import interval, money, plain_table
from arena_jax.arena import ENVIRONMENTS, Arena
from arena_jax.batch_play import COMPILER_OPTIONS, play
from arena_jax.cli.output import progress, table_console
from arena_jax.errors import ArenaError, check_count, is_number, unknown
from arena_jax.files import check_folder, read_json
from arena_jax.parts import differences
from arena_jax.policies import POLICIES, make_policy
from arena_jax.programs import Program
from arena_jax.scenario import Scenario
from arena_jax.worlds import parse_worlds
from baselines.held_out import SEED, check_episodes, check_seed, mixture, objective, places
from benchmarks.harness import RESULTS, clocks, main, surroundings, write_json

TUNED = RESULTS / "tuned.json"
FAMILIES = [name for name, cls in POLICIES.items() if dataclasses.fields(cls)]
EACH = 8  # training episodes of each world
_DIGITS = 4


def bounds(field: Any) -> tuple[float, float]:
    """Where to look for an option's value, money as a logarithm."""
    low, high = field.metadata["search"]
    return (math.log(low), math.log(high)) if field.metadata["unit"] == "$" else (float(low), float(high))


def is_whole(field: Any) -> bool:
    """Whether only whole numbers are values: of counts, and of named choices."""
    return isinstance(field.default, int) or field.metadata["choices"] is not None


def written(name: str, point: Sequence[float]) -> str:
    """The spec of a family's policy at a point of the search, one number within its `bounds` for each option."""
    values: dict[str, float] = {}
    texts = []
    for field, number in zip(dataclasses.fields(POLICIES[name]), point, strict=True):
        is_money, lower = field.metadata["unit"] == "$", field.metadata["not_below"]
        value = float(np.clip(math.exp(number) if is_money else number, *field.metadata["search"]))
        values[field.name] = max(value, values[lower]) if lower else value
        texts.append(f"{field.name}={_text(field, values[field.name])}")
    return f"{name}:{','.join(texts)}"


def _text(field: Any, value: float) -> str:
    if choices := field.metadata["choices"]:
        return next(choice for choice, number in choices.items() if number == round(value))
    if field.metadata["unit"] == "$":
        return f"{value / 1e6:.{_DIGITS}g}e6"
    return f"{round(value)}" if is_whole(field) else f"{value:.{_DIGITS}g}"


def _play_all(env: Arena, policies: Any, worlds: Scenario, key: jax.Array, episodes: jax.Array) -> jax.Array:
    """What the environment pays each of S policies in each world, float[worlds, S, n].

    policies: leaves [S]. worlds: leaves [worlds, T]. episodes: indices uint32[worlds, n].
    """

    def in_world(place: tuple[Scenario, jax.Array]) -> jax.Array:
        here = dataclasses.replace(env, scenario=place[0])
        return jax.vmap(lambda policy: getattr(play(here, policy, key, place[1])[0], objective(env)))(policies)

    # world by world: then a projection is a real branch, left where no policy asks for one
    return jax.lax.map(in_world, (worlds, episodes))


_paid = Program(_play_all, compiler_options=COMPILER_OPTIONS)


def training_worlds(env: Arena, count: int, seed: int) -> Scenario:
    """The environment's own world `count` times, and as many generated ones: leaves [2 count, T]."""
    generated = parse_worlds(f"generated:{count},seed={seed}").scenarios(env.scenario.horizon)
    own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), env.scenario)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), own, generated)


def training_means(env: Arena, worlds: Scenario, seed: int, specs: Sequence[str]) -> np.ndarray:
    """The training objective of policies of one family, float64[policies], over the same episodes, `EACH` a world."""
    policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(make_policy, specs))
    episodes = np.arange(len(worlds.user_growth) * EACH, dtype=np.uint32).reshape(-1, EACH)
    return np.asarray(_paid(env, policies, worlds, jax.random.key(seed), episodes), np.float64).mean((0, 2))


@dataclasses.dataclass(frozen=True)
class Found:
    """The best of a family: its spec, its training objective in $, and how much was played for it."""

    spec: str
    training: float
    generations: int
    evaluations: int  # policies played


def tune(
    name: str,
    means: Callable[[Sequence[str]], np.ndarray],
    *,
    generations: int,
    population: int,
    seed: int,
    on_generation: Callable[[int], None] = lambda generations_done: None,
) -> Found:
    """Search the options of family `name` for the highest mean.

    means: of specs, float64[n]; called once for the first population and once for each generation, always with
        `population` specs. on_generation: called with 1 after each of these.
    """
    fields, rng = dataclasses.fields(POLICIES[name]), np.random.default_rng(seed)
    limits = [bounds(field) for field in fields]
    first = qmc.scale(qmc.LatinHypercube(len(fields), rng=rng).random(population), *zip(*limits, strict=True))

    def costs(points: np.ndarray) -> np.ndarray:
        found = means([written(name, point) for point in points.T])
        on_generation(1)
        return -found

    best = differential_evolution(
        costs,
        limits,
        integrality=[is_whole(field) for field in fields],
        init=first,
        maxiter=generations,
        tol=1e-4,  # the spread of the population, by its mean
        polish=False,  # a step function of noisy episodes has no gradient
        vectorized=True,
        updating="deferred",
        rng=rng,
    )
    return Found(written(name, best.x), -float(best.fun), int(best.nit), population * (int(best.nit) + 1))


def held_out(env: Arena, spec: str, episodes: int) -> dict[str, float]:
    """The same objective on held-out episodes and worlds: mean and 95% interval."""
    found = [arena_jax.evaluate(env, [spec], **place)[spec][objective(env)] for place in places(episodes).values()]
    return mixture(*found)


def read_tuned(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Settings and rows of a file of tuned policies; raises `ArenaError` if it is none."""
    try:
        found = read_json(path)
    except ArenaError as error:
        raise ArenaError(f"{error}; run: python -m baselines.tune") from None
    try:
        settings, rows = found["settings"], found["tuned"]
        is_sound = isinstance(settings, dict) and isinstance(rows, list) and all(map(_is_row, rows))
    except (LookupError, TypeError):
        is_sound = False
    if not is_sound:
        raise ArenaError(f"{path} is not a file of tuned policies; python -m baselines.tune --out FILE writes one")
    return settings, rows


def _is_row(row: dict[str, Any]) -> bool:
    numbers = [row[name] for name in ("training", "evaluations", "seconds", "processor_seconds")]
    numbers += [row["held_out"][name] for name in ("mean", "low", "high")]
    is_known = row["environment"] in ENVIRONMENTS and row["policy"] in FAMILIES
    return is_known and isinstance(row["spec"], str) and all(map(is_number, numbers))


def read_rows(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The finished rows of an earlier run with the same settings; none without a file."""
    if not path.exists():
        return []
    earlier, rows = read_tuned(path)
    change = next(differences(earlier, settings, ()), None)
    if change:
        raise ArenaError(f"{path} was tuned otherwise ({change}); choose another file with --out")
    return rows


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """For people."""
    found = plain_table("Tuned on training seeds, in $ of what the environment pays; held out: 95% interval")
    for heading in ("environment", "policy", "training", "held out", "interval", "played", "processor s"):
        found.add_column(heading, overflow="fold")
    for row in rows:
        held = row["held_out"]
        figures = (money(row["training"]), money(held["mean"]), interval("$", held["low"], held["high"]))
        cost = (f"{row['evaluations']:,}", f"{row['processor_seconds']:.0f}")
        found.add_row(row["environment"], row["spec"], *figures, *cost)
    return found


def command(
    policy: Annotated[list[str] | None, typer.Option(help="Family to tune; repeatable. All without it.")] = None,
    generations: Annotated[int, typer.Option(help="Most generations of a family.")] = 30,
    population: Annotated[int, typer.Option(help="Policies of a generation.")] = 32,
    worlds: Annotated[int, typer.Option(help=f"Generated training worlds of {EACH} episodes each.")] = 64,
    held_out_episodes: Annotated[int, typer.Option("--held-out", help="Held-out episodes of each place.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of training episodes, training worlds and the search.")] = 1,
    out: Annotated[Path, typer.Option(help="Results as JSON, after each family.")] = TUNED,
) -> None:
    """Tune the heuristics' options for both variants."""
    families = list(dict.fromkeys(policy or FAMILIES))
    for name in families:
        if name not in FAMILIES:
            raise unknown("policy with options to tune", name, FAMILIES)
    check_count("generations", generations, 1, 10_000)
    check_count("population", population, 5, 1_000)
    check_count("worlds", worlds, 1, 100_000)
    check_seed(seed)
    check_episodes(held_out_episodes)
    settings = {
        "arena_jax": arena_jax.__version__,
        "generations": generations,
        "population": population,
        "worlds": worlds,
        "seed": seed,
        "held_out_episodes": held_out_episodes,
        "held_out_seed": SEED,
    }
    rows = read_rows(out, settings)
    check_folder(out.parent)
    finished = {(row["environment"], row["policy"]) for row in rows}
    todo = [(one, name) for name in families for one in ENVIRONMENTS if (one, name) not in finished]
    trajectories = training_worlds(arena_jax.make(), worlds, seed)
    with progress(len(todo) * (generations + 1), "generations") as advance:
        for environment, name in todo:
            env, start = arena_jax.make(environment), clocks()
            means = functools.partial(training_means, env, trajectories, seed)
            found = tune(name, means, generations=generations, population=population, seed=seed, on_generation=advance)
            advance(generations - found.generations)  # a search that has converged ends early
            spent = clocks(less=start)._asdict()
            row = {"environment": environment, "policy": name} | dataclasses.asdict(found) | spent
            rows.append(row | {"held_out": held_out(env, found.spec, held_out_episodes)})
            write_json(out, surroundings() | {"settings": settings, "tuned": rows})
    table_console().print(table(rows), f"written to {out}", sep="\n")


if __name__ == "__main__":
    main(command)
