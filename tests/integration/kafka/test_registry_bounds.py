"""A registry may answer anything, at any pace: a search for a schema ends within its patience."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from plait import StorageError
from plait.kafka.records.registry import Registry

pytestmark = pytest.mark.kafka

PATIENCE_S, HANGS_S = 1.0, 30.0
Answer = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the test says."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        try:
            self.server.answer(self)
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def begin(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def drip(self, body: bytes, pause_s: float = 0.2) -> None:
        for byte in body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if self.server.closing.wait(pause_s):
                return


class Server(http.server.ThreadingHTTPServer):
    """Serves one registry."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.closing = threading.Event()
        self.answer: Answer = lambda handler: handler.begin()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def find(self, answer: Answer) -> object:
        self.answer = answer
        url = f"http://127.0.0.1:{self.server_address[1]}"
        began = time.monotonic()
        try:
            return Registry(url, patience_s=PATIENCE_S).find(7)
        finally:
            assert time.monotonic() < began + HANGS_S


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made
        made.closing.set()
        made.shutdown()


def body(text: bytes, status: int = 200) -> Answer:
    def answer(handler: Handler) -> None:
        handler.begin(status)
        handler.wfile.write(text)

    return answer


def told(**values: object) -> Answer:
    return body(json.dumps(values).encode())


def drip_head(handler: Handler) -> None:
    handler.drip(b"HTTP/1.0 200 OK\r\n" + b"X: y\r\n" * 1_000)


def drip_body(handler: Handler) -> None:
    handler.begin()
    handler.drip(b" " * 10_000)


def drip_refusal(handler: Handler) -> None:
    handler.begin(404)
    handler.drip(b" " * 10_000)


def flood(handler: Handler) -> None:
    handler.begin()
    for _ in range(2_000):
        handler.wfile.write(b" " * (1 << 20))


def silent(handler: Handler) -> None:
    handler.server.closing.wait(HANGS_S)


def elsewhere(handler: Handler) -> None:
    handler.begin(302, Location=f"http://localhost:{handler.server.server_address[1]}/other")


@pytest.mark.long(5)
@pytest.mark.parametrize(
    "answer",
    [
        drip_head, drip_body, drip_refusal, flood, silent, elsewhere,
        lambda handler: handler.begin(302, Location="file:///etc/passwd"),
        body(b"[" * 200_000), body(b'{"schema":' * 200_000), body(b"[" * 60_000, 404),
        body(b""), body(b"<html>"), body(b"[]"), body(b'{"schema":5}'), body(b'{"schema":NaN}'),
        body(b'{"schema":"\\"int\\"","x":' + b"9" * 5_000 + b"}"), body(b'{"schema":"\xff"}'),
        body(b'{"error_code":{}}', 404), body(b'{"error_code":40403.0}', 404),
    ],
    ids=range(19),
)  # fmt: skip
def test_an_answer_of_any_pace_size_depth_or_type_is_an_error_within_the_patience(
    server: Server, answer: Answer
) -> None:
    with pytest.raises(StorageError):
        server.find(answer)
    assert "/other" not in server.asked


def test_each_reference_has_a_part_of_one_patience(server: Server) -> None:
    """Not each its own: a chain of 200 would take 200 times as long."""

    def next_one(handler: Handler) -> None:
        handler.server.closing.wait(0.2)
        name = f"s{len(handler.server.asked)}"
        told(schema='"int"', references=[{"subject": name, "version": 1}])(handler)

    with pytest.raises(StorageError):
        server.find(next_one)


@pytest.mark.long(4)
@pytest.mark.parametrize(
    "values",
    [
        {"schema": "[" * 200_000},
        {"schema": json.dumps({"type": "enum", "name": "E", "symbols": ["a"] * 200_000})},
        {"schema": '"int"', "schemaType": {"a": ["x" * 100_000]}},
        {"schema": '"int"', "references": [1]},
        {"schema": '"int"', "references": {"subject": "a"}},
        {"schema": '"int"', "references": [{"subject": 1, "version": 1}]},
        {"schema": '"int"', "references": [{"subject": "a", "version": "1"}]},
        {"schema": '"int"', "references": [{"subject": "a", "version": True}]},
        {"schema": '"int"', "references": [{"subject": "a", "version": 2**70}]},
        {"schema": '"int"', "references": [{"subject": "a", "version": -1}]},
        {"schema": '"int"', "references": [{"subject": "a" * 100_000, "version": 1}]},
    ],
)
def test_a_schema_that_makes_no_sense_is_the_reason_of_a_bad_record(
    server: Server, values: dict[str, object]
) -> None:
    found = server.find(told(**values))
    assert isinstance(found, str)
    assert len(found) < 1_000
    assert server.asked == ["/schemas/ids/7"]


def test_a_subject_is_no_path(server: Server) -> None:
    def once(handler: Handler) -> None:
        first = len(handler.server.asked) == 1
        references = [{"subject": "../../admin?x=", "version": 1}] if first else []
        told(schema='"int"', references=references)(handler)

    server.find(once)
    assert server.asked[1] == "/subjects/..%2F..%2Fadmin%3Fx%3D/versions/1"
