"""A stand-in for claude, codex or openclaw, whichever name it is run under: reads their configuration, speaks MCP to
the server that it names, prints what they print. What it does at each start stands in script.json beside it:

months: to let pass. kill: the server, before a last call. fail: in the client's own words. code: its exit code.
hang: for a minute. dead: as with a server that did not come up. say: more events. Starts and arguments are kept in
starts.jsonl, what it was shown in shown.txt. Whether its home remembers an earlier start stands there too.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
import time
import tomllib
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

HERE, NAME = Path(__file__).parent, Path(__file__).name
STARTS = HERE / "starts.jsonl"
MESSAGES = itertools.count()


def configuration():
    """Command and environment of the server, as the client is told them."""
    if NAME == "claude":
        text = Path(sys.argv[sys.argv.index("--mcp-config") + 1]).read_text()
        server = json.loads(text)["mcpServers"]["arena"]
    elif NAME == "codex":
        server = tomllib.loads((Path(os.environ["CODEX_HOME"]) / "config.toml").read_text())["mcp_servers"]["arena"]
    else:
        server = json.loads(Path(os.environ["OPENCLAW_CONFIG_PATH"]).read_text())["mcp"]["servers"]["arena"]
    return StdioServerParameters(command=server["command"], args=server["args"], env={**os.environ, **server["env"]})


def say(**event):
    if NAME != "openclaw":
        print(json.dumps(event), flush=True)


def show(text):
    with open(HERE / "shown.txt", "a") as file:
        file.write(text + "\n")


def result(text, is_error):
    show(text)
    content = [{"type": "text", "text": text}]
    if NAME == "claude":
        number = next(MESSAGES)
        for _ in range(2):  # one for each part of the message, with the same count
            message = {"id": f"m-{number}", "role": "assistant", "usage": {"input_tokens": 20, "output_tokens": 1}}
            say(type="assistant", message=message, session_id="c-1")
        part = {"type": "tool_result", "content": content, "is_error": is_error}
        say(type="user", message={"role": "user", "content": [part]}, session_id="c-1")
    error = {"message": text} if is_error else None
    if NAME == "codex":
        say(type="item.completed", item={"type": "mcp_tool_call", "server": "arena", "error": error})


async def play(step):
    calls = 0
    async with Client(stdio_client(configuration())) as client:
        if step.get("months"):
            show((await client.list_tools()).model_dump_json())
            show((await client.get_prompt("play")).model_dump_json())
            show(str(client.instructions))
        for _ in range(step.get("months", 0)):
            for name in ("verify_cash_position", "pass"):
                answer = await client.call_tool(name, {})
                result(answer.content[0].text, answer.is_error)
                calls += 1
        if step.get("kill"):
            os.kill(next(pid for pid in children() if b"mcp" in cmdline(pid)), signal.SIGKILL)
            try:
                await client.call_tool("pass", {})
            except MCPError as error:
                result(f"MCP error -32000: {error}", True)
                calls += 1
        if step.get("hang"):
            time.sleep(60)
    return calls


def children():
    """Processes that this one has started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)
        except OSError:
            pass


def cmdline(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def main():
    number = len(STARTS.read_text().splitlines()) if STARTS.exists() else 0
    step = json.loads((HERE / "script.json").read_text())[number]
    memory = Path(os.environ["HOME"]) / "memory"
    remembered = memory.exists()
    memory.touch()
    start = {
        "remembered": remembered,
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "files": os.listdir(),
    }
    with open(STARTS, "a") as file:
        file.write(json.dumps(start) + "\n")
    status = "failed" if step.get("dead") else "connected"
    say(type="system", subtype="init", session_id="c-1", mcp_servers=[{"name": "arena", "status": status}])
    say(type="thread.started", thread_id="t-1")
    calls, failure = asyncio.run(play(step)) if any(step.get(n) for n in ("months", "kill", "hang")) else 0, None
    failure = step.get("fail")
    for event in step.get("say", ()):
        print(json.dumps(event), flush=True)
    if NAME == "claude":
        usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 2}
        say(type="result", subtype="success", is_error=bool(failure), result=failure or "Done.", usage=usage)
    elif NAME == "codex" and failure:
        say(type="turn.failed", error={"message": failure})
    elif NAME == "codex":
        sofar = number + 1  # it counts the whole conversation
        usage = {"input_tokens": 10 * sofar, "cached_input_tokens": 4 * sofar, "output_tokens": 2 * sofar}
        say(type="turn.completed", usage=usage)
    else:
        offered = [] if step.get("dead") else [{"name": "arena__pass"}]
        meta = {"agentMeta": {"usage": {"input": 10, "output": 2}}, "toolSummary": {"calls": calls}}
        meta |= {"systemPromptReport": {"tools": {"entries": offered}}} | ({"error": failure} if failure else {})
        print(json.dumps({"payloads": [], "meta": meta}, indent=2))
    sys.exit(step.get("code", 0))


main()
