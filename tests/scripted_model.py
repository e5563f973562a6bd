"""A model on loopback that follows a script, behind the interfaces of Anthropic (messages) and OpenAI (responses).

It lets the months pass, looks at the cash each month, and once stops too early. What it was sent is kept.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OVER = '"status":"bankrupt"', '"status":"survived"'


class ScriptedModel:
    """Serves until closed. `requests` holds the bodies that it was sent, `stops_at` which turn it ends too early."""

    def __init__(self, stops_at=3):
        self.requests, self.stops_at, self.turns = [], stops_at, 0
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                model.answer(self, json.loads(body or b"{}"))

            def do_GET(self):
                self.reply(b'{"data": []}', "application/json")

            do_HEAD = do_GET

            def reply(self, data, kind):
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler, body):
        if handler.path.startswith("/v1/messages/count_tokens"):
            handler.reply(b'{"input_tokens": 10}', "application/json")
        elif handler.path.startswith("/v1/messages"):
            self.requests.append(body)
            self.send(handler, anthropic(self.says(body), body))
        elif handler.path.startswith("/v1/responses"):
            self.requests.append(body)
            self.send(handler, responses(self.says(body)))
        else:
            handler.reply(b"{}", "application/json")

    @staticmethod
    def send(handler, events):
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        handler.reply(text.encode(), "text/event-stream")

    def says(self, body):
        """Names of the tools to call now, in the names that the client gave them; none to stop."""
        offered = tool_names(body)
        named = {name: full for full in offered for name in ("verify_cash_position", "pass") if full.endswith(name)}
        if len(named) < 2:
            return []
        self.turns += 1
        if self.turns == self.stops_at or any(over in last_part(body) for over in OVER):
            return []
        return [named["verify_cash_position"], named["pass"]]


def tool_names(body):
    """Names of the tools that a request offers; those of a namespace with its name before them."""
    names = []
    for tool in body.get("tools") or []:
        if tool.get("type") == "namespace":
            names += [f"{tool['name']}/{inner['name']}" for inner in tool["tools"]]
        else:
            names.append(tool.get("name") or tool.get("type"))
    return names


def last_part(body):
    """The end of the conversation, as it was sent."""
    parts = body.get("messages") or body.get("input") or []
    return json.dumps(parts[-3:]).replace('\\"', '"').replace('\\"', '"')


def anthropic(calls, body):
    usage = {"input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model"), "content": []}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    for index, name in enumerate(calls):
        block = {"type": "tool_use", "id": f"toolu_{id(body)}_{index}", "name": name, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        delta = {"type": "input_json_delta", "partial_json": "{}"}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if not calls:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I am done."}}
        yield {"type": "content_block_stop", "index": 0}
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


def responses(calls):
    yield {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}
    output = []
    for index, name in enumerate(calls):
        space, _, plain = name.rpartition("/")
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{id(output)}_{index}", "name": plain}
        item |= {"arguments": "{}", "status": "completed"} | ({"namespace": space} if space else {})
        output.append(item)
    if not calls:
        text = {"type": "output_text", "text": "I am done.", "annotations": []}
        output.append({"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [text]})
    for index, item in enumerate(output):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
    usage |= {"input_tokens_details": {"cached_tokens": 40}, "output_tokens_details": {"reasoning_tokens": 0}}
    done = {"id": "resp_1", "status": "completed", "output": output, "usage": usage}
    yield {"type": "response.completed", "response": done}
