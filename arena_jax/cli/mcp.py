"""`arena-jax agent mcp`: an episode for MCP clients. Nothing here imports JAX before the first call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from arena_jax.errors import ArenaError, check_count
from arena_jax.files import read_secret
from arena_jax.llm.mcp_server import HANDOVER_SECONDS, LOOPBACK, make_server, serve_http, serve_stdio

TOKEN = "ARENA_JAX_MCP_TOKEN"
MAX_PORT = 65_535


def mcp_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Run directory.")],
    episode: Annotated[int, typer.Option(help="Number of the episode, from 0.")] = 0,
    agent: Annotated[str, typer.Option(help="Who plays, for the journal; the client's own name if left out.")] = "",
    model: Annotated[str, typer.Option(help="Its model, for the journal.")] = "",
    http: Annotated[int | None, typer.Option(metavar="PORT", help="Serve streamable HTTP in place of stdio.")] = None,
    host: Annotated[str, typer.Option(help="Address to serve HTTP on.")] = LOOPBACK,
    token_file: Annotated[
        Path | None, typer.Option(help=f"File of mode 0600 with the bearer token for HTTP; else {TOKEN} holds it.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Compile afresh; keep nothing.")] = False,
) -> None:
    """Serve an episode to an MCP client. It begins, or goes on, with the first call.

    Examples:

      claude mcp add arena -- arena-jax agent mcp runs/mine --episode 0

      arena-jax agent mcp runs/mine --http 8765 --token-file token
    """
    if http is None and (token_file is not None or host != LOOPBACK):
        raise ArenaError("--host and --token-file are for HTTP: give --http PORT too")
    if http is None and None in (sys.stdin, sys.stdout):
        raise ArenaError("agent mcp talks over standard input and output, and one of them is closed")
    directory = directory.absolute()
    server = make_server(directory, episode, lambda client: _open(directory, episode, agent or client, model, no_cache))
    if http is None:
        serve_stdio(server)
    else:
        check_count("--http", http, 1, MAX_PORT)
        otherwise = f"HTTP needs a bearer token: name a file with --token-file or set {TOKEN}"
        serve_http(server, host, http, read_secret(token_file, TOKEN, "token file", otherwise))


def _open(directory: Path, episode: int, agent: str, model: str, no_cache: bool) -> Any:
    import jax

    from arena_jax.cli.cache import use_cache
    from arena_jax.llm.runs import open_episode

    jax.config.update("jax_platforms", "cpu")
    use_cache(no_cache)
    return open_episode(directory, episode, agent=agent, model=model, patience=HANDOVER_SECONDS)
