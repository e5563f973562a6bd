"""Evaluation over many worlds, held-out worlds and their proof, worlds of one's own."""

import dataclasses
import json
import os
import sys

import jax
import numpy as np
import pytest
from test_cli import arena

import arena_jax
from arena_jax import generator, parts
from arena_jax.analysis.metrics import METRICS, Metric, episode_metrics
from arena_jax.analysis.scenario_view import sparkline
from arena_jax.analysis.spread import spread
from arena_jax.analysis.table import spreads_tables
from arena_jax.batch_play import play_batch
from arena_jax.evaluation import evaluate
from arena_jax.scenario import COLUMNS
from arena_jax.secret import commitment, read_secret, secret_key
from arena_jax.world_file import World, read_world, write_world
from arena_jax.worlds import parse_worlds

POLICIES = ["never-raise", "cash-threshold"]
SECRET = "correct horse battery staple, and more of it"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART", 64)


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "held-out.key"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


def run(env, out=None, **options):
    return evaluate(
        env, POLICIES, out=out, **({"episodes": 30, "seed": 3, "scenarios": "generated:7,seed=5"} | options)
    )


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# Evaluation over worlds


def test_each_world_is_played_as_if_alone_by_one_compiled_program(env):
    play_batch.compiled.clear_cache()
    found, worlds = run(env), parse_worlds("generated:7,seed=5")
    assert play_batch.compiled._cache_size() == len(POLICIES)
    for spec in POLICIES:
        by_world = []
        for i in range(7):
            alone = dataclasses.replace(env, scenario=worlds.scenario(i, 132))
            record = arena_jax.rollout(alone, arena_jax.make_policy(spec), jax.random.key(3), 30, first=30 * i)
            by_world.append(episode_metrics(record))
        for name in METRICS:
            values = np.array([metrics[name] for metrics in by_world])
            means, within = values.mean(axis=1), values.var(axis=1, ddof=1).mean()
            across = max(means.var(ddof=1) - within / 30, 0)
            got = found[spec][name]
            assert (got.worlds, got.episodes) == (7, 30)
            np.testing.assert_allclose(
                [got.mean, got.sd_across, got.sd_within], [means.mean(), across**0.5, within**0.5], rtol=1e-6
            )
            np.testing.assert_allclose(got.percentiles, np.percentile(means, [5, 25, 50, 75, 95]))


def test_variance_is_split_between_and_within_worlds():
    rng = np.random.default_rng(0)
    worlds, episodes = 4_000, 10
    values = rng.normal(5, 2, (worlds, 1)) + rng.normal(0, 3, (worlds, episodes))
    found = spread(Metric("", "months"), values.mean(axis=1), values.var(axis=1, ddof=1), episodes)
    assert found.sd_across == pytest.approx(2, rel=0.05)
    assert found.sd_within == pytest.approx(3, rel=0.03)
    assert found.low < 5 < found.high
    # a share that no world departs from still has an interval: each world is one observation
    none = spread(Metric("", "share", is_share=True), np.zeros(100), np.zeros(100), episodes)
    assert none.low == 0
    assert none.high == pytest.approx(0.037, abs=1e-3)
    # equal worlds: what is left is sampling error, and it is taken off
    equal = rng.normal(0, 3, (worlds, episodes))
    assert spread(Metric("", "months"), equal.mean(axis=1), equal.var(axis=1, ddof=1), episodes).sd_across < 0.3


def test_worlds_resume_and_merge_to_the_same_bytes(env, tmp_path):
    whole = run(env, tmp_path / "whole", record=["cash"])
    manifest = json.loads((tmp_path / "whole" / "manifest.json").read_text())
    assert (manifest["episodes"], manifest["worlds"], manifest["part"]) == (30, 7, 60)
    for i in (1, 2, 3):
        run(env, tmp_path / f"shard{i}", shard=(i, 3), record=["cash"])
    parts.merge_runs([tmp_path / f"shard{i}" for i in (1, 2, 3)], tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")
    (tmp_path / "merged" / "01-cash-threshold" / "part-000002.parquet").unlink()
    again = run(env, tmp_path / "merged", record=["cash"])
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")
    for spec in POLICIES:
        for name in METRICS:
            np.testing.assert_equal(vars(again[spec][name]), vars(whole[spec][name]))


def test_other_worlds_are_another_run(env, tmp_path, monkeypatch):
    run(env, tmp_path / "run")
    for options, difference in [
        ({"scenarios": "generated:7,seed=6"}, "scenarios.seed: 5, not 6"),
        ({"scenarios": "generated:8,seed=5"}, "worlds: 7, not 8"),
        ({"scenarios": None, "episodes": 210}, "episodes: 30, not 210"),
    ]:
        with pytest.raises(arena_jax.ArenaError, match=f"holds another run .*{difference}"):
            run(env, tmp_path / "run", **options)
    monkeypatch.setattr(generator, "model_bytes", lambda: b"fitted anew")
    with pytest.raises(arena_jax.ArenaError, match=r"scenarios.generator_sha256"):
        run(env, tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenarios": "generated"}, "scenarios must be one of generated:N"),
        ({"scenarios": "generated:x"}, "scenarios must be one of"),
        ({"scenarios": "generated:5,sed=1"}, "scenarios must be one of"),
        ({"scenarios": "secrets"}, "scenarios must be one of"),
        ({"scenarios": 5}, "scenarios must be one of"),
        ({"scenarios": "generated:0"}, "generated worlds must be a whole number from 1"),
        ({"scenarios": "generated:5,seed=4294967296"}, "seed must be a whole number from 0"),
        ({"scenarios": "generated:1000000", "episodes": 5000}, "over all worlds"),
        ({"shard": (5, 5)}, "shard 5/5 is empty"),
    ],
)
def test_bad_scenarios(env, options, message):
    with pytest.raises(arena_jax.ArenaError, match=message):
        run(env, **options)


def test_one_world_or_one_episode(env):
    estimate = run(env, scenarios="generated:1")["never-raise"]["months"]
    assert (estimate.n, estimate.low < estimate.high) == (30, True)
    alone = run(env, episodes=1)["never-raise"]["months"]
    assert np.isnan([alone.sd_across, alone.sd_within]).all()
    assert alone.low < alone.mean < alone.high


def test_table_and_json(monkeypatch, capsys):
    arguments = ["evaluate", "--policy", "never-raise", "--episodes", "30", "--scenarios", "generated:7,seed=5"]
    code, out, err = arena(monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")
    for text in ("7 generated worlds", "30 episodes each", "SD across", "SD within", "50th", "Full surv.", "0.0%"):
        assert text in out
    found = json.loads(arena(monkeypatch, capsys, *arguments, "--json")[1])
    assert found["scenarios"]["seed"] == 5
    months = found["results"][0]["metrics"]["months"]
    assert months["low"] < months["mean"] < months["high"]
    assert list(months["percentiles"]) == ["5", "25", "50", "75", "95"]
    arguments[4] = "1"
    assert (
        json.loads(arena(monkeypatch, capsys, *arguments, "--json")[1])["results"][0]["metrics"]["months"]["sd_across"]
        is None
    )


# Held-out worlds


def test_a_secret_is_proved_and_never_written(monkeypatch, capsys, tmp_path, secret_file):
    out = tmp_path / "run"
    arguments = ["evaluate", "--policy", "never-raise", "--episodes", "30", "--scenarios", f"secret:{secret_file}"]
    for more in ([], ["--json"], ["--out", str(out)]):
        code, shown, err = arena(monkeypatch, capsys, *arguments, *more)
        assert (code, err) == (0, "")
        assert SECRET not in shown
    code, published, _ = arena(monkeypatch, capsys, "scenario", "commit", "--secret", str(secret_file))
    assert published.strip() == commitment(SECRET.encode())
    for proof in (str(out), published.strip()):
        code, shown, _ = arena(monkeypatch, capsys, "scenario", "verify", proof, "--secret", str(secret_file))
        assert code == 0
        assert SECRET not in shown
    key = np.asarray(jax.random.key_data(secret_key(SECRET.encode())))
    for name, data in contents(out).items():
        assert SECRET.encode() not in data, name
        assert key.tobytes() not in data and str(key[0]).encode() not in data, name
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["scenarios"]["commitment_sha256"] == published.strip()
    assert manifest["trajectory_sha256"] is None
    with monkeypatch.context() as patch:
        patch.setattr(generator, "model_bytes", lambda: b"fitted anew")
        code, _, err = arena(monkeypatch, capsys, "scenario", "verify", str(out), "--secret", str(secret_file))
        assert code == 2
        assert "another version of the generator" in err
    secret_file.write_text(SECRET + "!")
    code, _, err = arena(monkeypatch, capsys, "scenario", "verify", str(out), "--secret", str(secret_file))
    assert (code, err) == (2, f"error: the secret is not the one behind {out}\n")


def test_a_secret_gives_its_worlds(env, monkeypatch, secret_file):
    monkeypatch.setenv("ARENA_JAX_SECRET", SECRET)
    by_file, by_variable = parse_worlds(f"secret:{secret_file},worlds=3"), parse_worlds("secret")
    assert (by_file.count, by_variable.count) == (3, 1)
    jax.tree.map(np.testing.assert_array_equal, by_file.scenario(0, 132), by_variable.scenario(0, 132))
    monkeypatch.setenv("ARENA_JAX_SECRET", SECRET + "!")
    other = parse_worlds("secret").scenario(0, 132)
    assert not np.array_equal(other.treasury_2y, by_file.scenario(0, 132).treasury_2y)
    assert set(run(env, scenarios="secret,worlds=2")) == set(POLICIES)


def test_the_months_of_held_out_worlds_are_not_recorded(env, tmp_path, secret_file):
    with pytest.raises(arena_jax.ArenaError, match="not recorded"):
        run(env, tmp_path / "run", scenarios=f"secret:{secret_file}", record=["cash"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622, 0o610, 0o666])
def test_secret_files_that_others_may_use_are_refused(secret_file, mode):
    secret_file.chmod(mode)
    with pytest.raises(arena_jax.ArenaError, match=rf"has mode {mode:04o}.*chmod 600") as refused:
        read_secret(secret_file)
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bad_secrets(monkeypatch, tmp_path, secret_file):
    for text in ("", "short", "x" * 31, " " * 40, "x" * 5000):
        secret_file.write_text(text)
        with pytest.raises(arena_jax.ArenaError, match="bytes, 32 to 4096 are needed"):
            read_secret(secret_file)
    with pytest.raises(arena_jax.ArenaError, match=r"can't read secret file .*No such file"):
        read_secret(tmp_path / "nowhere")
    with pytest.raises(arena_jax.ArenaError, match="can't read secret file"):
        read_secret("a\0b")
    with pytest.raises(arena_jax.ArenaError, match="secret file"):
        read_secret(tmp_path)
    monkeypatch.delenv("ARENA_JAX_SECRET", raising=False)
    with pytest.raises(arena_jax.ArenaError, match="ARENA_JAX_SECRET is not set"):
        read_secret()


def test_verify_needs_a_held_out_run(monkeypatch, capsys, env, tmp_path, secret_file):
    run(env, tmp_path / "run")
    code, _, err = arena(monkeypatch, capsys, "scenario", "verify", str(tmp_path / "run"), "--secret", str(secret_file))
    assert (code, err) == (2, f"error: {tmp_path / 'run'} was not played in held-out worlds\n")


# Worlds of one's own


@pytest.fixture
def world_file(env, tmp_path):
    return write_world(tmp_path / "mine.toml", World(env.scenario, {}))[0]


def replaced(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def refused(path, *words):
    with pytest.raises(arena_jax.ArenaError) as error:
        arena_jax.make(scenario=path)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_written_world_is_the_world(env, tmp_path, world_file):
    again = arena_jax.make(scenario=world_file)
    jax.tree.map(np.testing.assert_array_equal, again, env)
    generated = generator.sample_scenario(jax.random.key(1), horizon=150)
    path, table = write_world(tmp_path / "other.toml", World(generated, {"initial_cash": 30e6, "exclusive": False}))
    other = arena_jax.make(scenario=str(path), tool_cost=1.0)
    jax.tree.map(np.testing.assert_array_equal, other.scenario, generated)
    assert (float(other.params.initial_cash), float(other.params.tool_cost), other.params.exclusive) == (30e6, 1, False)
    jax.tree.map(
        np.testing.assert_array_equal, read_world(table).scenario.pe, generated.pe
    )  # the CSV alone will do, too
    with pytest.raises(arena_jax.ArenaError, match="is there already"):
        write_world(path, World(generated, {}))


def test_a_shorter_horizon_reads_the_first_months(env, world_file):
    replaced(world_file, "horizon = 132", "horizon = 60")
    replaced(world_file, "[30, 55, 110]", "[10, 20, 55]")
    short = arena_jax.make(scenario=world_file)
    assert short.scenario.horizon == 60
    record = arena_jax.rollout(short, arena_jax.make_policy("greedy-equity"), jax.random.key(0), 16)
    assert record.survived.any()
    assert record.months_survived.max() == 60


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("initial_cash", "initial_csh", ("unknown parameter 'initial_csh'", "initial_cash")),
        ("horizon = ", "horizn = ", ("unknown key 'horizn'", "horizon")),
        ("horizon = 132", "", ("key horizon is missing",)),
        ("horizon = 132", "horizon = 133", ("mine.csv", "132 months, at least 133 are needed")),
        ("horizon = 132", "horizon = 5", ("horizon must be a whole number from 12",)),
        ("horizon = 132", "horizon = '132'", ("horizon must be a whole number",)),
        ("horizon = 132", "horizon = 100", ("each of crisis_months must be a whole number from 1 to 100, got 110",)),
        ("[30, 55, 110]", "[30, 55]", ("crisis_months must be a list of 3 or more months",)),
        ("[30, 55, 110]", "[30, 110, 55]", ("crisis_months must rise",)),
        ("[30, 55, 110]", "[30, 55, 110.5]", ("each of crisis_months must be a whole number", "110.5")),
        ('"mine.csv"', "5", ("trajectory must be the path of a CSV, got 5",)),
        ('"mine.csv"', '"none.csv"', ("none.csv", "No such file")),
        ("initial_cash = 15000000.0", "initial_cash = -1", ("initial_cash must lie in [0, 1e+09] ($), got -1",)),
        ("initial_cash = 15000000.0", "initial_cash = '15M'", ("initial_cash must be a number",)),
        ("[parameters]", "parameters = 5\n[parameter]", ("unknown key 'parameter'",)),
        ("[parameters]", "[parameters", ("is not TOML",)),
        ("horizon = 132", "horizon = 132\nhorizon = 133", ("is not TOML",)),
        ("delay_max = 6", "delay_max = 0.5", ("delay_max must",)),
        ("fraction_min = 0.7", "fraction_min = 1.0\nnoise2 = 1", ("unknown parameter 'noise2'", "noise")),
    ],
)
def test_a_bad_world_is_one_line(world_file, old, new, words):
    refused(replaced(world_file, old, new), *words)


def test_files_that_are_no_worlds(tmp_path):
    refused(tmp_path / "none.toml", "can't read world", "No such file")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    refused(tmp_path / "bytes.toml", "bytes.toml")
    refused("a\0b.toml", "null byte")


@pytest.mark.parametrize(
    ("month", "change", "words"),
    [
        (
            41,
            lambda cells: ["41", "450", *cells[2:]],
            ("column policy_rate, month 41: 450 is outside [0, 50] (% a year)",),
        ),
        (41, lambda cells: ["41", "", *cells[2:]], ("column policy_rate, month 41: value is missing",)),
        (41, lambda cells: ["43", *cells[1:]], ("column month, row 41: expected 41, got '43'",)),
        (41, lambda cells: [""], ("line 43 is blank",)),
        (131, lambda cells: [""], ("131 months, at least 132 are needed",)),
        (41, lambda cells: cells[:5], ("month 41: value is missing",)),
        (41, lambda cells: ["41", "\x00", *cells[2:]], ("mine.csv",)),
    ],
)
def test_a_damaged_table_is_one_line(world_file, month, change, words):
    table = world_file.with_suffix(".csv")
    lines = table.read_text().splitlines()
    lines[month + 1] = ",".join(change(lines[month + 1].split(",")))
    table.write_text("\n".join(lines) + "\n")
    refused(world_file, "mine.csv", *words)


def test_blank_lines_at_the_end_are_no_harm(world_file):
    table = world_file.with_suffix(".csv")
    table.write_text(table.read_text() + "\n  \n")
    assert arena_jax.make(scenario=world_file).scenario.horizon == 132


# arena-jax scenario


def test_new_check_show(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, _ = arena(monkeypatch, capsys, "scenario", "new", "mine.toml", "--from", "generated:1,seed=7")
    assert (code, out) == (0, "mine.toml\nmine.csv\n")
    replaced(tmp_path / "mine.toml", "initial_cash = 15000000.0", "initial_cash = 9e6")
    assert arena(monkeypatch, capsys, "scenario", "new", "two.toml", "--from", "mine.toml")[0] == 0
    assert "initial_cash = 9000000.0" in (tmp_path / "two.toml").read_text()
    code, out, _ = arena(monkeypatch, capsys, "scenario", "check", "mine.toml")
    assert code == 0
    for text in ("132 months", "crises in months 25, 82, 116", "recession: ", *COLUMNS):
        assert text in out
    found = json.loads(arena(monkeypatch, capsys, "scenario", "check", "mine.toml", "--json")[1])
    assert found["crisis_months"] == [25, 82, 116]
    assert sum(phase["share"] for phase in found["regimes"].values()) == pytest.approx(1)
    code, out, _ = arena(monkeypatch, capsys, "scenario", "show", "mine.toml")
    assert code == 0
    assert "\x1b" not in out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines.keys() >= {*COLUMNS, "regime", "crises"}
    assert lines["crises"].count("▲") == 3
    code, out, _ = arena(monkeypatch, capsys, "scenario", "show", "mine.toml", "--out", "mine.png")
    assert (code, out) == (0, "mine.png\n")
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = arena(
        monkeypatch,
        capsys,
        "evaluate",
        "--policy",
        "never-raise",
        "--episodes",
        "64",
        "--scenario",
        "mine.toml",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["scenario"] == "mine.toml"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "mine"], "a world is written as NAME.toml, got mine"),
        (["new", "there.toml"], "there.toml is there already"),
        (["new", "mine.toml", "--from", "nowhere.toml"], "can't read world nowhere.toml"),
        (["new", "mine.toml", "--from", "generated:0"], "generated worlds must be"),
        (["check", "nowhere.csv"], "can't read trajectory nowhere.csv"),
        (["show", "default", "--out", "x.pdf"], "a plot is written as NAME.png"),
        (["show"], "Missing argument"),
        (["commit", "--secret", "there.toml"], "has mode 0644"),
        (["verify", "abc", "--secret", "nowhere"], "can't read secret file"),
        (["shw"], "No such command"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, message):
    (tmp_path / "there.toml").touch(mode=0o644)
    monkeypatch.chdir(tmp_path)
    code, out, err = arena(monkeypatch, capsys, "scenario", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ") and err.count("\n") == 1
    assert os.listdir(tmp_path) == ["there.toml"]


def test_a_png_without_matplotlib(monkeypatch, capsys, tmp_path):
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = arena(monkeypatch, capsys, "scenario", "show", "default", "--out", str(tmp_path / "x.png"))
    assert (code, err) == (2, "error: a PNG needs matplotlib: pip install 'arena_jax[report]'\n")


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [([0, 1], 10, "▁█"), ([1, 1, 1], 2, "▁▁"), ([0, 0, 7, 7, 14, 14], 3, "▁▅█"), ([5], 1, "▁")],
)
def test_sparklines(values, width, bars):
    assert sparkline(np.array(values, dtype=float), width) == bars


@pytest.mark.slow
def test_a_thousand_worlds_of_a_thousand_episodes_for_three_policies_in_three_minutes(env, monkeypatch):
    """Some 80 seconds of processor time. One compilation for each policy."""
    import time

    monkeypatch.undo()
    policies = ["never-raise", "greedy-equity:amount=20e6", "cash-threshold"]
    play_batch.compiled.clear_cache()
    start = time.perf_counter()
    evaluate(env, policies, episodes=1_000, scenarios="generated:1000")
    assert time.perf_counter() - start < 180
    assert play_batch.compiled._cache_size() == 3


@pytest.mark.parametrize("width", [80, 180])
def test_the_spread_is_whole_at_any_width(env, capsys, width):
    from rich.console import Console

    tables = spreads_tables(run(env), "a title", width)
    Console(width=width, emoji=False).print(*tables, sep="\n")
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(spec in shown for spec in POLICIES)
    assert ("95th" in shown) == (width == 180)
