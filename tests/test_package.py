"""Wheel and sdist hold what is tracked and no keys; the wheel works in a clean environment. Needs a registry."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from arena_jax.policies import TRAINED

ROOT = Path(__file__).parents[1]
QUICKSTART = re.search(r"```python\n(.*?)```\n", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)[1]

# caches, what belongs to one machine, and what holds keys
SECRET = re.compile(
    r"__pycache__|\.py[co]$|\.(venv|git|env|cache|pytest_cache|ruff_cache)(/|$)|\.(pem|key|token|log)$|id_rsa"
)

KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY|\b(sk-[A-Za-z0-9_-]{20}|gh[pousr]_[A-Za-z0-9]{20}|AKIA[A-Z0-9]{16})")


def tracked():
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs the repository: what belongs in a package is what it tracks")
    return set(listed.stdout.strip("\0").split("\0"))


def below(files, folder):
    return {name.removeprefix(folder) for name in files if name.startswith(folder)}


def run(*command, cwd):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


def test_wheel_and_sdist_hold_what_is_tracked_and_nothing_else(built):
    files = tracked()
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "arena_jax/py.typed",
        "arena_jax/_data/macro_trajectory.csv",
        "arena_jax/_data/published_results.csv",
        "arena_jax/_data/documents/system_prompt.txt",
        *[f"arena_jax/policies/weights/{name}.msgpack" for name in TRAINED],
    ):
        assert needed in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (entries,) = [name for name in names if name.endswith("entry_points.txt")]
    assert "[inspect_ai]\narena_jax = arena_jax.llm.inspect_task" in zipfile.ZipFile(wheel).read(entries).decode()
    assert all(name.startswith(("arena_jax/", "arena_jax-")) for name in names)
    assert {name for name in names if ".dist-info/" not in name} == {
        *(f"arena_jax/{name}" for name in below(files, "arena_jax/")),
        *(f"arena_jax/_data/{name}" for name in below(files, "data/")),
    }
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
        with_keys = [one.name for one in members if one.isfile() and KEY.search(archive.extractfile(one).read())]
    assert not with_keys
    assert all(member.isfile() or member.isdir() for member in members), "no links"
    inside = {member.name.partition("/")[2] for member in members if member.isfile()}
    assert inside - files == {"PKG-INFO"}
    for folder in ("arena_jax/", "baselines/", "benchmarks/", "data/", "docs/", "tests/"):
        assert below(files, folder) == below(inside, folder)
    assert not [name for name in [*names, *inside] if SECRET.search(name)]


def test_keys_are_recognised():
    """In pieces, so that this file holds none."""
    for key in ("sk-" + "a1" * 12, "-----BEGIN " + "EC PRIVATE KEY-----", "ghp_" + "b2" * 12, "AKIA" + "C3" * 8):
        assert KEY.search(f"token = '{key}'".encode())
    assert not KEY.search(b"risk-adjusted-return-of-the-company and ask-for-equity-and-wait-a-month")


@pytest.mark.slow
def test_wheel_runs_outside_the_checkout(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "venv", "venv", cwd=tmp_path)
    binaries = tmp_path / "venv" / "bin"
    run(binaries / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    table = run(binaries / "arena-jax", "evaluate", "--policy", "prudent-cfo", "--episodes", "200", cwd=tmp_path)
    assert "prudent-cfo" in table
    assert "Human (published)" in table
    trained = run(binaries / "arena-jax", "evaluate", "--policy", "ppo", "--episodes", "64", "--json", cwd=tmp_path)
    assert json.loads(trained)["results"][0]["metrics"]["full_survival"]["mean"] > 0.9
    assert "survived 100.0%" in run(binaries / "python", "-c", QUICKSTART, cwd=tmp_path)
    assert str(tmp_path) in run(binaries / "python", "-c", "import arena_jax; print(arena_jax.__file__)", cwd=tmp_path)
