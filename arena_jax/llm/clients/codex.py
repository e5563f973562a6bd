"""Codex CLI (0.171): `codex exec`, with a key of the API and a home of its own."""

from __future__ import annotations

import json
from pathlib import Path

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

# its own tools and texts; what else it offers needs a shell, or is refused by the read-only sandbox
_OFF = ("shell_tool", "view_image", "goals", "tool_suggest", "skill_search", "sleep_tool", "image_generation")
_TOKENS = {"cached_input_tokens": "cached_input_tokens", "output_tokens": "output_tokens"}


def _files(setup: Setup) -> dict[Path, str]:
    quoted = json.dumps  # a JSON string is a TOML string
    command, *arguments = setup.server
    base = setup.variables.get("OPENAI_BASE_URL")
    lines = [
        *([f"model = {quoted(setup.model)}"] if setup.model else []),
        *([f"openai_base_url = {quoted(base)}"] if base else []),
        f"model_instructions_file = {quoted(str(setup.folder / 'prompt.txt'))}",
        'sandbox_mode = "read-only"',
        'approval_policy = "never"',
        'web_search = "disabled"',
        "include_apps_instructions = false",
        "include_permissions_instructions = false",
        "include_environment_context = false",
        "",
        "[features]",
        *[f"{name} = false" for name in _OFF],
        "",
        "[agents]",
        "enabled = false",
        "",
        "[skills]",
        "include_instructions = false",
        "bundled = { enabled = false }",
        "",
        f"[mcp_servers.{SERVER}]",
        f"command = {quoted(command)}",
        f"args = {quoted(arguments)}",
        "required = true",
        'default_tools_approval_mode = "approve"',
        f"startup_timeout_sec = {STARTUP_SECONDS}",
        f"tool_timeout_sec = {CALL_SECONDS}",
        "",
        f"[mcp_servers.{SERVER}.env]",
        *[f"{name} = {quoted(value)}" for name, value in setup.server_environment.items()],
    ]
    return {setup.home / "config.toml": "\n".join(lines) + "\n", setup.folder / "prompt.txt": setup.prompt + "\n"}


def _environment(setup: Setup) -> dict[str, str]:
    key = setup.variables.get("CODEX_API_KEY") or setup.variables.get("OPENAI_API_KEY")
    found = {"HOME": str(setup.home), "CODEX_HOME": str(setup.home)}
    return found | ({"CODEX_API_KEY": key} if key else {})


def _arguments(setup: Setup, message: str, conversation: str) -> list[str]:
    resumed = ("resume", conversation) if conversation else ()
    return ["exec", *resumed[:1], "--json", "--skip-git-repo-check", *resumed[1:], "--", message]


def _read(output: str) -> Turn:
    turn, unanswered, is_done = Turn(), "", False
    for event in events(output):
        item = event.get("item") or {}
        turn.conversation = event.get("thread_id") or turn.conversation
        if event.get("type") == "item.completed" and item.get("type") == "mcp_tool_call":
            turn.calls += 1
            text = str((item.get("error") or {}).get("message", ""))
            unanswered = f"a call got no answer: {text}" if text and not is_answer(text) else ""
        elif event.get("type") == "turn.completed":
            usage, is_done = event.get("usage") or {}, True
            turn.tokens, turn.is_counted = counts(usage, _TOKENS), bool(usage)
            fresh = usage.get("input_tokens", 0) - usage.get("cached_input_tokens", 0)  # it counts the cached ones too
            turn.tokens = counts({"fresh": fresh}, {"fresh": "input_tokens"}) | turn.tokens
        elif event.get("type") == "turn.failed":
            turn.failure = str((event.get("error") or {}).get("message") or "its turn failed")
    if not turn.failure:
        turn.failure = unanswered if is_done else "it told no end"
    return turn


CLIENT = Client(
    agent="Codex CLI",
    program="codex",
    passed=("CODEX_API_KEY", "OPENAI_"),
    files=_files,
    environment=_environment,
    arguments=_arguments,
    read=_read,
    counts_conversation=True,
)
