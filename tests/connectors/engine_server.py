"""A small engine on the loopback: real HTTP, a real tokenizer, and faults to order."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import quicktok

Answer = tuple[int, Any]
"""Status, and a body: JSON, or bytes as they are."""


@dataclass
class Engine:
    """An engine that serves one model; `faults` are what becomes of the next requests."""

    model: str = "qwen3-8b"
    vocabulary: str = "qwen3"
    is_llama_cpp: bool = False
    has_models: bool = True
    faults: list[str] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    connections: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    authorization: str | None = None

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"served": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def tokens(self, text: str, *, special: bool = True) -> list[int]:
        encoding = quicktok.get_encoding(self.vocabulary)
        read = encoding.encode_with_special if special else encoding.encode_ordinary
        return list(read(text))

    def chat(self, messages: list[dict[str, Any]]) -> str:
        said = "".join(
            f"<|im_start|>{each['role']}\n{_joined(each.get('content'))}<|im_end|>\n"
            for each in messages
        )
        return f"{said}<|im_start|>assistant\n"

    def answer(self, path: str, body: dict[str, Any] | None) -> Answer:
        if path == "/v1/models":
            model = {"id": self.model, "object": "model", "max_model_len": 32768}
            return (200, {"object": "list", "data": [model]}) if self.has_models else (404, {})
        if body is None or path not in ("/tokenize", "/apply-template"):
            return 404, {"detail": "Not Found"}
        if self.is_llama_cpp:
            return self._answer_as_llama_cpp(path, body)
        if path != "/tokenize":
            return 404, {"detail": "Not Found"}
        if body.get("model") not in (None, self.model):
            message = f"The model `{body['model']}` does not exist."
            return 404, {"error": {"message": message, "type": "NotFoundError", "code": 404}}
        text = self.chat(body["messages"]) if "messages" in body else body["prompt"]
        tokens = self.tokens(text)
        return 200, {"count": len(tokens), "max_model_len": 32768, "tokens": tokens}

    def _answer_as_llama_cpp(self, path: str, body: dict[str, Any]) -> Answer:
        if path == "/apply-template":
            return 200, {"prompt": self.chat(body["messages"])}
        text = body.get("content", "")
        return 200, {"tokens": self.tokens(text, special=body.get("parse_special", True))}


def _joined(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return content or ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: Engine

    def setup(self) -> None:
        super().setup()
        self.served.connections += 1

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            return  # the client has gone, as it may

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(body)

    def _answer(self, body: dict[str, Any] | None) -> None:
        engine = self.served
        engine.authorization = self.headers.get("Authorization")
        engine.requests.append((self.path, body))
        fault = engine.faults.pop(0) if engine.faults else ""
        status, answer = engine.answer(self.path, body)
        data = json.dumps(answer).encode()
        faults: dict[str, Callable[[], Answer]] = {
            "": lambda: (status, data),
            "404": lambda: (404, b'{"detail":"Not Found"}'),
            "500": lambda: (500, b"Internal Server Error"),
            "redirect": lambda: (307, b""),
            "no json": lambda: (200, b"<html>hello</html>"),
            "cut json": lambda: (200, data[: len(data) // 2]),
            "other json": lambda: (200, b'{"token_count": 3}'),
            "no number": lambda: (200, b'{"count": "3", "tokens": "3"}'),
            "negative": lambda: (200, b'{"count": -3, "tokens": [], "data": []}'),
            "no tokens": lambda: (200, b'{"tokens": []}'),
        }
        if fault == "slow":
            engine.released.wait()
        if fault == "closed":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, data = faults.get(fault, faults[""])()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "cut short":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif fault == "drops":
            for at in range(len(data)):
                self.wfile.write(data[at : at + 1])
                time.sleep(0.02)
        else:
            self.wfile.write(data)
            if fault == "closed after":
                self.close_connection = True
