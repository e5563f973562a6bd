"""Ray: the same bits as the plain command, whoever is killed; and what is refused before Ray is started."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_cli import arena
from test_clients import STANDIN
from test_runs import contents

from arena_jax.arena import make
from arena_jax.cli import cluster
from arena_jax.cli.cluster import with_address
from arena_jax.errors import ArenaError
from arena_jax.evaluation import Job
from arena_jax.llm.runs import new_run, played_episodes
from arena_jax.parts import open_run

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: pip install '.[ray]'")
MARK = "ARENA_JAX_TEST_RUN"  # in the environment of what a test starts, and of all that this starts
POLICY, PARTS = "random", 12
LONG = ["evaluate", "--policy", POLICY, "--episodes", str(PARTS * 16_384), "--seed", "5", "--json"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["evaluate", "--ray", "--shards", "2"], ["evaluate", "--ray", "", "--shards", "2"]),
        (["evaluate", "--ray"], ["evaluate", "--ray", ""]),
        (["evaluate", "--ray", "auto", "--json"], ["evaluate", "--ray", "auto", "--json"]),
        (["evaluate", "--json"], ["evaluate", "--json"]),
    ],
)
def test_the_address_may_be_left_out(arguments, expected):
    assert with_address(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "--policy", POLICY, "--ray"], "--ray needs --out"),
        (["evaluate", "--policy", POLICY, "--ray", "--shard", "1/2", "--out", "r"], "and no --shard"),
        (["evaluate", "--policy", POLICY, "--shards", "2"], "give --ray"),
        (["evaluate", "--policy", POLICY, "--ray-cpus", "4"], "what Ray keeps for a task"),
        (["sensitivity", "--policy", POLICY, "--param", "noise=0:2:2", "--ray-gpus", "2"], "give --ray too"),
        (["evaluate", "--policy", POLICY, "--ray", "--out", "r", "--ray-cpus", "1e-5"], "0 or from 0.0001 on"),
        (["evaluate", "--policy", POLICY, "--ray", "--out", "r", "--ray-gpus", "1.5"], "GPUs above 1 whole"),
        (["evaluate", "--policy", "no-such", "--ray", "--out", "r"], "unknown policy"),
        (["evaluate", "--policy", POLICY, "--ray", "--out", "r", "--shards", "2"], "shards must be a"),
        (["sensitivity", "--policy", POLICY, "--ray"], "--out and --ray are for other parameters"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    code, out, err = arena(monkeypatch, capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "r").exists()


def test_ray_that_is_not_there_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, out, err = arena(monkeypatch, capsys, "evaluate", "--policy", POLICY, "--ray", "--out", str(tmp_path / "r"))
    assert (code, out, err) == (2, "", "error: --ray needs Ray: pip install 'arena_jax[ray]'\n")


def machine(cpus, gpus=0.0, alive=True):
    return {"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus, "memory": 1e9}}


def test_more_than_a_machine_has_is_not_waited_for_in_silence(capsys):
    cluster._check_room([machine(2.0), {"Alive": True, "Resources": {}}], 2, 0, may_grow=False)
    for nodes, cpus, gpus in (
        ([machine(2.0)], 1, 1),
        ([machine(4.0)] * 4, 8, 0),  # 16 in all
        ([machine(8.0), machine(1.0, gpus=1.0)], 4, 1),  # no machine has both
        ([machine(2.0), machine(8.0, alive=False)], 4, 0),
    ):
        with pytest.raises(ArenaError, match=rf"asks for {cpus} CPUs and {gpus} GPUs .*Ray's machines have \d"):
            cluster._check_room(nodes, cpus, gpus, may_grow=False)
    assert capsys.readouterr().err == ""
    cluster._check_room([machine(2.0)], 2.5, 0, may_grow=True)
    assert "Ray's machines have 2 CPUs and 0 GPUs; it waits for a larger one" in capsys.readouterr().err


def test_a_cluster_that_is_started_here_does_not_grow():
    asked = []

    def init(address, **options):
        asked.append(address)
        if address == "auto":
            raise ConnectionError("no running Ray")

    assert not cluster._join(init, "") and asked == ["auto", "local"]
    assert not cluster._join(init, "local") and cluster._join(init, "head:6379")
    assert cluster._join(lambda address, **options: None, "")  # there is one


def test_workers_have_what_decides_bits(monkeypatch):
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    for name in ("JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.setenv(name, "tpu")
    found = {gpus: cluster.Cluster(1, gpus, no_cache=True)._environment() for gpus in (0, 0.5, 1)}
    assert all(one["JAX_DEFAULT_MATMUL_PRECISION"] == "highest" for one in found.values())
    assert all(one["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false" for one in found.values())
    assert [one["JAX_PLATFORMS"] for one in found.values()] == ["cpu", "", ""]
    assert "tpu" not in {value for one in found.values() for value in one.values()}
    assert [one.get("XLA_PYTHON_CLIENT_PREALLOCATE") for one in found.values()] == [None, "false", None]


def test_a_worker_refuses_what_it_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "use_cache", lambda no_cache: None)
    with pytest.raises(ArenaError, match=r"it has arena_jax .*, this is 9\.9"):
        cluster._call("9.9", ".", False, True, os.getcwd)
    with pytest.raises(ArenaError, match="--ray-gpus asks for GPUs, and JAX finds none there"):
        cluster._call(cluster.__version__, ".", True, True, os.getcwd)
    (tmp_path / "asker").mkdir()
    called = lambda folder: cluster._call(cluster.__version__, str(folder), False, True, os.getcwd)
    assert called(tmp_path / "asker") == str(tmp_path / "asker"), "relative paths are the asker's"
    assert called(tmp_path / "nowhere") == str(tmp_path / "asker")


def test_what_others_played_is_not_played_again(tmp_path):
    job = Job(make(), ("never-raise",), 64)
    open_run(tmp_path / "r", job.manifest())
    with pytest.raises(ArenaError, match="lacks episodes from 0 on: this machine doesn't see what others played"):
        job.estimates(tmp_path / "r", is_played=True)
    before = job.estimates(tmp_path / "r")
    assert job.estimates(tmp_path / "r", is_played=True) == before


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def surroundings(tmp_path):
    """The environment of commands, with a short folder for Ray's sockets; what is left of them is ended."""
    folder = tempfile.mkdtemp(prefix="aj-")
    mark = str(tmp_path)
    yield {**os.environ, "RAY_TMPDIR": folder, "JAX_PLATFORMS": "cpu", MARK: mark}
    for pid in started(mark):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def started(mark, title=b""):
    """Processes that a test has started, by the environment that they inherit, and by how they call themselves."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
            if ours and (process / "cmdline").read_bytes().startswith(title):
                found.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


@contextmanager
def ended(process):
    """A process, which is ended whatever happens."""
    with process:
        try:
            yield process
        finally:
            process.terminate()


def command(*arguments):
    return [sys.executable, "-m", "arena_jax.cli", *map(str, arguments)]


def done(environment, folder, *arguments):
    """What a command prints."""
    run = subprocess.run(command(*arguments), env=environment, cwd=folder, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def parts_of(directory):
    return sorted(directory.rglob("part-*.parquet"))


def wait_until(is_so, process):
    while not is_so():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@needs_ray
@pytest.mark.slow
def test_every_verb_gives_what_it_gives_without_ray(surroundings, tmp_path):
    """On a cluster that is there already, from another folder, with a policy by path."""
    (tmp_path / "own_policy.py").write_text(
        "from arena_jax import make_policy\n\n\ndef make():\n    return make_policy('never-raise')\n"
    )
    head = ["--head", "--block", f"--port={free_port()}", "--num-cpus=2", "--include-dashboard=false"]
    start = [Path(sys.executable).with_name("ray"), "start", *head, "--disable-usage-stats"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ended(subprocess.Popen(start, env=surroundings, **quiet)) as head_node:
        wait_until((Path(surroundings["RAY_TMPDIR"]) / "ray" / "ray_current_cluster").exists, head_node)
        on_ray = ("--ray", "auto")
        evaluate = ["evaluate", "--policy", "own_policy:make", "--policy", POLICY, "--episodes", 40_000, "--seed", 5]
        evaluate += ["--record", "cash", "--json"]
        plain = done(surroundings, tmp_path, *evaluate, "--out", "plain")
        assert done(surroundings, tmp_path, *evaluate, "--out", "ray", *on_ray, "--shards", 2) == plain
        assert contents(tmp_path / "ray") == contents(tmp_path / "plain")
        grid = ["sensitivity", "--policy", POLICY, "--param", "noise=0:2:4", "--episodes", 64, "--batch", 64, "--json"]
        assert done(surroundings, tmp_path, *grid, *on_ray, "--out", "g") == done(surroundings, tmp_path, *grid)
        for name, options in (("a", ()), ("b", on_ray)):
            new_run(tmp_path / name, [3, 4])
            done(surroundings, tmp_path, "agent", "scripted", name, "--policy", "never-raise", *options)
        assert str(played_episodes(tmp_path / "a")) == str(played_episodes(tmp_path / "b"))
        other = command(*evaluate, "--out", "plain", *on_ray, "--env-set", "noise=0")
        refused = subprocess.run(other, env=surroundings, cwd=tmp_path, capture_output=True, text=True)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert "holds another run (parameters.noise" in refused.stderr


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("is_listening", [False, True])
def test_an_address_without_ray_is_one_line(surroundings, tmp_path, is_listening):
    """Nobody there, or somebody else: Ray itself would fill the screen."""
    with socket.socket() as other:
        other.bind(("", 0))
        if is_listening:
            other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        asked = command("evaluate", "--policy", POLICY, "--ray", address, "--out", "run")
        run = subprocess.run(asked, env=surroundings, cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith(f"error: can't reach Ray at {address}: ")
    assert not (tmp_path / "run").exists()


@needs_ray
@pytest.mark.slow
def test_a_client_plays_on_ray(surroundings, tmp_path):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text(f"#!{sys.executable}\n{STANDIN.read_text()}")
    program.chmod(0o755)
    (tmp_path / "bin" / "script.json").write_text(json.dumps([{"months": 2}]))
    new_run(tmp_path / "run", [3])
    environment = surroundings | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    told = done(environment, tmp_path, "agent", "run", "run", "--client", "claude", "--nudges", 0, "--ray", "local")
    assert "1 episode played" in told
    (played,) = played_episodes(tmp_path / "run")
    assert (played.status, played.months_played) == ("agent_stopped", 2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The table and the files of the run that others are to end with."""
    folder = tmp_path_factory.mktemp("whole")
    return done({**os.environ, "JAX_PLATFORMS": "cpu"}, folder, *LONG, "--out", "run"), contents(folder / "run")


@needs_ray
@pytest.mark.slow
def test_a_worker_killed_half_way_is_made_up_for(surroundings, tmp_path, whole):
    on_ray = command(*LONG, "--out", "run", "--ray", "local", "--shards", 2, "--ray-cpus", 0.5)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with ended(subprocess.Popen(on_ray, env=surroundings, cwd=tmp_path, **pipes)) as driver:
        wait_until(lambda: parts_of(tmp_path / "run"), driver)
        workers = started(str(tmp_path), b"ray::_call")
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        assert len(parts_of(tmp_path / "run")) < PARTS / 2
        out, err = driver.communicate()
    assert (driver.returncode, out) == (0, whole[0]), err
    assert contents(tmp_path / "run") == whole[1]


@needs_ray
@pytest.mark.slow
def test_after_the_driver_is_killed_only_what_is_missing_is_played(surroundings, tmp_path, whole):
    on_ray = [*LONG, "--out", "run", "--ray", "local", "--shards", 2, "--ray-cpus", 0.5]
    with subprocess.Popen(command(*on_ray), env=surroundings, cwd=tmp_path, stdout=subprocess.DEVNULL) as driver:
        wait_until(lambda: len(parts_of(tmp_path / "run")) >= 3, driver)
        driver.kill()
    deadline = time.monotonic() + 60
    while started(str(tmp_path), b"ray::_call") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not started(str(tmp_path), b"ray::_call"), "workers end with their driver"
    made = {path: path.stat().st_mtime_ns for path in parts_of(tmp_path / "run")}
    assert 3 <= len(made) < PARTS
    assert done(surroundings, tmp_path, *on_ray) == whole[0]
    assert contents(tmp_path / "run") == whole[1]
    assert made == {path: path.stat().st_mtime_ns for path in made}
