"""Fits the generator of worlds to the default trajectory and writes its constants to data/generator.json.

    python baselines/fit_generator.py

Everything is computed from `data/macro_trajectory.csv`, with numpy alone; see `arena_jax/generator.py` for the model.
- phases: the months' labels; transitions counted, spell lengths averaged; one log-SD for the spells of all phases
- components: principal axes of the standardised latent columns
- reversion, momentum: least squares of each component's change on its gap to the phase's mean and its last change
- innovations: the residuals' covariance in each phase
- surges: the runs of user growth above its median; one log-SD, that of their heights, for height and length (the
  three lengths, 17, 17 and 16 months, hardly differ), and the mean distance from start to crisis month
"""

import itertools
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import arena_jax
from arena_jax.generator import to_latent
from arena_jax.operations import market_at
from arena_jax.regimes import REGIMES, regimes, spells
from arena_jax.scenario import CRISIS_MONTHS, default_columns, digest

GROWTH = ("user_growth", "industry_user_growth")
DIGITS = 6  # significant


def fit() -> dict[str, Any]:
    """The constants as plain data."""
    env = arena_jax.make()
    table = default_columns()
    columns = [name for name in table if name not in GROWTH]
    stress = market_at(env.params, env.scenario, jnp.arange(env.scenario.horizon, dtype=jnp.int32)).stress
    phase = regimes(np.asarray(stress, dtype=np.float64))
    latent = np.stack([to_latent(name, table[name]) for name in columns], axis=1)
    return {
        "fitted_to": digest(env.scenario),
        "columns": columns,
        **_fit_components(latent, phase),
        **_fit_phases(phase),
        "surges": _fit_surges(table["user_growth"]),
    }


def _fit_components(latent: np.ndarray, phase: np.ndarray) -> dict[str, np.ndarray]:
    center, scale = latent.mean(axis=0), latent.std(axis=0)
    standard = (latent - center) / scale
    _, rotation = np.linalg.eigh(np.corrcoef(standard.T))
    largest = rotation[np.abs(rotation).argmax(axis=0), np.arange(rotation.shape[1])]
    rotation = rotation * np.sign(largest)  # eigenvectors have no sign of their own
    components = standard @ rotation
    means = np.array([components[phase == i].mean(axis=0) for i in range(len(REGIMES))])
    change, last = np.diff(components, axis=0)[1:], np.diff(components, axis=0)[:-1]
    phase = phase[2:]
    gap = means[phase] - components[1:-1]
    fits = [
        np.linalg.lstsq(np.stack([g, v], axis=1), c, rcond=None)[0]
        for g, v, c in zip(gap.T, last.T, change.T, strict=True)
    ]
    reversion, momentum = np.array(fits).T
    residual = change - reversion * gap - momentum * last
    covariances = [residual[phase == i].T @ residual[phase == i] / np.sum(phase == i) for i in range(len(REGIMES))]
    return {
        "center": center,
        "scale": scale,
        "rotation": rotation,
        "reversion": reversion,
        "momentum": momentum,
        "regime_means": means,
        "innovations": np.linalg.cholesky(covariances),
    }


def _fit_phases(phase: np.ndarray) -> dict[str, Any]:
    runs = spells(phase)
    moves = np.zeros((len(REGIMES), len(REGIMES)))
    for (before, _), (after, _) in itertools.pairwise(runs):
        moves[before, after] += 1
    lengths = [np.array([months for label, months in runs if label == i]) for i in range(len(REGIMES))]
    return {
        "transitions": moves / moves.sum(axis=1, keepdims=True),
        "spell_months": np.array([months.mean() for months in lengths]),
        "spell_spread": np.concatenate([np.log(months / months.mean()) for months in lengths]).std(),
    }


def _fit_surges(growth: np.ndarray) -> dict[str, Any]:
    base = np.median(growth)
    runs, start, found = spells((growth > base).astype(int)), 0, []
    for is_surge, months in runs:
        if is_surge:
            found.append((start, months, growth[start : start + months].max() - base))
        start += months
    starts, lengths, heights = np.array(found).T
    first = growth[int(starts[0]) :]
    gaps = starts - np.concatenate([[0], (starts + lengths)[:-1]])
    return {
        "base": base,
        "size": np.exp(np.log(heights).mean()),
        "months": np.exp(np.log(lengths).mean()),
        "spread": np.log(heights).std(),
        "ramp": int(np.argmax(first >= first[: int(lengths[0])].max())) + 1,
        "gap": int(gaps.min()),
        "crisis": round(float((np.array(CRISIS_MONTHS) - starts).mean())),
    }


def rounded(value: Any) -> Any:
    """Plain data with floats to six significant digits."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | list):
        return [rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "data" / "generator.json"
    lines = [f'"{name}": {json.dumps(value)}' for name, value in rounded(fit()).items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(path)
