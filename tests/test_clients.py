"""The drivers of Claude Code, Codex CLI and OpenClaw, against stand-ins that print and do what those do."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from test_cli import arena

from arena_jax.errors import ArenaError
from arena_jax.llm.clients import CLIENTS
from arena_jax.llm.clients.client import events
from arena_jax.llm.clients.driver import GO_ON, START, TAKE_OVER, _Driver, make_setup, play_episode, state_folder
from arena_jax.llm.journal import read_journal
from arena_jax.llm.runs import cost, journal_path, new_run, open_episode, played_episodes

SEED = 2_718_281_828
STANDIN = Path(__file__).with_name("standin_client.py")


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A run of two episodes, and a folder for stand-ins that is on the path."""
    new_run(tmp_path / "run", [SEED, 7])
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, f"key-of-{name}")
    monkeypatch.setenv("ARENA_JAX_SECRET", "the secret of held-out worlds " * 2)
    monkeypatch.setenv("UNRELATED", "the user's own")
    return tmp_path


def script(stage, name, *steps):
    """Have a stand-in do these steps, one a start."""
    program = stage / "bin" / name
    program.write_text(f"#!{sys.executable}\n{STANDIN.read_text()}")
    program.chmod(0o755)
    (stage / "bin" / "script.json").write_text(json.dumps(steps))


def starts(stage):
    """What the stand-in was started with, start by start."""
    return [json.loads(line) for line in (stage / "bin" / "starts.jsonl").read_text().splitlines()]


def run(monkeypatch, capsys, stage, client, *options):
    arguments = ["agent", "run", str(stage / "run"), "--client", client, "--episode", "0", *options]
    return arena(monkeypatch, capsys, *arguments)


def test_a_run_has_one_player(monkeypatch, capsys, stage):
    script(stage, "claude", {"months": 2}, {})
    run(monkeypatch, capsys, stage, "claude", "--nudges", "0", "--model", "opus")
    code, out, _ = run(monkeypatch, capsys, stage, "claude", "--model", "opus")
    assert (code, "0 episodes played, 1 had ended before" in out) == (0, True)
    for other in (("codex",), ("claude", "--model", "haiku")):
        code, out, err = run(monkeypatch, capsys, stage, *other)
        assert (code, out) == (2, "")
        assert "is played by Claude Code + opus; make a run for another: agent new" in err


def test_claude_is_nudged_and_then_given_up(monkeypatch, capsys, stage):
    script(stage, "claude", {"months": 2}, {}, {})
    code, out, err = run(monkeypatch, capsys, stage, "claude", "--nudges", "2", "--model", "opus")
    assert (code, err) == (0, "")
    assert "1 episode played" in out
    played = played_episodes(stage / "run")[0]
    assert (played.status, played.months_played, played.nudges, played.calls) == ("agent_stopped", 2, 2, 4)
    assert (played.agent, played.model) == ("Claude Code", "opus")
    assert played.tokens == {"input_tokens": 30, "cache_read_input_tokens": 15, "output_tokens": 6}
    assert "after 2 nudges" in played.reason
    first, second, third = starts(stage)
    assert "--resume" not in first["arguments"]
    for later in (second, third):
        assert later["arguments"][later["arguments"].index("--resume") + 1] == "c-1"
        assert "not over yet" in later["arguments"][-1]
    code, out, _ = run(monkeypatch, capsys, stage, "claude", "--model", "opus")
    assert (code, len(starts(stage))) == (0, 3), "what is over is not played again"


def test_codex_crashes_and_goes_on_in_its_conversation(monkeypatch, capsys, stage):
    script(stage, "codex", {"months": 1, "code": 1, "fail": "stream disconnected"}, {}, {})
    code, out, err = run(monkeypatch, capsys, stage, "codex")
    assert (code, out) == (2, "")
    assert (
        err
        == "error: codex failed in episode 0: exit code 1: stream disconnected; run the same command again to go on\n"
    )
    played = played_episodes(stage / "run")[0]
    assert (played.status, played.nudges, played.record) == ("infra_error", 0, None)
    assert run(monkeypatch, capsys, stage, "codex", "--nudges", "1")[0] == 0
    played = played_episodes(stage / "run")[0]
    assert (played.status, played.months_played, played.nudges) == ("agent_stopped", 1, 1)
    # cumulative in Codex, counted once here
    assert played.tokens == {"input_tokens": 18, "cached_input_tokens": 12, "output_tokens": 6}
    _, second, third = starts(stage)
    for later in (second, third):
        assert later["arguments"][:2] == ["exec", "resume"]
        assert later["arguments"][-3:-1] == ["t-1", "--"]


def test_openclaw_stops_and_is_not_nudged(monkeypatch, capsys, stage):
    script(stage, "openclaw", {})
    assert run(monkeypatch, capsys, stage, "openclaw", "--nudges", "0")[0] == 0
    played = played_episodes(stage / "run")[0]
    assert (played.status, played.months_played, played.nudges) == ("agent_stopped", 0, 0)
    assert played.tokens == {"input_tokens": 10, "output_tokens": 2}
    (start,) = starts(stage)
    assert start["arguments"][-1].startswith("You are the chief financial officer")


@pytest.mark.parametrize(
    ("client", "step", "message"),
    [
        ("claude", {"dead": True}, "its MCP server is failed"),
        ("openclaw", {"dead": True}, "its MCP server did not come up"),
        *[(name, {"fail": "Invalid API key"}, "Invalid API key") for name in CLIENTS],
        *[(name, {"code": 1}, "exit code 1") for name in CLIENTS],  # so Codex ends without its required server
    ],
)
def test_what_fails_is_no_end_of_the_agent(monkeypatch, capsys, stage, client, step, message):
    script(stage, client, step)
    code, _, err = run(monkeypatch, capsys, stage, client)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    played = played_episodes(stage / "run")[0]
    assert (played.status, played.nudges, played.calls) == ("infra_error", 0, 0)
    assert message in played.reason


def test_a_server_that_dies_on_the_way_is_noticed(monkeypatch, capsys, stage):
    """The client ends with success then."""
    script(stage, "claude", {"months": 1, "kill": True})
    code, _, err = run(monkeypatch, capsys, stage, "claude")
    assert code == 2
    assert "a call got no answer" in err
    played = played_episodes(stage / "run")[0]
    assert (played.status, played.nudges, played.months_played) == ("infra_error", 0, 1)


CODEX_END = {"type": "turn.completed", "usage": {"input_tokens": 9, "cached_input_tokens": 2, "output_tokens": 1}}


@pytest.mark.parametrize(
    ("errors", "failure"),
    [
        ([None], ""),
        (["Transport closed"], "a call got no answer: Transport closed"),
        (["Transport closed", None], ""),
        (['{"error":"no tool calls are left"}'], ""),
    ],
)
def test_codex_calls_without_an_answer(errors, failure):
    items = [{"type": "mcp_tool_call", "error": error and {"message": error}} for error in errors]
    events = [{"type": "item.completed", "item": item} for item in items]
    turn = CLIENTS["codex"].read("".join(json.dumps(event) + "\n" for event in [*events, CODEX_END]))
    assert (turn.failure, turn.calls) == (failure, len(errors))
    assert turn.tokens == {"input_tokens": 7, "cached_input_tokens": 2, "output_tokens": 1}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("output", ["", "no JSON", "[1]\n", '{"type": "result"', "{}"])
def test_output_that_tells_nothing_is_a_failure(client, output):
    assert CLIENTS[client].read(output).failure.startswith("it told no")


def test_calls_that_never_arrive_are_noticed(monkeypatch, capsys, stage):
    script(stage, "openclaw", {"kill": True})
    code, _, err = run(monkeypatch, capsys, stage, "openclaw")
    assert code == 2
    assert "none of its 1 calls reached the arena" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_takes_the_client_along_and_goes_on_later(monkeypatch, capsys, stage, number):
    script(stage, "claude", {"months": 1, "hang": True}, {})
    command = [sys.executable, "-m", "arena_jax.cli", "agent", "run", str(stage / "run"), "--client", "claude"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        journal = journal_path(stage / "run", 0)
        output = journal.parent / "claude" / "turn-000.out"
        deadline = time.monotonic() + 120
        told = 0
        while told < 4 and time.monotonic() < deadline:  # two messages of two parts, the second after the month's end
            time.sleep(0.1)
            told = sum(event["type"] == "assistant" for event in events(output.read_text())) if output.exists() else 0
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.stderr.read() == "interrupted; run the same command again to go on\n"
    deadline = time.monotonic() + 30
    while _running(stage) and time.monotonic() < deadline:  # the server ends with its standard input
        time.sleep(0.1)
    assert not _running(stage)
    assert [line["type"] for line in read_journal(journal)] == ["header", "call", "call"]
    assert run(monkeypatch, capsys, stage, "claude", "--nudges", "0")[0] == 0
    second = starts(stage)[1]["arguments"]
    assert second[second.index("--resume") + 1] == "c-1"
    played = played_episodes(stage / "run")[0]
    assert played.status == "agent_stopped"
    # two messages of the first start, each counted once and from its beginning alone; all of the second
    assert played.tokens == {
        "input_tokens": 50,
        "output_tokens": 4,
        "cache_read_input_tokens": 5,
        "uncounted": 0,
    }
    prices = {"": dict.fromkeys(played.tokens, 1.0)}
    assert cost(played, prices) == pytest.approx(59e-6)
    del prices[""]["uncounted"]
    assert cost(played, prices) is None


def _running(stage):
    """Processes that have to do with a stage."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] if str(stage).encode() in path.read_bytes() else []
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_is_given(monkeypatch, capsys, stage, client):
    """Its own keys, an empty folder, no tool but the arena's, and nothing of the seeds or of the user."""
    script(stage, client, {"months": 1})
    run(monkeypatch, capsys, stage, client, "--nudges", "0", "--model", "anthropic/model")
    (start,) = starts(stage)
    environment = start["environment"]
    assert start["files"] == []
    home = state_folder(stage / "run", 0, CLIENTS[client])
    assert environment["HOME"] == str(home / "home")
    assert start["cwd"] == str(home / "work")
    assert {"UNRELATED", "ARENA_JAX_SECRET", "PYTHONPATH"} & environment.keys() == set()
    assert ("OPENAI_API_KEY" in environment, "ANTHROPIC_API_KEY" in environment) == {
        "claude": (False, True),
        "codex": (True, False),
        "openclaw": (True, True),
    }[client]
    shown = (stage / "bin" / "shown.txt").read_text()
    assert "month_ended" in shown and "You are the chief financial officer" in shown
    given = json.dumps(start) + shown + "".join(path.read_text() for path in home.rglob("*") if path.is_file())
    assert not re.search(rf"{SEED}|{SEED:x}|{SEED:,}", given)
    assert "seeds.json" not in given
    printed = arena(monkeypatch, capsys, "agent", "config", client, str(stage / "run"), "--model", "anthropic/model")
    assert (printed[0], printed[2]) == (0, "")
    for path in home.rglob("*"):
        if path.is_file() and path.name in ("mcp.json", "config.toml", "openclaw.json", "prompt.txt"):
            assert path.read_text() in printed[1]
    assert "key-of" not in printed[1]


def test_settings_are_printed_whatever_the_user_has(monkeypatch, capsys, stage):
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    printed = arena(monkeypatch, capsys, "agent", "config", "claude", str(stage / "run"), "--json")[1]
    environment = json.loads(printed)["environment"]
    assert environment["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert "CLAUDE_CODE_USE_BEDROCK" not in environment


def test_a_run_made_anew_at_the_same_path_is_another_one(monkeypatch, capsys, stage):
    script(stage, "openclaw", {"months": 1}, {}, {})
    assert run(monkeypatch, capsys, stage, "openclaw", "--nudges", "1")[0] == 0
    shutil.rmtree(stage / "run")
    new_run(stage / "run", [SEED, 7])
    assert run(monkeypatch, capsys, stage, "openclaw", "--nudges", "0")[0] == 0
    assert [start["remembered"] for start in starts(stage)] == [False, True, False]
    assert [prompted(start) for start in starts(stage)] == [True, False, True]


def prompted(start):
    """Whether a start of OpenClaw was given the system prompt."""
    return start["arguments"][-1].startswith("You are the chief financial officer")


def test_a_conversation_that_fails_is_forgotten(monkeypatch, capsys, stage):
    """The next one begins without it, and is told where the notes are."""
    script(stage, "openclaw", {"months": 1, "fail": "overloaded"}, {"fail": "context too long"}, {})
    for _ in range(2):
        assert run(monkeypatch, capsys, stage, "openclaw")[0] == 2
    assert run(monkeypatch, capsys, stage, "openclaw", "--nudges", "0")[0] == 0
    assert [start["remembered"] for start in starts(stage)] == [False, True, False]
    first, second, third = (start["arguments"][-1] for start in starts(stage))
    assert [prompted(start) for start in starts(stage)] == [True, False, True]
    assert first.endswith(START) and second == GO_ON and third.endswith(TAKE_OVER)


def test_what_made_no_call_begins_anew(monkeypatch, capsys, stage):
    """Its system prompt may not have reached it."""
    script(stage, "openclaw", {"fail": "Invalid API key"}, {})
    assert run(monkeypatch, capsys, stage, "openclaw")[0] == 2
    assert run(monkeypatch, capsys, stage, "openclaw", "--nudges", "0")[0] == 0
    assert [prompted(start) for start in starts(stage)] == [True, True]
    assert all(CLIENTS["openclaw"].read(cut).conversation == "" for cut in ("", '{"payloads": [], "meta"'))


@pytest.mark.parametrize(
    ("client", "output"),
    [
        ("codex", {"type": "turn.failed", "error": "overloaded"}),
        ("codex", {"type": "turn.completed", "usage": {"input_tokens": None, "cached_input_tokens": 1}}),
        ("codex", {"type": "item.completed", "item": "text"}),
        ("codex", {"type": "thread.started", "thread_id": 7}),
        ("claude", {"type": "system", "subtype": "init", "mcp_servers": None}),
        ("claude", {"type": "user", "message": "text"}),
        ("claude", {"type": "assistant", "message": "text"}),
        ("claude", {"type": "user", "message": {"content": [{"type": "tool_result", "content": ["text"]}]}}),
        ("openclaw", {"meta": "text"}),
        ("openclaw", {"meta": {"agentMeta": "text"}}),
        ("openclaw", {"meta": {"systemPromptReport": {}}}),
    ],
)
def test_output_of_another_shape(monkeypatch, stage, client, output):
    """It fails the start, and is no traceback."""
    program = stage / "bin" / client
    program.write_text(f"#!/bin/sh\necho '{json.dumps(output)}'\n")
    program.chmod(0o755)
    sessions = []

    @contextlib.contextmanager
    def opened(self):
        sessions.append(Session())
        yield sessions[-1]

    monkeypatch.setattr(_Driver, "opened", opened)
    setup = make_setup(stage / "run", 0, CLIENTS[client])
    with pytest.raises(ArenaError, match=f"{client} failed in episode 0: its output can't be read"):
        play_episode(stage / "run", 0, CLIENTS[client], setup, 0, print)
    assert sessions[-1].stopped == ("infra_error", "its output can't be read")


class Session:
    """What the driver asks of a session in which no call is made."""

    status, is_over, calls_made, nudges = "running", False, 0, 0

    def stop(self, *how):
        self.stopped = how


def test_openclaw_says_more_than_its_result():
    meta = {"agentMeta": {"usage": {"input": 10}}, "systemPromptReport": {"tools": {"entries": [{"name": "arena__a"}]}}}
    result = json.dumps({"payloads": [], "meta": meta}, indent=2)
    for output in (f"[plugin] {{loaded}}\n{{}}\n{result}\n", f'{result}\nbye {{}}\n{{"level": "info"}}\n{{not JSON\n'):
        turn = CLIENTS["openclaw"].read(output)
        assert (turn.failure, turn.tokens, turn.conversation) == ("", {"input_tokens": 10}, "arena")


def test_a_client_that_hangs_is_ended(monkeypatch, capsys, stage):
    monkeypatch.setattr("arena_jax.llm.clients.driver.SILENCE", 1.0)
    script(stage, "openclaw", {"hang": True})
    code, _, err = run(monkeypatch, capsys, stage, "openclaw")
    assert code == 2
    assert "openclaw failed in episode 0: nothing happened for" in err
    assert not _running(stage / "bin" / "openclaw")
    assert played_episodes(stage / "run")[0].status == "infra_error"


@pytest.mark.parametrize(("forgets", "uncounted"), [(False, False), (True, True)])
def test_tokens_that_codex_tells_later_are_not_missing(monkeypatch, capsys, stage, forgets, uncounted):
    """It counts a conversation as a whole, so a crash is made up for in it, and in no other."""
    script(stage, "codex", {"months": 1, "code": 1, "fail": "overloaded"}, {})
    assert run(monkeypatch, capsys, stage, "codex")[0] == 2
    if forgets:
        shutil.rmtree(stage / "state")
    assert run(monkeypatch, capsys, stage, "codex", "--nudges", "0")[0] == 0
    assert ("uncounted" in played_episodes(stage / "run")[0].tokens) == uncounted


def test_configurations_turn_the_clients_own_tools_off(monkeypatch, capsys, stage):
    configure = lambda client: json.loads(
        arena(monkeypatch, capsys, "agent", "config", client, str(stage / "run"), "--json")[1]
    )
    command = configure("claude")["command"]
    assert command[command.index("--tools") + 1] == ""
    assert {"--strict-mcp-config", "--bare"} <= set(command)
    files = configure("codex")["files"]
    config = tomllib.loads(next(text for path, text in files.items() if path.endswith("config.toml")))
    assert config["features"]["shell_tool"] is False
    assert (config["web_search"], config["sandbox_mode"]) == ("disabled", "read-only")
    assert config["mcp_servers"]["arena"]["required"] is True
    (text,) = configure("openclaw")["files"].values()
    config = json.loads(text)
    assert config["tools"]["allow"] == ["bundle-mcp"]
    assert len(config["mcp"]["servers"]["arena"]["toolFilter"]["include"]) == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--client", "cluade"], "did you mean claude"),
        (["--client", "claude"], "claude is not on the path"),
        (["--client", "claude", "--episode", "2"], "episode must be all or a whole number from 0 to 1"),
        (["--client", "claude", "--nudges", "-1"], "nudges must be a whole number"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, stage, arguments, message):
    monkeypatch.setenv("PATH", str(stage / "bin"))
    code, out, err = arena(monkeypatch, capsys, "agent", "run", str(stage / "run"), *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_episode_is_gone_on_with_by_the_agent_that_began_it(monkeypatch, capsys, stage):
    with open_episode(stage / "run", 0, agent="someone") as session:
        session.call("pass")
    script(stage, "claude", {})
    code, _, err = run(monkeypatch, capsys, stage, "claude")
    assert code == 2
    assert "is played by someone; make a run for another: agent new" in err


def test_the_server_is_the_one_of_this_python(stage):
    setup = make_setup(stage / "run", 1, CLIENTS["codex"], "model")
    assert setup.server[:5] == [sys.executable, "-m", "arena_jax.cli", "agent", "mcp"]
    assert setup.server[5:] == [
        str((stage / "run").resolve()),
        "--episode",
        "1",
        "--agent",
        "Codex CLI",
        "--model",
        "model",
    ]


def test_a_client_ends_with_the_command_that_is_killed(stage):
    script(stage, "claude", {"months": 1, "hang": True})
    asked = ["-m", "arena_jax.cli", "agent", "run", str(stage / "run"), "--client", "claude", "--episode", "0"]
    with subprocess.Popen([sys.executable, *asked], stdout=subprocess.DEVNULL) as command:
        deadline = time.monotonic() + 120
        while played_episodes(stage / "run")[0].months_played < 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        command.kill()
    with open_episode(stage / "run", 0, agent="Claude Code", patience=10.0) as session:
        assert session.calls_made == 2


def test_an_episode_that_is_played_elsewhere_does_not_end_the_others(monkeypatch, capsys, stage):
    monkeypatch.setattr("arena_jax.llm.clients.driver.SERVER_GRACE", 5.0)
    script(stage, "claude", {"months": 1})
    with open_episode(stage / "run", 0, agent="Claude Code"):
        asked = ["agent", "run", str(stage / "run"), "--client", "claude", "--nudges", "0"]
        code, _, err = arena(monkeypatch, capsys, *asked)
    assert (code, err.count("\n")) == (2, 1) and "is in use by another process" in err
    assert played_episodes(stage / "run")[1].status == "agent_stopped"
