"""The command line: tables for people, JSON for machines, one line and exit code 2 for bad input."""

import json
import os
import sys

import pytest

from arena_jax import cli
from arena_jax.analysis.table import money
from arena_jax.version import __version__


def arena(monkeypatch, capsys, *arguments):
    """Run the console script in this process: (exit code, stdout, stderr)."""
    monkeypatch.setattr(sys, "argv", ["arena-jax", *arguments])
    try:
        cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_table_has_the_published_rows_and_intervals(monkeypatch, capsys):
    code, out, err = arena(
        monkeypatch, capsys, "evaluate", "--policy", "never-raise", "--episodes", "256", "--batch", "64"
    )
    assert (code, err) == (0, "")
    for text in ("never-raise", "33.", "0.0%–1.5%", "Human (published)", "DeepSeek-V4 (published)", "$476.7M", "15.4%"):
        assert text in out
    assert "Codex CLI + GPT-5.5" in out
    assert "\x1b" not in out


def test_json_has_every_metric_and_says_what_was_run(monkeypatch, capsys):
    arguments = ["--policy", "greedy-equity:amount=2e6", "--policy", "greedy-equity:amount=1e6", "--episodes", "64"]
    arguments += ["--seed", "9"]
    code, out, _ = arena(monkeypatch, capsys, "evaluate", *arguments, "--env-set", "noise=0", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["arena_jax"], found["seed"], found["env_set"]) == (__version__, 9, ["noise=0"])
    assert [row["policy"] for row in found["results"]] == ["greedy-equity:amount=2e6", "greedy-equity:amount=1e6"]
    months = found["results"][0]["metrics"]["months"]
    assert months["low"] <= months["mean"] <= months["high"]
    assert {row["agent"] for row in found["published"]} >= {"Human", "Overall"}


def test_a_policy_by_path_is_named_as_it_is_written(monkeypatch, capsys, tmp_path):
    """`:factory:` is also the name of an emoji."""
    (tmp_path / "mypol.py").write_text("from arena_jax.policies.heuristics import GreedyEquity as factory\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = arena(monkeypatch, capsys, "evaluate", "--policy", "mypol:factory:amount=20e6", "--episodes", "64")
    assert code == 0
    assert "mypol:factory" in out


def test_a_world_of_ones_own_is_in_the_title(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert arena(monkeypatch, capsys, "scenario", "new", "mine.toml")[0] == 0
    options = ["--policy", "never-raise", "--episodes", "64", "--scenario", "mine.toml"]
    assert "mine.toml" in arena(monkeypatch, capsys, "evaluate", *options)[1].splitlines()[0]


def test_one_episode_has_no_interval(monkeypatch, capsys):
    code, out, _ = arena(monkeypatch, capsys, "evaluate", "--policy", "never-raise", "--episodes", "1", "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["metrics"]["months"]["low"] is None


@pytest.mark.parametrize("what", ["policies", "tools", "parameters", "quantities", "fields"])
def test_lists(monkeypatch, capsys, what):
    code, out, _ = arena(monkeypatch, capsys, "list", what)
    assert code == 0
    rows = json.loads(arena(monkeypatch, capsys, "list", what, "--json")[1])
    assert rows
    for row in rows:
        assert next(iter(row.values())).split()[0][:12] in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "--policy", "greedy-equty"], "did you mean greedy-equity"),
        (["evaluate", "--policy", "greedy-equity:amout=1"], "did you mean amount"),
        (["evaluate", "--policy", "greedy-equity:amount=-1"], "must be a number in [1, 1e+09]"),
        (["evaluate", "--policy", "no_such_module:make"], "can't import no_such_module"),
        (["evaluate", "--policy", "never-raise", "--policy", "never-raise"], "only once"),
        (["evaluate", "--policy", "never-raise", "--env-set", "nois=0"], "did you mean noise"),
        (["evaluate", "--policy", "never-raise", "--env-set", "noise"], "expected NAME=VALUE"),
        (["evaluate", "--policy", "never-raise", "--env-set", "noise=nan"], "must lie in"),
        (
            ["evaluate", "--policy", "never-raise", "--env-set", "delay_min=6", "--env-set", "delay_max=2"],
            "contradictory",
        ),
        (["evaluate", "--policy", "never-raise", "--episodes", "0"], "episodes must be"),
        (["evaluate", "--policy", "never-raise", "--episodes", "99999999999999"], "episodes must be"),
        (["evaluate", "--policy", "never-raise", "--shard", "4/3"], "shard must be"),
        (["evaluate", "--policy", "never-raise", "--record", "cash"], "needs a run directory"),
        (["evaluate", "--policy", "never-raise", "--scenario", "nowhere.csv"], "can't read trajectory nowhere.csv"),
        (["evaluate", "--policy", "never-raise", "--out", "/proc/nowhere"], "can't write to /proc"),
        (["evaluate"], "Missing option"),
        (["evaluate", "--policy", "never-raise", "--episodes", "many"], "--episodes"),
        (["evaluate", "--polcy", "never-raise"], "No such option"),
        (["evaluat"], "No such command"),
        (["list", "polices"], "did you mean policies"),
        (["merge", "nowhere", "--out", "x"], "not a run directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = arena(monkeypatch, capsys, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_version_and_help(monkeypatch, capsys):
    assert arena(monkeypatch, capsys, "--version")[1] == f"arena-jax {__version__}\n"
    assert "evaluate" in arena(monkeypatch, capsys)[1]
    for verb in ("evaluate", "merge", "list"):
        code, out, _ = arena(monkeypatch, capsys, verb, "--help")
        assert code == 0
        assert "Examples" in out


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (34.7e6, "$34.7M"),
        (1.2387e9, "$1.24B"),
        (-4.2e5, "-$420K"),
        (999.7e6, "$999.7M"),
        (999.97e6, "$1.00B"),
        (0, "$0"),
    ],
)
def test_money_as_people_write_it(dollars, text):
    assert money(dollars) == text


def test_a_policy_of_the_current_folder_is_found(monkeypatch, capsys, tmp_path):
    (tmp_path / "my_policies.py").write_text(
        "from arena_jax import make_policy\n\n"
        "def make(amount):\n    return make_policy('greedy-equity', amount=amount)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    arguments = ["evaluate", "--episodes", "64", "--json", "--policy"]
    by_path = arena(monkeypatch, capsys, *arguments, "my_policies:make:amount=3e6")
    by_name = arena(monkeypatch, capsys, *arguments, "greedy-equity:amount=3e6")
    assert json.loads(by_path[1])["results"][0]["metrics"] == json.loads(by_name[1])["results"][0]["metrics"]
