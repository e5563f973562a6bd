"""OpenClaw (2026.9): `openclaw agent --local`, with keys of APIs and a state of its own. It needs Node 24."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from arena_jax.llm.clients.client import CALL_SECONDS, SERVER, STARTUP_SECONDS, Client, Setup, Turn, counts

_CONVERSATION = "arena"  # one for each episode, for each has a state of its own
_LONGEST_SECONDS = 30 * 24 * 3600  # of a turn: the driver watches over it
_TOKENS = {
    "input": "input_tokens",
    "cacheRead": "cache_read_input_tokens",
    "cacheWrite": "cache_creation_input_tokens",
    "output": "output_tokens",
}


def _files(setup: Setup) -> dict[Path, str]:
    command, *arguments = setup.server
    server: dict[str, Any] = {"command": command, "args": arguments, "env": setup.server_environment}
    server |= {"connectionTimeoutMs": 1000 * STARTUP_SECONDS, "requestTimeoutMs": 1000 * CALL_SECONDS}
    server |= {"toolFilter": {"include": list(setup.tools)}}
    defaults = {"workspace": str(setup.work), "skipBootstrap": True, "skills": []}
    config: dict[str, Any] = {
        "agents": {"defaults": defaults | ({"model": {"primary": setup.model}} if setup.model else {})},
        "tools": {"toolSearch": False, "codeMode": {"enabled": False}, "allow": ["bundle-mcp"]},
        "mcp": {"servers": {SERVER: server}},
    }
    provider = setup.model.partition("/")[0]
    base = setup.variables.get(f"{provider.upper()}_BASE_URL")
    if base:
        config["models"] = {"providers": {provider: {"baseUrl": base, "models": []}}}
    return {setup.folder / "openclaw.json": json.dumps(config, indent=2) + "\n"}


def _environment(setup: Setup) -> dict[str, str]:
    return {
        "HOME": str(setup.home),
        "OPENCLAW_STATE_DIR": str(setup.home),
        "OPENCLAW_CONFIG_PATH": str(setup.folder / "openclaw.json"),
    }


def _arguments(setup: Setup, message: str, conversation: str) -> list[str]:
    """Its system prompt is its own, so ours begins the conversation."""
    said = message if conversation else f"{setup.prompt}\n\n{message}"
    return [
        *("agent", "--local", "--agent", "main", "--session-id", _CONVERSATION, "--json"),
        *("--timeout", str(_LONGEST_SECONDS), "--message", said),
    ]


def _read(output: str) -> Turn:
    meta = _meta(output)
    if not meta:
        return Turn(failure="it told no result")
    usage = (meta.get("agentMeta") or {}).get("usage")
    turn = Turn(_CONVERSATION, tokens=counts(usage, _TOKENS), is_counted=bool(usage))
    turn.calls = (meta.get("toolSummary") or {}).get("calls", 0)
    if meta.get("error"):
        turn.failure = json.dumps(meta["error"])
    elif not any(tool["name"].startswith(f"{SERVER}__") for tool in meta["systemPromptReport"]["tools"]["entries"]):
        turn.failure = "its MCP server did not come up"
    return turn


def _meta(output: str) -> Any:
    """What the last JSON object says of the start; lines of others may stand around it."""
    for start in reversed([match.start() for match in re.finditer(r"^\{", output, re.MULTILINE)]):
        with contextlib.suppress(ValueError):
            found, _ = json.JSONDecoder().raw_decode(output, start)
            if "meta" in found:
                return found["meta"]
    return None


CLIENT = Client(
    agent="OpenClaw",
    program="openclaw",
    passed=("ANTHROPIC_", "OPENAI_", "DEEPSEEK_", "GEMINI_", "OPENROUTER_", "XAI_", "MISTRAL_"),
    files=_files,
    environment=_environment,
    arguments=_arguments,
    read=_read,
)
