"""The API page shows every public name, and what it names is there and documented."""

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arena_jax.api
import arena_jax.testing

ROOT = Path(__file__).parents[1]
NAMED = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_the_page_shows_every_public_name():
    public = {f"arena_jax.api.{name}" for name in arena_jax.api.__all__ if not name.startswith("_")}
    assert public <= set(NAMED)
    assert "arena_jax.testing.check_env" in NAMED
    assert len(NAMED) == len(set(NAMED))


@pytest.mark.parametrize("name", NAMED)
def test_what_the_page_names_is_documented(name):
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    # a dataclass without a docstring has one made of its fields, (a: int, b: str)
    assert inspect.getdoc(found)
    assert not inspect.getdoc(found).startswith(f"{attribute}(")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs mkdocs: pip install '.[docs]'")
def test_the_page_is_built_without_a_warning_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in page for name in NAMED)
    assert not re.search(r'(?:src|<link[^>]* href)="(?:https?:)?//', page)
