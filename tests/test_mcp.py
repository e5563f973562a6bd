"""The MCP server: the official client plays through it, nothing is told that should not be, and it is hard to break."""

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from test_cli import arena

from arena_jax.cli.mcp import _open as open_seat
from arena_jax.llm.journal import Journal, JournalInUse, read_journal
from arena_jax.llm.mcp_server import make_server
from arena_jax.llm.runs import confirm_episode, journal_path, new_run, open_episode, played_episodes, read_run

SEED = 2_718_281_828
GOLDEN = Path(__file__).with_name("golden_mcp_tools.json")
TOKEN = "0123456789abcdef" * 2


def command(run, *options):
    return [sys.executable, "-m", "arena_jax.cli", "agent", "mcp", str(run), *options]


def server(run, *options):
    """The server over stdio, in an environment that holds what it needs and no more."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME")}
    _, *arguments = command(run, *options)
    return stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env=environment))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp") / "run"
    new_run(folder, [SEED, 7, 8, 9, 10, 11, 12, 13])
    return folder


async def said(client, name, arguments=None):
    """What a call is answered."""
    result = await client.call_tool(name, arguments or {})
    return json.loads(result.content[0].text)


def raw(run, *options, **given):
    """A server spoken to line by line; as a context it is ended and its pipes are closed."""
    return subprocess.Popen(
        command(run, *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **given,
    )


def ask(process, number, method, **params):
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert "result" in answer, answer
    return answer["result"]


def shake_hands(process):
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    answer = ask(process, 0, "initialize", **info)
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    process.stdin.flush()
    return answer


@pytest.fixture(scope="module")
def decade(run):
    """Episode 0, played by the official client over stdio: the last answer and the CPU seconds of the server."""

    async def play():
        async with Client(server(run, "--episode", "0", "--agent", "official", "--model", "scripted")) as client:
            for month in range(132):
                await said(client, "verify_cash_position")
                await said(client, "review_financial_records", {"document": "financial_package"})
                await said(client, "analyze_market_conditions", {"indicators": ["treasury_2y"]})
                await said(client, "save_note", {"text": f"month {month}"})
                if month % 3:
                    answer = await said(client, "pass")
                else:
                    answer = await said(client, "fund_raising_request", {"instrument": "equity", "amount": 20e6})
            return answer

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = asyncio.run(play())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return answer, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_decade_over_stdio(run, decade):
    """132 months of five calls each; the journal replays, and the server's own time stays small."""
    answer, seconds = decade
    assert answer["now"]["status"] == "survived"
    assert 0.5 < seconds < 20  # it imports JAX at least
    confirm_episode(run, 0)
    played = played_episodes(run)[0]
    assert (played.months_played, played.calls, played.refused) == (132, 5 * 132, 0)
    assert (played.agent, played.model) == ("official", "scripted")


def test_what_a_client_is_told_before_the_first_call(run):
    async def look():
        async with Client(server(run, "--episode", "1")) as client:
            tools = await client.list_tools()
            prompt = await client.get_prompt("play")
            return tools, prompt.messages[0].content.text, client.instructions

    tools, prompt, instructions = asyncio.run(look())
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools.tools]
    assert listed == json.loads(GOLDEN.read_text())
    with open_episode(run, 1) as session:
        assert listed == session.tools("mcp")
        assert prompt == instructions == session.system_prompt
    for tool in listed:
        hints = tool["annotations"]
        assert hints["readOnlyHint"] == (tool["name"] not in ("book_closing", "fund_raising_request", "pass", *NOTES))
        assert not hints["destructiveHint"] and not hints["openWorldHint"]
    for name in ("book_closing", "fund_raising_request", "pass"):
        assert "Ends the month" in next(tool["description"] for tool in listed if tool["name"] == name)


NOTES = ("save_note", "recall_notes")


def test_the_handshake_needs_no_jax(run, tmp_path):
    """A JAX that can't be imported: handshake and tools are answered, and no episode has begun."""
    (tmp_path / "jax.py").write_text("raise SystemExit('JAX was imported')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with raw(run, "--episode", "2", env=environment) as process:
        assert shake_hands(process)["serverInfo"]["name"] == "arena"
        assert len(ask(process, 1, "tools/list")["tools"]) == 9
        process.stdin.close()
        assert process.wait(30) == 0
        assert "JAX was imported" not in process.stderr.read()
    assert not journal_path(run, 2).exists()


def test_calls_of_one_turn_are_answered_in_their_order(run):
    async def turn():
        async with Client(server(run, "--episode", "3")) as client:
            names = ["verify_cash_position", "analyze_market_conditions", "verify_cash_position", "pass", "pass"]
            answers = await asyncio.gather(*[said(client, name) for name in names])
            wrong = await client.call_tool("fund_raising_request", {"instrument": "gold", "amount": 1})
            return answers, wrong

    answers, wrong = asyncio.run(turn())
    assert [answer.get("tool_calls_left") for answer in answers] == [19, 18, 17, None, None]
    assert [answers[i]["month_ended"] for i in (3, 4)] == ["Jan 2xx0", "Feb 2xx0"]
    assert wrong.is_error
    assert "equity" in json.loads(wrong.content[0].text)["error"]
    lines = read_journal(journal_path(run, 3))
    assert [line["tool"] for line in lines[1:4]] == [
        "verify_cash_position",
        "analyze_market_conditions",
        "verify_cash_position",
    ]
    assert lines[-1]["type"] == "refused"


NO_MESSAGES = ["garbage", "[]", "5" * 5_000, "[" * 3_000, '{"jsonrpc": "2.0", "id": "\\ud800", "method": 5}']


def test_what_is_no_message_is_mended_or_answered(run):
    with raw(run, "--episode", "6") as process:
        shake_hands(process)
        for line in NO_MESSAGES:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        process.stdin.write('{"jsonrpc": "2.0", "id": 8, "method": 5}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 8
        # half of an emoji, as JavaScript cuts it
        answer = ask(process, 9, "tools/call", name="save_note", arguments={"text": "cut \ud83d"})
        assert '"saved"' in answer["content"][0]["text"]
        answer = ask(process, 10, "tools/call", name="recall_notes", arguments={})
        assert "cut ?" in answer["content"][0]["text"]
        process.stdin.close()
        assert process.wait(30) == 0
        assert process.stderr.read().count("error: not a message of MCP") == len(NO_MESSAGES) + 1


def test_standard_output_that_fails_is_one_line(run):
    """And the server ends, though standard input stays open."""
    with (
        open("/dev/full", "wb") as full,
        subprocess.Popen(
            command(run), stdin=subprocess.PIPE, stdout=full, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n")
        process.stdin.flush()
        try:
            assert process.wait(120) == 2
        finally:
            process.kill()
        lines = process.stderr.read().splitlines()
        assert lines[-1].startswith("error: can't answer on standard output")
        assert not any("Traceback" in line for line in lines)


def test_standard_input_that_is_closed_is_one_line(run):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command(run)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: agent mcp talks over standard input and output, and one of them is closed\n"


def test_a_port_in_use_is_one_line(monkeypatch, capsys, run):
    monkeypatch.setenv("ARENA_JAX_MCP_TOKEN", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = arena(monkeypatch, capsys, "agent", "mcp", str(run), "--http", str(port))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: can't serve on http://127.0.0.1:{port}: ")


def test_a_killed_server_is_gone_on_with_and_sigterm_closes_the_journal(run):
    with raw(run, "--episode", "4") as process:
        shake_hands(process)
        for number in range(1, 4):
            ask(process, number, "tools/call", name="pass", arguments={})
        process.kill()
    with raw(run, "--episode", "4") as process:
        shake_hands(process)
        answer = ask(process, 1, "tools/call", name="verify_cash_position", arguments={})
        assert '"date":"Apr 2xx0"' in answer["content"][0]["text"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout.read() + process.stderr.read() == ""
    confirm_episode(run, 4)
    open_episode(run, 4).close()


def test_two_servers_do_not_share_a_journal(run, monkeypatch, capsys):
    """The second one waits for the first, which may be about to end, and no longer than it says."""
    instance = make_server(run, 7, lambda client: open_seat(run, 7, "raw", "", no_cache=True))
    waited = []

    async def play():
        async with Client(instance) as client:
            monkeypatch.setattr("arena_jax.cli.mcp.HANDOVER_SECONDS", 0.5)
            since = time.monotonic()
            with pytest.raises(MCPError, match=r"DIR/episode-007/journal\.jsonl is in use by another process"):
                await client.call_tool("pass", {})
            waited.append(time.monotonic() - since)
            monkeypatch.setattr("arena_jax.cli.mcp.HANDOVER_SECONDS", 60.0)
            ending = threading.Timer(1.0, first.stdin.close)
            ending.start()
            answer = await said(client, "pass")
            ending.join()
            return answer

    with raw(run, "--episode", "7") as first:
        shake_hands(first)
        ask(first, 1, "tools/call", name="pass", arguments={})
        answer = asyncio.run(play())
        assert first.wait(30) == 0
    assert waited[0] >= 0.5
    assert answer["month_ended"] == "Feb 2xx0"
    assert "is in use by another process" in capsys.readouterr().err


def test_a_journal_that_another_process_has_just_begun_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    path.touch()
    monkeypatch.setattr(Path, "exists", lambda self: False)  # as it was a moment before
    with contextlib.closing(Journal(path)), pytest.raises(JournalInUse):
        Journal(path)


def test_no_seed_is_told(run, decade):
    """Everything that an agent is shown, and what the server's process and its configuration hold."""
    with raw(run, "--episode", "0") as process:
        told = [shake_hands(process), ask(process, 1, "tools/list"), ask(process, 2, "prompts/list")]
        told.append(ask(process, 3, "prompts/get", name="play"))
        shown = json.dumps(told) + journal_path(run, 0).read_text() + (run / "run.json").read_text()
        if sys.platform == "linux":
            shown += Path(f"/proc/{process.pid}/cmdline").read_text() + Path(f"/proc/{process.pid}/environ").read_text()
        process.stdin.close()
        shown += process.stderr.read()
    assert not re.search(rf"{SEED}|{SEED:x}|{SEED:,}", shown)
    assert "seeds.json" not in shown


@contextlib.contextmanager
def http_server(run, *options, **environment):
    """The server over HTTP; yields its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(command(run, "--http", str(port), *options), env=os.environ | environment)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.terminate()
        process.wait(30)


def test_http_takes_the_token_alone_and_one_connection_plays(run, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "token").chmod(0o600)

    @contextlib.asynccontextmanager
    async def connection(url):
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as web,
            Client(streamable_http_client(url, http_client=web), mode="legacy") as client,
        ):
            yield client

    async def play(url):
        async with connection(url) as older:
            first = await said(older, "pass")
            async with connection(url) as newer:
                second = await said(newer, "pass")
            with pytest.raises(MCPError, match="another connection goes on with this episode"):
                await older.call_tool("pass", {})
        return first, second

    with http_server(run, "--episode", "5", "--token-file", str(tmp_path / "token")) as (url, process):
        for token in ("x" * 32, TOKEN[:-1], TOKEN + "0"):
            assert httpx2.post(url, headers={"authorization": f"Bearer {token}"}, json={}).status_code == 401
        assert httpx2.post(url, json={}).status_code == 401
        first, second = asyncio.run(play(url))
        assert TOKEN not in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert (first["month_ended"], second["month_ended"]) == ("Jan 2xx0", "Feb 2xx0")
    open_episode(run, 5).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--episode", "8"], "episode must be a whole number from 0 to 7"),
        (["--token-file", "good"], "--host and --token-file are for HTTP"),
        (["--http", "8765"], "HTTP needs a bearer token"),
        (["--http", "8765", "--host", "0.0.0.0"], "HTTP needs a bearer token"),
        (["--http", "8765", "--token-file", "open"], "others may use it; run: chmod 600"),
        (["--http", "8765", "--token-file", "short"], "holds 5 bytes, 32 to 4096 are needed"),
        (["--http", "8765", "--token-file", "nowhere"], "can't read token file"),
        *[
            (["--http", port], f"--http must be a whole number from 1 to 65535, got {port}")
            for port in ("99999", "-5", "0")
        ],
        (["--http", "8765", "--host", "a b", "--token-file", "good"], "--host must be an address or a name"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, run, tmp_path, options, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARENA_JAX_MCP_TOKEN", raising=False)
    Path("open").write_text(TOKEN)
    Path("open").chmod(0o644)
    for name, token in (("short", "short"), ("good", TOKEN)):
        Path(name).write_text(token)
        Path(name).chmod(0o600)
    code, out, err = arena(monkeypatch, capsys, "agent", "mcp", str(run), *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("host", "warning"),
    [
        *[(host, "") for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1")],
        *[(host, f"warning: the token travels unencrypted to {host}") for host in ("0.0.0.0", "::", "example.org")],
    ],
)
def test_http_off_loopback_is_warned_of(monkeypatch, capsys, run, host, warning):
    served = []
    monkeypatch.setattr("uvicorn.Config", lambda app, **given: None)  # it would take over the log of the tests
    monkeypatch.setattr("uvicorn.Server", lambda config: SimpleNamespace(run=lambda sockets: None))
    monkeypatch.setattr("socket.getaddrinfo", lambda *address, **given: [(socket.AF_INET,)])
    monkeypatch.setattr("socket.create_server", lambda address, family: served.append(address[0]))
    monkeypatch.setenv("ARENA_JAX_MCP_TOKEN", TOKEN)
    code, out, err = arena(monkeypatch, capsys, "agent", "mcp", str(run), "--http", "8765", "--host", host)
    assert (code, out, served) == (0, "", [host])
    assert err.startswith(warning)
    assert err.splitlines()[-1].startswith("serving at http://")
    assert err.count("\n") == 1 + bool(warning)


def test_a_run_that_tells_something_else_is_not_played(run, tmp_path):
    told = read_run(run)
    new_run(tmp_path / "run", [1])
    (tmp_path / "run" / "run.json").write_text(json.dumps(told | {"episodes": 1, "tools": told["tools"][1:]}))
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"trajectories_sha256": told["trajectories_sha256"][:1]}))
    with pytest.raises(ValueError, match="was made with other tools than this version"):
        open_episode(tmp_path / "run", 0)
