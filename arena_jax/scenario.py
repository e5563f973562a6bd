"""The exogenous world: a fixed monthly trajectory of market and industry columns, hidden from the agent.

A `Scenario` holds one float array of T months per column (T = 132 by default) and the crisis months.
`COLUMNS` is the single description of the columns; the file check and the documentation read it.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.data import data_path
from arena_jax.errors import ArenaError
from arena_jax.files import read_whole

HORIZON = 132  # months, paper section 4.1
MAX_HORIZON = 12_000  # months
CRISIS_MONTHS = (30, 55, 110)  # ours: the paper names no months; these agree with its Table 1


@dataclass(frozen=True)
class Column:
    """One column of a trajectory file: unit, layer (paper section 3.5), allowed range, typical size, meaning."""

    unit: str
    layer: str
    low: float
    high: float
    scale: float
    about: str


COLUMNS: dict[str, Column] = {
    "policy_rate": Column("% a year", "macro", 0, 50, 1.0, "central-bank policy rate"),
    "treasury_2y": Column("% a year", "macro", 0, 50, 1.0, "2-year government yield"),
    "treasury_5y": Column("% a year", "macro", 0, 50, 1.0, "5-year government yield"),
    "treasury_10y": Column("% a year", "macro", 0, 50, 1.0, "10-year government yield"),
    "treasury_30y": Column("% a year", "macro", 0, 50, 1.0, "30-year government yield"),
    "unemployment": Column("%", "macro", 0, 50, 10.0, "unemployment rate"),
    "delinquency": Column("%", "macro", 0, 30, 1.0, "delinquency rate of consumer loans"),
    "lending_tightness": Column("net %", "macro", -100, 100, 25.0, "banks tightening less banks easing"),
    "gdp_growth": Column("% a year", "macro", -50, 50, 10.0, "growth of real output"),
    "inflation": Column("% a year", "macro", -20, 50, 1.0, "consumer price inflation"),
    "credit_spread": Column("% a year", "macro", 0, 30, 1.0, "yield spread of consumer credit"),
    "volatility": Column("index points", "macro", 0, 150, 10.0, "implied volatility of the stock market"),
    "pe": Column("ratio", "macro", 0, 200, 10.0, "price-earnings ratio of the stock market"),
    "user_growth": Column("% a month", "industry", 0, 20, 1.0, "new borrowers per active borrower"),
    "industry_user_growth": Column("% a month", "industry", 0, 20, 1.0, "industry user growth, published late"),
    "sector_margin": Column("%", "industry", -100, 100, 10.0, "operating margin of the sector"),
}
HIDDEN_COLUMNS = ("user_growth",)  # drive the world, and no tool shows them


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scenario:
    """A trajectory. Leaves: float[T] per column (units in `COLUMNS`); crisis_months int32[n]."""

    policy_rate: Any
    treasury_2y: Any
    treasury_5y: Any
    treasury_10y: Any
    treasury_30y: Any
    unemployment: Any
    delinquency: Any
    lending_tightness: Any
    gdp_growth: Any
    inflation: Any
    credit_spread: Any
    volatility: Any
    pe: Any
    user_growth: Any
    industry_user_growth: Any
    sector_margin: Any
    crisis_months: Any

    @property
    def horizon(self) -> int:
        """Number of months T."""
        return int(self.treasury_2y.shape[-1])


def _cell(path: Path, row: int, name: str, text: str | None) -> float:
    """One value of the file, or an error that names its row (month) and column."""
    where = f"{path}: column {name}, month {row}"
    if text is None or not text.strip():
        raise ArenaError(f"{where}: value is missing")
    try:
        value = float(text)
    except ValueError:
        raise ArenaError(f"{where}: {text!r} is not a number") from None
    column = COLUMNS[name]
    if not math.isfinite(value) or not column.low <= value <= column.high:
        raise ArenaError(f"{where}: {text} is outside [{column.low:g}, {column.high:g}] ({column.unit})")
    return value


def read_columns(path: Path, horizon: int | None = None) -> dict[str, np.ndarray]:
    """The columns of a trajectory CSV as float64[T]; raises `ArenaError` naming the row and column at fault.

    horizon: months to read from the start, else all, which must be 132 or more.
    """
    try:
        lines = read_whole(path, "trajectory").decode("utf-8-sig").rstrip().splitlines()
        reader = csv.DictReader(lines)
        rows = list(reader)
        header = reader.fieldnames or []
    except ArenaError:
        raise
    except (ValueError, csv.Error):  # undecodable, or no path at all
        raise ArenaError(f"can't read trajectory {str(path)!r}: not a CSV text file") from None
    blank = [number for number, line in enumerate(lines, 1) if not line.strip()]
    if blank:
        raise ArenaError(f"{path}: line {blank[0]} is blank")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise ArenaError(f"{path}: column {twice[0]} is given twice")
    missing = [name for name in ("month", *COLUMNS) if name not in header]
    if missing:
        raise ArenaError(f"{path}: column {missing[0]} is missing; needed: month, {', '.join(COLUMNS)}")
    needed = HORIZON if horizon is None else horizon
    if len(rows) < needed:
        raise ArenaError(f"{path}: {len(rows)} months, at least {needed} are needed")
    if len(rows) > MAX_HORIZON:
        raise ArenaError(f"{path}: {len(rows)} months, at most {MAX_HORIZON} are allowed")
    rows = rows[:horizon]
    for number, row in enumerate(rows):
        if row["month"] != str(number):
            raise ArenaError(f"{path}: column month, row {number}: expected {number}, got {row['month']!r}")
        if None in row:
            raise ArenaError(f"{path}: month {number} has more cells than the header")
    return {
        name: np.array([_cell(path, number, name, row[name]) for number, row in enumerate(rows)]) for name in COLUMNS
    }


def make_scenario(columns: dict[str, np.ndarray], crisis_months: tuple[int, ...] = CRISIS_MONTHS) -> Scenario:
    """A `Scenario` of the default float dtype from checked columns."""
    arrays = {name: jax.device_put(np.asarray(columns[name], dtype=jnp.result_type(float))) for name in COLUMNS}
    return Scenario(**arrays, crisis_months=jax.device_put(np.asarray(crisis_months, dtype=np.int32)))


@functools.lru_cache(maxsize=2)
def default_columns() -> dict[str, np.ndarray]:
    """The columns of the default trajectory, float64[132] each; don't write to them."""
    return read_columns(data_path("macro_trajectory.csv"))


def default_scenario() -> Scenario:
    """The trajectory that ships with the package (data/README.md)."""
    return make_scenario(default_columns())


def digest(tree: Any) -> str:
    """SHA-256 of a pytree's field names, shapes and values at float32: equal settings, equal digest in any session.

    Fields of a variant that is off are left out, so that a new variant changes no digest of the worlds before it.
    """
    sha = hashlib.sha256()
    for field in dataclasses.fields(tree):
        variant = field.metadata.get("variant")
        if variant is not None and not getattr(tree, variant):
            continue
        value = np.asarray(getattr(tree, field.name), dtype=np.float32)
        sha.update(f"{field.name}{list(value.shape)}:{','.join(map(str, value.ravel()))};".encode())
    return sha.hexdigest()
