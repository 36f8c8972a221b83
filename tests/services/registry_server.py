"""A schema registry for tests: the part of Confluent's REST API that a reader and a producer use.

It keeps schemas in memory, in a process of its own, and says on its output where it serves. It
knows ``POST /subjects/{subject}/versions``, ``GET /subjects/{subject}/versions/{version}`` and
``GET /schemas/ids/{id}``, with the statuses and error codes that Confluent documents. It checks no
compatibility. With a user it wants basic authorization, with a certificate it speaks TLS. Tests
order faults by ``POST /_faults``: a list of what to answer next, a status, or "cut" for a
connection that ends without an answer.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

_NO_SCHEMA, _NO_SUBJECT, _DENIED, _INVALID = 40403, 40401, 40101, 42201


@dataclass
class Kept:
    """What was registered, and what tests ordered."""

    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    faults: list[int | str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Keep a schema; the same one has the same number, in whatever subject."""
        told = {key: body[key] for key in ("schema", "schemaType", "references") if key in body}
        if told.get("schemaType", "AVRO") == "AVRO":
            try:
                json.loads(told["schema"])
            except (KeyError, ValueError):
                return 422, {"error_code": _INVALID, "message": "Invalid schema"}
        if told not in self.schemas:
            self.schemas.append(told)
        number = self.schemas.index(told) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, {"id": number}

    def schema(self, number: int) -> tuple[int, dict[str, Any]]:
        """Look a schema up by its number."""
        if 0 < number <= len(self.schemas):
            return 200, self.schemas[number - 1]
        return 404, {"error_code": _NO_SCHEMA, "message": f"Schema {number} not found"}

    def version(self, subject: str, version: int) -> tuple[int, dict[str, Any]]:
        """Look a version of a subject up."""
        versions = self.subjects.get(subject, [])
        if not 0 < version <= len(versions):
            return 404, {"error_code": _NO_SUBJECT, "message": f"Subject '{subject}' not found"}
        number = versions[version - 1]
        place = {"subject": subject, "version": version, "id": number}
        return 200, {**place, **self.schemas[number - 1]}


class Handler(BaseHTTPRequestHandler):
    """Serves one registry."""

    protocol_version = "HTTP/1.1"
    kept = Kept()
    user = ""

    def do_GET(self) -> None:
        """Look up."""
        self._serve(None)

    def do_POST(self) -> None:
        """Register, or take an order."""
        self._serve(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0))))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self, body: Any) -> None:
        with self.kept.lock:
            if self.path == "/_faults":
                self.kept.faults = body
                return self._reply(200, {})
            if self.path == "/_requests":
                done, self.kept.requests = self.kept.requests, []
                return self._reply(200, done)
            if body is None:
                self.kept.requests.append(self.path)
                fault = self.kept.faults.pop(0) if self.kept.faults else None
                if fault == "cut":
                    self.close_connection = True
                    return None
                if fault is not None:
                    return self._reply(int(fault), {"error_code": int(fault), "message": "ordered"})
            return self._reply(*self._answer(body))

    def _answer(self, body: Any) -> tuple[int, Any]:
        wanted = "Basic " + base64.b64encode(self.user.encode()).decode()
        if self.user and self.headers.get("Authorization") != wanted:
            return 401, {"error_code": _DENIED, "message": "Unauthorized"}
        if found := re.fullmatch(r"/schemas/ids/(\d+)", self.path):
            return self.kept.schema(int(found[1]))
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", self.path):
            return self.kept.version(unquote(found[1]), int(found[2]))
        if body is not None and (found := re.fullmatch(r"/subjects/([^/]+)/versions", self.path)):
            return self.kept.register(unquote(found[1]), body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _reply(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main() -> None:
    """Serve until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--user", default="")
    parser.add_argument("--certificate", default="")
    given = parser.parse_args()
    Handler.user = given.user
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
    if given.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(given.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"serving on {server.server_address[1]}", flush=True)  # noqa: T201 - its parent waits
    server.serve_forever()


if __name__ == "__main__":
    main()
