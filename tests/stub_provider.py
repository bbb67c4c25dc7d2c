"""OUR OWN STUB, not a provider: it says exactly the bytes a test gives it, and keeps every request that it got.

For what no independent server does: cache writes in the usage, thoughts, odd servers, hostile answers. A strict one
refuses what the strictest server of the field refuses.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from strict_order import find_fault


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int = 200
    content_type: str = "text/event-stream"
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: int | None = None  # bytes per write, to cut events in the middle
    cut: bool = False  # close before everything that was announced is sent


@dataclass(frozen=True, kw_only=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Stub:
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def say(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    @property
    def body(self) -> Any:
        return self.asked[-1].body


_WIRES = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}


def _find_fault(path: str, body: Any) -> str | None:
    for end, wire in _WIRES.items():
        if path.endswith(end):
            return find_fault(wire, body)
    return None


@contextlib.contextmanager
def open_stub(*, strict: bool = False) -> Iterator[Stub]:
    """Opens a stub. `strict`: it refuses a request whose messages are not in the order of tests/strict_order."""
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            stub.asked.append(Asked(path=self.path, headers=headers, body=json.loads(data or b"null")))
            fault = _find_fault(self.path, stub.body) if strict else None
            if fault is not None:
                error = {"object": "error", "message": fault, "type": "invalid_request_message_order", "code": "3230"}
                self._answer(Answer(status=400, content_type="application/json", body=json.dumps(error).encode()))
                return
            self._answer(stub.answers.pop(0) if stub.answers else Answer(status=500, body=b"the stub has no more"))

        def do_GET(self) -> None:
            models = json.dumps({"object": "list", "has_more": False, "data": [_model("big-1"), _model("small-1")]})
            self._answer(Answer(content_type="application/json", body=models.encode()))

        def _answer(self, answer: Answer) -> None:
            self.send_response(answer.status)
            headers = {"content-type": answer.content_type, "content-length": str(len(answer.body))} | answer.headers
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            body = answer.body[: len(answer.body) // 2] if answer.cut else answer.body
            step = answer.pieces or max(1, len(body))
            for at in range(0, len(body), step):
                self.wfile.write(body[at : at + step])
                self.wfile.flush()
            self.close_connection = answer.cut

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sse(events: Iterable[dict[str, Any]], *, named: bool = True, end: str = "\n", done: bool = False) -> bytes:
    lines = []
    for event in events:
        if named and isinstance(event.get("type"), str):
            lines.append(f"event: {event['type']}")
        lines += [f"data: {json.dumps(event, ensure_ascii=False)}", ""]
    if done:
        lines += ["data: [DONE]", ""]
    return "".join(line + end for line in lines).encode()


def chat(*deltas: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    chunks = [{"id": "c-1", "model": "served", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish:
        chunks.append({"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **more})
    return sse(chunks, done=True)


def messages(*blocks: dict[str, Any], stop: str = "end_turn", usage: dict[str, Any] | None = None) -> bytes:
    """Blocks with `deltas`, as Anthropic streams them."""
    start = {"id": "msg_1", "model": "served", "type": "message", "role": "assistant", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start | {"usage": usage or {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "ping"},
    ]
    for at, block in enumerate(blocks):
        shown = {name: value for name, value in block.items() if name != "deltas"}
        events.append({"type": "content_block_start", "index": at, "content_block": shown})
        events += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in block.get("deltas", ())]
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    return sse(events)


def spoken(text: str) -> dict[str, Any]:
    return {"type": "text", "text": "", "deltas": [{"type": "text_delta", "text": text}]}


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "type": "model", "created": 0, "owned_by": "us", "display_name": name}
