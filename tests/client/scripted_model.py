"""A model that follows a script: as much of the Messages API as Claude Code needs.

It listens on 127.0.0.1 only. It also stands where the client would find a proxy, so that whatever
the client tries to reach elsewhere ends here and is remembered instead of leaving the machine.
Python's standard library only.
"""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass
class Call:
    """A tool the model wants to use."""

    tool: str
    arguments: Json


@dataclass
class Reply:
    """One turn of the model: what it says, then the tools it calls side by side."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)

    def blocks(self, numbers: itertools.count) -> list[Json]:
        said = [{"type": "text", "text": self.text}] if self.text else []
        return said + [
            {"type": "tool_use", "id": f"toolu_scripted_{next(numbers)}", "name": call.tool, "input": call.arguments}
            for call in self.calls
        ]


class ScriptedModel:
    """Answers the n-th request of the conversation with the n-th reply of the script."""

    def __init__(self, script: list[Reply], subagents: dict[str, list[Reply]] | None = None) -> None:
        """A subagent follows the script whose key stands in its prompts."""
        self.prompts: list[Json] = []
        """The requests that carried the conversation, in order."""
        self._subagents = {mark: iter(replies) for mark, replies in (subagents or {}).items()}
        self.strangers: list[str] = []
        """What the client tried to reach besides this model."""
        self._script = list(script)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        model = self

        class Handler(_Handler):
            scripted = model

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "ScriptedModel":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next_blocks(self, request: Json, is_subagent: bool = False) -> list[Json]:
        """The reply to a request; requests without tools are the client's own errands (titles and such)."""
        with self._lock:
            if not request.get("tools"):
                return [{"type": "text", "text": "ok"}]
            if is_subagent:
                prompt = json.dumps(request["messages"])
                script = next(script for mark, script in self._subagents.items() if mark in prompt)
                return next(script, Reply("The subagent's script has ended.")).blocks(self._numbers)
            self.prompts.append(request)
            turn = len(self.prompts) - 1
            reply = self._script[turn] if turn < len(self._script) else Reply("The script has ended.")
            return reply.blocks(self._numbers)

    def tool_results(self) -> list[tuple[bool, str]]:
        """What tools gave the model: whether it was an error, and the text; in the order of the calls."""
        results: dict[str, tuple[bool, str]] = {}
        for message in itertools.chain.from_iterable(prompt["messages"] for prompt in self.prompts):
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block["type"] == "tool_result":
                    results.setdefault(block["tool_use_id"], (bool(block.get("is_error")), _text(block.get("content"))))
        # Results of one turn arrive in the order in which they were ready.
        return [results[name] for name in sorted(results, key=lambda name: int(name.rpartition("_")[2]))]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(block.get("text", "") for block in content)
    return content or ""


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedModel
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests read results, not access logs."""

    def do_CONNECT(self) -> None:
        self._stranger()

    def do_HEAD(self) -> None:
        # The client looks whether the endpoint is there at all.
        self._send("text/plain", b"")

    def do_GET(self) -> None:
        if self.path.startswith("/"):
            self._json({"data": [], "has_more": False})
        else:
            self._stranger()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            self._json({"input_tokens": len(body) // 4})
        elif path == "/v1/messages":
            self._reply(json.loads(body), "x-claude-code-agent-id" in self.headers)
        else:
            self._stranger()

    def _stranger(self) -> None:
        self.scripted.strangers.append(f"{self.command} {self.path}")
        self.close_connection = True
        self.send_error(403)

    def _reply(self, request: Json, is_subagent: bool) -> None:
        blocks = self.scripted.next_blocks(request, is_subagent)
        message = {
            "id": "msg_scripted",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": blocks,
            "stop_reason": "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if request.get("stream"):
            self._send("text/event-stream", b"".join(_events(message)))
        else:
            self._json(message)

    def _json(self, value: Json) -> None:
        self._send("application/json", json.dumps(value).encode())

    def _send(self, kind: str, body: bytes) -> None:
        try:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # The client was ended in the middle; that is a test's business.


def _events(message: Json) -> list[bytes]:
    """A message as the stream of events it would have arrived in."""
    events: list[Json] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}}, {"type": "message_stop"}]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
