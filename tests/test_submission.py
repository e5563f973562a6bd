"""Runs to be submitted: what `agent check` refuses, the board of valid runs, and readers that nothing can upset."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from test_cli import arena

import arena_jax
from arena_jax.analysis.published import published_results
from arena_jax.data import data_path
from arena_jax.llm.journal import difference, dollars_apart
from arena_jax.llm.runs import new_run, open_episode, read_prices, read_run, run_seed
from arena_jax.llm.submission import problems_of

MONTHS = 12


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world of twelve months, so that replays are short."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "small.csv").write_text(data_path("macro_trajectory.csv").read_text())
    (folder / "small.toml").write_text(f'trajectory = "small.csv"\nhorizon = {MONTHS}\ncrisis_months = [3, 6, 9]\n')
    return folder / "small.toml"


def play(folder, seeds, world, agent="someone", drawn=False):
    """A run that is played to its end."""
    new_run(folder, seeds, scenario=world, seeds_drawn=drawn)
    for episode in range(len(seeds)):
        with open_episode(folder, episode, agent=agent, model="model-1") as session:
            session.call("nonsense")
            while not session.is_over:
                session.call("verify_cash_position")
                session.call("fund_raising_request", {"instrument": "equity", "amount": 1e6})
            session.add_usage(input_tokens=10)
    return folder


@pytest.fixture(scope="module")
def valid(tmp_path_factory, world):
    return play(tmp_path_factory.mktemp("runs") / "mine", [3, 4], world)


@pytest.fixture
def copy(valid, tmp_path):
    return Path(shutil.copytree(valid, tmp_path / "copy"))


def journal(run, episode=0):
    return run / f"episode-{episode:03d}" / "journal.jsonl"


def rewrite(path, change):
    """Change a journal's lines."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def edited(**changes):
    """A change of the record of the end."""

    def change(lines):
        for line in lines:
            if line["type"] == "end":
                line["record"] |= changes
        return lines

    return lambda run: rewrite(journal(run), change)


def changed(run, name, **changes):
    path = run / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def linked(path, target):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)


def refusing(**changes):
    """A change of what was refused."""
    change = lambda lines: [line | changes if line["type"] == "refused" else line for line in lines]
    return lambda run: rewrite(journal(run), change)


def answered(lines):
    """More cash in an answer."""
    for line in lines:
        if line.get("tool") == "verify_cash_position":
            line["answer"]["cash"] += 10_000
    return lines


FORGED = {
    "edited score": (edited(score=9e8), "the record of the end is different now: score"),
    "edited months": (edited(months_survived=5), "the record of the end is different now: months_survived"),
    "edited answer": (lambda run: rewrite(journal(run), answered), "is answered differently now"),
    "edited refusal": (refusing(error="whatever I like"), "is refused differently now: unknown tool"),
    "what was no refusal": (refusing(tool="pass"), "is answered now, and was refused"),
    "missing line": (
        lambda run: rewrite(journal(run), lambda lines: [line for line in lines if line.get("n") != 4]),
        "is out of order",
    ),
    "other prompt": (
        lambda run: rewrite(journal(run), lambda lines: [lines[0] | {"prompt_sha256": "0" * 64}, *lines[1:]]),
        "prompt_sha256 differs",
    ),
    "other tools": (
        lambda run: rewrite(journal(run), lambda lines: [lines[0] | {"tools_sha256": "0" * 64}, *lines[1:]]),
        "tools_sha256 differs",
    ),
    "other version": (
        lambda run: rewrite(journal(run), lambda lines: [lines[0] | {"arena_jax": "9.9"}, *lines[1:]]),
        "it was played with arena_jax 9.9, this is",
    ),
    "version of the run": (lambda run: changed(run, "run.json", arena_jax="9.9"), "made with arena_jax 9.9: check it"),
    "two headers": (
        lambda run: rewrite(journal(run), lambda lines: [lines[0], *lines]),
        "line 2 is damaged",
    ),
    "another player": (
        lambda run: rewrite(journal(run), lambda lines: [lines[0] | {"agent": "other"}, *lines[1:]]),
        "a run is of one player, this one of other + model-1, someone + model-1",
    ),
    "other seed": (lambda run: (run / "seeds.json").write_text("[8, 4]"), "episode 0: "),
    "a seed twice": (lambda run: (run / "seeds.json").write_text("[3, 3]"), "has a seed twice"),
    "a seed too many": (lambda run: (run / "seeds.json").write_text("[3, 4, 5]"), "one seed for each episode"),
    "no seeds": (lambda run: (run / "seeds.json").unlink(), "can't read"),
    "other world": (
        lambda run: changed(run, "run.json", trajectories_sha256=["0" * 64, "0" * 64]),
        "other trajectory than this version",
    ),
    "other rules": (lambda run: changed(run, "run.json", env_set=["noise=0"]), "other parameters than this version"),
    "truncated": (lambda run: journal(run).write_bytes(journal(run).read_bytes()[:-400]), "episode 0: in progress"),
    "no final newline": (
        lambda run: journal(run).write_bytes(journal(run).read_bytes().partition(b'{"type":"usage"')[0][:-1]),
        "episode 0: in progress",
    ),
    "not begun": (lambda run: shutil.rmtree(run / "episode-001"), "episode 1: not begun"),
    "a failure": (
        lambda run: rewrite(journal(run), lambda lines: [*lines[:3], {"type": "end", "status": "infra_error"}]),
        "episode 0: infra_error",
    ),
    "linked journal": (lambda run: linked(journal(run), journal(run, 1)), "is a link"),
    "linked episode": (lambda run: linked(run / "episode-000", run / "episode-001"), "is a link"),
    "linked world": (lambda run: linked(run / "world.csv", "/dev/zero"), "is a link"),
    "table elsewhere": (
        lambda run: (run / "world.toml").write_text((run / "world.toml").read_text().replace("world.csv", "/dev/zero")),
        "must name world.csv as its trajectory",
    ),
    "linked seeds": (lambda run: linked(run / "seeds.json", "/dev/zero"), "is a link"),
    "pipe": (lambda run: (journal(run).unlink(), os.mkfifo(journal(run))), "is a link or a device"),
    "folder": (lambda run: (journal(run).unlink(), journal(run).mkdir()), "can't read journal"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_run_is_refused_by_one_line(monkeypatch, capsys, copy, name):
    forge, message = FORGED[name]
    forge(copy)
    code, out, err = arena(monkeypatch, capsys, "agent", "check", str(copy))
    assert code == 1
    assert message in out
    assert out.count("\n") == 1
    assert err == ""


def test_an_invalid_run_is_on_no_board(monkeypatch, capsys, copy):
    shutil.rmtree(copy / "episode-001")  # score itself leaves an episode out that has not ended
    board = copy.parent / "board.md"
    code, out, err = arena(monkeypatch, capsys, "agent", "score", str(copy), "--out", str(board))
    assert (code, out, err.count("\n"), board.exists()) == (2, "", 1, False)
    assert "is not valid: episode 1: not begun" in err
    assert arena(monkeypatch, capsys, "agent", "score", str(copy))[0] == 0
    found = json.loads(arena(monkeypatch, capsys, "agent", "check", str(copy), "--json")[1])
    assert (found["valid"], found["problems"]) == (False, ["episode 1: not begun"])


def test_a_valid_run(monkeypatch, capsys, valid):
    code, out, err = arena(monkeypatch, capsys, "agent", "check", str(valid))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{valid} is valid"
    found = json.loads(arena(monkeypatch, capsys, "agent", "check", str(valid), "--json")[1])
    assert (found["valid"], found["problems"], found["episodes"]) == (True, [], 2)
    assert (found["player"], found["seeds"]) == ("someone + model-1", "chosen")
    assert found["world"].startswith("of its own, trajectory ")
    assert found["horizon"] == "not told to the agents, as in the paper"
    assert "seeds: chosen" in out


def test_every_reason_is_told(copy):
    edited(score=9e8)(copy)
    rewrite(journal(copy, 1), lambda lines: [*lines[:3]])
    edit, unfinished = problems_of(copy)
    assert "the record of the end is different now: score" in edit
    assert unfinished == "episode 1: in progress"


def test_check_of_no_run(monkeypatch, capsys, tmp_path):
    code, _, err = arena(monkeypatch, capsys, "agent", "check", str(tmp_path))
    assert code == 2
    assert "is not a run directory" in err


@pytest.mark.parametrize("ending", ["md", "html"])
def test_the_board(monkeypatch, capsys, valid, world, tmp_path, ending):
    other = play(tmp_path / "other", [3, 5, 6], world, agent="a|b<script>*x*", drawn=True)
    out = tmp_path / f"board.{ending}"
    code, _, err = arena(monkeypatch, capsys, "agent", "score", str(valid), str(other), "--out", str(out))
    assert (code, err) == (0, "")
    text = out.read_text()
    assert "<script>" not in text
    if ending == "md":
        assert r"| a\|b\<script\>\*x\* + model-1 | 3 | random |" in text
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
        assert {len(row) for row in rows} == {12}
        assert rows[2][:3] == [" someone + model-1 ", " 2 ", " chosen "]
        assert rows[2][4].strip() == f"{MONTHS}.0 ± 0.0"  # two equal values have no interval
        assert rows[2][3].strip() == "100.0% (15.8% to 100.0%)"
    else:
        assert "<td>someone + model-1</td><td>2</td><td>chosen</td>" in text
        assert "a|b&lt;script&gt;*x* + model-1" in text
    for agent in published_results():
        assert f"{agent} (published)" in text.replace("\\", "")
    stated = "Who played, and whether its seeds were drawn, is what a run says of itself"
    for fact in ("arena_jax", "trajectory", "not told to the agents", stated):
        assert fact in text
    assert not [path for path in tmp_path.iterdir() if "half" in path.name]


def test_a_board_has_a_known_ending(monkeypatch, capsys, valid):
    code, _, err = arena(monkeypatch, capsys, "agent", "score", str(valid), "--out", "board.txt")
    assert code == 2
    assert "must end in .md or .html" in err


def test_a_copied_run_does_not_count_twice(monkeypatch, capsys, valid, copy):
    code, _, err = arena(monkeypatch, capsys, "agent", "score", str(valid), str(copy))
    assert code == 2
    assert "of one player and seed; they would count twice" in err
    rewrite(journal(copy), lambda lines: [lines[0] | {"model": "2"}, *lines[1:]])
    rewrite(journal(copy, 1), lambda lines: [lines[0] | {"model": "2"}, *lines[1:]])
    assert arena(monkeypatch, capsys, "agent", "score", str(valid), str(copy))[0] == 0


# whatever is in the files, the answer is one line

DEEP = "[" * 100_000 + "]" * 100_000
DEEPER_THAN_ANY = "[" * 20 + "]" * 20
HUGE = "9" * 4_000
HOSTILE = [DEEP, DEEPER_THAN_ANY, HUGE, "9" * 5_000, "NaN", "1e999", "null", "true", '"text"', "[]", "{}", "\x00"]
HOSTILE += ["-1", "1.5", "[[]]", '{"a": {}}', '"\\u001b[2J"', "\ud800"]


def raw(text):
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", ["run.json", "seeds.json"])
def test_whatever_a_file_of_a_run_holds_is_told_in_one_line(copy, name):
    for text in HOSTILE:
        (copy / name).write_bytes(raw(text))
        (problem,) = problems_of(copy)
        assert name in problem or "seed must be" in problem
        assert len(problem) < 300
        with pytest.raises(arena_jax.ArenaError):
            open_episode(copy, 0)


def test_whatever_a_price_file_holds_is_told(tmp_path):
    path = tmp_path / "prices.json"
    for text in HOSTILE:
        for body in (text, f'{{"model-1": {text}}}', f'{{"model-1": {{"input_tokens": {text}}}}}'):
            path.write_bytes(raw(body))
            if body in ("{}", '{"a": {}}', '{"model-1": {}}') or body.endswith("1.5}}"):
                assert isinstance(read_prices(path), dict)
                continue
            with pytest.raises(arena_jax.ArenaError, match=r"prices\.json"):
                read_prices(path)


@pytest.fixture(scope="module")
def short(tmp_path_factory, world):
    """A run of one episode."""
    return play(tmp_path_factory.mktemp("short") / "run", [5], world)


SOME = [DEEPER_THAN_ANY, HUGE, "null", '{"a": {}}', '"\\u001b[2J"']


@pytest.mark.parametrize("texts", [SOME, pytest.param(HOSTILE, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("place", ["line", "n", "month", "arguments", "answer", "inside", "tokens", "record", "model"])
def test_whatever_a_line_of_a_journal_holds_is_told_in_one_line(monkeypatch, capsys, short, tmp_path, place, texts):
    """Looked at and replayed."""
    copy = Path(shutil.copytree(short, tmp_path / "copy"))
    whole = journal(copy).read_text("utf-8").splitlines()
    call = next(i for i, line in enumerate(whole) if '"verify_cash_position"' in line)
    number, was = {
        "line": (call, whole[call]),
        "n": (call, '"n":2'),
        "month": (call, '"month":0'),
        "arguments": (call, '"arguments":{}'),
        "answer": (call, whole[call][whole[call].index('"answer":') : -1]),
        "inside": (call, '"cash":15000000'),
        "tokens": (len(whole) - 1, '"input_tokens":10'),
        "record": (len(whole) - 2, f'"months_survived":{MONTHS}'),
        "model": (0, '"model":"model-1"'),
    }[place]
    for text in texts:
        lines = list(whole)
        assert was in lines[number]
        lines[number] = lines[number].replace(was, text if place == "line" else f"{was.split(':')[0]}:{text}")
        journal(copy).write_bytes(raw("".join(line + "\n" for line in lines)))
        problems = problems_of(copy)
        if place not in ("model", "arguments") and (place, text) != ("tokens", "null"):
            assert len(problems) == 1, text
        assert all(len(problem) < 500 and problem.isprintable() for problem in problems)
        if text in (DEEP, DEEPER_THAN_ANY, HUGE):
            assert f"line {number + 1} is damaged" in problems[0]
        for command in ("list", "show"):
            code, out, err = arena(monkeypatch, capsys, "agent", command, str(copy))
            assert code in (0, 2)
            assert "\x1b" not in out + err
            assert err.count("\n") == (code == 2)


def test_a_link_is_not_written_through(copy, tmp_path):
    """A run from elsewhere may name a file of ours."""
    mine = tmp_path / "mine.txt"
    mine.write_text("one line without an end")
    linked(journal(copy), mine)
    with pytest.raises(arena_jax.ArenaError, match="is a link"):
        open_episode(copy, 0)
    assert mine.read_text() == "one line without an end"


def test_no_text_upsets_the_comparison():
    assert "text" in difference({"text": "was #"}, {"text": "was 5"}, dollars_apart(5e7))
    assert "rate" in difference({"rate": 10**100}, {"rate": 7.125}, dollars_apart(5e7))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arena_jax", 1),
        ("arena_jax", "\x1b[2J"),
        ("seeds_drawn", None),
        ("scenarios", {"kind": "\x1b[2J"}),
        ("scenarios", ["generated"]),
        ("trajectories_sha256", ["\x1b[2J"] * 2),
        ("episodes", True),
        ("episodes", 10**30),
    ],
)
def test_fields_of_a_run_are_what_they_should_be(copy, field, value):
    changed(copy, "run.json", **{field: value})
    with pytest.raises(arena_jax.ArenaError, match=r"run\.json"):
        read_run(copy)


def test_the_seed_is_of_the_episode(copy):
    assert [run_seed(copy, episode) for episode in (0, 1)] == [3, 4]
    with pytest.raises(arena_jax.ArenaError, match="episode must be"):
        run_seed(copy, 2)
