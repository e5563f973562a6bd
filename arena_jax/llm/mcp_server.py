"""One episode over the Model Context Protocol, for any client that speaks it.

The handshake and the list of calls are answered from `run.json`, before JAX is imported. The episode begins, or goes
on, with the first call: clients start servers only to look at them, and start them anew when a conversation is
resumed. All state is in the journal, which one server at a time holds.

The low-level server of the SDK, because schemas come from `tool_schemas`, and refusals from the session, which
journals them.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena_jax.errors import ArenaError, check_count, shown
from arena_jax.llm.paging import compact
from arena_jax.llm.run_file import read_run
from arena_jax.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.server.lowlevel import Server

    from arena_jax.llm.session import ArenaSession

NAME = "arena"
PROMPT = "play"
HANDOVER_SECONDS = 10.0  # that a resumed conversation's server waits for the one before it to end
LOOPBACK = "127.0.0.1"
UNWRITABLE = "can't answer on standard output: the disk behind it is full, or the client has gone"


class Seat:
    """An episode that opens with the first call.

    open_session: opens it for the agent of a name. One connection plays at a time: a newer one goes on in its place.
    """

    def __init__(self, open_session: Callable[[str], ArenaSession]) -> None:
        self._open_session = open_session
        self._session: ArenaSession | None = None
        self._connection: str | None = None
        self._left: set[str] = set()

    def call(self, client: str, connection: str | None, name: str, arguments: Any) -> dict[str, Any]:
        """The answer of a call; raises `ArenaError` if the episode can't be opened, gone on with or written."""
        if connection in self._left:
            raise ArenaError("another connection goes on with this episode")
        if self._session is None:
            self._session = self._open_session(client)
        if self._connection not in (None, connection):
            self._left.add(str(self._connection))
        self._connection = connection
        return self._session.call(name, arguments)

    def close(self) -> None:
        """Release the journal once the call in progress is answered."""
        if self._session is not None:
            self._session.close()


def make_server(directory: Path, episode: int, open_session: Callable[[str], ArenaSession]) -> Server[Seat]:
    """The server of an episode; raises `ArenaError` if there is no such episode or the SDK is missing."""
    run = read_run(directory)
    check_count("episode", episode, 0, run["episodes"] - 1)
    try:
        import anyio
        import mcp_types as types
        from mcp.server.lowlevel import Server
        from mcp.shared.exceptions import MCPError
    except ImportError:
        raise ArenaError("agent mcp needs the MCP SDK: pip install 'arena_jax[mcp]'") from None
    tools = [types.Tool.model_validate(tool) for tool in run["tools"]]
    prompt = types.Prompt(name=PROMPT, description="Play the chief financial officer until it is over.")
    in_order = anyio.Lock()

    @asynccontextmanager
    async def seated(_: Any) -> AsyncIterator[Seat]:
        seat = Seat(open_session)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_leave_on_signal, seat)
                yield seat
                group.cancel_scope.cancel()
        finally:
            seat.close()

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        known, request = context.session.client_params, context.request
        client = known.client_info.name if known else ""
        connection = request.headers.get("mcp-session-id") if request else None
        call = functools.partial(context.lifespan_context.call, client, connection, params.name, params.arguments)
        try:
            async with in_order:  # clients send the calls of one turn together
                answer = await anyio.to_thread.run_sync(call)
        except ArenaError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            # agents need not know where the run is kept
            raise MCPError(types.INTERNAL_ERROR, str(error).replace(str(directory), "DIR")) from None
        text = types.TextContent(type="text", text=compact(answer))
        return types.CallToolResult(content=[text], is_error="error" in answer)

    async def list_prompts(context: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[prompt])

    async def get_prompt(context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != PROMPT:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt; known: {PROMPT}")
        text = types.TextContent(type="text", text=run["system_prompt"])
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    return Server(
        NAME,
        version=__version__,
        instructions=run["system_prompt"],
        lifespan=seated,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


async def _leave_on_signal(seat: Seat) -> None:
    """Close the journal and end the process: what waits for standard input can't be told to stop."""
    import anyio

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            await anyio.to_thread.run_sync(seat.close)
            os._exit(0)


def serve_stdio(server: Server[Seat]) -> None:
    """Serve until standard input ends. Whatever else writes to standard output goes to standard error."""
    import anyio
    from mcp.server.stdio import stdio_server

    from arena_jax.llm.mcp_wire import pass_on

    async def serve() -> None:
        send, messages = anyio.create_memory_object_stream[Any](0)
        async with stdio_server() as (read, write):
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(pass_on, read, send, write)
                    await server.run(messages, write, server.create_initialization_options())
                    group.cancel_scope.cancel()
            except anyio.get_cancelled_exc_class():
                # standard output has failed; as on a signal, what waits for standard input can't be told to stop
                print(f"error: {UNWRITABLE}", file=sys.stderr, flush=True)
                os._exit(2)

    try:
        anyio.run(serve)
    except* OSError:
        raise ArenaError(UNWRITABLE) from None


def serve_http(server: Server[Seat], host: str, port: int, token: bytes) -> None:
    """Serve streamable HTTP at /mcp to whoever has the token, until interrupted; warns if others can reach it.

    host: a name, or an address without brackets; raises `ArenaError` if it is neither.
    """
    import uvicorn
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings

    class Verifier:
        async def verify_token(self, given: str) -> AccessToken | None:
            is_it = hmac.compare_digest(given.encode(), token)
            return AccessToken(token=given, client_id="agent", scopes=[]) if is_it else None

    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        auth = AuthSettings(issuer_url=url, resource_server_url=None)  # type: ignore[arg-type]
    except ValueError:
        raise ArenaError(f"--host must be an address or a name of this machine, got {shown(host)}") from None
    if not _is_loopback(host):
        print(f"warning: the token travels unencrypted to {host}; put TLS before it", file=sys.stderr, flush=True)
    app = server.streamable_http_app(host=host, auth=auth, token_verifier=Verifier())
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ArenaError(f"can't serve on {url}: {error.strerror}") from None
    print(f"serving at {url}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
