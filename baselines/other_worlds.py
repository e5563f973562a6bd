"""What tuning on one history is worth in others: heuristics tuned on the default world, tested in generated ones.

    python baselines/other_worlds.py

Each policy's options are chosen from a grid by the mean score less the capital raised, over 2,000 training episodes of
the default world: the score counts raised equity one for one, so that by itself it only says to ask always. The choice
is then played with a fresh seed over 20,000 episodes of the default world and over 1,000 generated worlds of 200
episodes. Drop: default less generated, with the 95% interval of a difference of independent means, whose error in the
generated worlds is that over worlds.
"""

import itertools
import math
import sys
from typing import Any

import jax
from scipy import stats

import arena_jax
from arena_jax.analysis.metrics import CONFIDENCE, Estimate
from arena_jax.analysis.spread import Spread
from arena_jax.analysis.table import money
from arena_jax.arena import Arena
from arena_jax.cli.output import progress

AMOUNTS = [6e6, 8e6, 10e6, 12.6e6, 16e6, 20e6, 25e6, 30e6, 40e6, 60e6]
GRIDS: dict[str, dict[str, list[float]]] = {
    "cash-threshold": {"threshold": [4e6, 8e6, 12e6, 16e6, 20e6, 30e6, 40e6, 60e6, 80e6], "amount": AMOUNTS},
    "late-raiser": {"drop": [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5], "amount": AMOUNTS},
    "market-timer": {
        "max_volatility": [12, 15, 18, 22, 30],
        "max_tightness": [-10, 0, 10, 20, 40],
        "amount": AMOUNTS,
    },
}
TRAIN_SEED, TEST_SEED = 11, 12
SHOWN = {"full_survival": "survival", "months": "months", "score": "score"}


def tuned(env: Arena, name: str, grid: dict[str, list[float]], episodes: int) -> tuple[str, int]:
    """The spec of the best options, and how many were tried."""
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    specs = [f"{name}:" + ",".join(f"{option}={value:g}" for option, value in choice.items()) for choice in choices]
    key, gains = jax.random.key(TRAIN_SEED), []
    for spec in specs:
        record = arena_jax.rollout(env, arena_jax.make_policy(spec), key, episodes)
        gains.append((record.score - record.received_equity - record.received_debt).mean())
    return specs[gains.index(max(gains))], len(specs)


def drop(default: Estimate, generated: Spread) -> tuple[float, float, float]:
    """Mean and 95% interval of default less generated."""
    error = math.hypot(default.sd / math.sqrt(default.n), generated.error)
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, generated.worlds - 1) * error  # the worlds are by far the fewer
    difference = default.mean - generated.mean
    return difference, difference - half, difference + half


def written(metric: str, value: float) -> str:
    if metric == "score":
        return money(value)
    return f"{value:.1%}" if metric == "full_survival" else f"{value:.1f}"


def main(train: int = 2_000, episodes: int = 20_000, worlds: int = 1_000, each: int = 200) -> list[Any]:
    env = arena_jax.make()
    found = [tuned(env, name, grid, train) for name, grid in GRIDS.items()]
    specs = [spec for spec, _ in found]
    default = arena_jax.evaluate(env, specs, episodes=episodes, seed=TEST_SEED)
    with progress(len(specs) * worlds * each, "episodes") as advance:
        scenarios = f"generated:{worlds}"
        generated = arena_jax.evaluate(
            env, specs, episodes=each, seed=TEST_SEED, scenarios=scenarios, on_progress=advance
        )
    rows = []
    for spec, tried in found:
        print(f"{spec}, the best of {tried}")
        for metric, name in SHOWN.items():
            one, other = default[spec][metric], generated[spec][metric]
            row = drop(one, other)
            text = [written(metric, value) for value in (one.mean, other.mean, *row)]
            places = f"{text[0]} in the default world, {text[1]} in generated ones"
            print(f"  {name}: {places}; drop {text[2]} ({text[3]} to {text[4]})")
            rows.append((spec, metric, *row))
    return rows


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
