"""Heuristics as they are, tuned heuristics and trained policies, on held-out episodes of both variants.

    python -m benchmarks.baselines_table

Trained and tuned policies (`python -m baselines.tune`) play the variant that they are for, heuristics as they are both.
Each plays the default world and held-out generated ones, the same episodes as all others of its variant, so that a
trained policy is compared with every tuned heuristic pair by pair: episodes in the default world, worlds in generated
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import arena_jax
from arena_jax.analysis.compare import Units, paired, play_units
from arena_jax.analysis.metrics import METRICS
from arena_jax.analysis.table import figure, interval, plain_estimate, plain_table, signed
from arena_jax.arena import ENVIRONMENTS, Arena
from arena_jax.cli.output import progress, table_console
from arena_jax.errors import ArenaError, is_number
from arena_jax.files import check_folder
from arena_jax.policies import POLICIES, make_policies, source_digest
from arena_jax.policies.registry import TRAINED, trained_in, weights_header
from baselines.held_out import SEED, check_episodes, objective, places
from baselines.tune import TUNED, read_tuned
from benchmarks.harness import RESULTS, main, surroundings, write_json

KINDS = ("trained", "tuned", "heuristic")
PLACES = tuple(places(20))
_COST = ("decisions", "processor_seconds")  # of a training


def entrants(environment: str, tuned: Path, trained: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Who plays a variant: by spec, its kind, and what its tuning or training took. Raises `ArenaError`."""
    found: dict[str, dict[str, Any]] = {name: {"kind": "heuristic", "cost": None} for name in POLICIES}
    for row in read_tuned(tuned)[1]:
        if row["environment"] == environment:
            cost = {"policies": row["evaluations"], "processor_seconds": row["processor_seconds"]}
            found[row["spec"]] = {"kind": "tuned", "cost": cost}
    for spec in trained:
        variant, cost = _training(spec)
        if variant == environment:
            found[spec] = {"kind": "trained", "cost": cost, "source": source_digest(spec)}
    make_policies(list(found))
    return found


def _training(spec: str) -> tuple[str, dict[str, float]]:
    """The variant that a policy was trained in, and what that took."""
    training, variant = weights_header(spec).get("training"), trained_in(spec)
    if variant is None or not isinstance(training, dict) or not all(is_number(training.get(name)) for name in _COST):
        raise ArenaError(f"weights of {spec} don't tell their variant and cost; those of python -m baselines.train do")
    return variant, {name: training[name] for name in _COST}


def play_variant(
    env: Arena,
    policies: Mapping[str, Mapping[str, Any]],
    episodes: int,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> dict[str, Any]:
    """Every policy in each place, and each trained one less each tuned one, pair by pair: plain data.

    policies: of `entrants`. on_progress: called with the number of episodes just finished.
    """
    metric = objective(env)
    rows: dict[str, dict[str, Any]] = {spec: {"policy": spec} | dict(about) for spec, about in policies.items()}
    units: dict[tuple[str, str], Units] = {}
    for spec, row in rows.items():
        for place, settings in places(episodes).items():
            results, found = play_units(env, [spec], **settings, on_progress=on_progress)
            units[spec, place] = found[spec]
            row[place] = {name: plain_estimate(estimate) for name, estimate in results[spec].items()}
    pairs = [
        {
            "policy": spec,
            "other": other,
            **{
                place: plain_estimate(paired(units[other, place][metric], units[spec, place][metric]))
                for place in PLACES
            },
        }
        for spec, row in rows.items()
        for other, against in rows.items()
        if row["kind"] == "trained" and against["kind"] == "tuned"
    ]
    return {"environment": env.name, "objective": metric, "policies": list(rows.values()), "pairs": pairs}


def result_rows(variant: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row per policy as text by heading: trained, tuned, heuristics as they are, the best of each kind first."""
    return [
        {"Policy": f"`{found['policy']}`", "": found["kind"]}
        | {f"Survival, {place}": figure("share", found[place]["full_survival"]["mean"]) for place in PLACES}
        | {_heading(variant, place): _with_interval(found[place][variant["objective"]]) for place in PLACES}
        | {"Tools/mo": figure("calls", found["default"]["tools_per_month"]["mean"])}
        | {"Raised": figure("$", found["default"]["raised"]["mean"]), "Cost (processor s)": cost(found["cost"])}
        for found in _ordered(variant)
    ]


def pair_rows(variant: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row per tuned heuristic, the best first: each trained policy less it, with the paired interval."""
    return [
        {"Less": f"`{tuned['policy']}`"}
        | {
            f"{pair['policy']}, {place}": signed(METRICS[variant["objective"]].unit, pair[place])
            for pair in variant["pairs"]
            if pair["other"] == tuned["policy"]
            for place in PLACES
        }
        for tuned in _ordered(variant)
        if tuned["kind"] == "tuned"
    ]


def _ordered(variant: Mapping[str, Any]) -> list[dict[str, Any]]:
    metric = variant["objective"]
    return sorted(variant["policies"], key=lambda one: (KINDS.index(one["kind"]), -one["default"][metric]["mean"]))


def _heading(variant: Mapping[str, Any], place: str) -> str:
    return f"{METRICS[variant['objective']].heading}, {place} (95%)"


def _with_interval(found: Mapping[str, float | None]) -> str:
    return f"{figure('$', found['mean'])} ({interval('$', found['low'], found['high'])})"


def cost(found: Mapping[str, Any] | None) -> str:
    """What tuning or training took, `960 policies, 41 s`; a dash for nothing, and for what is not known."""
    if found is None:
        return "–"
    counts = [f"{count:,} {name}" for name, count in found.items() if name != "processor_seconds"]
    return ", ".join([*counts, f"{found['processor_seconds']:.0f} s"])


def text_table(rows: Sequence[Mapping[str, str]], title: str) -> Table:
    """For people."""
    table = plain_table(title)
    for heading in rows[0]:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*[escape(text.strip("`")) for text in row.values()])
    return table


def command(
    policy: Annotated[
        list[str] | None, typer.Option(help="Trained policy; repeatable. All that ship without it.")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Held-out episodes of each policy in each place.")] = 10_000,
    tuned: Annotated[Path, typer.Option(help="Results of python -m baselines.tune.")] = TUNED,
    out: Annotated[Path, typer.Option(help="Results as JSON.")] = RESULTS / "baselines.json",
) -> None:
    """Heuristics, tuned heuristics and trained policies on both variants."""
    check_episodes(episodes)
    check_folder(out.parent)
    players = {name: entrants(name, tuned, policy or list(TRAINED)) for name in ENVIRONMENTS}
    variants = []
    with progress(2 * episodes * sum(map(len, players.values())), "episodes") as advance:
        for name, policies in players.items():
            variants.append(play_variant(arena_jax.make(name), policies, episodes, advance))
    write_json(out, surroundings() | {"episodes": episodes, "seed": SEED, "variants": variants})
    for variant in variants:
        table_console().print(text_table(result_rows(variant), variant["environment"]))
        if variant["pairs"]:
            table_console().print(text_table(pair_rows(variant), "trained less tuned, paired 95% intervals"))
    table_console().print(f"written to {out}")


if __name__ == "__main__":
    main(command)
