"""The benchmark programs run, and the pinned copies behind the bound still play arena_jax's world."""

import dataclasses
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arena_jax
from arena_jax.draws import Draws, episode_keys, key_words, month_draws, request_draws
from benchmarks import pinned
from benchmarks.cost import summed_up
from benchmarks.gpu_check import agreement
from benchmarks.harness import available_cores, in_child
from benchmarks.peers.world import make_world, peer_policy
from benchmarks.precision import PATH, comparison, rows
from benchmarks.scaling import digest
from benchmarks.terms import COSTS, MULTIPLES, measure, worth
from benchmarks.throughput import throughput

ROOT = Path(__file__).parents[1]
EPISODES = 256


def test_pinned_draws_are_the_librarys():
    key, episodes = jax.random.key(3), jnp.arange(EPISODES, dtype=jnp.uint32)
    words = key_words(episode_keys(key, episodes))
    made = jnp.full(EPISODES, 4, dtype=jnp.int32)
    expected = Draws(month_draws(words, jnp.int32(17)), request_draws(words, made))
    mine = jax.jit(pinned.month_draws)(key, episodes, jnp.uint32(17), made.astype(jnp.uint32))
    np.testing.assert_allclose(mine.normals, expected.month.indicators, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mine.uniforms, expected.request)


def play_pinned(spec, env, key):
    """Pinned month and pinned draws together."""
    world, policy, episodes = make_world(env), peer_policy(spec), jnp.arange(EPISODES, dtype=jnp.uint32)
    months, sigma = (jnp.asarray(table, dtype=jnp.float32) for table in (world.months, world.sigma))
    company = pinned.opening(world, EPISODES)

    def one_month(company, this):
        t, row = this
        draws = pinned.month_draws(key, episodes, t.astype(jnp.uint32), company.requests.astype(jnp.uint32))
        return pinned.month(world, policy, t, row, sigma, company, draws), None

    t = jnp.arange(len(world.months), dtype=jnp.int32)
    return jax.jit(lambda start: jax.lax.scan(one_month, start, (t, months))[0])(company)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", ["cash-threshold:threshold=8e6,amount=12.6e6", "greedy-equity:amount=20e6", "greedy-debt:amount=20e6"]
)
def test_pinned_month_is_the_librarys(spec, env):
    key = jax.random.key(11)
    expected = arena_jax.rollout(env, arena_jax.make_policy(spec), key, EPISODES)
    mine = play_pinned(spec, env, key)
    same = np.ones(EPISODES, dtype=bool)
    for name in ("requests", "requests_settled", "approvals", "months_survived", "first_request_month"):
        same &= np.asarray(getattr(mine, name)) == getattr(expected, name)
    same &= np.asarray(mine.tool_calls) == expected.verify_cash_position
    assert same.mean() > 0.99  # all but ties: the order of roundings differs
    for name in ("cash", "debt", "received_equity", "received_debt", "cash_peak", "cash_trough", "shares"):
        ours, theirs = np.asarray(getattr(mine, name))[same], getattr(expected, name)[same]
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * 15e6, err_msg=name)


def run(program, out, *options):
    """A program's results; what it prints is left to pytest."""
    command = [sys.executable, "-m", f"benchmarks.{program}", "--out", str(out), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert {"commit", "processor", "devices", "versions", "cores", "dtype"} <= result.keys()
    assert str(out) in done.stdout
    assert [file.name for file in out.parent.iterdir() if file.name.startswith(".")] == []
    return result


@pytest.mark.slow
def test_throughput_compares_every_engine_and_plots(tmp_path):
    pytest.importorskip("numba", reason="numba is not installed: pip install 'arena_jax[bench]'")
    spec = "cash-threshold:threshold=8e6,amount=12.6e6"
    result = run("throughput", tmp_path / "t.json", "--quick", "--batch", "64", "--batch", "128", "--policy", spec)
    engines = {"arena_jax", "stream", "rules", "numba", "numpy", "python", "numba draws", "numpy draws", "python draws"}
    assert {row["engine"] for row in result["rates"]} == engines
    for row in result["rates"]:
        assert 0 < row["live_rate"]["q1"] <= row["live_rate"]["median"] <= row["live_rate"]["q3"]
        lived = 60 / 132 if row["engine"] in ("arena_jax", "numba", "numpy", "python") else 1
        assert row["live_share"] == pytest.approx(lived, rel=0.25)
    for cell in result["comparison"]:
        assert cell["ratio"].keys() == {"numba", "numpy", "python"}
        assert cell["bound_share"] > 0
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_scaling_measures_and_checks_devices_and_batches(tmp_path):
    result = run("scaling", tmp_path / "s.json", "--quick", "--episodes", "100", "--episodes", "300")
    assert [row["episodes"] for row in result["growth"]] == [100, 300]
    assert all(row["peak_memory"] > 50e6 and row["disk"] > 0 for row in result["growth"])
    assert [row["devices_of_result"] for row in result["devices_spread"]] == [1, 2]
    assert result["identical"]
    assert len({row["digest"] for row in result["devices_spread"]} | set(result["batches"].values())) == 1


def test_digests_see_every_bit():
    record = arena_jax.Record(**{field.name: np.arange(3.0) for field in dataclasses.fields(arena_jax.Record)})
    nudged = dataclasses.replace(record, cash_trough=np.nextafter(record.cash_trough, 9.0))
    assert digest(record) == digest(dataclasses.replace(record))
    assert digest(record) != digest(nudged)


def recorded(dtype, **changes):
    """A record of four episodes that survive alike."""
    counts = {name: np.full(4, 3, dtype=np.int32) for name in PATH}
    found = counts | {"survived": np.full(4, True), "score": np.full(4, 1e8, dtype), "cash": np.full(4, 1e7, dtype)}
    return found | {name: np.asarray(values, dtype=found[name].dtype) for name, values in changes.items()}


def test_precisions_are_compared_episode_by_episode():
    double = recorded(np.float64)
    single = recorded(
        np.float32, survived=[False, True, True, True], requests=[3, 4, 3, 3], score=[0, 5e7, 1e8, 1e8 + 80]
    )
    found = comparison("some-policy", single, double)
    assert (found["different_survivals"], found["share_of_different_survivals"]) == (1, 0.25)
    assert (found["different_paths"], found["survivors_of_one_path"]) == (2, 2)
    assert found["absolute_difference"] == {"50%": 40.0, "90%": 72.0, "99%": pytest.approx(79.2), "100%": 80.0}
    assert found["relative_difference"]["100%"] == pytest.approx(8e-7)
    assert found["absolute_difference_of_parted_survivors"]["100%"] == 5e7
    assert [one["episode"] for one in found["parted"]] == [0, 1]
    assert rows([found])[0][1:4] == ["75.000%", "100.000%", "1 (25.000%)"]
    with pytest.raises(arena_jax.ArenaError, match="not of float32 and of float64"):
        comparison("some-policy", double, double)


def test_cost_in_proportion():
    sample = lambda seconds: {"seconds": seconds, "processor_seconds": 2 * seconds, "disk": 50.0, "peak_memory": 5.0}
    found = summed_up({10**6: [sample(1.0), sample(9.0), sample(1.1)], 10**7: [sample(10.0)] * 3})
    assert found["apart"]["seconds"] == pytest.approx(0.1)  # 1.1 a million against 1
    assert found["projected"] == {"seconds": 100.0, "processor_seconds": 200.0, "disk": 500.0}


@pytest.mark.slow
def test_precision_runs(tmp_path):
    result = run(
        "precision", tmp_path / "p.json", "--episodes", "200", "--policy", "greedy-debt", "--policy", "prudent-cfo"
    )
    assert result["draws"]["uniforms_identical"] and 0 < result["draws"]["normals_apart"] < 1e-5
    assert [row["different_survivals"] for row in result["policies"]] == [0, 0]
    assert 0 < result["policies"][1]["absolute_difference"]["100%"] < 1000
    assert "| prudent-cfo |" in (tmp_path / "p.md").read_text()


@pytest.mark.slow
def test_rl_counts_decisions_and_months(tmp_path):
    (row,) = run("rl", tmp_path / "r.json", "--batch", "64", "--repeats", "2", "--scenarios", "generated:3")["rows"]
    assert row["decision_rate"]["median"] > 0 and row["compile_seconds"] > 0 and 0 < row["policy_share"]["median"] < 1
    # six of the actions are allowed while a request is open, four of them calls; with none open eighteen of 22 end it
    assert 2 / 6 < row["months_per_decision"] < 18 / 22


def test_the_worth_of_tools_is_paired():
    gain = np.array([1.0, 2.0, 3.0, 6.0])
    names = [field.name for field in dataclasses.fields(arena_jax.Record)]
    blank = dict.fromkeys(names, np.zeros(4))
    plays = (gain + 1e7, np.array([1e7, 1e7, 1e7, 1e7]))
    found = worth(*[arena_jax.Record(**blank | {"value_kept": values}) for values in plays])
    half = 3.18245 * gain.std(ddof=1) / 2  # Student's t, 3 degrees of freedom
    assert found == pytest.approx({"mean": 3.0, "low": 3.0 - half, "high": 3.0 + half}, rel=1e-3)


def test_terms_are_asked_of_policies_that_see_them():
    with pytest.raises(arena_jax.ArenaError, match="ppo does not see lambda and m"):
        measure("ppo", 2, 0)


@pytest.mark.slow
def test_terms_plays_a_grid(tmp_path):
    result = run("terms", tmp_path / "t.json", "--episodes", "64")
    assert [(row["revenue_multiple"], row["tool_cost"]) for row in result["answers"]] == list(product(MULTIPLES, COSTS))
    for row in result["answers"]:
        gain = row["value_kept"] - row["value_kept_without_tools"]
        assert row["worth_of_tools"]["mean"] == pytest.approx(gain, rel=1e-4, abs=50)


@pytest.mark.slow
def test_gpu_check_runs_without_a_gpu(tmp_path):
    options = ("--episodes", "64", "--policy", "greedy-equity:amount=20e6", "--policy", "prudent-cfo")
    result = run("gpu_check", tmp_path / "g.json", *options)
    assert result["reduced"]
    assert result["checks"] and all(result["checks"].values())
    assert [row["programs"] for row in result["rates"]] == [1]
    assert [row["ties"] for row in result["agreement"].values()] == [0, 0]


def test_agreement_finds_ties_and_differences():
    counts = {"survived", "requests", "months_survived"}
    record = arena_jax.Record(
        **{
            field.name: np.arange(4, dtype=np.int32) if field.name in counts else np.full(4, 1e7, dtype=np.float32)
            for field in dataclasses.fields(arena_jax.Record)
        }
    )
    assert agreement(record, record) == {"episodes": 4, "ties": 0.0, "largest_difference": 0.0, "in": None}
    tied = dataclasses.replace(record, requests=np.array([0, 1, 2, 4], dtype=np.int32))
    assert agreement(tied, record)["ties"] == 0.25
    wrong = dataclasses.replace(record, cash_trough=record.cash_trough * np.float32(1.07))
    found = agreement(wrong, record)
    assert found["in"] == "cash_trough"
    assert found["largest_difference"] == pytest.approx(0.01, rel=0.01)  # of 5 * revenue + cash + debt


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": ["random"]}, "unknown policy of the peers 'random'"),
        ({"batch": [0]}, "batch must be a whole number from 1"),
        ({"cores": [10**6]}, "cores must be a whole number from 1"),
        ({"repeats": 0}, "repeats must be a whole number from 1"),
        ({"out": Path("rates.txt")}, "--out must name a .json file"),
    ],
)
def test_throughput_refuses_bad_options(options, message):
    with pytest.raises(arena_jax.ArenaError, match=message):
        throughput(**options)


def test_bad_input_is_one_line_and_exit_code_2():
    command = [sys.executable, "-m", "benchmarks.throughput", "--policy", "random"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("error: unknown policy of the peers 'random'")


@pytest.mark.slow
def test_a_killed_process_is_one_line():
    with pytest.raises(arena_jax.ArenaError, match="the process of abort was killed; is there enough memory"):
        in_child(os.abort)


@pytest.mark.slow
def test_a_child_has_its_cores_and_its_environment():
    assert in_child(available_cores, cores=1) == 1
    assert in_child(os.getenv, "ARENA_JAX_TEST", environ={"ARENA_JAX_TEST": "here"}) == "here"
    assert "ARENA_JAX_TEST" not in os.environ
