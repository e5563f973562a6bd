"""A stand-in for a model behind an OpenAI-compatible server on loopback: a function writes the replies."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | list[tuple[str, Any]] | int  # a text, calls by name and arguments, or an HTTP status


@contextmanager
def standin(reply: Callable[[dict[str, Any]], Reply]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve chat completions; yields the base URL and the requests so far."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(request)
            said = reply(request)
            status, body = (
                (said, {"error": {"message": "stand-in"}}) if isinstance(said, int) else (200, completion(said))
            )
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Nothing: tests read stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def completion(said: str | list[tuple[str, Any]]) -> dict[str, Any]:
    """A chat completion; arguments that are a text go out as they are."""
    message: dict[str, Any] = {"role": "assistant", "content": said if isinstance(said, str) else None}
    if not isinstance(said, str):
        message["tool_calls"] = [
            {
                "id": f"call-{i}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for i, (name, given) in enumerate(said)
        ]
    reason = "stop" if isinstance(said, str) else "tool_calls"
    return {
        "id": "completion",
        "object": "chat.completion",
        "created": 0,
        "model": "standin",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
