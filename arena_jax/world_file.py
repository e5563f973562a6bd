"""Worlds of one's own: a TOML with the company and the horizon, and the CSV of its trajectory beside it.

trajectory = "mine.csv"             # columns as in data/README.md; relative to this file
horizon = 132                       # months to play
crisis_months = [30, 55, 110]       # three or more, for the record's crises_passed
[parameters]                        # any of `arena-jax list parameters`; the others keep their defaults
initial_cash = 15e6
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arena_jax.errors import ArenaError, check_count, shown, unknown
from arena_jax.files import read_whole, write_atomic
from arena_jax.params import FIELDS, make_params
from arena_jax.scenario import COLUMNS, MAX_HORIZON, Scenario, make_scenario, read_columns

KEYS = ("trajectory", "horizon", "crisis_months", "parameters")
MIN_HORIZON = 12  # months
LEAST_CRISES = 3  # the paper's Table 1 has columns for three


class World(NamedTuple):
    """A trajectory and the parameters that differ from the defaults."""

    scenario: Scenario
    parameters: dict[str, Any]


def read_world(path: str | Path) -> World:
    """The world in a TOML, or the trajectory in a CSV; raises `ArenaError` naming the file and what is wrong."""
    try:
        path = Path(path)
    except TypeError:
        raise ArenaError(f"trajectory must be a path, got {type(path).__name__}") from None
    if path.suffix.lower() != ".toml":
        return World(make_scenario(read_columns(path)), {})
    found = _read_toml(path)
    for key in found:
        if key not in KEYS:
            raise ArenaError(f"{path}: {unknown('key', key, KEYS)}")
    for key in KEYS[:3]:
        if key not in found:
            raise ArenaError(f"{path}: key {key} is missing; needed: {', '.join(KEYS[:3])}")
    try:
        check_count("horizon", found["horizon"], MIN_HORIZON, MAX_HORIZON)
        crises = _crisis_months(found["crisis_months"], found["horizon"])
        parameters = found.get("parameters", {})
        if not isinstance(parameters, dict):
            raise ArenaError(f"parameters must be a table of names and values, got {shown(parameters)}")
        make_params(**parameters)
        if not isinstance(found["trajectory"], str):
            raise ArenaError(f"trajectory must be the path of a CSV, got {shown(found['trajectory'])}")
    except ArenaError as error:
        raise ArenaError(f"{path}: {error}") from None
    columns = read_columns(path.parent / found["trajectory"], found["horizon"])
    return World(make_scenario(columns, crises), parameters)


def table_of(path: Path) -> Any:
    """The trajectory that a TOML names, as it stands there."""
    return _read_toml(path).get("trajectory")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_whole(path, "world").decode("utf-8-sig"))
    except ArenaError:
        raise
    except tomllib.TOMLDecodeError as error:
        raise ArenaError(f"{path} is not TOML: {str(error).splitlines()[0]}") from None
    except (ValueError, RecursionError):
        raise ArenaError(f"{str(path)!r} is not a TOML text file") from None


def _crisis_months(months: Any, horizon: int) -> tuple[int, ...]:
    if not isinstance(months, list) or len(months) < LEAST_CRISES:
        raise ArenaError(f"crisis_months must be a list of {LEAST_CRISES} or more months, got {shown(months)}")
    for month in months:
        check_count("each of crisis_months", month, 1, horizon)
    if sorted(set(months)) != months:
        raise ArenaError(f"crisis_months must rise, got {shown(months)}")
    return tuple(months)


def write_world(path: Path, world: World, mode: int = 0o644) -> tuple[Path, Path]:
    """Write `path` as TOML and the trajectory as a CSV of the same name beside it; returns both paths.

    Numbers are written with the digits that give the same floats back. mode: permissions. Never overwrites.
    """
    table = path.with_suffix(".csv")
    for file in (path, table):
        if file.exists():
            raise ArenaError(f"{file} is there already; choose another name")
    columns = [np.asarray(getattr(world.scenario, name)) for name in COLUMNS]
    rows = [",".join(("month", *COLUMNS))]
    rows += [",".join((str(month), *map(str, values))) for month, values in enumerate(zip(*columns, strict=True))]
    write_atomic(table, ("\n".join(rows) + "\n").encode(), mode)
    try:
        write_atomic(path, _toml(world, table.name).encode(), mode)
    except ArenaError:
        table.unlink()  # half a world is none
        raise
    return path, table


def _toml(world: World, table: str) -> str:
    crises = np.asarray(world.scenario.crisis_months).tolist()
    lines = [
        f"trajectory = {json.dumps(table)}  # months 0 to horizon - 1; columns and units: data/README.md",
        f"horizon = {world.scenario.horizon}  # months to play",
        f"crisis_months = {crises}  # three or more, rising",
        "",
        "# The company: start values, costs, funding terms, score. A line left out keeps its default.",
        "[parameters]",
    ]
    for name, field in FIELDS.items():
        value, about = world.parameters.get(name, field.default), field.metadata
        value = value if isinstance(value, bool) else np.asarray(value).item()
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        limits = "" if isinstance(value, bool) else f", {about['low']:g} to {about['high']:g}"
        lines.append(f"{name} = {text}  # {about['unit']}{limits}: {about['about']}")
    return "\n".join(lines) + "\n"
