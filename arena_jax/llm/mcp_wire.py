"""Messages of MCP clients on standard input that are no proper JSON-RPC: mended where that can be done, else answered.

The SDK drops what it can't parse, and a client would wait for its answer as long as it is patient. Half of a surrogate
pair is what JavaScript writes for an emoji that was cut in two.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError


async def pass_on(read: Any, send: Any, write: Any) -> None:
    """Messages from `read` to `send`, until `read` ends; what stays no message is answered on `write`."""
    async with send:
        async for item in read:
            message = _mended(item) if isinstance(item, Exception) else item
            if isinstance(message, SessionMessage):
                await send.send(message)
            else:
                print(f"error: not a message of MCP: {str(item)[:200]!r}", file=sys.stderr, flush=True)
                error = types.ErrorData(code=types.PARSE_ERROR, message="not a JSON-RPC message")
                answer = types.JSONRPCError(jsonrpc="2.0", id=message, error=error)
                await write.send(SessionMessage(answer))


def _mended(error: Exception) -> SessionMessage | str | int | None:
    """The message of a line that was not understood; where it is none, its id if it has one."""
    inputs = [found["input"] for found in error.errors()] if isinstance(error, ValidationError) else [None]
    value = next((whole for whole in inputs if isinstance(whole, dict)), inputs[0])  # others are fields
    try:
        value = json.loads(value) if isinstance(value, str) else value
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except (ValueError, TypeError, RecursionError):
        found = value.get("id") if isinstance(value, dict) else None
        return found if isinstance(found, int) or (isinstance(found, str) and found.isprintable()) else None
