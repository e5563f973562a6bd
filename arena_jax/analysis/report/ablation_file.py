"""What `arena-jax ablate --json` printed, read with care: a damaged file, or one of another game, is refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_jax.analysis.sources import Sources
from arena_jax.errors import ArenaError
from arena_jax.parts import differences

CHANGED = ("full_survival", "score")  # the metrics that are drawn


@dataclass(frozen=True)
class Change:
    """A difference from the world as it is, and its 95% interval (NaN: none)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Relaxed:
    """One condition, or two, relaxed; changes: by metric."""

    switches: tuple[str, ...]
    published: str
    changes: dict[str, Change]


@dataclass(frozen=True)
class AblationFile:
    """The effects by policy. trajectory: SHA-256 of one world. scenarios: what several worlds are, and how many."""

    version: str
    seed: int
    episodes: int
    env_set: tuple[str, ...]
    parameters: dict[str, Any]
    trajectory: str | None
    scenarios: dict[str, Any] | None
    results: dict[str, tuple[Relaxed, ...]]


def read_ablation(path: Path, sources: Sources) -> AblationFile:
    """The file; raises `ArenaError` if it is none, or is of another version, of other rules or of other worlds."""
    try:
        found = _file(json.loads(path.read_bytes()))
    except OSError as error:
        raise ArenaError(f"can't read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise ArenaError(f"{path} is not what arena-jax ablate --json prints") from None
    ground = sources.ground
    if found.version != ground.version:
        raise ArenaError(f"{path} is of arena_jax {found.version}, the records of {ground.version}")
    if unlike := next(differences({"": found.parameters}, {"": ground.parameters}, ()), None):
        raise ArenaError(f"{path} is of other parameters than the records ({unlike.removeprefix('.')})")
    several = None if found.scenarios is None else {k: v for k, v in found.scenarios.items() if k != "worlds"}
    mine = {"scenarios": several, "trajectory": found.trajectory}
    theirs = {"scenarios": ground.scenarios, "trajectory": ground.trajectory}
    if unlike := next(differences(mine, theirs, ()), None):
        raise ArenaError(f"{path} is of other worlds than the records ({unlike})")
    return found


def _file(data: Any) -> AblationFile:
    return AblationFile(
        version=_a(str, data["arena_jax"]),
        seed=_a(int, data["seed"]),
        episodes=_a(int, data["episodes"]),
        env_set=tuple(_a(str, pair) for pair in _a(list, data["env_set"])),
        parameters=_a(dict, data["parameters"]),
        trajectory=None if data["trajectory"] is None else _a(str, data["trajectory"]),
        scenarios=None
        if data["scenarios"] is None
        else _a(dict, data["scenarios"]) | {"worlds": _a(int, data["scenarios"]["worlds"])},
        results={
            _a(str, one["policy"]): tuple(_relaxed(effect) for effect in _filled(one["effects"]))
            for one in _filled(data["results"])
        },
    )


def _relaxed(effect: Any) -> Relaxed:
    switches = tuple(_a(str, name) for name in _filled(effect["switches"]))
    return Relaxed(
        switches, _a(str, effect["published"]), {name: _change(effect["differences"][name]) for name in CHANGED}
    )


def _change(data: Any) -> Change:
    mean, low, high = (
        math.nan if data[k] is None else float(_a((int, float), data[k])) for k in ("mean", "low", "high")
    )
    return Change(mean, low, high)


def _filled(value: Any) -> list[Any]:
    if not _a(list, value):
        raise ValueError("empty")
    return list(value)


def _a(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError("of another type")
    return value
