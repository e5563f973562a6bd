"""EnterpriseArena-Disciplined-v1: name, settings, tables. Dynamics: test_books, test_twin_agreement, test_rl."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

import arena_jax
from arena_jax.analysis.metrics import METRICS, Tallies
from arena_jax.analysis.table import WIDE, results_tables
from arena_jax.llm.session import ArenaSession
from arena_jax.scenario import COLUMNS, digest

NAME = "EnterpriseArena-Disciplined-v1"


def test_the_name_gives_the_variant_and_wins_over_a_world_file(tmp_path):
    env = arena_jax.make(NAME, size_aversion=0.2, tool_budget=5)
    assert (env.name, env.params.disciplined, int(env.params.tool_budget)) == (NAME, True, 5)
    assert arena_jax.make().name == "EnterpriseArena-v1" and not arena_jax.make().params.disciplined
    rows = [",".join(("month", *COLUMNS))]
    rows += [",".join((str(month), *["2"] * len(COLUMNS))) for month in range(132)]
    (tmp_path / "mine.csv").write_text("\n".join(rows))
    (tmp_path / "mine.toml").write_text(
        'trajectory = "mine.csv"\nhorizon = 132\ncrisis_months = [30, 55, 110]\n[parameters]\ndisciplined = false\n'
    )
    assert arena_jax.make(NAME, scenario=tmp_path / "mine.toml").params.disciplined


def test_its_parameters_count_only_where_it_is_on():
    default, aversion = arena_jax.make(), arena_jax.make(size_aversion=2.0)
    on, steeper = arena_jax.make(NAME), arena_jax.make(NAME, size_aversion=2.0)
    assert digest(default.params) == digest(aversion.params)
    assert len({digest(env.params) for env in (default, on, steeper)}) == 3


@pytest.mark.parametrize("disciplined", [False, True])
@pytest.mark.parametrize("width", [WIDE, 100])
def test_tables_show_the_value_kept_beside_the_score(disciplined, width):
    fields = [field.name for field in dataclasses.fields(arena_jax.Record)]
    record = arena_jax.Record(**{name: np.full(4, 7e6) for name in fields})
    tallies = Tallies()
    tallies.add(dataclasses.replace(record, survived=np.ones(4), value_kept=np.full(4, -31.5e6)))
    tables = results_tables({"mine": tallies.estimates()}, "a title", width, disciplined=disciplined)
    headings = [column.header for table in tables for column in table.columns if column.header not in ("Agent", "n")]
    shown = [metric.heading for name, metric in METRICS.items() if name not in ("approvals", "value_kept")]
    assert sorted(headings) == sorted(shown + ["Value kept"] * disciplined)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(*tables)
    assert ("-$31.5M" in console.export_text()) == disciplined
    if disciplined:
        assert headings.index("Value kept") == headings.index("Score") + 1


def test_agents_and_people_are_told_that_it_is_not_theirs():
    with pytest.raises(arena_jax.ArenaError, match="disciplined"):
        ArenaSession(arena_jax.make(NAME), 0)
