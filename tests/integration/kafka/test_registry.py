"""Avro with a schema registry, over real HTTP: nothing that the registry does loses a record."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import pytest

from plait import Table
from plait.errors import OptionError, StorageError
from plait.kafka.records.avro.schema import Record
from plait.kafka.records.registry import Registry
from tests.integration.kafka.conftest import WAIT_S, Events
from tests.integration.kafka.test_sink import wait_for
from tests.services.certificate import write_certificate
from tests.services.registry import RegistryServer, framed
from tests.support.records import column, places, read, spec_of

pytestmark = pytest.mark.kafka

FIRST = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
SECOND = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "level", "type": {"type": "enum", "name": "L", "symbols": ["LOW", "HIGH"]}},
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def encoded(schema: object, row: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    with RegistryServer(tmp_path) as server:
        yield server


def client(server: RegistryServer, *, patience_s: float = 20, **settings: str) -> Registry:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return Registry(server.url, given, patience_s=patience_s)


def test_records_of_several_schemas_are_rows_of_one_table(
    make_events: Callable[..., Events], registry: RegistryServer, tmp_path: Path
) -> None:
    events, letters = make_events(1), make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string", record_key=["id"])
    first = registry.register("events-value", FIRST)
    second = registry.register("events-value", SECOND)
    key = registry.register("events-key", '"long"')
    producer = events.clients.producer()
    for number in range(100):
        schema, at = ((FIRST, first), (SECOND, second))[number % 2]
        row = {"id": number, "note": f"n{number}", "level": "LOW"}
        name = framed(key, encoded("long", number))
        producer.produce(events.name, framed(at, encoded(schema, row)), name)
    producer.produce(events.name, framed(99, b"\0"))
    producer.produce(events.name, None, framed(key, encoded("long", 7)))
    assert producer.flush(WAIT_S) == 0
    formats = {"format": "avro", "key_format": "avro", "registry": registry.url}
    with events.running(table, dead_letters=letters.name, **formats):
        wait_for(table, 99)
    found = table.scan(["id", "note"]).to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in found} == {
        number: f"n{number}" for number in range(100) if number != 7
    }
    asked = registry.requests()
    assert asked.count(f"/schemas/ids/{first}") == asked.count(f"/schemas/ids/{second}") == 1


def test_a_registry_that_is_down_makes_an_error_and_no_dead_letter(
    registry: RegistryServer, tmp_path: Path
) -> None:
    number = registry.register("s", FIRST)
    asking = client(registry, patience_s=0.5)
    registry.fault(*[503] * 1_000)
    with pytest.raises(StorageError):
        asking.find(number)
    registry.stop()
    with pytest.raises(StorageError):
        asking.find(number)
    registry.restart()
    assert registry.register("s", FIRST) == number
    assert isinstance(asking.find(number), Record)


@pytest.mark.parametrize("fault", [500, 503, 429, 408, "cut", 200])
def test_a_registry_that_fails_for_a_moment_is_asked_again(
    registry: RegistryServer, fault: int | str
) -> None:
    """An answer without a schema, as a proxy may give it, is no word about the record either."""
    number = registry.register("s", FIRST)
    registry.fault(fault, fault, fault)
    assert isinstance(client(registry).find(number), Record)


@pytest.mark.parametrize("fault", [400, 404, 301])
def test_an_answer_that_no_registry_gives_is_an_error_at_once(
    registry: RegistryServer, fault: int
) -> None:
    number = registry.register("s", FIRST)
    registry.fault(fault)
    with pytest.raises(StorageError):
        client(registry).find(number)


def test_the_next_of_several_registries_is_asked_when_one_is_down(
    registry: RegistryServer, tmp_path: Path
) -> None:
    number = registry.register("s", FIRST)
    asking = Registry(f"http://127.0.0.1:1, {registry.url}/")
    assert isinstance(asking.find(number), Record)


def test_a_schema_that_a_replica_learns_late_is_waited_for(registry: RegistryServer) -> None:
    """A number that stands in a record was registered before the record was written."""
    late = threading.Timer(0.5, registry.register, ("s", FIRST))
    late.start()
    assert isinstance(client(registry).find(1), Record)
    late.join()


def test_numbers_that_no_registry_has_are_dead_letters_and_cost_little(
    registry: RegistryServer,
) -> None:
    number = registry.register("s", FIRST)
    other = registry.register("p", 'syntax = "proto3";', kind="PROTOBUF")
    good = framed(number, encoded(FIRST, {"id": 1, "note": "a"}))
    values = [good, framed(other, b"\0"), *(framed(n, b"\0") for n in range(100, 150)), good]
    changes = read(
        spec_of("id int, note string"),
        *((value,) for value in values * 2),
        format="avro",
        registry=registry.url,
    )
    assert len(places(changes)) == 2 * 51
    assert column(changes, "id") == [1] * 4
    assert registry.requests().count("/schemas/ids/149") == 1


def test_a_schema_may_refer_to_others(registry: RegistryServer) -> None:
    inner = {"type": "fixed", "name": "Code", "namespace": "a.b", "size": 1}
    middle = {"type": "array", "items": "a.b.Code"}
    fields = [{"name": "code", "type": "a.b.Code"}, {"name": "codes", "type": middle}]
    outer = {"type": "record", "name": "R", "fields": fields}
    registry.register("code", inner)
    number = registry.register("r", outer, references=[("a.b.Code", "code", 1)])
    lost = registry.register("l", outer, references=[("a.b.Code", "code", 9)])
    changes = read(
        spec_of("code binary, codes array<binary>"),
        (framed(number, b"x\2y\0"),),
        (framed(lost, b"x\2y\0"),),
        format="avro",
        registry=registry.url,
    )
    assert places(changes) == [1]
    assert changes.rows.to_pylist() == [{"code": b"x", "codes": [b"y"]}]


def test_a_user_and_a_password_are_passed_and_never_shown(tmp_path: Path) -> None:
    with RegistryServer(tmp_path, "--user", "me:secret") as server:
        for asking in (
            client(server, basic_auth_user_info="me:secret"),
            Registry(server.url.replace("//", "//me:secret@")),
        ):
            assert isinstance(asking.find(1), str)
            assert "secret" not in repr(asking)
        with pytest.raises(StorageError) as caught:
            Registry(server.url.replace("//", "//me:wrong@")).find(1)
    assert (caught.value.status, "wrong" in str(caught.value)) == (401, False)


def test_tls_trusts_the_authority_that_is_named_and_no_other(tmp_path: Path) -> None:
    server_file, authority = tmp_path / "server.pem", tmp_path / "ca.pem"
    write_certificate(server_file, authority)
    with RegistryServer(tmp_path, "--certificate", str(server_file), scheme="https") as server:
        assert isinstance(client(server, ssl_ca_location=str(authority)).find(1), str)
        with pytest.raises(StorageError):
            client(server, patience_s=0.2).find(1)
    with pytest.raises(OptionError):
        client(server, ssl_ca_location=str(tmp_path / "none.pem"))


def test_a_sink_that_its_registry_refuses_stops_and_goes_on_where_it_was(
    make_events: Callable[..., Events], registry: RegistryServer, tmp_path: Path
) -> None:
    events, letters = make_events(1), make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    number = registry.register("s", FIRST)
    events.produce(framed(number, encoded(FIRST, {"id": at, "note": "a"})) for at in range(10))
    registry.fault(*[403] * 100)
    formats = {"format": "avro", "registry": registry.url, "dead_letters": letters.name}
    with pytest.raises(StorageError), events.running(table, **formats) as ended:
        ended.wait(WAIT_S)
    assert table.scan().count() == 0
    registry.fault()
    with events.running(table, **formats):
        wait_for(table, 10)
    consumer = letters.clients.consumer()
    assert letters.clients.bounds(consumer, letters.name, 0) == (0, 0)
    consumer.close()
