"""The Inspect task with scripted models: any reply is taken, nothing is lost, nothing leaks."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from inspect_ai import eval as inspect_eval
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, get_model
from inspect_ai.model._call_tools import parse_tool_call
from standin import standin

import arena_jax
from arena_jax.analysis.table import TABLE_1
from arena_jax.data import data_path
from arena_jax.llm import ArenaSession
from arena_jax.llm.episode import plain_record
from arena_jax.llm.inspect_task import NUDGE, PATIENCE, enterprise_arena
from arena_jax.llm.journal import read_journal
from arena_jax.llm.runs import journal_path, new_run, played_episode, read_run
from arena_jax.llm.scripted import play_policy

pytestmark = [  # what Inspect does within: streams left open, a name that its retry library has renamed
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(inspect_ai|tenacity)"),
]

SEED = 2_718_281_828
FUND = ("fund_raising_request", {"instrument": "equity", "amount": 20e6})
CASH, PASS = ("verify_cash_position", {}), ("pass", {})


def said(reply):
    """A text, calls, or a text with a stop reason as what a model gives."""
    usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=117, input_tokens_cache_read=7)
    text, calls = (reply, []) if isinstance(reply, str) else ("", reply)
    made = [
        parse_tool_call(f"{i}", name, given if isinstance(given, str) else json.dumps(given))
        for i, (name, given) in enumerate(calls)
    ]
    stop = text if text == "model_length" else "stop"
    message = ChatMessageAssistant(content=text, tool_calls=made or None)
    return ModelOutput.from_message(message, stop).model_copy(update={"usage": usage})


def play(where, reply, task="arena_jax/enterprise_arena", **arguments):
    """Evaluate a model that replies by `reply(messages)`: the log, and the messages it was given."""
    seen = []

    def generate(messages, tools, choice, config):
        seen.append([(message.role, message.text) for message in messages])
        return said(reply(messages))

    model = get_model("mockllm/model", custom_outputs=generate, memoize=False)
    options = {name: arguments.pop(name) for name in ("epochs", "fail_on_error", "token_limit") if name in arguments}
    (log,) = inspect_eval(
        task, model=model, task_args=arguments, log_dir=str(where / "logs"), display="none", log_samples=True, **options
    )
    return log, seen


def scripted(*replies):
    """These replies in turn, then passes."""
    left = list(replies)
    return lambda messages: left.pop(0) if left else [PASS]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A world of twelve months."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.csv").write_text(data_path("macro_trajectory.csv").read_text())
    (folder / "small.toml").write_text('trajectory = "small.csv"\nhorizon = 12\ncrisis_months = [3, 6, 9]\n')
    return str(folder / "small.toml")


@pytest.fixture
def run(tmp_path, small):
    """The folder of a run in that world with one episode, and how to play it."""
    new_run(tmp_path / "run", [SEED], scenario=Path(small))
    return lambda reply, **options: play(tmp_path, reply, directory=str(tmp_path / "run"), **options)


def lines_of(where):
    return read_journal(journal_path(where / "run", 0))


def scores(log):
    return {score.name: {name: metric.value for name, metric in score.metrics.items()} for score in log.results.scores}


def asks(messages):
    """Equity whenever no request is open: what the policy greedy-equity does."""
    return [FUND] if '"open_requests":[]' in messages[-1].text else [PASS]


@pytest.mark.parametrize(("reply", "policy"), [(asks, "greedy-equity"), (lambda messages: [PASS], "never-raise")])
def test_an_episode_is_that_of_a_policy_which_decides_alike(env, tmp_path, reply, policy):
    """To month 132 and to bankruptcy."""
    log, _ = play(tmp_path, reply, seeds=7, directory=str(tmp_path / "run"))
    assert log.status == "success"
    played = played_episode(tmp_path / "run", 0)
    assert (played.status, played.agent, played.model) == (
        "survived" if policy == "greedy-equity" else "bankrupt",
        "react",
        "mockllm/model",
    )
    session = ArenaSession(env, 7)
    play_policy(session, arena_jax.make_policy(policy), 7)
    wanted = plain_record(session.record())
    assert plain_record(played.record) == wanted
    assert (wanted["months_survived"] == 132) == (policy == "greedy-equity")
    found = scores(log)
    assert list(found) == list(TABLE_1)
    assert (found["months"]["mean"], found["score"]["mean"]) == (wanted["months_survived"], wanted["score"])
    assert found["raised"]["mean"] == wanted["received_equity"]
    (sample,) = log.samples
    assert sample.id == "episode-000"
    assert sample.scores["table_1"].metadata["record"] == wanted


def test_what_a_model_may_reply(run, tmp_path):
    """Plain texts are nudged, several calls are made in order, what is broken is answered by the session."""
    log, seen = run(
        scripted(
            "I think I should look at the cash.",
            [("verify_cash_position", '{"a": '), ("fund_raising_request", {"instrument": "gold", "amount": 1})],
            [("buy_a_bank", {}), ("verify_cash_position", {"deep": json.loads("[" * 90 + "]" * 90)})],
            [CASH, ("save_note", {"text": "cash is king"}), PASS, CASH, PASS, ("save_note", {"text": "March"})],
        )
    )
    assert log.status == "success"
    assert seen[1][-1] == ("user", NUDGE)
    errors = [text for role, text in seen[3] if role == "tool"]
    assert ["are not JSON" in errors[0], "gold" in errors[1], "unknown tool 'buy_a_bank'" in errors[2]] == [True] * 3
    lines = lines_of(tmp_path)
    assert [line["tool"] for line in lines if line["type"] == "refused"] == [
        "verify_cash_position",
        "fund_raising_request",
        "buy_a_bank",
        "verify_cash_position",
    ]
    calls = [(line["tool"], line["month"]) for line in lines if line["type"] == "call"]
    assert calls[:7] == [
        ("verify_cash_position", 0),
        ("save_note", 0),
        ("pass", 0),
        ("verify_cash_position", 1),
        ("pass", 1),
        ("save_note", 2),
        ("recall_notes", 2),
    ]
    assert [role for role, _ in seen[4]] == ["system", "user", "assistant", *["tool"] * 6]  # it went on into the month
    assert seen[4][1][1].startswith("Mar 2xx0 begins.")
    assert ["cash is king" in seen[4][1][1], "March" in seen[4][1][1]] == [True, True]
    assert [role for role, _ in seen[5]] == ["system", "user"]
    assert played_episode(tmp_path / "run", 0).nudges == 1
    tokens = played_episode(tmp_path / "run", 0).tokens
    assert tokens == {name: count * len(seen) for name, count in
                      {"input_tokens": 100, "output_tokens": 10, "input_tokens_cache_read": 7}.items()}  # fmt: skip


@pytest.mark.parametrize(
    ("history", "months"), [("month", [1] * 6), ("last:2", [1, 2, 3, 3, 3, 3]), ("full", [1, 2, 3, 4, 5, 6])]
)
def test_how_much_of_the_past_a_conversation_holds(run, tmp_path, history, months):
    _, seen = run(scripted([("save_note", {"text": "a note"}), PASS]), history=history)
    openings = [[text.split(" begins")[0] for role, text in messages if role == "user"] for messages in seen]
    assert [len(dates) for dates in openings][:6] == months
    assert [dates[-1] for dates in openings][:3] == ["Jan 2xx0", "Feb 2xx0", "Mar 2xx0"]
    assert [role for messages in seen for role, _ in messages].count("system") == len(seen)
    assert ("a note" in seen[6][-1][1]) == (history != "full")
    assert (played_episode(tmp_path / "run", 0).agent == "react") == (history == "month")


@pytest.mark.parametrize("reply", ["I resign.", [("resign", {})]])
def test_an_agent_that_calls_nothing_has_stopped(run, tmp_path, reply):
    replies = [[CASH, PASS], *["Let me think."] * (PATIENCE - 1), [PASS], *[reply] * PATIENCE]
    log, seen = run(scripted(*replies))
    assert len(seen) == len(replies)
    played = played_episode(tmp_path / "run", 0)
    assert (played.status, played.months_played, float(played.record.score)) == ("agent_stopped", 2, 0.0)
    assert scores(log)["score"]["mean"] == 0
    assert scores(log)["months"]["mean"] == 2


def failing(messages):
    raise RuntimeError("https://provider/?key=secret is down")


def test_a_failure_of_the_provider_is_no_bankruptcy_and_the_same_command_goes_on(run, tmp_path):
    replies = iter([[CASH, PASS], [PASS], None])
    log, _ = run(lambda messages: next(replies) or failing(messages), fail_on_error=False)
    played = played_episode(tmp_path / "run", 0)
    assert (played.status, played.reason, played.months_played) == ("infra_error", "RuntimeError", 2)
    assert log.samples[0].error is not None
    assert not log.samples[0].scores
    log, seen = run(scripted())
    assert log.status == "success"
    assert seen[0][1][1].startswith("Mar 2xx0 begins.")
    assert [line["status"] for line in lines_of(tmp_path) if line["type"] == "end"] == ["infra_error", "survived"]
    assert scores(log)["months"]["mean"] == 12
    log, seen = run(failing)  # nothing is left to play
    assert (log.status, seen) == ("success", [])
    assert scores(log)["months"]["mean"] == 12


def test_a_limit_is_no_score(run, tmp_path):
    log, _ = run(scripted(), token_limit=300)
    assert played_episode(tmp_path / "run", 0).status == "infra_error"
    value = log.samples[0].scores["table_1"]
    assert np.isnan(value.value)
    assert value.reason == "infra_error"


def test_a_conversation_that_grows_too_long_begins_anew(run, tmp_path):
    log, seen = run(scripted([("save_note", {"text": "look"})], "model_length", [PASS]))
    assert log.status == "success"
    assert [role for role, _ in seen[2]] == ["system", "user"]
    assert "look" in seen[2][1][1]


def test_a_context_that_holds_no_month_is_a_failure(run, tmp_path):
    log, _ = run(scripted(*["model_length"] * 3))
    assert log.status == "error"
    assert "too short for one month" in log.samples[0].error.message
    assert played_episode(tmp_path / "run", 0).status == "infra_error"


def test_an_episode_is_played_once(run, tmp_path):
    log, _ = run(scripted(), epochs=2)
    assert log.status == "error"
    assert any("give more seeds" in sample.error.message for sample in log.samples if sample.error)


def test_the_event_loop_is_never_blocked(run, monkeypatch):
    """Whatever takes time or the disk is done in another thread than that of the models' replies."""
    threads = {"loop": set(), "work": set()}
    for name in ("__init__", "call", "add_usage"):
        original = getattr(ArenaSession, name)

        def watched(self, *arguments, original=original, **options):
            threads["work"].add(threading.get_ident())
            return original(self, *arguments, **options)

        monkeypatch.setattr(ArenaSession, name, watched)

    def reply(messages):
        threads["loop"].add(threading.get_ident())
        return [CASH, PASS]

    run(reply)
    assert threads["work"]
    assert not threads["work"] & threads["loop"]


def test_nothing_shown_or_logged_holds_the_seed(run, tmp_path):
    looks = [("review_financial_records", {"document": name}) for name in ("list", "financial_package", "cap_table")]
    log, seen = run(scripted([*looks, ("analyze_market_conditions", {}), ("nonsense", {}), FUND], "Hm.", [CASH, PASS]))
    text = json.dumps(seen) + log.model_dump_json() + "".join(
        path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != "seeds.json"
    )  # fmt: skip
    keys = np.asarray(jax.random.key_data(jax.random.fold_in(jax.random.key(SEED), 0)))
    for secret in (str(SEED), f"{SEED:x}", f"{SEED:,}", *map(str, keys), *[f"{word:x}" for word in keys]):
        assert secret not in text
    shown = json.dumps(seen)
    assert "Jan 2xx0 begins" in shown
    assert str(tmp_path) not in shown
    assert "episode-000" not in shown


def test_a_run_that_is_there_goes_on_only_with_what_it_was_made_for(tmp_path, small):
    where = str(tmp_path / "run")
    make = lambda **arguments: enterprise_arena(directory=where, **arguments)
    assert len(make(seeds=["3", "7"], env_set="noise=0.5", scenario=small).dataset) == 2
    assert not read_run(Path(where))["seeds_drawn"]
    for same in ({}, {"seeds": "3,7"}, {"env_set": ["noise=0.5"], "scenario": small}):
        assert len(make(**same).dataset) == 2
    for other in ({"seeds": "3-4"}, {"seeds": 3}, {"seeds": "random:3"}, {"env_set": "noise=1"}, {"scenario": small}):
        with pytest.raises(PrerequisiteError) as error:
            make(**other)
        assert "name another directory" in error.value.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": "week"}, "history must be"),
        ({"history": "last:0"}, "history must be"),
        ({"seeds": "x"}, "seeds must be such as"),
        ({"env_set": "nois=1"}, "did you mean noise"),
        ({"scenario": "nowhere.csv"}, "can't read"),
    ],
)
def test_bad_arguments_are_one_line_and_leave_nothing(tmp_path, arguments, message):
    with pytest.raises(PrerequisiteError) as error:
        enterprise_arena(directory=str(tmp_path / "run"), **arguments)
    assert message in error.value.message
    assert "\n" not in error.value.message
    assert not (tmp_path / "run").exists()


def test_seeds_are_drawn_unless_they_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = get_model("mockllm/model")
    log = inspect_eval(
        "arena_jax/enterprise_arena", model=model, limit=0, display="none", log_dir=str(tmp_path / "logs")
    )
    del log
    run = read_run(tmp_path / "runs" / "react-mockllm-model")
    assert (run["episodes"], run["seeds_drawn"]) == (5, True)


def test_without_inspect_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.delitem(sys.modules, "arena_jax.llm.inspect_task")
    with pytest.raises(arena_jax.ArenaError, match=r"pip install 'arena_jax\[inspect\]'"):
        importlib.import_module("arena_jax.llm.inspect_task")


def command(*arguments, cwd):
    inspect = Path(sys.executable).with_name("inspect")
    return subprocess.Popen(
        [inspect, *map(str, arguments), "--display", "plain"],
        cwd=cwd,
        env=os.environ | {"STANDIN_API_KEY": "x", "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["eval-retry", "again"])
def test_an_evaluation_that_is_killed_goes_on(tmp_path, how):
    """The real thing: `inspect eval` through a provider's client, killed with SIGKILL in the middle of an episode."""
    journal = tmp_path / "run" / "episode-000" / "journal.jsonl"
    with standin(lambda request: [CASH, PASS]) as (url, requests):
        evaluate = [
            "eval",
            "arena_jax/enterprise_arena",
            "--model",
            "openai-api/standin/model",
            "--model-base-url",
            url,
        ]
        evaluate += ["-T", f"seeds={SEED}", "-T", f"directory={tmp_path / 'run'}"]
        process = command(*evaluate, cwd=tmp_path)
        while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"month_ended") < 9):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        before, count = journal.read_bytes(), len(requests)
        whole = before[: before.rfind(b"\n") + 1]
        assert b'"end"' not in before
        (log,) = (tmp_path / "logs").glob("*.eval")
        process = command(*(["eval-retry", log] if how == "eval-retry" else evaluate), cwd=tmp_path)
        out, _ = process.communicate()
        assert process.returncode == 0, out
    assert journal.read_bytes().startswith(whole)
    assert read_journal(journal)[-1]["status"] == "bankrupt"
    assert len(requests) - count <= 34 - 8
    assert re.search(r"months.*\n.*mean +33", out) or "33.000" in out
