"""What an audit of the source finds: no pickle, no code out of data; and what the check of the packages says."""

import ast
import json
from pathlib import Path

import pytest
from audit import verdict

ROOT = Path(__file__).parents[1]
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {"read_pickle", "to_pickle", "unsafe_load"}
SOURCES = sorted(path for folder in ("arena_jax", "baselines", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def faults(source):
    """What of a source could run code that a file holds, a line number each."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").partition(".")[0], *[alias.name for alias in node.names]]
        if FORBIDDEN_MODULES & set(names):
            yield node.lineno, "pickle"
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
            yield node.lineno, called.id
        if isinstance(called, ast.Attribute):
            if called.attr in FORBIDDEN_METHODS:
                yield node.lineno, called.attr
            if (
                called.attr == "load"
                and isinstance(called.value, ast.Name)
                and called.value.id in ("np", "numpy", "jnp")
            ):
                told = {keyword.arg: keyword.value for keyword in node.keywords}.get("allow_pickle")
                if not (isinstance(told, ast.Constant) and told.value is False):
                    yield node.lineno, "np.load without allow_pickle=False"
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg in ("allow_pickle", "shell") and not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                yield node.lineno, keyword.arg


def test_no_source_runs_what_a_file_holds():
    assert len(SOURCES) > 100
    found = {f"{path.relative_to(ROOT)}:{line}: {what}" for path in SOURCES for line, what in faults(path.read_text())}
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from cloudpickle import loads",
        "def load():\n    import joblib.memory",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.save(path, values, allow_pickle=flag)",
        "eval(text)",
        "frame.to_pickle(path)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_audit_finds(source):
    assert list(faults(source))


def test_the_audit_lets_pass():
    assert not list(faults("np.load(path, allow_pickle=False)\njson.load(file)\njax.eval_shape(f)\nre.compile(p)"))


@pytest.mark.parametrize(
    ("dependencies", "code", "text"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, "1 of 1 packages audited"),
        ([{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}, {"name": "b"}], 1, "a 1: CVE-1"),
        ([{"name": "b", "skip_reason": "not on PyPI"}], 0, "notice: pip-audit is skipped, its database knows none"),
    ],
)  # fmt: skip
def test_what_the_check_of_packages_says(dependencies, code, text):
    found = verdict(1, json.dumps({"dependencies": dependencies}), "")
    assert found[0] == code
    assert found[1].startswith(text)


def test_without_a_database_a_notice_is_given():
    assert verdict(1, "", "Traceback\nConnectionError: no route") == (
        0,
        "notice: pip-audit is skipped, its database can't be reached (ConnectionError: no route)",
    )


@pytest.mark.parametrize("said", ["No module named pip_audit", "unrecognized arguments: --skip", "KeyError: 'x'", ""])
def test_an_audit_that_fails_is_an_error(said):
    code, text = verdict(1, "", said)
    assert code == 1
    assert text.startswith("error: pip-audit failed (")
