"""Engines read by name from ``tablectl serve-catalog``, and strangers get nothing (INV-17)."""

from __future__ import annotations

import gc
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
)

from plait import Catalog, OptionError, Table
from plait.catalog.rest import Answer, IcebergRest, Request
from plait.catalog.server import _CONNECTIONS_MAX, CatalogServer, Listening
from tests.integration.interop.lives import held, values, version_of
from tests.services.certificate import write_certificate
from tests.support.engines import comparable

TOKEN = "0123456789abcdef-token"
WAIT_S = 60


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Collect what a server leaves of clients that never end a TLS handshake: asyncio warns."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def safe(tmp_path: Path) -> Listening:
    """Give an address with a token and TLS."""
    server, token = tmp_path / "server.pem", tmp_path / "token"
    write_certificate(server, tmp_path / "authority.pem")
    token.write_text(f"{TOKEN}\n")
    return Listening("127.0.0.1", 0, str(token), str(server), str(server))


def serve(catalog: Catalog, listening: Listening | None = None) -> CatalogServer:
    chosen = listening or Listening(port=0)
    return CatalogServer(IcebergRest(catalog, token=chosen.token()), chosen)


def send(server: CatalogServer, *parts: bytes) -> bytes:
    """Send bytes as they are, and give what comes back until the server ends the connection."""
    host, port = server.url.split("//")[1].split(":")
    with closing(socket.create_connection((host, int(port)), WAIT_S)) as connection:
        with suppress(ConnectionError):  # it did not want the rest
            for part in parts:
                connection.sendall(part)
        found = b""
        with suppress(ConnectionResetError):  # it did not want the rest
            while piece := connection.recv(1 << 16):
                found += piece
        return found


def get(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: x", b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def require_equal(client: RestCatalog, table: Table) -> None:
    """Compare the newest version, and each that is named, with what Plait holds."""
    shown = client.load_table("sales.trips")
    assert comparable(shown.scan().to_arrow()) == held(table, version_of(table))
    for snapshot in shown.snapshots():
        read = shown.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert comparable(read) == held(table, snapshot.snapshot_id)


def test_pyiceberg_lists_loads_and_reads_every_version(lake: Catalog) -> None:
    trips = lake.table("sales.trips")
    with serve(lake) as server:
        client = RestCatalog("lake", uri=server.url)
        assert client.list_namespaces() == [("sales",), ("stock",)]
        assert client.list_tables("sales") == [("sales", "trips")]
        assert client.list_tables("stock") == []
        assert client.table_exists("sales.trips")
        assert client.namespace_exists("sales")
        assert not client.table_exists("sales.none")
        require_equal(client, trips)
        assert len(client.load_table("sales.trips").snapshots()) == version_of(trips)
        trips.upsert(values(range(590, 700), 3))
        require_equal(client, trips)
        lake.rename("sales.trips", "stock.rides")
        with pytest.raises(NoSuchTableError):
            client.load_table("sales.trips")
        assert client.load_table("stock.rides").scan().to_arrow().num_rows > 0
        with pytest.raises(NoSuchNamespaceError):
            client.list_tables("none")


def test_pyiceberg_can_change_nothing(lake: Catalog) -> None:
    with serve(lake) as server:
        client = RestCatalog("lake", uri=server.url)
        shown = client.load_table("sales.trips")
        before = version_of(lake.table("sales.trips"))
        changes: list[Callable[[], object]] = [
            lambda: client.create_namespace("new"),
            lambda: client.drop_table("sales.trips"),
            lambda: client.rename_table("sales.trips", "sales.other"),
            lambda: client.create_table("sales.new", shown.schema()),
            lambda: shown.transaction().set_properties(a="b").commit_transaction(),
        ]
        for change in changes:
            with pytest.raises((RESTError, NotImplementedError)):
                change()
    assert lake.namespaces() == ("sales", "stock")
    assert [entry.name for entry in lake.tables()] == ["sales.trips"]
    assert version_of(lake.table("sales.trips")) == before


def test_a_token_and_tls_are_asked_for(
    lake: Catalog, safe: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "authority.pem"))
    with serve(lake, safe) as server:
        client = RestCatalog("lake", uri=server.url, token=TOKEN)
        require_equal(client, lake.table("sales.trips"))
        for wrong in ({}, {"token": TOKEN[:-1]}):
            with pytest.raises((UnauthorizedError, RESTError)):
                RestCatalog("lake", uri=server.url, **wrong).list_namespaces()
        assert TOKEN.encode() not in send(server, get(b"/v1/config"))  # not TLS


def test_a_client_that_never_ends_its_handshake_holds_up_nobody(
    lake: Catalog, safe: Listening, tmp_path: Path
) -> None:
    trust = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    with serve(lake, safe) as server:
        port = int(server.url.rsplit(":", 1)[1])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        with (
            closing(socket.create_connection(("127.0.0.1", port), WAIT_S)) as plain,
            trust.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(get(b"/v1/config", b"Authorization: Bearer " + TOKEN.encode()))
            assert status(connection.recv(1 << 16)) == 200
        for each in silent:
            each.close()


def _until_closed(connection: socket.socket) -> bytes:
    """Give what comes until the server ends a connection, which it does by itself."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            found += piece
    return found


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /v1/con", get(b"/v1/config")[:-2], b"GET", get(b"/v1/config") + b"GET /v1"],
)
def test_a_client_that_ends_no_request_is_let_go(lake: Catalog, sent: bytes) -> None:
    """Also one that asked before, and then begins a request."""
    sent = sent.replace(b"Connection: close\r\n", b"")
    with serve(lake, Listening(port=0, request_s=0.2)) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with closing(socket.create_connection(("127.0.0.1", port), WAIT_S)) as connection:
            connection.sendall(sent)
            assert _until_closed(connection).count(b"HTTP/1.1 200") == sent.count(b"\r\n\r\n")


def test_the_time_to_send_a_request_does_not_end_its_answer(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, let = threading.Event(), threading.Event()
    answer = IcebergRest.answer

    def slow(self: IcebergRest, request: Request) -> Answer:
        going.set()
        assert let.wait(WAIT_S)
        return answer(self, request)

    monkeypatch.setattr(IcebergRest, "answer", slow)
    with serve(lake, Listening(port=0, request_s=0.1)) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(send, server, get(b"/v1/config"))
        assert going.wait(WAIT_S)
        port = int(server.url.rsplit(":", 1)[1])
        with closing(socket.create_connection(("127.0.0.1", port), WAIT_S)) as silent:
            assert _until_closed(silent) == b""  # its time is over, and so is that of the other
        let.set()
        assert status(asked.result(WAIT_S)) == 200


def test_more_connections_than_the_bound_are_refused_at_once(lake: Catalog) -> None:
    with serve(lake) as server:
        port = int(server.url.rsplit(":", 1)[1])
        silent = []
        try:
            for _ in range(_CONNECTIONS_MAX):
                each = socket.create_connection(("127.0.0.1", port), WAIT_S)
                silent.append(each)
            with closing(socket.create_connection(("127.0.0.1", port), WAIT_S)) as late:
                assert _until_closed(late) == b""
            silent.pop().close()
            while status_or_none(send(server, get(b"/v1/config"))) != 200:
                pass  # until the server knows that one is gone
        finally:
            for each in silent:
                each.close()


def status_or_none(answer: bytes) -> int | None:
    return status(answer) if answer else None


def test_what_is_no_http_is_answered_as_an_error_of_iceberg(lake: Catalog) -> None:
    with serve(lake) as server:
        answer = send(server, b"\x00\xff\r\n\r\n")
        assert status(answer) == 400
        error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert (error["code"], error["type"]) == (400, "BadRequestException")


@pytest.mark.parametrize("given", [(), ("token_file",), ("certificate", "key")])
def test_an_address_that_others_reach_needs_a_token_and_tls(
    lake: Catalog, safe: Listening, given: tuple[str, ...]
) -> None:
    parts = {name: getattr(safe, name) for name in given}
    with pytest.raises(OptionError, match="can be reached from other machines"):
        serve(lake, Listening("0.0.0.0", 0, **parts))
    whole = Listening("0.0.0.0", 0, safe.token_file, safe.certificate, safe.key)
    with serve(lake, whole) as server:
        assert server.url.startswith("https://0.0.0.0:")


@pytest.mark.parametrize("content", [b"", b"short", b"with blanks in its middle", b"\xff" * 40])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(OptionError, match="no token") as caught:
        Listening(token_file=str(file)).token()
    assert not content or content.decode("latin-1") not in str(caught.value)


def test_a_port_certificate_or_key_that_cannot_be_used_is_refused(
    lake: Catalog, safe: Listening, tmp_path: Path
) -> None:
    with serve(lake) as server, pytest.raises(OptionError, match="cannot be used"):
        serve(lake, Listening(port=int(server.url.rsplit(":", 1)[1])))
    with pytest.raises(OptionError, match="given together"):
        serve(lake, Listening(port=0, certificate=safe.certificate))
    public = str(tmp_path / "authority.pem")
    with pytest.raises(OptionError, match="key cannot be used"):
        serve(lake, Listening(port=0, certificate=public, key=public))


def test_hostile_requests_get_an_error_and_hold_up_nobody(lake: Catalog) -> None:
    with serve(lake) as server:
        for path in (
            b"/v1/namespaces/..%2f..%2fetc/tables/passwd",
            b"/v1/namespaces/%2e%2e/tables/%2e%2e",
            b"/../../../../etc/passwd",
            b"/v1/namespaces/sales/tables/../../../../.catalog",
            b"//v1//config",
            b"/v1/namespaces/%00",
            b"http://elsewhere/v1/config",
        ):
            assert status(send(server, get(path))) in (400, 404), path
        assert status(send(server, get(b"/v1/config?" + b"a" * 8_000))) == 414
        for hostile in (
            get(b"/v1/config", b"X: " + b"a" * (1 << 20)),
            get(b"/v1/" + b"a" * (1 << 20)),
            b"\x00\xff" * 1_000 + b"\r\n\r\n",
            get(b"/v1/config", b"Content-Length: -1"),
            get(b"/v1/config", b"Content-Length: 3", b"Content-Length: 4"),
            get(b"/v1/config\xff"),
        ):
            assert b" 200 " not in send(server, hostile)[:20]
        length = b"Content-Length: %d" % (1 << 40)
        posted = send(server, get(b"/v1/namespaces", length, method=b"POST"), b"{" * (1 << 20))
        assert not posted or status(posted) == 406
        smuggled = get(b"/v1/namespaces", b"Content-Length: 500", method=b"POST")
        answer = send(server, smuggled.replace(b"Connection: close\r\n", b""), get(b"/v1/config"))
        assert answer.count(b"HTTP/1.1 ") == 1
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: send(server, get(b"/v1/namespaces")), range(64)))
        assert {status(each) for each in answers} == {200}
        assert all(b"server:" not in each.lower().split(b"\r\n\r\n")[0] for each in answers)


@pytest.mark.processes
def test_sigterm_ends_the_server_with_0_after_its_answers(lake: Catalog, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "plait.cli.start", "--log-level", "info", "--json"]
    process = subprocess.Popen(
        [*command, "serve-catalog", lake.uri, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        said = (json.loads(line)["message"] for line in process.stderr)
        url = next(text for text in said if "is served at" in text).rsplit(" ", 1)[1]
        require_equal(RestCatalog("lake", uri=url), lake.table("sales.trips"))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert json.loads(out)["data"]["url"] == url
    assert json.loads(out)["data"]["requests"] > 0
    assert "Traceback" not in err
