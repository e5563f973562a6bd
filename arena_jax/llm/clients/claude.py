"""Claude Code (2.1): `claude -p`, with a key of the API; its `--bare` mode reads no settings of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from arena_jax.llm.clients.client import (
    CALL_SECONDS,
    SERVER,
    STARTUP_SECONDS,
    Client,
    Setup,
    Turn,
    counts,
    events,
    is_answer,
)

_TOKENS = {
    name: name for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
}


def _files(setup: Setup) -> dict[Path, str]:
    command, *arguments = setup.server
    server = {"type": "stdio", "command": command, "args": arguments, "env": setup.server_environment}
    return {
        setup.folder / "mcp.json": json.dumps({"mcpServers": {SERVER: server}}, indent=2) + "\n",
        setup.folder / "prompt.txt": setup.prompt + "\n",
    }


def _environment(setup: Setup) -> dict[str, str]:
    return {
        "HOME": str(setup.home),
        "MCP_TIMEOUT": str(1000 * STARTUP_SECONDS),
        "MCP_TOOL_TIMEOUT": str(1000 * CALL_SECONDS),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _arguments(setup: Setup, message: str, conversation: str) -> list[str]:
    return [
        *("-p", "--bare", "--output-format", "stream-json", "--verbose"),
        *("--mcp-config", str(setup.folder / "mcp.json"), "--strict-mcp-config"),
        *("--tools", "", "--allowedTools", f"mcp__{SERVER}", "--disable-slash-commands"),
        *("--system-prompt-file", str(setup.folder / "prompt.txt")),
        *(("--model", setup.model) if setup.model else ()),
        *(("--resume", conversation) if conversation else ()),
        *("--", message),
    ]


def _read(output: str) -> Turn:
    """It ends with "success" even if the server is dead, so what was answered is looked at too."""
    turn, result, unanswered = Turn(), None, ""
    usages: dict[str, Any] = {}  # of messages by their id, which several events share
    for event in events(output):
        turn.conversation = event.get("session_id") or turn.conversation
        if event.get("subtype") == "init":
            status = {one.get("name"): one.get("status") for one in event.get("mcp_servers", ())}.get(SERVER, "missing")
            if status not in ("connected", "pending"):
                turn.failure = f"its MCP server is {status}"
        elif event.get("type") == "assistant":
            message = event.get("message") or {}
            usages[str(message.get("id"))] = message.get("usage")
        elif event.get("type") == "user":
            for part in _results(event):
                turn.calls += 1
                unanswered = _unanswered(part)
        elif event.get("type") == "result":
            result = event
    if result is None:
        turn.failure = turn.failure or "it told no result"
        for usage in usages.values():  # told as each message begins, so the least that it took
            for name, count in counts(usage, _TOKENS).items():
                turn.tokens[name] = turn.tokens.get(name, 0) + count
        return turn
    turn.tokens, turn.is_counted = counts(result.get("usage"), _TOKENS), "usage" in result
    if result.get("is_error"):
        turn.failure = turn.failure or str(result.get("result") or result.get("subtype"))
    turn.failure = turn.failure or unanswered
    return turn


def _results(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of calls that an event holds; there are no tools but the arena's."""
    content = (event.get("message") or {}).get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]


def _unanswered(result: dict[str, Any]) -> str:
    """What came in place of an answer, if a call got none."""
    content = result.get("content")
    text = "".join(part.get("text", "") for part in content) if isinstance(content, list) else str(content)
    return f"a call got no answer: {text}" if result.get("is_error") and not is_answer(text) else ""


CLIENT = Client(
    agent="Claude Code",
    program="claude",
    passed=("ANTHROPIC_", "CLAUDE_CODE_USE_", "AWS_", "GOOGLE_", "CLOUD_ML_REGION"),
    files=_files,
    environment=_environment,
    arguments=_arguments,
    read=_read,
)
