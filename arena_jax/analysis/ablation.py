"""RQ2's conditions relaxed one at a time and in pairs, on the same draws as the default world.

The switches are data (data/findings.toml), each with what the paper says of it.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena_jax.analysis.compare import Contrast, Units, contrasts, play_units
from arena_jax.analysis.metrics import DIFFERENCE, Estimate, Moments, estimate
from arena_jax.arena import make
from arena_jax.data import data_path
from arena_jax.errors import ArenaError, brief
from arena_jax.scenario import Scenario


@dataclass(frozen=True)
class Switch:
    """One condition set otherwise. in_pairs: also together with each of the others."""

    name: str
    environment: Mapping[str, Any]
    published: str
    in_pairs: bool = True


@dataclass(frozen=True)
class Effect:
    """What one switch, or a pair of them, changes.

    metrics: `Estimate`s in the changed world (`Spread`s over several worlds). differences: changed less default.
    interaction: of a pair, its effect less those of its two switches; empty for one switch.
    """

    switches: tuple[str, ...]
    environment: dict[str, Any]
    published: str
    metrics: dict[str, Any]
    differences: dict[str, Contrast]
    interaction: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class Ablation:
    """A policy in the default world, and the effects: switches, then pairs, the largest on survival first."""

    default: dict[str, Any]
    effects: list[Effect]


def rq2_switches() -> tuple[str, list[Switch]]:
    """The source, and the switches in the paper's order."""
    path = data_path("findings.toml")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return data["sources"]["rq2"], [Switch(**row) for row in data["switch"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ArenaError(f"{path} is damaged: {brief(error)}; install arena_jax again") from None


def combinations(switches: Sequence[Switch]) -> list[tuple[Switch, ...]]:
    """Every switch alone, then all pairs of those that go in pairs."""
    pairs = itertools.combinations([switch for switch in switches if switch.in_pairs], 2)
    return [*[(switch,) for switch in switches], *pairs]


def ablate(
    policy: str,
    switches: Sequence[Switch],
    *,
    episodes: int,
    scenario: Scenario | Any = None,
    scenarios: str | None = None,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> Ablation:
    """Play a policy in the default world and under every combination of switches, each over the same episodes.

    The episodes of the default and of each switch are kept in memory, 80 MB for a million of them; those of pairs not.
    overrides: parameters of all these worlds, under those of the switches. Raises `ArenaError` as `play_units` does,
    and where an override and a switch set the same parameter.
    """
    given = dict(overrides or {})
    for switch in switches:
        if taken := sorted(given.keys() & switch.environment.keys()):
            raise ArenaError(
                f"parameter {taken[0]} is what the switch {switch.name!r} sets; leave it out of the overrides"
            )

    def played(environment: Mapping[str, Any]) -> tuple[dict[str, Any], Units]:
        env = make(scenario=scenario, **(given | dict(environment)))
        estimates, units = play_units(
            env, [policy], episodes=episodes, scenarios=scenarios, seed=seed, on_progress=on_progress
        )
        return estimates[policy], units[policy]

    default, base = played({})
    alone: dict[str, Units] = {}
    effects = []
    for combination in combinations(switches):
        names = tuple(switch.name for switch in combination)
        environment = {name: value for switch in combination for name, value in switch.environment.items()}
        metrics, units = played(environment)
        if len(names) == 1:
            alone[names[0]] = units
        effects.append(
            Effect(
                names,
                environment,
                combination[0].published if len(combination) == 1 else "",
                metrics,
                contrasts(base, units),
                _interaction(base, [alone[name] for name in names], units) if len(names) > 1 else {},
            )
        )
    return Ablation(default, sorted(effects, key=_order))


def _interaction(base: Units, alone: Sequence[Units], both: Units) -> dict[str, Estimate]:
    one, other = alone
    return {name: estimate(DIFFERENCE, Moments.of(both[name] - one[name] - other[name] + base[name])) for name in base}


def _order(effect: Effect) -> tuple[int, float, float]:
    survival, score = (abs(effect.differences[name].mean) for name in ("full_survival", "score"))
    return len(effect.switches), -survival, -score
