"""Refits eight unpublished parameters to the published anchors, with the simulator as the engine.

    python benchmarks/calibrate.py                    writes benchmarks/results/calibration.json
    python benchmarks/calibrate.py --quick            a smoke run of it

Anchors: the levels in data/findings.toml that have an allowance (`near` or `within`) and no known difference.
Loss: the sum over the anchors of ((measured - published) / allowance)^2, the allowances as they are at the shipped
defaults; an anchor inside its allowance adds less than 1. An allowance stands for two standard deviations (two
standard errors and a stated model tolerance), so that 4 * loss is compared with chi-squared quantiles, as if the
anchors were independent; those of one policy are not, which makes the comparison strict.

An anchor is one policy's published row, in all its figures: validation leaves one policy out at a time.

A generation of the search is one call: the candidates are a `vmap` over the parameters, all play the same episodes
(common random numbers), and one compilation serves every generation. The search starts 20% away from the shipped
defaults in every fitted parameter, so that finding them again is no accident. Everything follows from the seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from scipy.optimize import differential_evolution
from scipy.stats import chi2

import arena_jax
from arena_jax.analysis.fidelity import Finding, fidelity, published_findings
from arena_jax.analysis.metrics import episode_metrics
from arena_jax.batch_play import COMPILER_OPTIONS, play, rollout
from arena_jax.files import write_atomic
from arena_jax.params import FIELDS

FITTED = (
    "lending_margin",
    "renewal_rate",
    "servicing_cost",
    "debt_logit",
    "equity_logit",
    "equity_stress",
    "equity_round_factor",
    "leverage_limit",
)
BOUND = 0.35  # each parameter is searched within this share of its default, and within its allowed range
START_OFF = 0.20
STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda x: x.mean(axis=-1),
    "median": lambda x: np.median(x, axis=-1),
    "sd": lambda x: x.std(axis=-1, ddof=1),
}
Candidates = Mapping[str, np.ndarray]  # parameter -> float64[candidates]


@dataclass(frozen=True)
class Size:
    """How much is played."""

    episodes: int = 1024  # per candidate and policy in the search
    members: int = 48
    generations: int = 80
    left_out_generations: int = 40
    fresh: int = 2_000  # episodes per policy of one fresh seed
    fresh_seeds: int = 10
    sensitivity: int = 8_000


QUICK = Size(episodes=64, members=8, generations=3, left_out_generations=2, fresh=128, fresh_seeds=3, sensitivity=128)


class Simulator:
    """Anchors' statistics of candidates: one compilation per number of candidates and of episodes."""

    def __init__(self, anchors: Sequence[Finding]) -> None:
        self.anchors = anchors
        self.policies = list(dict.fromkeys(anchor.policy for anchor in anchors))
        self.episode_months, self.seconds = 0, 0.0  # compile time apart
        self._compiled: set[tuple[int, int]] = set()
        self._env = arena_jax.make()
        _, axes = arena_jax.sweep(self._env, **{name: np.atleast_1d(FIELDS[name].default) for name in FITTED})
        made = [arena_jax.make_policy(policy) for policy in self.policies]

        def play_all(envs: Any, key: jax.Array, episodes: jax.Array) -> list[Any]:
            return [jax.vmap(lambda env: play(env, p, key, episodes)[0], in_axes=(axes,))(envs) for p in made]  # noqa: B023

        self._play = jax.jit(play_all, compiler_options=COMPILER_OPTIONS)

    def measure(self, candidates: Candidates, seed: int, episodes: int) -> np.ndarray:
        """float64[candidates, anchors]; every candidate plays the episodes 0 .. episodes - 1 of the seed."""
        envs, _ = arena_jax.sweep(self._env, **candidates)
        indices = jnp.arange(episodes, dtype=jnp.uint32)
        shape = (len(next(iter(candidates.values()))), episodes)
        started = time.perf_counter()
        records = jax.block_until_ready(self._play(envs, jax.random.key(seed), indices))
        if shape in self._compiled:
            self.seconds += time.perf_counter() - started
            self.episode_months += shape[0] * shape[1] * len(records) * self._env.scenario.horizon
        self._compiled.add(shape)
        metrics = {policy: episode_metrics(record) for policy, record in zip(self.policies, records, strict=True)}
        columns = [STATISTICS[anchor.statistic](metrics[anchor.policy][anchor.metric]) for anchor in self.anchors]
        return np.stack(columns, axis=-1)


def bounds() -> np.ndarray:
    """float64[parameters, 2]: what is searched."""
    rows = []
    for name in FITTED:
        default, limits = float(FIELDS[name].default), FIELDS[name].metadata
        rows.append((max(default * (1 - BOUND), limits["low"]), min(default * (1 + BOUND), limits["high"])))
    return np.asarray(rows)


def losses(measured: np.ndarray, published: np.ndarray, allowances: np.ndarray) -> np.ndarray:
    """float64[...] of float64[..., anchors]."""
    return (((measured - published) / allowances) ** 2).sum(axis=-1)


def fit(
    simulator: Simulator, published: np.ndarray, allowances: np.ndarray, seed: int, size: Size, generations: int
) -> tuple[dict[str, float], float]:
    """The best candidate and its loss on the search's own episodes; an infinite allowance leaves an anchor out."""
    rng = np.random.default_rng(seed)
    limits = bounds()
    start = np.array([FIELDS[name].default for name in FITTED]) * (1 + START_OFF * rng.choice((-1, 1), len(FITTED)))
    crowd = start * (1 + START_OFF / 2 * rng.uniform(-1, 1, (size.members, len(FITTED))))
    crowd[0] = start

    def objective(values: np.ndarray) -> np.ndarray:
        candidates = dict(zip(FITTED, values, strict=True))
        return losses(simulator.measure(candidates, seed, size.episodes), published, allowances)

    found = differential_evolution(
        objective, [tuple(row) for row in limits], init=np.clip(crowd, limits[:, 0], limits[:, 1]), rng=rng,
        maxiter=generations, tol=0.0, atol=0.0, mutation=(0.4, 0.9), recombination=0.8, polish=False,
        updating="deferred", vectorized=True,
    )  # fmt: skip
    return dict(zip(FITTED, map(float, found.x), strict=True)), float(found.fun)


def fresh_losses(
    simulator: Simulator, candidates: Candidates, published: np.ndarray, allowances: np.ndarray, seed: int, size: Size
) -> np.ndarray:
    """float64[fresh seeds, candidates]: losses on episodes that no search has seen."""
    seeds = range(seed + 1, seed + 1 + size.fresh_seeds)
    return np.stack([losses(simulator.measure(candidates, s, size.fresh), published, allowances) for s in seeds])


def stacked(*points: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Points as candidates."""
    return {name: np.asarray([float(point[name]) for point in points]) for name in FITTED}


def sensitivity(simulator: Simulator, allowances: np.ndarray, seed: int, size: Size) -> list[dict[str, Any]]:
    """How far each anchor moves, in allowances, when a parameter moves by -10% and by +10%."""
    defaults = {name: float(FIELDS[name].default) for name in FITTED}
    points = [defaults]
    for name in FITTED:
        limit = FIELDS[name].metadata["high"]
        points += [defaults | {name: 0.9 * defaults[name]}, defaults | {name: min(1.1 * defaults[name], limit)}]
    measured = simulator.measure(stacked(*points), seed, size.sensitivity)
    moved = (measured[1:] - measured[0]) / allowances
    lows, highs = moved[0::2].round(3).tolist(), moved[1::2].round(3).tolist()
    return [
        {"parameter": name, "minus_10pct": low, "plus_10pct": high}
        for name, low, high in zip(FITTED, lows, highs, strict=True)
    ]


def calibrate(seed: int, size: Size, say: Callable[[str], None]) -> tuple[dict[str, Any], Simulator]:
    """The whole calibration, as plain data that depends on nothing but its arguments and the versions."""
    _, findings = published_findings()
    anchors = [f for f in findings if f.rule in ("near", "within") and not f.is_difference and not f.difference]
    simulator = Simulator(anchors)
    published = np.array([float(anchor.published or 0.0) for anchor in anchors])
    allowances = np.array([float(v.allowance or 0.0) for v in fidelity(anchors, episodes=max(size.fresh, 100))])

    say(f"fit: {size.generations} generations of {size.members}")
    best, search_loss = fit(simulator, published, allowances, seed, size, size.generations)
    defaults = {name: float(FIELDS[name].default) for name in FITTED}
    fresh = fresh_losses(simulator, stacked(defaults, best), published, allowances, seed, size)
    difference = fresh[:, 1] - fresh[:, 0]
    error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    gain = -float(difference.mean())
    quantile = float(chi2.ppf(0.95, len(FITTED)))
    both = simulator.measure(stacked(defaults, best), seed + 1, size.fresh)

    left_out = []
    for policy in simulator.policies:
        say(f"fit without {policy}")
        held = np.array([anchor.policy == policy for anchor in anchors])
        point, _ = fit(simulator, published, np.where(held, np.inf, allowances), seed, size, size.left_out_generations)
        measured = simulator.measure(stacked(defaults, point), seed + 1, size.fresh)[1]
        left_out.append(
            {
                "policy": policy,
                "parameters": point,
                "anchors": {
                    anchors[i].claim: {"published": published[i], "predicted": float(measured[i]),
                                       "deviation_in_allowances": float((measured[i] - published[i]) / allowances[i])}
                    for i in np.flatnonzero(held)
                },
            }
        )  # fmt: skip

    say("sensitivity")
    table = sensitivity(simulator, allowances, seed + 1, size)
    return {
        "seed": seed,
        "size": vars(size),
        "versions": {"arena_jax": arena_jax.__version__, "jax": jax.__version__, "scipy": scipy.__version__},
        "anchors": [
            {"claim": a.claim, "published": published[i], "allowance": allowances[i],
             "at_defaults": float(both[0, i]), "at_best": float(both[1, i])} for i, a in enumerate(anchors)
        ],
        "parameters": {
            name: {"default": defaults[name], "best": best[name], "searched": list(row)}
            for name, row in zip(FITTED, bounds().tolist(), strict=True)
        },
        "search_loss": search_loss,
        "fresh": {
            "loss_at_defaults": float(fresh[:, 0].mean()),
            "loss_at_best": float(fresh[:, 1].mean()),
            "difference": float(difference.mean()),
            "standard_error": error,
            "came_back": bool(difference.mean() <= 2 * error),
            "chi2_gain_of_best": 4 * gain,
            "chi2_95pct_of_8_parameters": quantile,
            "defaults_inside_the_fits_region": bool(4 * gain <= quantile),
        },
        "left_out": left_out,
        "sensitivity_in_allowances": table,
    }, simulator  # fmt: skip


def plain_rate(simulator: Simulator, episodes: int) -> float:
    """Episode-months a second of ordinary batch play of the same policies, compile time apart."""
    env = arena_jax.make()
    policies = [arena_jax.make_policy(policy) for policy in simulator.policies]
    for _ in range(2):  # the first round compiles
        started = time.perf_counter()
        for policy in policies:
            rollout(env, policy, jax.random.key(0), episodes)
        seconds = time.perf_counter() - started
    return episodes * len(policies) * env.scenario.horizon / seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the calibration and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "calibration.json")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    result, simulator = calibrate(options.seed, size, lambda text: print(text, file=sys.stderr))
    write_atomic(options.out, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    report(result)
    rate, plain = simulator.episode_months / simulator.seconds, plain_rate(simulator, 8 * 4096)
    print(f"\ncandidates {rate / 1e6:.1f} M episode-months/s in the search, batch play {plain / 1e6:.1f} M: "
          f"ratio {rate / plain:.2f}")  # fmt: skip
    return 0 if result["fresh"]["came_back"] else 1


def report(result: Mapping[str, Any]) -> None:
    """The fit, the left-out anchors and the sensitivities as text."""
    print(f"{'parameter':24}{'default':>12}{'best':>12}")
    for name, row in result["parameters"].items():
        print(f"{name:24}{row['default']:12.6g}{row['best']:12.6g}")
    fresh = result["fresh"]
    print(
        f"\nloss on fresh seeds: defaults {fresh['loss_at_defaults']:.2f}, best {fresh['loss_at_best']:.2f} "
        f"(difference {fresh['difference']:+.2f}, standard error {fresh['standard_error']:.2f})\n"
        f"chi-squared gain of the fit {fresh['chi2_gain_of_best']:.1f}, 95% quantile "
        f"{fresh['chi2_95pct_of_8_parameters']:.1f}: the defaults lie "
        f"{'inside' if fresh['defaults_inside_the_fits_region'] else 'outside'} its region\n"
    )
    claims = [row["claim"] for row in result["anchors"]]
    for i, row in enumerate(result["anchors"], 1):
        print(f"({i}) {row['claim']}: published {row['published']:g}, defaults {row['at_defaults']:.4g}, "
              f"best {row['at_best']:.4g}, allowance {row['allowance']:.3g}")  # fmt: skip
    print("\nleft out: predicted by the rest, deviation in allowances")
    for row in result["left_out"]:
        for claim, found in row["anchors"].items():
            predicted, deviation = found["predicted"], found["deviation_in_allowances"]
            print(f"({claims.index(claim) + 1:2}) {claim:60}{predicted:14.5g}{deviation:8.2f}")
    print("\nsensitivity: movement of each anchor in allowances for -10% / +10% of a parameter")
    print(f"{'':22}" + "".join(f"{f'({i})':>13}" for i in range(1, len(claims) + 1)))
    for row in result["sensitivity_in_allowances"]:
        pairs = zip(row["minus_10pct"], row["plus_10pct"], strict=True)
        print(f"{row['parameter']:22}" + "".join(f"{low:+.1f}/{high:+.1f}".rjust(13) for low, high in pairs))


if __name__ == "__main__":
    sys.exit(main())
