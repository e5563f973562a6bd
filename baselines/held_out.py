"""Where results of tuned and trained policies come from: episodes and worlds that nothing was tuned or trained on."""

from __future__ import annotations

import math
from typing import Any

from scipy.stats import norm

from arena_jax.analysis.metrics import CONFIDENCE, Estimate
from arena_jax.analysis.spread import Spread
from arena_jax.arena import Arena
from arena_jax.draws import MAX_SEED
from arena_jax.errors import ArenaError, check_count

SEED = 2026  # of held-out episodes and of held-out worlds: training takes another
EACH = 10  # episodes of each generated world


def objective(env: Arena) -> str:
    """The metric that the environment pays."""
    return "value_kept" if env.params.disciplined else "score"


def check_seed(seed: int) -> None:
    """Refuse a training seed that is none, or the one of what is held out."""
    check_count("seed", seed, 0, MAX_SEED)
    if seed == SEED:
        raise ArenaError(f"seed {SEED} is that of the held-out episodes and worlds; choose another")


def check_episodes(episodes: int) -> None:
    """Refuse numbers of held-out episodes that don't make whole worlds, at least two."""
    check_count("held-out episodes", episodes, 2 * EACH, 10**6)
    if episodes % EACH:
        raise ArenaError(f"held-out episodes must be a multiple of {EACH}, those of each world, got {episodes}")


def places(episodes: int) -> dict[str, dict[str, Any]]:
    """What `evaluate` is to play in each place, as many episodes in both: the default world and generated ones."""
    worlds = f"generated:{episodes // EACH},seed={SEED}"
    return {
        "default": {"episodes": episodes, "seed": SEED},
        "generated": {"episodes": EACH, "seed": SEED, "scenarios": worlds},
    }


def mixture(default: Estimate, generated: Spread) -> dict[str, float]:
    """Half of each place: mean and 95% interval."""
    mean, error = (
        (default.mean + generated.mean) / 2,
        math.hypot(default.sd / math.sqrt(default.n), generated.error) / 2,
    )
    half = float(norm.ppf(0.5 + CONFIDENCE / 2)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half}
