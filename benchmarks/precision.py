"""Is float32 enough? The same episodes in float32 and in float64, compared one by one.

    python -m benchmarks.precision --quick        # 10,000 episodes of each policy: a minute
    python -m benchmarks.precision                # 100,000: what benchmarks/results/precision.md shows

Each play is in a process of its own. Both precisions have the same draws: a uniform is the middle of one of 2^23 cells,
which float32 holds exactly, and a normal is the same function of it, rounded (design section 5.3). Policies that draw
numbers of their own by `jax.random` are no comparison: it draws others in float64. Exit code 1 if more episodes end
otherwise than `MOST_FLIPS` allows.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.table import Table

import arena_jax
from arena_jax.cli.output import progress, table_console
from arena_jax.draws import episode_keys, key_words, month_draws, request_draws
from arena_jax.errors import ArenaError, check_count
from arena_jax.files import write_atomic
from arena_jax.parts import MAX_EPISODES
from arena_jax.scenario import HORIZON
from benchmarks.harness import in_child, main, result_path, surroundings, write_json

POLICIES = (
    "never-raise",
    "one-shot-equity:amount=20e6",
    "greedy-debt:amount=20e6",
    "greedy-equity:amount=20e6",
    "cash-threshold:threshold=8e6,amount=12.6e6",
    "prudent-cfo",
    "information-hungry",
)
EPISODES, QUICK = 100_000, 10_000
SEED = 0
MOST_FLIPS = 1e-3  # share of episodes that may survive in one precision and not in the other
QUANTILES = (0.5, 0.9, 0.99, 1.0)
DRAWN = 4_096  # episodes whose draws are compared, in every month
PATH = ("survived", "months_survived", "requests", "approvals", "actions", "crises_passed")  # counts: what happened


def draws(is_double: bool, episodes: int) -> dict[str, np.ndarray]:
    """Normals float[13, months, n] and uniforms float[3, n] of episodes. Runs in a process of its own."""
    jax.config.update("jax_enable_x64", is_double)
    words = key_words(episode_keys(jax.random.key(SEED), jnp.arange(episodes, dtype=jnp.uint32)))
    months = jax.vmap(lambda month: month_draws(words, month))(jnp.arange(HORIZON, dtype=jnp.int32))
    uniforms = request_draws(words, jnp.zeros(episodes, dtype=jnp.int32))
    return {"normals": np.stack([*months.indicators, *months.flash]), "uniforms": np.stack(uniforms)}


def played(is_double: bool, spec: str, episodes: int) -> dict[str, np.ndarray]:
    """The record of a policy's episodes. Runs in a process of its own."""
    jax.config.update("jax_enable_x64", is_double)
    record = arena_jax.rollout(arena_jax.make(), arena_jax.make_policy(spec), jax.random.key(SEED), episodes)
    return {name: np.asarray(values) for name, values in vars(record).items()}


def quantiles(values: np.ndarray) -> dict[str, float] | None:
    """Of absolute differences; None where there are none."""
    if values.size == 0:
        return None
    return {f"{100 * q:g}%": float(found) for q, found in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)}


def mean_and_error(values: np.ndarray) -> dict[str, float] | None:
    """The mean and its standard error; None below two values."""
    if values.size < 2:
        return None
    return {"mean": float(values.mean()), "error": float(values.std(ddof=1) / math.sqrt(values.size))}


def comparison(spec: str, single: dict[str, np.ndarray], double: dict[str, np.ndarray]) -> dict[str, Any]:
    """What differs between two records of the same episodes: survivals, paths, and scores where both survive."""
    if [found["score"].dtype for found in (single, double)] != [np.float32, np.float64]:
        raise ArenaError("the two records are not of float32 and of float64")
    flipped = single["survived"] != double["survived"]
    parted = np.any([single[name] != double[name] for name in PATH], axis=0)
    both = single["survived"] & double["survived"]
    before, after = (found["score"].astype(np.float64) for found in (double, single))
    together = both & ~parted
    difference = after - before
    months = single["months_survived"].astype(int) - double["months_survived"].astype(int)
    return {
        "policy": spec,
        "episodes": len(flipped),
        "survival": [float(found["survived"].mean()) for found in (single, double)],
        "mean_score": [float(after.mean()), float(before.mean())],
        "different_survivals": int(flipped.sum()),
        "share_of_different_survivals": float(flipped.mean()),
        "survives_in_float32_alone": int((flipped & single["survived"]).sum()),
        "different_paths": int(parted.sum()),
        "share_of_different_paths": float(parted.mean()),
        "months_longer_in_float32": {"more": int((months > 0).sum()), "fewer": int((months < 0).sum())},
        "survivors_of_one_path": int(together.sum()),
        "difference": mean_and_error(difference[together]),
        "absolute_difference": quantiles(np.abs(difference[together])),
        "relative_difference": quantiles(np.abs(difference[together] / before[together])),
        "absolute_difference_of_parted_survivors": quantiles(np.abs(difference[both & parted])),
        "parted": [
            {"episode": int(i)}
            | {name: [found[name][i].item() for found in (single, double)] for name in (*PATH, "cash")}
            for i in np.flatnonzero(parted)[:5]
        ],
    }


def draws_alike(single: dict[str, np.ndarray], double: dict[str, np.ndarray]) -> dict[str, Any]:
    """Whether the uniforms are equal to the bit, and how far the normals are apart at the most."""
    return {
        "uniforms_identical": bool(np.array_equal(single["uniforms"].astype(np.float64), double["uniforms"])),
        "normals_apart": float(np.abs(single["normals"] - double["normals"]).max()),
    }


def money(found: dict[str, float] | None, name: str) -> str:
    return "" if found is None else f"${found[name]:,.0f}" if found[name] >= 1 else f"${found[name]:.2f}"


HEADINGS = (
    "policy", "survival, float32", "float64", "different survivals", "different paths", "score apart: median", "99%",
    "most", "most of a score", "mean of float32 less float64",
)  # fmt: skip


def rows(compared: list[dict[str, Any]]) -> list[list[str]]:
    """For tables: a row a policy."""
    return [
        [
            row["policy"],
            *[f"{share:.3%}" for share in row["survival"]],
            f"{row['different_survivals']} ({row['share_of_different_survivals']:.3%})",
            f"{row['different_paths']} ({row['share_of_different_paths']:.3%})",
            *[money(row["absolute_difference"], name) for name in ("50%", "99%", "100%")],
            "" if row["relative_difference"] is None else f"{row['relative_difference']['100%']:.1e}",
            "" if row["difference"] is None else "${mean:.2f} ± {error:.2f}".format_map(row["difference"]),
        ]
        for row in compared
    ]


def example(policy: str, parted: dict[str, Any]) -> str:
    """An episode that went two ways, what differs of its path and its cash."""
    differing = [name for name in PATH if parted[name][0] != parted[name][1]]
    paths = ", ".join(f"{name} {parted[name][0]} and {parted[name][1]}" for name in differing)
    single, double = parted["cash"]
    return f"{policy}, episode {parted['episode']:,}: {paths}, cash ${single:,.2f} and ${double:,.2f}"


def summary(result: dict[str, Any]) -> str:
    """What came out, in a sentence."""
    compared = result["policies"]
    total = {n: sum(row[n] for row in compared) for n in ("episodes", "different_survivals", "different_paths")}
    apart = max((row["absolute_difference"]["100%"] for row in compared if row["absolute_difference"]), default=0.0)
    relative = max((row["relative_difference"]["100%"] for row in compared if row["relative_difference"]), default=0.0)
    return (
        f"Of {total['episodes']:,} episodes of {len(compared)} policies on the same draws "
        f"{total['different_survivals']} survived in one precision and not in the other, {total['different_paths']} "
        f"took another path, and scores of survivors of one path were at most ${apart:,.0f} apart, {relative:.1e} of "
        "a score."
    )


def page(result: dict[str, Any]) -> str:
    """The result as a page in Markdown."""
    compared, draw = result["policies"], result["draws"]
    table = [HEADINGS, ["---"] * len(HEADINGS), *rows(compared)]
    parted = sum(row["different_paths"] for row in compared)
    longer = {name: sum(row["months_longer_in_float32"][name] for row in compared) for name in ("more", "fewer")}
    examples = [example(row["policy"], found) for row in compared for found in row["parted"]]
    uniforms = "equal to the bit" if draw["uniforms_identical"] else "DIFFERENT"
    about = (
        f"arena_jax {result['versions']['arena_jax']}, jax {result['versions']['jax']}, {result['processor']}, "
        f"commit {result['commit']}, seed {SEED}."
    )
    return "\n\n".join(
        [
            "# float32 against float64",
            f"{compared[0]['episodes']:,} episodes of each policy, played in both precisions on the same draws "
            f"(`python -m benchmarks.precision`). {about}",
            f"Draws of {DRAWN:,} episodes: uniforms are {uniforms}, normals at most {draw['normals_apart']:.1e} apart. "
            f"{summary(result)} {MOST_FLIPS:.1%} of different survivals is the most that a policy may have.",
            "\n".join("| " + " | ".join(row) + " |" for row in table),
            "*Different paths*: another month of the end, or other counts of requests, approvals, actions or crises. "
            "*Score apart*: |float32 − float64| of survivors of one path, and the most of it as a share of the score; "
            "their mean with its sign and standard error is in the last column.",
            f"Of the {parted} episodes with different paths {longer['more']} lasted longer in float32, "
            f"{longer['fewer']} in float64, the others as long. Up to five of each policy, float32 first, with "
            "the cash at the end:",
            "\n".join(f"- {one}" for one in examples) or "- none",
        ]
    ) + "\n"  # fmt: skip


def precision(
    policy: Annotated[list[str] | None, typer.Option(help="Policy spec; repeatable.")] = None,
    episodes: Annotated[int | None, typer.Option(help="Episodes of each policy.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK:,} episodes of each policy.")] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file of the results; the page lies beside it, as .md.")] = None,
) -> None:
    """Play the same episodes in float32 and in float64, and compare their survivals, paths and scores."""
    count = episodes or (QUICK if quick else EPISODES)
    check_count("episodes", count, 1, MAX_EPISODES)
    path, specs = out or result_path("precision"), policy or list(POLICIES)
    if path.suffix != ".json":
        raise ArenaError(f"--out must name a .json file, got {path}")
    arena_jax.policies.make_policies(specs)
    with progress(2 * (len(specs) + 1), "plays") as advance:

        def both(function: Any, *args: Any) -> list[Any]:
            found = []
            for is_double in (False, True):
                found.append(in_child(function, is_double, *args))
                advance(1)
            return found

        draw = draws_alike(*both(draws, DRAWN))
        compared = [comparison(spec, *both(played, spec, count)) for spec in specs]
    result = surroundings() | {"seed": SEED, "draws": draw, "policies": compared}
    write_json(path, result)
    write_atomic(path.with_suffix(".md"), page(result).encode())
    table = Table(*HEADINGS, title=f"{count:,} episodes of each policy")
    for row in rows(compared):
        table.add_row(*row)
    table_console().print(table)
    print(f"written to {path} and {path.with_suffix('.md')}")
    if not draw["uniforms_identical"] or any(row["share_of_different_survivals"] > MOST_FLIPS for row in compared):
        sys.exit(1)


if __name__ == "__main__":
    main(precision)
