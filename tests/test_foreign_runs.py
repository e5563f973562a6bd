"""Run directories that somebody made to do harm: every verb that reads one refuses it, in one line."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cli import arena

from arena_jax import files, parts
from arena_jax.cli import main
from arena_jax.llm import journal

NEVER, LATE = "00-never-raise", "01-late-raiser"
PART, MONTHS = f"{NEVER}/part-000000.parquet", f"{NEVER}/months-000000.parquet"


def manifest(**changes):
    def forge(run):
        path = run / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return forge


def parameters(run):
    path = run / "manifest.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"parameters": held["parameters"] | {"noise": "much"}}))


def linked(name, target=None):
    """A link in place of a file or folder of the run, by default to its own copy elsewhere."""

    def forge(run):
        path, elsewhere = run / name, run.parent / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(target or elsewhere)

    return forge


def column(file, **changes):
    """Other columns, each made by a function of the one that was there."""

    def forge(run):
        table = pq.read_table(run / file)
        for name, change in changes.items():
            made = pa.array(change(table[name].to_numpy().copy()))
            table = table.set_column(table.column_names.index(name), name, made)
        pq.write_table(table, run / file)

    return forge


def first(value, dtype=None):
    """A change of the first value of a column."""

    def change(values):
        values = values.astype(dtype or values.dtype)
        values[0] = value
        return values

    return change


def as_text(values):
    return [str(value) for value in values]


def none(values):
    return [None, *values[1:].tolist()]


def dictionary(run):
    """Text that would be far larger than the file, once it is read."""
    table = pq.read_table(run / PART)
    made = pa.array(["much" * 1000] * len(table)).dictionary_encode()
    pq.write_table(table.set_column(table.column_names.index("score"), "score", made), run / PART)


def padded(name):
    """A gap between what a file begins with and its foot, that takes no room on the disk."""

    def forge(run):
        data = (run / name).read_bytes()
        with open(run / name, "wb") as file:
            file.write(data[:4])
            file.seek(10**11)
            file.write(data[4:])

    return forge


def doubled(name):
    def forge(run):
        table = pq.read_table(run / name)
        pq.write_table(pa.concat_tables([table, table]), run / name)

    return forge


ESCAPE = "\x1b[2J\nforged"
SIMULATED = {
    "traversal in a policy": (manifest(policies=["../../elsewhere", "late-raiser"]), "missing|another run"),
    "an escape sequence": (manifest(policies=[ESCAPE, "late-raiser"]), "field policies"),
    "a policy twice": (manifest(policies=["never-raise"] * 2), "field policies"),
    "a version that is none": (manifest(arena_jax=ESCAPE), "field arena_jax"),
    "a trajectory that is none": (manifest(trajectory_sha256=ESCAPE), "field trajectory_sha256"),
    "an environment that is none": (manifest(environment=["x"]), "field environment"),
    "worlds without a kind": (manifest(scenarios={}), "field scenarios"),
    "a kind that is none": (manifest(scenarios={"kind": ESCAPE}), "field scenarios"),
    "no seed": (manifest(seed=None), "field seed"),
    "a negative seed": (manifest(seed=-1), "field seed"),
    "a giant seed": (manifest(seed=10**4000), "field seed"),
    "giant numbers": (manifest(episodes=2**32 - 2, policies=[f"p{i}" for i in range(99)]), "missing|another run"),
    "more than a giant": (manifest(episodes=10**30), "field episodes"),
    "no number": (manifest(episodes=float("nan")), "field episodes"),
    "giant worlds": (manifest(episodes=2**31, worlds=2**31), "at most"),
    "a parameter of text": (parameters, "field parameters"),
    "a list for a manifest": (lambda run: (run / "manifest.json").write_text("[]"), "not a manifest"),
    "a number that has no end": (lambda run: (run / "manifest.json").write_text("9" * 5000), "can't read"),
    "no end of brackets": (lambda run: (run / "manifest.json").write_text("[" * 10**5), "can't read"),
    "a linked manifest": (linked("manifest.json", "/dev/zero"), "is a link"),
    "a linked folder": (linked(NEVER), "is a link"),
    "a linked part": (linked(PART), "is a link"),
    "a link to no end": (linked(PART, "/dev/zero"), "is a link"),
    "linked months": (linked(MONTHS), "is a link"),
    "a record of text": (column(PART, score=as_text), "column score"),
    "a record of nothing": (column(PART, score=none), "column score"),
    "short numbers in a record": (
        column(PART, score=lambda values: np.minimum(values, 6e4).astype(np.float16)),
        "column score",
    ),
    "no number in a record": (column(PART, score=first(np.nan)), "column score"),
    "a giant in a record": (column(PART, cash=first(1e300, np.float64)), "column cash"),
    "a giant month": (column(PART, months_played=first(2**31 - 1)), "column months_played"),
    "numbers for survivals": (column(PART, survived=lambda values: values.astype(np.int32)), "column survived"),
    "other episodes": (column(PART, episode=lambda values: values[::-1]), "does not hold episodes"),
    "a dictionary of text": (dictionary, "column score"),
    "negative months": (column(PART, months_played=lambda values: np.full_like(values, -5)), "column months_played"),
    "no month at all": (column(PART, months_played=first(0)), "column months_played"),
    "half a month": (column(PART, months_survived=first(0.5, np.float64)), "column months_survived"),
    "negative calls": (column(PART, actions=first(-1)), "column actions"),
    "more bytes than rows": (padded(PART), "is larger than"),
    "more rows than episodes": (doubled(PART), "does not hold 200 rows"),
}
# what only they read who show cash by month
IN_MONTHS = {
    "giant months": (column(MONTHS, month=first(2**31 - 1)), "does not hold episodes"),
    "months of text": (column(MONTHS, month=as_text), "column month"),
    "cash of text": (column(MONTHS, cash=as_text), "column cash"),
    "no number in cash": (column(MONTHS, cash=first(np.nan)), "column cash"),
    "another episode": (column(MONTHS, episode=first(2**31)), "does not hold episodes"),
    "a month left out": (
        column(MONTHS, month=lambda values: np.where(values == 3, 4, values)),
        "does not hold episodes",
    ),
    "a month too many": (doubled(MONTHS), "does not hold"),
    "more bytes than months": (padded(MONTHS), "is larger than"),
    "other fields": (manifest(record=["cash", "debt"]), "does not hold"),
    "endless months": (column(PART, months_played=first(12_000)), "too many to read together"),
}
MONTH_READERS = ("report", "merge")
EVALUATE = ["evaluate", "--policy", "never-raise", "--policy", "late-raiser", "--episodes", "200", "--seed", "3"]
READERS = {
    "report": lambda run, out: ["report", run, "--out", out / "page.html"],
    "failures": lambda run, out: ["failures", run],
    "merge": lambda run, out: ["merge", run, "--out", out / "merged"],
    "evaluate": lambda run, out: [*EVALUATE, "--record", "cash", "--out", run],
}


def refused(monkeypatch, capsys, arguments, message):
    code, out, err = arena(monkeypatch, capsys, *map(str, arguments))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.rstrip("\n").isprintable() and len(err) < 3000
    assert any(part in err for part in message.split("|")), err


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_run(monkeypatch, capsys, simulated_run, tmp_path, name, reader):
    run = Path(shutil.copytree(simulated_run, tmp_path / "run"))
    (run / NEVER / ".half-mine").write_text("precious")  # of the folder that a link may lead to
    forge, message = SIMULATED[name]
    forge(run)
    elsewhere = tmp_path / "elsewhere"
    before = {path.name: path.stat().st_mtime_ns for path in elsewhere.iterdir()} if elsewhere.is_dir() else {}
    # a run that says it is another one is not gone on with
    message = f"{message}|another run" if reader == "evaluate" else message
    refused(monkeypatch, capsys, READERS[reader](run, tmp_path), message)
    if before:
        assert {path.name: path.stat().st_mtime_ns for path in elsewhere.iterdir()} == before
    assert not (tmp_path / "page.html").exists() and not (tmp_path / "merged").exists()


@pytest.mark.parametrize("reader", MONTH_READERS)
@pytest.mark.parametrize("name", IN_MONTHS)
def test_months_of_a_simulated_run(monkeypatch, capsys, simulated_run, tmp_path, name, reader):
    run = Path(shutil.copytree(simulated_run, tmp_path / "run"))
    monkeypatch.setattr(parts, "MAX_CELLS", 2**20)
    forge, message = IN_MONTHS[name]
    forge(run)
    refused(monkeypatch, capsys, READERS[reader](run, tmp_path), message)


@pytest.mark.parametrize("reader", ["report", "failures"])
def test_a_version_that_reads_like_markup(monkeypatch, capsys, simulated_run, tmp_path, reader):
    run = Path(shutil.copytree(simulated_run, tmp_path / "run"))
    manifest(arena_jax="[/x]", policies=["never-raise", "late-raiser"])(run)
    code, out, err = arena(monkeypatch, capsys, *map(str, READERS[reader](run, tmp_path)))
    assert (code, err) == (0, "")
    assert "[/x]" in (out if reader == "failures" else (tmp_path / "page.html").read_text())


def test_files_that_are_too_large(monkeypatch, capsys, simulated_run, agents_run, tmp_path):
    """Sparse files of 100 GB, and one that is only just too large: read in no part that would fill the memory."""
    simulated, agents = (Path(shutil.copytree(run, tmp_path / run.parent.name)) for run in (simulated_run, agents_run))
    monkeypatch.setattr(files, "LARGEST", 2**22)
    monkeypatch.setattr(journal, "LARGEST", 2**22)
    for run, name, reader in (
        (simulated, "manifest.json", READERS["report"]),
        (agents, "episode-000/journal.jsonl", AGENT_READERS["replay"]),
        (agents, "episode-000/journal.jsonl", AGENT_READERS["scripted"]),
        (agents, "seeds.json", AGENT_READERS["replay"]),
        (agents, "run.json", AGENT_READERS["list"]),
    ):
        held = (run / name).read_bytes()
        for size in (10**11, 2**22 + 1):
            os.truncate(run / name, size)
            refused(monkeypatch, capsys, reader(run, tmp_path), "larger than")
        (run / name).write_bytes(held)


def test_the_kind_of_a_column_is_looked_at_before_it_is_read(monkeypatch, capsys, simulated_run, tmp_path):
    run, read = Path(shutil.copytree(simulated_run, tmp_path / "run")), []
    dictionary(run)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: read.append(1))
    refused(monkeypatch, capsys, READERS["failures"](run, tmp_path), "column score")
    assert not read


def test_too_little_memory_is_one_line(monkeypatch, capsys, simulated_run, tmp_path):
    def none_left(*_):
        raise MemoryError

    monkeypatch.setattr(np, "concatenate", none_left)
    refused(monkeypatch, capsys, READERS["failures"](simulated_run, tmp_path), "not enough memory")


@pytest.fixture(scope="module")
def grid_run(tmp_path_factory):
    """A folder of a grid, and the command that goes on with it."""
    out = tmp_path_factory.mktemp("grids") / "g"
    command = ["sensitivity", "--policy", "never-raise", "--param", "noise=0:2:2", "--episodes", "20", "--out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["arena-jax", *command, str(out)])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert not stopped.value.code
    return out, command


CHUNK = f"{NEVER}/chunk-000001.parquet"
GRIDS = {
    "a linked grid": (linked("grid.json", "/dev/zero"), "is a link"),
    "a linked folder": (linked(NEVER), "is a link"),
    "a linked chunk": (linked(CHUNK), "is a link"),
    "no end of brackets": (lambda run: (run / "grid.json").write_text("[" * 10**5), "can't read"),
    "a list for a grid": (lambda run: (run / "grid.json").write_text("[]"), "another grid"),
    "five companies in one": (column(CHUNK, full_survival=first(5)), "holds no metrics"),
    "half a company": (column(CHUNK, full_survival=first(0.5)), "holds no metrics"),
    "a giant score": (column(CHUNK, score=first(1e300)), "holds no metrics"),
    "negative months": (column(CHUNK, months=first(-1)), "holds no metrics"),
    "giant months": (column(CHUNK, months=first(1e9)), "holds no metrics"),
    "no number": (column(CHUNK, score=first(np.nan)), "column score"),
    "text": (column(CHUNK, score=as_text), "column score"),
    "other episodes": (column(CHUNK, episode=lambda values: values[::-1]), "other environments or episodes"),
    "more bytes than rows": (padded(CHUNK), "is larger than"),
}


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid(monkeypatch, capsys, grid_run, tmp_path, name):
    out, command = grid_run
    grid = Path(shutil.copytree(out, tmp_path / "g"))
    forge, message = GRIDS[name]
    forge(grid)
    refused(monkeypatch, capsys, [*command, grid, "--json"], message)


AGENTS = {
    "a linked run": (linked("run.json", "/dev/zero"), "is a link"),
    "a linked episode": (linked("episode-000"), "is a link"),
    "a linked journal": (linked("episode-000/journal.jsonl", "/dev/zero"), "is a link"),
    "a pipe": (
        lambda run: ((run / "episode-000/journal.jsonl").unlink(), os.mkfifo(run / "episode-000/journal.jsonl")),
        "is a link or a device",
    ),
    "giant numbers": (lambda run: rewritten(run, episodes=10**30), "field episodes"),
    "a truth for a number": (lambda run: rewritten(run, episodes=True), "field episodes"),
    "traversal in a world": (lambda run: rewritten(run, world="../../world.toml"), "field world"),
    "an escape sequence": (lambda run: rewritten(run, arena_jax=ESCAPE), "field arena_jax"),
    "no end of brackets": (lambda run: (run / "run.json").write_text("[" * 10**5), "can't read"),
    "no tool": (lambda run: rewritten(run, tools=[{}]), "field tools"),
    "a tool without a schema": (lambda run: rewritten(run, tools=[{"name": "pass"}]), "field tools"),
    "worlds without a kind": (lambda run: rewritten(run, scenarios={}), "field scenarios"),
    "worlds of another kind": (lambda run: rewritten(run, scenarios={"x": 1}), "field scenarios"),
}
OF_JOURNALS = ("a linked episode", "a linked journal", "a pipe")
AGENT_READERS = {
    "list": lambda run, out: ["agent", "list", run],
    "show": lambda run, out: ["agent", "show", run],
    "score": lambda run, out: ["agent", "score", run],
    "scripted": lambda run, out: ["agent", "scripted", run, "--policy", "never-raise"],
    "run": lambda run, out: ["agent", "run", run, "--client", "claude"],
    "config": lambda run, out: ["agent", "config", "claude", run],
    "mcp": lambda run, out: ["agent", "mcp", run],
    "replay": lambda run, out: ["replay", run],
    "failures": lambda run, out: ["failures", run],
    "report": lambda run, out: ["report", run, "--out", out / "page.html"],
    "check": lambda run, out: ["agent", "check", run],
    "play": lambda run, out: ["play", run],
    "verify": lambda run, out: ["scenario", "verify", run],
}
# what tells of a damaged journal and goes on, with its exit code, and what reads none before its first call
TELLING, UNREAD = {"list": 0, "score": 0, "check": 1}, {"config", "mcp", "verify"}


def rewritten(run, **changes):
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


PAIRS = [
    (name, reader) for name in AGENTS for reader in AGENT_READERS if name not in OF_JOURNALS or reader not in UNREAD
]


@pytest.mark.parametrize(("name", "reader"), PAIRS)
def test_a_run_of_agents(monkeypatch, capsys, agents_run, tmp_path, name, reader):
    run = Path(shutil.copytree(agents_run, tmp_path / "run"))
    forge, message = AGENTS[name]
    forge(run)
    arguments = [str(word) for word in AGENT_READERS[reader](run, tmp_path)]
    if name in OF_JOURNALS and reader in TELLING:
        code, out, err = arena(monkeypatch, capsys, *arguments)
        assert (code, err) == (TELLING[reader], "")
        assert "damaged" in out or "is a link" in out
        return
    refused(monkeypatch, capsys, arguments, message)
    assert not (tmp_path / "page.html").exists()


def lies_there(name, target, elsewhere):
    """A link of a run in which no episode has begun."""

    def forge(run):
        for episode in (0, 1):
            shutil.rmtree(run / f"episode-00{episode}")
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).symlink_to(elsewhere / target)

    return forge


OF_CLIENTS = {
    "the folder": ("episode-000/claude", "folder"),
    "the conversation": ("episode-000/claude/conversation.json", "folder/conversation.json"),
    "what a start says": ("episode-000/claude/turn-000.out", "folder/precious"),
    "how a start fails": ("episode-000/claude/turn-000.err", "folder/precious"),
}


@pytest.mark.parametrize("verb", ["run", "check"])
@pytest.mark.parametrize("name", OF_CLIENTS)
def test_links_among_the_files_of_a_client(monkeypatch, capsys, agents_run, tmp_path, name, verb):
    run = Path(shutil.copytree(agents_run, tmp_path / "run"))
    folder = tmp_path / "folder"
    folder.mkdir()
    for held in ("conversation.json", "precious"):
        (folder / held).write_text("precious")
    client = tmp_path / "bin" / "claude"
    client.parent.mkdir()
    client.write_text("#!/bin/sh\necho forged\necho forged >&2\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lies_there(*OF_CLIENTS[name], tmp_path)(run)
    if verb == "run":
        refused(monkeypatch, capsys, AGENT_READERS["run"](run, tmp_path), "is a link")
    else:
        code, out, err = arena(monkeypatch, capsys, "agent", "check", str(run))
        assert (code, err) == (1, "")
        assert "is a link" in out.replace("\n", "")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "conversation.json": "precious",
        "precious": "precious",
    }
