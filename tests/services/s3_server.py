"""An S3 server for tests: moto's, one request at a time, with faults on order.

Moto looks at the condition of a PUT and then writes, so two of its threads can both pass: one
lock around every request makes it as exact as the real thing. A fault is a JSON document sent to
``/_faults``: method, part of the path, what happens, and how often.

    reply lost     the request is served, and the connection is cut
    409, 500, 503  refused before anything happens
    ignore         the condition is dropped, as by a server that does not know it
"""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Environ = dict[str, Any]
_REASONS = {"409": "Conflict", "500": "Internal Server Error", "503": "Slow Down"}
_CODES = {"409": "ConditionalRequestConflict", "500": "InternalError", "503": "SlowDown"}


class Front:
    """The application before moto's."""

    def __init__(self) -> None:
        self._inner = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._faults: list[dict[str, Any]] = []
        self._requests: list[str] = []

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request."""
        body = self._read(environ)
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        with self._lock:
            if path.startswith("/_"):
                return self._control(path, body, start)
            self._requests.append(f"{method} {path}")
            return self._serve(environ, start, self._take_fault(method, path))

    def _control(self, path: str, body: bytes, start: Callable[..., Any]) -> Iterable[bytes]:
        answer: list[str] = []
        if path == "/_faults":
            self._faults = [*self._faults, json.loads(body)] if body else []
        else:
            answer, self._requests = self._requests, []
        reply = json.dumps(answer).encode()
        start("200 OK", [("Content-Length", str(len(reply)))])
        return [reply]

    def _serve(self, environ: Environ, start: Callable[..., Any], fault: str) -> Iterable[bytes]:
        if fault in _CODES:
            code = f"<Code>{_CODES[fault]}</Code><Message>on order</Message>"
            reply = f"<?xml version='1.0'?><Error>{code}</Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(reply)))]
            start(f"{fault} {_REASONS[fault]}", headers)
            return [reply]
        if fault == "ignore":
            environ.pop("HTTP_IF_NONE_MATCH", None)
            environ.pop("HTTP_IF_MATCH", None)
        served = list(self._inner(environ, start))
        if fault == "reply lost":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        return served

    def _take_fault(self, method: str, path: str) -> str:
        for fault in self._faults:
            if fault["method"] == method and fault["part"] in path and fault["times"] > 0:
                fault["times"] -= 1
                return str(fault["what"])
        return ""

    def _read(self, environ: Environ) -> bytes:
        """Read the body before the lock is taken: a slow client must not stop the others."""
        chunked = environ.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
        length = -1 if chunked else int(environ.get("CONTENT_LENGTH") or 0)
        body: bytes = environ["wsgi.input"].read(length)
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        return body


class Handler(WSGIRequestHandler):
    """Keeps connections, logs nothing, and lets clients go."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        """Serve a connection."""
        try:
            super().handle()
        except (ConnectionResetError, BrokenPipeError):
            return


def main() -> None:
    """Serve on a free port, and say which."""
    server = make_server("127.0.0.1", 0, Front(), threaded=True, request_handler=Handler)
    sys.stdout.write(f"serving on {server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
