"""The compilation cache of the command line: in the user's folder, for the user alone, never on import."""

import os
import stat
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "arena_jax.cli", "evaluate", "--policy", "never-raise", "--episodes", "64"]


def run(cache, *options, home=None):
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMPILATION", "XDG"))}
    environ |= {"XDG_CACHE_HOME": str(cache)} if cache is not None else {}
    environ |= {"HOME": str(home)} if home is not None else {}
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, env=environ, check=False)


def test_programs_are_kept_for_the_user_alone(tmp_path):
    first = run(tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    folders = [tmp_path / "arena_jax", *(tmp_path / "arena_jax").iterdir()]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]
    kept = {path: path.read_bytes() for path in folders[1].iterdir() if path.name.endswith("-cache")}
    assert kept
    assert run(tmp_path).stdout == first.stdout
    assert {path: path.read_bytes() for path in folders[1].iterdir() if path.name.endswith("-cache")} == kept


def test_no_cache_keeps_nothing(tmp_path):
    assert run(tmp_path, "--no-cache").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_used_is_done_without(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(tmp_path / "file")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_others_may_write_or_a_link_is_not_trusted(tmp_path):
    (tmp_path / "loose" / "arena_jax").mkdir(parents=True)
    (tmp_path / "loose" / "arena_jax").chmod(0o777)
    (tmp_path / "link").mkdir()
    (tmp_path / "target").mkdir(mode=0o755)
    (tmp_path / "link" / "arena_jax").symlink_to(tmp_path / "target")
    for name in ("loose", "link"):
        done = run(tmp_path / name)
        assert (done.returncode, done.stderr) == (0, "")
        assert list((tmp_path / name / "arena_jax").iterdir()) == []
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o755


def test_a_damaged_entry_is_compiled_afresh(tmp_path):
    first = run(tmp_path)
    for path in (tmp_path / "arena_jax").rglob("*-cache"):
        path.write_bytes(b"damaged")
    second = run(tmp_path)
    assert (second.returncode, second.stdout) == (0, first.stdout)


def test_import_is_light_and_keeps_nothing(tmp_path):
    """No plotting, agents', RL or Parquet library, and no cache."""
    program = (
        "import sys, jax, arena_jax\n"
        "heavy = {'matplotlib', 'plotly', 'numba', 'scipy', 'pyarrow', 'rich', 'typer', 'gymnax', 'gymnasium', 'mcp',"
        " 'flax', 'optax', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), jax.config.values['jax_compilation_cache_dir'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split("\n")[0] == "[] None"


@pytest.mark.parametrize("verb", ["evaluate", "fidelity", "play"])
def test_the_option_is_documented(verb):
    done = subprocess.run([*COMMAND[:3], verb, "--help"], capture_output=True, text=True, check=True)
    assert "--no-cache" in done.stdout
