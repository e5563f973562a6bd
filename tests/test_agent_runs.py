"""Run directories and `arena-jax agent`: made, played, resumed, listed, scored beside the published rows."""

import json
import shutil
import stat
from pathlib import Path

import jax
import numpy as np
import pytest
from test_cli import arena

import arena_jax
from arena_jax.analysis.metrics import Tallies
from arena_jax.analysis.table import results_json
from arena_jax.data import data_path
from arena_jax.llm.runs import new_run, open_episode, parse_seeds, played_episodes, read_prices, stacked
from arena_jax.llm.scripted import play_policy
from arena_jax.secret import commitment
from arena_jax.worlds import parse_worlds


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run of four episodes: bankrupt, stopped, failed, not begun; with token counts."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    new_run(folder, [3, 4, 5, 6])
    with open_episode(folder, 0, agent="someone", model="model-1") as session:
        session.call("nonsense")
        while not session.is_over:
            session.call("pass")
        session.add_usage(input_tokens=1_000_000, output_tokens=10_000)
        session.add_usage(input_tokens=500_000)
    for episode, status in ((1, "agent_stopped"), (2, "infra_error")):
        with open_episode(folder, episode, agent="someone", model="model-1") as session:
            session.call("verify_cash_position")
            session.call("pass")
            session.stop(status, "because")
    return folder


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-4", [0, 1, 2, 3, 4]), ("7", [7]), ("3,7,10-12", [3, 7, 10, 11, 12]), ("4294967295", [2**32 - 1])],
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


def test_random_seeds_are_nobodys():
    seeds = parse_seeds("random:20")
    assert len(set(seeds)) == 20
    assert seeds != parse_seeds("random:20")


@pytest.mark.parametrize(
    "text", ["", "a", "4-2", "1,1", "-1", "1-", "4294967296", "random:0", "random:9999", "0-5000", "1.5"]
)
def test_bad_seeds(text):
    with pytest.raises(arena_jax.ArenaError, match=r"seed|episodes must be"):
        parse_seeds(text)


def test_the_seed_is_in_one_file_that_the_owner_alone_reads(tmp_path):
    new_run(tmp_path / "run", [271_828_182], ["noise=0.5"], data_path("macro_trajectory.csv"))
    with open_episode(tmp_path / "run", 0, agent="x") as session:
        session.call("pass")
    for path in (tmp_path / "run").rglob("*"):
        if path.name in ("run.json", "seeds.json", "world.toml", "world.csv"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        if path.is_file() and path.name != "seeds.json":
            assert "271828182" not in path.read_text()
            assert "271828182" not in str(path)


def test_every_episode_may_have_a_held_out_world_of_its_own(tmp_path, monkeypatch):
    secret = "0123456789abcdef" * 4
    monkeypatch.setenv("ARENA_JAX_SECRET", secret)
    new_run(tmp_path / "run", [5, 6], scenarios="secret,worlds=2")
    monkeypatch.delenv("ARENA_JAX_SECRET")
    worlds = []
    for episode in range(2):
        with open_episode(tmp_path / "run", episode) as session:
            worlds.append(np.asarray(session.world.scenario.treasury_2y))
            expected = parse_worlds_of(secret).scenario(episode, 132)
            np.testing.assert_array_equal(worlds[-1], np.asarray(expected.treasury_2y))
    assert (worlds[0] != worlds[1]).any()
    for path in (tmp_path / "run").rglob("*"):
        if path.parent.name == "worlds":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.is_file() or secret not in path.read_text()
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["scenarios"]["commitment_sha256"] == commitment(secret.encode())


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """A run in two held-out worlds, and the file of their secret."""
    folder = tmp_path_factory.mktemp("held-out")
    secret = folder / "secret.key"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)
    new_run(folder / "run", [5, 6], scenarios=f"secret:{secret},worlds=2")
    return folder / "run", secret


def exchange_worlds(run):
    """Play the second episode in the first one's world."""
    for end in ("toml", "csv"):
        text = (run / f"worlds/world-000.{end}").read_text().replace("world-000", "world-001")
        (run / f"worlds/world-001.{end}").write_text(text)


def test_an_episode_keeps_the_world_that_it_was_made_with(held_out, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(held_out[0], run)
    exchange_worlds(run)
    open_episode(run, 0).close()
    with pytest.raises(arena_jax.ArenaError, match="other trajectory"):
        open_episode(run, 1)


def test_verify_proves_the_worlds_of_an_agent_run(monkeypatch, capsys, held_out, tmp_path):
    verify = lambda run: arena(monkeypatch, capsys, "scenario", "verify", str(run), "--secret", str(held_out[1]))
    assert verify(held_out[0])[0] == 0
    run = tmp_path / "run"
    shutil.copytree(held_out[0], run)
    exchange_worlds(run)
    assert verify(run)[0] == 2
    about = json.loads((run / "run.json").read_text())
    about["trajectories_sha256"] = [about["trajectories_sha256"][0]] * 2
    (run / "run.json").write_text(json.dumps(about))
    open_episode(run, 1).close()  # a run that says so itself
    code, _, err = verify(run)
    assert code == 2
    assert "episode 1 is not played in world 1" in err


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("failing", range(5))
def test_a_run_is_made_whole_or_not_at_all(monkeypatch, tmp_path, failing, is_there):
    run, replaced = tmp_path / "mine" / "run", []
    if is_there:
        run.mkdir(parents=True)
    replace = Path.replace

    def fails(self, target):
        replaced.append(target)
        if len(replaced) == failing + 1:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    world = data_path("macro_trajectory.csv")
    with pytest.raises(arena_jax.ArenaError, match="No space left on device"):
        new_run(run, [1], [], world)
    assert not run.exists() or not any(run.iterdir())
    assert not [path for path in tmp_path.rglob("*") if "half" in path.name]
    monkeypatch.undo()
    new_run(run, [1], [], world)
    open_episode(run, 0).close()


def parse_worlds_of(secret):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENA_JAX_SECRET", secret)
        return parse_worlds("secret,worlds=2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenarios": "generated:1"}, "2 episodes need as many worlds"),
        ({"scenarios": "generated:0"}, "generated worlds must be"),
        ({"scenarios": "generated:2", "scenario": "mine.csv"}, "not both"),
    ],
)
def test_worlds_that_do_not_fit(tmp_path, options, message):
    with pytest.raises(arena_jax.ArenaError, match=message):
        new_run(tmp_path / "run", [1, 2], **options)
    assert not (tmp_path / "run").exists()


def test_a_world_with_a_company_of_its_own(tmp_path):
    (tmp_path / "mine.csv").write_text(data_path("macro_trajectory.csv").read_text())
    (tmp_path / "mine.toml").write_text(
        'trajectory = "mine.csv"\nhorizon = 24\ncrisis_months = [3, 9, 20]\n[parameters]\ninitial_cash = 20e6\n'
    )
    new_run(tmp_path / "run", [1], ["tool_budget=3"], tmp_path / "mine.toml")
    with open_episode(tmp_path / "run", 0) as session:
        assert session.call("verify_cash_position")["cash"] == 20_000_000
        assert session.world.scenario.horizon == 24
        assert session.world.scenario.crisis_months.tolist() == [3, 9, 20]
        assert session.observation.calls_left == 2


def test_a_run_has_the_world_that_it_was_made_with(tmp_path, env):
    rows = data_path("macro_trajectory.csv").read_text().splitlines()
    cells = rows[1].split(",")
    cells[2] = "4.5"
    (tmp_path / "mine.csv").write_text("\n".join([rows[0], ",".join(cells), *rows[2:]]))
    new_run(tmp_path / "run", [1], ["delay_max=1", "tool_budget=3"], tmp_path / "mine.csv", disclose_horizon=True)
    (tmp_path / "mine.csv").unlink()
    with open_episode(tmp_path / "run", 0) as session:
        assert "132 months" in session.system_prompt
        assert "up to 3 tool calls" in session.system_prompt
        market = session.call("analyze_market_conditions", {"indicators": ["treasury_2y"]})
        assert market["history"] == {"treasury_2y, % a year": [4.5]}
    (tmp_path / "run" / "world.csv").write_text(data_path("macro_trajectory.csv").read_text())
    with pytest.raises(arena_jax.ArenaError, match="other trajectory"):
        open_episode(tmp_path / "run", 0)


def test_statuses_and_records(played):
    episodes = played_episodes(played)
    assert [row.status for row in episodes] == ["bankrupt", "agent_stopped", "infra_error", "not begun"]
    assert episodes[0].player == "someone + model-1"
    assert (episodes[0].refused, episodes[0].calls) == (1, episodes[0].months_played)
    assert episodes[0].tokens == {"input_tokens": 1_500_000, "output_tokens": 10_000}
    assert (episodes[1].months_played, episodes[1].record.verify_cash_position, episodes[1].reason) == (1, 1, "because")


def test_list_prices_what_it_can(monkeypatch, capsys, played, tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text('{"model-1": {"input_tokens": 2, "output_tokens": 10}}')
    code, out, err = arena(monkeypatch, capsys, "agent", "list", str(played), "--prices", str(prices), "--json")
    assert (code, err) == (0, "")
    assert [row["cost"] for row in json.loads(out)] == [pytest.approx(3.1), None, None, None]
    _, out, _ = arena(monkeypatch, capsys, "agent", "list", str(played), "--prices", str(prices))
    assert "$3.10" in out
    assert "infra_error" in out
    _, out, _ = arena(monkeypatch, capsys, "agent", "list", str(played), "--json")
    assert json.loads(out)[0]["cost"] is None
    for text in ("[]x", "[1]", '{"m": 2}', '{"m": {"input_tokens": -1}}'):
        prices.write_text(text)
        with pytest.raises(arena_jax.ArenaError, match=r"prices\.json"):
            read_prices(prices)


def test_score_leaves_failures_out(monkeypatch, capsys, played):
    code, out, _ = arena(monkeypatch, capsys, "agent", "score", str(played))
    assert code == 0
    for text in (
        "someone + model-1",
        "Human (published)",
        "left out: 1 infra_error, 1 not begun",
        "not told the horizon",
    ):
        assert text in " ".join(out.split())
    found = json.loads(arena(monkeypatch, capsys, "agent", "score", str(played), "--json")[1])
    (row,) = found["results"]
    assert (row["episodes"], row["metrics"]["full_survival"]["mean"]) == (2, 0.0)
    assert [episode["status"] for episode in found["episodes"]] == [
        "bankrupt",
        "agent_stopped",
        "infra_error",
        "not begun",
    ]


def forged(run, tmp_path, **changes):
    """A copy of a run whose first episode says in its end what it likes."""
    copy = tmp_path / "forged"
    shutil.copytree(run, copy)
    path = copy / "episode-000" / "journal.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    end = next(line for line in lines if line["type"] == "end")
    end["record"] |= changes
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return copy


def test_score_counts_no_end_that_a_replay_does_not_confirm(monkeypatch, capsys, played, tmp_path):
    code, out, err = arena(monkeypatch, capsys, "agent", "score", str(forged(played, tmp_path, score=9e8)))
    assert (code, out) == (2, "")
    assert "the record of the end is different now: score" in err


def test_damaged_journals_are_listed(monkeypatch, capsys, played, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(played, copy)
    (copy / "episode-001" / "journal.jsonl").write_bytes(b"\xff\n")
    code, out, _ = arena(monkeypatch, capsys, "agent", "list", str(copy), "--json")
    assert code == 0
    assert [row["status"] for row in json.loads(out)] == ["bankrupt", "damaged", "infra_error", "not begun"]
    assert "line 1 is damaged" in json.loads(out)[1]["reason"]
    code, out, _ = arena(monkeypatch, capsys, "agent", "score", str(copy))
    assert code == 0
    assert "left out: 1 damaged" in out
    assert arena(monkeypatch, capsys, "agent", "show", str(copy), "1")[0] == 2


def test_nothing_from_a_foreign_run_reaches_the_terminal(monkeypatch, capsys, played, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(played, copy)
    for path in copy.glob("*/journal.jsonl"):
        text = path.read_text().replace('"someone"', '"some\\u001b[2Jone"').replace('"model-1"', '"\\u009b2J"')
        path.write_text(text.replace('"because"', '"\\u001b]0;x\\u0007"').replace("input_tokens", "\\u001b[31m"))
    for arguments in (["list"], ["list", "--json"], ["score"], ["score", "--json"], ["show"]):
        code, out, err = arena(monkeypatch, capsys, "agent", arguments[0], str(copy), *arguments[1:])
        assert code == 0
        assert not set("\x1b\x9b\x07") & set(out + err)
    assert played_episodes(copy)[0].player == "some\ufffd[2Jone + \ufffd2J"
    run = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(run | {"env_set": ["noise=\x1b[2J"]}))
    code, out, err = arena(monkeypatch, capsys, "agent", "score", str(copy))
    assert code == 2
    assert "\x1b" not in out + err


def test_the_caption_says_whether_the_horizon_was_told(monkeypatch, capsys, tmp_path):
    new_run(tmp_path / "run", [3], disclose_horizon=True)
    with open_episode(tmp_path / "run", 0) as session:
        session.stop("agent_stopped")
    text = " ".join(arena(monkeypatch, capsys, "agent", "score", str(tmp_path / "run"))[1].split())
    assert "agents were told the horizon, the paper's were not" in text
    assert "not told the horizon" not in text


def test_show(monkeypatch, capsys, played):
    code, out, _ = arena(monkeypatch, capsys, "agent", "show", str(played), "1")
    assert code == 0
    assert "Jan 2xx0  verify_cash_position {}" in out
    assert "agent_stopped" in out
    lines = json.loads(arena(monkeypatch, capsys, "agent", "show", str(played), "0", "--json")[1])
    assert lines[0]["type"] == "header"
    assert arena(monkeypatch, capsys, "agent", "show", str(played), "3")[0] == 2
    assert arena(monkeypatch, capsys, "agent", "show", str(played), "-1")[0] == 2


def test_scripted_is_scored_as_evaluate_scores_it(monkeypatch, capsys, tmp_path, env):
    run = str(tmp_path / "run")
    assert arena(monkeypatch, capsys, "agent", "new", run, "--seeds", "0-1")[0] == 0
    code, out, err = arena(monkeypatch, capsys, "agent", "scripted", run, "--policy", "cash-threshold")
    assert (code, err) == (0, "")
    assert "2 episodes played" in out
    again = arena(monkeypatch, capsys, "agent", "scripted", run, "--policy", "cash-threshold")
    assert again[0] == 0  # nothing is left to play
    found = json.loads(arena(monkeypatch, capsys, "agent", "score", run, "--json")[1])["results"]
    policy, tallies = arena_jax.make_policy("cash-threshold"), Tallies()
    records = [arena_jax.rollout(env, policy, jax.random.key(seed), 1) for seed in (0, 1)]
    tallies.add(stacked(jax.tree.map(lambda leaf: leaf[0], record) for record in records))
    (wanted,) = results_json({"scripted + cash-threshold": tallies.estimates()})
    assert found[0]["policy"] == wanted["policy"]
    for name, value in wanted["metrics"].items():
        assert found[0]["metrics"][name]["mean"] == pytest.approx(value["mean"], rel=1e-5), name


def test_an_interrupted_scripted_run_goes_on(monkeypatch, capsys, tmp_path):
    for name in ("cut", "whole"):
        new_run(tmp_path / name, [2])
        arena(monkeypatch, capsys, "agent", "scripted", str(tmp_path / name), "--policy", "late-raiser")
        journal = tmp_path / name / "episode-000" / "journal.jsonl"
        whole = journal.read_bytes()
        if name == "cut":
            journal.write_bytes(whole[: len(whole) // 2])
            arena(monkeypatch, capsys, "agent", "scripted", str(tmp_path / name), "--policy", "late-raiser")
    assert (tmp_path / "cut" / "episode-000" / "journal.jsonl").read_bytes() == whole


@pytest.mark.parametrize("policy", ["never-raise", "cash-threshold:threshold=1e6"])
def test_a_run_is_gone_on_with_by_the_policy_that_began_it(env, tmp_path, policy):
    new_run(tmp_path / policy, [2])
    with open_episode(tmp_path / policy, 0) as session:
        play_policy(session, arena_jax.make_policy("late-raiser"), 2)
    journal = tmp_path / policy / "episode-000" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    data = journal.read_bytes()
    with (
        open_episode(tmp_path / policy, 0) as session,
        pytest.raises(
            arena_jax.ArenaError, match=r"another policy has played here: call \d+ is '.*', this one decides"
        ),
    ):
        play_policy(session, arena_jax.make_policy(policy), 2)
    assert journal.read_bytes() == data


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "nowhere"], "is not a run directory"),
        (["score", "nowhere"], "is not a run directory"),
        (["scripted", "nowhere", "--policy", "never-raise"], "is not a run directory"),
        (["scripted", "nowhere", "--policy", "never-rise"], "did you mean never-raise"),
        (["new", "fresh", "--seeds", "x"], "seeds must be such as"),
        (["new", "fresh", "--env-set", "nois=1"], "did you mean noise"),
        (["new", "fresh", "--scenario", "nowhere.csv"], "can't read trajectory"),
        (["new", "full"], "is not an empty folder"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    code, _, err = arena(monkeypatch, capsys, "agent", *arguments)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "fresh").exists()


def test_runs_of_different_worlds_are_not_mixed(monkeypatch, capsys, played, tmp_path):
    new_run(tmp_path / "other", [1], ["noise=0"])
    code, _, err = arena(monkeypatch, capsys, "agent", "score", str(played), str(tmp_path / "other"))
    assert code == 2
    assert "the runs differ in parameters" in err


def changed_header(run, copy, **changes):
    """A copy of a run whose journals have another header."""
    shutil.copytree(run, copy)
    for path in copy.glob("*/journal.jsonl"):
        first, *rest = path.read_text().split("\n")
        path.write_text("\n".join([json.dumps(json.loads(first) | changes), *rest]))
    return copy


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("arena_jax", "differ in the version of arena_jax"),
        ("prompt_sha256", "differ in prompt"),
        ("tools_sha256", "differ in tools"),
    ],
)
def test_episodes_played_unlike_are_not_mixed(monkeypatch, capsys, played, tmp_path, field, message):
    other = changed_header(played, tmp_path / "other", **{field: "x"})
    code, _, err = arena(monkeypatch, capsys, "agent", "score", str(played), str(other))
    assert code == 2
    assert message in err


def test_worlds_of_other_seeds_are_not_mixed_and_no_run_counts_twice(monkeypatch, capsys, played, tmp_path):
    for seed in (1, 2):
        new_run(tmp_path / f"{seed}", [1], scenarios=f"generated:1,seed={seed}")
    code, _, err = arena(monkeypatch, capsys, "agent", "score", str(tmp_path / "1"), str(tmp_path / "2"))
    assert code == 2
    assert "the runs differ in scenarios" in err
    code, _, err = arena(monkeypatch, capsys, "agent", "score", str(played), f"{played}/../{played.name}")
    assert code == 2
    assert "named twice" in err


@pytest.mark.parametrize(
    ("field", "value"),
    [("trajectories_sha256", []), ("format", 2), ("episodes", "two"), ("env_set", [1]), ("world", "/etc/passwd")],
)
def test_a_damaged_run_file_is_one_line(tmp_path, field, value):
    new_run(tmp_path / "run", [1])
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(arena_jax.ArenaError, match=r"run\.json"):
        open_episode(tmp_path / "run", 0)


def test_play_tells_a_damaged_game(monkeypatch, capsys, tmp_path):
    new_run(tmp_path / "game", [1])
    journal = tmp_path / "game" / "episode-000" / "journal.jsonl"
    journal.parent.mkdir()
    journal.write_text("{}\n")
    code, _, err = arena(monkeypatch, capsys, "play", str(tmp_path / "game"))
    assert code == 2
    assert err.count("\n") == 1
    assert "can't go on" in err
    assert "line 1 is damaged" in err


def test_play_refuses_options_for_a_game_that_is_there(monkeypatch, capsys, tmp_path):
    new_run(tmp_path / "game", [1])
    code, _, err = arena(monkeypatch, capsys, "play", str(tmp_path / "game"), "--seed", "3")
    assert code == 2
    assert "holds a game already" in err


def test_records_stack_as_batch_play_returns_them(env):
    record = arena_jax.rollout(env, arena_jax.make_policy("cash-threshold"), jax.random.key(0), 3)
    rows = [type(record)(**{name: leaf[i] for name, leaf in vars(record).items()}) for i in range(3)]
    for name, value in vars(stacked(rows)).items():
        np.testing.assert_array_equal(value, getattr(record, name))
        assert value.dtype == getattr(record, name).dtype
