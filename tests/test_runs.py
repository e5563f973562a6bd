"""Run directories: parts, resuming, shards, merging, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

import arena_jax
from arena_jax import files, folders, parts
from arena_jax.analysis.metrics import METRICS, Moments
from arena_jax.evaluation import evaluate

POLICIES = ["never-raise", "greedy-equity:amount=5e6"]
EPISODES = 300


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART", 64)


def run(env, out=None, **options):
    defaults = {"episodes": EPISODES, "seed": 3, "batch": 64}
    return evaluate(env, POLICIES, out=out, **(defaults | options))


def contents(directory):
    """Every file's bytes; the manifest without what may differ between machines and shards."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(directory))] = path.read_bytes()
    return found


def same_estimates(one, other):
    assert one.keys() == other.keys()
    for spec in one:
        for name in METRICS:
            np.testing.assert_equal(vars(one[spec][name]), vars(other[spec][name]))


def test_a_run_directory_holds_the_records(env, tmp_path):
    run(env, tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "01-greedy-equity_amount=5e6" / "part-000001.parquet")
    assert table["episode"].to_pylist() == list(range(64, 128))
    policy = arena_jax.make_policy(POLICIES[1])
    record = arena_jax.rollout(env, policy, jax.random.key(3), EPISODES, batch=64)
    for name, values in vars(record).items():
        np.testing.assert_array_equal(table[name].to_numpy(), values[64:128])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["policies"] == POLICIES
    assert manifest["parameters"]["tool_budget"] == 20
    assert len(manifest["trajectory_sha256"]) == 64


def test_estimates_are_the_same_with_and_without_a_directory(env, tmp_path):
    whole = run(env)
    same_estimates(whole, run(env, tmp_path / "run"))
    same_estimates(whole, run(env, tmp_path / "run"))  # read back, nothing played


@pytest.mark.parametrize("stop", range(10))
def test_a_run_that_dies_at_any_file_resumes_to_the_same_bytes(env, tmp_path, monkeypatch, stop):
    """Ten files; the process dies while it writes file number `stop`, leaving a temporary file behind."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    run(env, whole)
    written, real_write = [], parts.write_atomic

    def write_and_die(path, data):
        if path.suffix == ".parquet":
            if len(written) == stop:
                path.parent.mkdir(parents=True, exist_ok=True)
                (path.parent / f".half-{path.name}-x").write_bytes(data[: len(data) // 2])
                raise KeyboardInterrupt
            written.append(path)
        real_write(path, data)

    monkeypatch.setattr(parts, "write_atomic", write_and_die)
    with pytest.raises(KeyboardInterrupt):
        run(env, out)
    monkeypatch.setattr(parts, "write_atomic", real_write)
    resumed = run(env, out)
    assert contents(out) == contents(whole)
    same_estimates(resumed, run(env))


def test_shards_merge_to_the_whole_run(env, tmp_path):
    fields = ["instrument", "cash"]  # files have them in another order
    run(env, tmp_path / "whole", record=fields)
    shards = [tmp_path / f"shard{i}" for i in (1, 2, 3)]
    for i, shard in enumerate(shards, 1):
        run(env, shard, shard=(i, 3), record=fields)
    parts.merge_runs(shards, tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")


def test_recorded_months_are_those_played(env, tmp_path):
    run(env, tmp_path / "run", record=["cash", "instrument"])
    table = pq.read_table(tmp_path / "run" / "00-never-raise" / "months-000000.parquet")
    record = arena_jax.rollout(env, arena_jax.make_policy("never-raise"), jax.random.key(3), 64)
    assert len(table) == record.months_played.sum()
    first = table.filter(table["episode"].to_numpy() == 0)
    assert first["month"].to_pylist() == list(range(record.months_played[0]))
    assert first["cash"][0].as_py() == 15e6


def test_other_runs_and_incomplete_shards_are_refused(env, tmp_path):
    run(env, tmp_path / "a", shard=(1, 3))
    with pytest.raises(arena_jax.ArenaError, match=r"holds another run .*seed"):
        run(env, tmp_path / "a", seed=4, shard=(1, 3))
    with pytest.raises(arena_jax.ArenaError, match=r"parameters.tool_cost: 5000.0, not 1.0"):
        run(arena_jax.make(tool_cost=1), tmp_path / "a", shard=(1, 3))
    run(arena_jax.make(tool_cost=1), tmp_path / "b", shard=(2, 3))
    with pytest.raises(arena_jax.ArenaError, match="another run"):
        parts.merge_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    with pytest.raises(arena_jax.ArenaError, match=r"not complete: .*part-000001.parquet is missing"):
        parts.merge_runs([tmp_path / "a"], tmp_path / "c")
    with pytest.raises(arena_jax.ArenaError, match="is in both"):
        parts.merge_runs([tmp_path / "a", tmp_path / "a"], tmp_path / "c")
    with pytest.raises(arena_jax.ArenaError, match="not a run directory"):
        parts.merge_runs([tmp_path], tmp_path / "c")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "notes.txt").write_text("mine")
    with pytest.raises(arena_jax.ArenaError, match="not empty"):
        run(env, tmp_path / "d")
    with pytest.raises(arena_jax.ArenaError, match=r"shard: 1/3, not 2/3"):
        run(env, tmp_path / "a", shard=(2, 3))
    with pytest.raises(arena_jax.ArenaError, match="one of the run directories"):
        parts.merge_runs([tmp_path / "a"], tmp_path / "x" / ".." / "a")
    assert not (tmp_path / "c").exists()


def test_a_kill_while_the_manifest_is_written_leaves_a_folder_that_can_be_used(env, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".half-manifest.json-x").write_text("{")
    run(env, tmp_path / "run")
    assert not list((tmp_path / "run").rglob(".half*"))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"episodes": -1},
        {"episodes": 1e300},
        {"episodes": True},
        {"part": 1},
        {"shard": "0/3"},
        {"shard": "../x"},
        {"policies": "never-raise"},
        {"policies": []},
        {"record": None},
        {"worlds": 0},
        {"worlds": 2},
        {"scenarios": "generated"},
    ],
)
def test_malformed_manifests_are_refused(env, tmp_path, change):
    run(env, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(arena_jax.ArenaError, match="manifest"):
        parts.read_manifest(tmp_path / "run")


def test_damaged_parts_are_refused(env, tmp_path):
    run(env, tmp_path / "run")
    folder = tmp_path / "run" / "00-never-raise"
    shutil.copy(folder / "part-000000.parquet", folder / "part-000001.parquet")
    with pytest.raises(arena_jax.ArenaError, match="does not hold episodes 64 to 127"):
        run(env, tmp_path / "run")
    (folder / "part-000001.parquet").write_bytes(b"not parquet")
    with pytest.raises(arena_jax.ArenaError, match="not a readable part file"):
        run(env, tmp_path / "run")


def test_a_part_whose_months_are_gone_is_played_again(env, tmp_path):
    run(env, tmp_path / "run", record=["cash", "instrument"])
    whole = contents(tmp_path / "run")
    (tmp_path / "run" / "00-never-raise" / "months-000002.parquet").unlink()
    run(env, tmp_path / "run", record=["cash", "instrument"])
    assert contents(tmp_path / "run") == whole


def test_merge_refuses_damaged_parts(env, tmp_path):
    run(env, tmp_path / "run")
    (tmp_path / "run" / "00-never-raise" / "part-000001.parquet").write_bytes(b"not parquet")
    with pytest.raises(arena_jax.ArenaError, match="not a readable part file"):
        parts.merge_runs([tmp_path / "run"], tmp_path / "merged")


def test_an_edited_policy_is_another_run(env, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = "from arena_jax import make_policy\n\n\ndef make():\n    return make_policy('greedy-equity', amount={})\n"
    (tmp_path / "edited_policy.py").write_text(source.format("1e6"))
    evaluate(env, ["edited_policy:make"], episodes=64, batch=64, out=tmp_path / "run")
    (tmp_path / "edited_policy.py").write_text(source.format("2e6"))
    with pytest.raises(arena_jax.ArenaError, match="policy_sources"):
        evaluate(env, ["edited_policy:make"], episodes=64, batch=64, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 0}, "episodes must be"),
        ({"seed": -1}, "seed must be"),
        ({"batch": 0}, "batch must be"),
        ({"shard": (4, 3)}, "shard must be"),
        ({"shard": (9, 9)}, "shard 9/9 is empty"),
        ({"record": ["cash"]}, "needs a run directory"),
        ({"record": ["csh"]}, "did you mean cash"),
    ],
)
def test_bad_arguments(env, options, message):
    with pytest.raises(arena_jax.ArenaError, match=message):
        run(env, **options)


def test_moments_merge_like_the_whole_sample():
    values = np.random.default_rng(0).normal(1e8, 3e7, 1000)
    merged = Moments.of(values[:7])
    for piece in (values[7:500], values[500:501], values[501:]):
        merged = merged.merge(Moments.of(piece))
    assert merged.n == 1000
    assert merged.mean == pytest.approx(values.mean())
    assert merged.sd == pytest.approx(values.std(ddof=1))


@pytest.mark.slow
def test_kill_9_at_ten_points_and_go_on(tmp_path):
    """The real thing: killed with SIGKILL ten times, each time a little further on, it ends with the same bytes."""
    episodes = 20 * 16_384
    command = [sys.executable, "-m", "arena_jax.cli", "evaluate", "--policy", "greedy-debt", "--seed", "5"]
    command += ["--episodes", str(episodes)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, env=environment, capture_output=True)
    out = tmp_path / "run"
    for point in range(10):
        with subprocess.Popen(
            [*command, "--out", str(out)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while len(list(out.rglob("part-*.parquet"))) <= 2 * point - 1 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
    assert len(list(out.rglob("part-*.parquet"))) < 20
    subprocess.run([*command, "--out", str(out)], check=True, env=environment, capture_output=True)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_folder_that_is_no_run_is_left_as_it_is(tmp_path, env):
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    for name in ("sub/.half-finished-thesis", ".half-an-hour"):
        (tmp_path / "docs" / name).write_text("precious")
    with pytest.raises(arena_jax.ArenaError, match="not empty"):
        evaluate(env, ["never-raise"], episodes=10, out=tmp_path / "docs")
    assert (tmp_path / "docs" / "sub" / ".half-finished-thesis").read_text() == "precious"
    assert (tmp_path / "docs" / ".half-an-hour").exists()


def half(folder, machine, process):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".half-part-000000.parquet-{machine}-{process}-a1_b2"
    path.write_bytes(b"half")
    return path


def test_what_a_living_process_writes_is_left_alone(env, tmp_path):
    run(env, tmp_path / "run")
    with subprocess.Popen([sys.executable, "-c", "pass"]) as dead:
        pass
    folder, here = tmp_path / "run" / "00-never-raise", files._machine()
    living, killed = half(folder, here, os.getpid()), half(folder, here, dead.pid)
    elsewhere, forgotten = half(folder, "elsewhere", dead.pid), half(folder, "long_ago", dead.pid)
    os.utime(forgotten, (0, 0))
    run(env, tmp_path / "run")
    assert [path.exists() for path in (living, killed, elsewhere, forgotten)] == [True, False, True, False]


def test_what_a_worker_leaves_is_gone_at_the_end(env, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "pass"]) as dead:
        pass
    left = []

    def killed_beside(spec, part):
        left.append(half(tmp_path / "run" / "00-never-raise", files._machine(), dead.pid))

    evaluate(env, ["never-raise"], episodes=10, out=tmp_path / "run", on_part=killed_beside)
    assert left
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("linkable", [True, False])
def test_of_two_first_starts_one_makes_the_run(env, tmp_path, monkeypatch, linkable):
    """Both have seen no manifest when the other one writes its own."""
    write_new, out = folders.write_new, tmp_path / "run"

    def write_second(path, data):
        write_new(path, data.replace(b'"seed": 3', b'"seed": 4'))
        write_new(path, data)

    def no_links(*_):
        raise PermissionError

    if not linkable:
        monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(folders, "write_new", write_second)
    with pytest.raises(arena_jax.ArenaError, match=r"holds another run .*seed: 4, not 3"):
        run(env, out)
    assert [path.name for path in out.iterdir()] == ["manifest.json"]


def test_merged_months_are_read(env, tmp_path):
    run(env, tmp_path / "run", record=["cash", "instrument"])
    months = tmp_path / "run" / "00-never-raise" / "months-000001.parquet"
    months.write_bytes(b"not parquet")
    with pytest.raises(arena_jax.ArenaError, match=r"months-000001\.parquet is not a readable part file"):
        parts.merge_runs([tmp_path / "run"], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret"])
def test_a_name_that_leads_out_of_a_run_is_refused(tmp_path, name):
    with pytest.raises(arena_jax.ArenaError, match="is outside of"):
        files.own_file(tmp_path, name)
