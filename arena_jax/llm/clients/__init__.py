"""Drivers of the paper's agent frameworks: Claude Code, Codex CLI and OpenClaw, each over the MCP server."""

from arena_jax.llm.clients import claude, codex, openclaw
from arena_jax.llm.clients.client import Client

CLIENTS: dict[str, Client] = {"claude": claude.CLIENT, "codex": codex.CLIENT, "openclaw": openclaw.CLIENT}

__all__ = ["CLIENTS", "Client"]
