"""A bucket that cannot be reached is told at once, whoever asks: with one request, in seconds."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from plait import Table
from plait.cli.main import main
from plait.errors import StorageError
from plait.storage import open_store, probe_store, s3
from tests.services.s3 import S3Server

BOUND_S = 0.2
URI = "s3://nobodys-bucket/t"


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the URL of a server that takes connections and says nothing."""
    monkeypatch.setattr(s3, "REACH_S", BOUND_S)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def options(endpoint: str, **more: object) -> dict[str, object]:
    return {"endpoint_url": endpoint, "key": "k", "secret": "s", **more}


def told(call: Callable[[], object], endpoint: str, bucket: str) -> StorageError:
    """Make a call that must fail soon, and name the endpoint and the bucket."""
    began = time.monotonic()
    with pytest.raises(StorageError) as caught:
        call()
    assert time.monotonic() - began < 60, "it was tried again and again"
    facts = caught.value.facts
    assert (facts["endpoint"], facts["bucket"]) == (endpoint, bucket)
    assert endpoint in str(caught.value)
    assert bucket in str(caught.value)
    return caught.value


def test_a_silent_endpoint_is_told_by_every_door(
    silent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = options(silent)
    for call in (
        lambda: Table.create(URI, "id bigint", storage_options=storage),
        lambda: Table.open(URI, storage_options=storage),
        lambda: open_store(URI, storage).find("a"),
        lambda: open_store(URI, storage).put("a", b"1"),
        lambda: list(open_store(URI, storage).list("")),
        lambda: open_store(URI, storage).filesystem().open_input_file("a"),
        lambda: open_store(URI, storage).replace("a", b"2", expected=b"1"),
        lambda: probe_store(open_store(URI, storage, create=True)),
    ):
        told(call, silent, "nobodys-bucket")
    given = [f"--storage-option={key}={value}" for key, value in storage.items()]
    assert main(["describe", URI, *given]) != 0
    assert silent in capsys.readouterr().err


def test_an_endpoint_where_nobody_listens_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "REACH_S", BOUND_S)
    with socket.create_server(("127.0.0.1", 0)) as once:
        endpoint = f"http://127.0.0.1:{once.getsockname()[1]}"
    storage = options(endpoint)
    told(lambda: Table.create(URI, "id bigint", storage_options=storage), endpoint, URI[5:-2])


@pytest.mark.s3
def test_a_missing_bucket_is_told_at_once(s3_server: S3Server) -> None:
    storage, bucket = s3_server.options, "no-such-bucket-here"
    uri = f"s3://{bucket}/t"
    for call in (
        lambda: Table.create(uri, "id bigint", storage_options=storage),
        lambda: Table.open(uri, storage_options=storage),
    ):
        error = told(call, s3_server.url, bucket)
        assert "create the bucket" in error.hint


class Refusing(BaseHTTPRequestHandler):
    """Refuses what an account without the right to list is refused, and has no object."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        listing = "list-type=2" in self.path
        self.asked.append("list" if listing else "get")
        code, status = ("AccessDenied", 403) if listing else ("NoSuchKey", 404)
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


def test_a_bucket_that_refuses_to_be_listed_is_asked_once() -> None:
    """It has answered, so the requests themselves tell what is refused."""
    Refusing.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = open_store(URI, options(f"http://127.0.0.1:{server.server_port}"))
        assert [store.find(path, size_max=9) for path in "abc"] == [None, None, None]
        server.shutdown()
    assert Refusing.asked == ["list", "get", "get", "get"]
