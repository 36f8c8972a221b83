"""The Iceberg REST endpoint answers names and metadata, and changes nothing (INV-17, INV-18)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
import pytest

from plait import Catalog, Table
from plait.catalog.names import TableName
from plait.catalog.rest import TARGET_BYTES_MAX, Answer, IcebergRest, Request
from plait.interop.iceberg import IcebergPublisher
from plait.services.maintenance.upkeep import finish_upkeep
from plait.storage import open_store

TOKEN = "0123456789abcdef-token"
TRIPS = "/v1/namespaces/sales/tables/trips"


@pytest.fixture
def catalog(tmp_path) -> Catalog:
    made = Catalog.create(str(tmp_path / "lake"))
    for namespace in ("sales", "stock", "größe"):
        made.create_namespace(namespace)
    made.create_table(
        "sales.trips", "id bigint", record_key=["id"], properties={"publish": "iceberg"}
    )
    made.create_table("sales.plain", "id bigint")
    return made


def put(table: Table, *ids: int) -> None:
    table.upsert(pa.table({"id": ids}))


def ask(of: Catalog | IcebergRest, path: str, query: str = "", method: str = "GET") -> Answer:
    endpoint = IcebergRest(of) if isinstance(of, Catalog) else of
    return endpoint.answer(Request(method, path, query))


def said(of: Catalog | IcebergRest, path: str, query: str = "") -> dict[str, Any]:
    answer = ask(of, path, query)
    assert answer.status == 200, answer
    assert isinstance(answer.said, dict)
    return answer.said


def refused(answer: Answer) -> tuple[int, str]:
    """Give the error of an answer, which has the form that Iceberg's specification says."""
    assert isinstance(answer.said, dict)
    assert set(answer.said) == {"error"}
    error = answer.said["error"]
    assert set(error) == {"message", "type", "code"}
    assert error["code"] == answer.status
    return error["code"], error["type"]


def version_shown(of: Catalog | IcebergRest) -> int:
    return said(of, TRIPS)["metadata"]["current-snapshot-id"]


def test_every_endpoint_that_the_configuration_lists_answers(catalog):
    put(catalog.table("sales.trips"), 1)
    for each in said(catalog, "/v1/config", "warehouse=x")["endpoints"]:
        method, path = each.split(" ")
        filled = path.replace("{prefix}/", "").replace("{namespace}", "sales")
        answer = ask(catalog, filled.replace("{table}", "trips"), method=method)
        assert answer.status == (204 if method == "HEAD" else 200)
        assert bool(answer.body) == (method == "GET")


def test_names_are_listed_and_found(catalog):
    assert said(catalog, "/v1/namespaces") == {"namespaces": [["größe"], ["sales"], ["stock"]]}
    assert said(catalog, "/v1/namespaces", "parent=sales") == {"namespaces": []}
    assert said(catalog, "/v1/namespaces/gr%C3%B6%C3%9Fe")["namespace"] == ["größe"]
    assert said(catalog, "/v1/namespaces/sales/tables") == {
        "identifiers": [
            {"namespace": ["sales"], "name": "plain"},
            {"namespace": ["sales"], "name": "trips"},
        ]
    }


def test_pages_list_each_name_once_although_names_change(catalog):
    first = said(catalog, "/v1/namespaces/sales/tables", "pageSize=1&pageToken=")
    assert [each["name"] for each in first["identifiers"]] == ["plain"]
    catalog.rename("sales.plain", "stock.plain")
    token = first["next-page-token"]
    second = said(catalog, "/v1/namespaces/sales/tables", f"pageSize=1&pageToken={token}")
    assert [each["name"] for each in second["identifiers"]] == ["trips"]
    assert "next-page-token" not in second
    names, query = [], "pageSize=2"
    while True:
        page = said(catalog, "/v1/namespaces", query)
        names += page["namespaces"]
        if "next-page-token" not in page:
            break
        query = f"pageSize=2&pageToken={page['next-page-token']}"
    assert names == [["größe"], ["sales"], ["stock"]]


@pytest.mark.parametrize("size", ["0", "-1", "x", "9" * 50, "%EF%BC%91"])
def test_a_page_of_no_size_is_refused(catalog, size):
    code, _ = refused(ask(catalog, "/v1/namespaces", f"pageSize={size}"))
    assert code == 400


def test_a_table_is_answered_at_its_newest_version_wherever_its_name_moves(catalog):
    trips = catalog.table("sales.trips")
    put(trips, 1)
    assert version_shown(catalog) == 1
    put(trips, 2)
    loaded = said(catalog, TRIPS)
    assert loaded["config"] == {}
    assert [each["snapshot-id"] for each in loaded["metadata"]["snapshots"]] == [1, 2]
    assert loaded["metadata-location"].endswith(".metadata.json")
    catalog.rename("sales.trips", "stock.rides")
    assert refused(ask(catalog, TRIPS)) == (404, "NoSuchTableException")
    moved = said(catalog, "/v1/namespaces/stock/tables/rides")
    assert moved["metadata"]["table-uuid"] == loaded["metadata"]["table-uuid"]


def test_a_version_that_nobody_published_is_published_before_the_answer(catalog):
    trips = catalog.table("sales.trips")
    put(trips, 1)
    trips.maintenance.publish()
    trips.alter.set({"publish": ""})
    put(trips, 2)
    trips.alter.set({"publish": "iceberg", "publish.deadline": "1h"})
    finish_upkeep()  # it publishes on a thread, and what is published is deleted next
    store = open_store(catalog.location("sales.trips"))
    store.delete([info.path for info in store.list("metadata")])
    reader = IcebergRest(catalog, publish=False)
    assert refused(ask(reader, TRIPS)) == (503, "ServiceUnavailableException")
    newest = version_shown(catalog)
    assert newest == catalog.table("sales.trips").inspect.publications()[0].version
    assert version_shown(reader) == newest


def test_a_table_without_iceberg_metadata_is_refused_with_what_to_do(catalog):
    answer = ask(catalog, "/v1/namespaces/sales/tables/plain")
    assert refused(answer) == (400, "BadRequestException")
    assert b"publish=iceberg" in answer.body
    assert ask(catalog, "/v1/namespaces/sales/tables/plain", method="HEAD").status == 204


def test_a_dropped_table_is_unknown(catalog):
    entry = catalog.drop("sales.trips")
    assert refused(ask(catalog, TRIPS)) == (404, "NoSuchTableException")
    catalog.undrop(entry.location)
    assert ask(catalog, TRIPS, method="HEAD").status == 204


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "x"])
@pytest.mark.parametrize("path", ["/v1/namespaces", TRIPS, "/v1/tables/rename", "/"])
def test_every_change_is_refused(catalog, method, path):
    before = catalog.tables(), catalog.namespaces()
    assert refused(ask(catalog, path, method=method)) == (406, "UnsupportedOperationException")
    assert (catalog.tables(), catalog.namespaces()) == before


HOSTILE = [
    "..",
    ".",
    "",
    ".catalog",
    "%2e%2e",
    "%2E%2E%2Fetc",
    "%252e%252e",
    "a%2Fb",
    "a%00b",
    "a'%20OR%20'1'='1",
    "a%1Fb",
    "%FF%FE",
    "%",
    "a" * 129,
    "sales.trips",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_name_is_unknown(catalog, name):
    unknown = [
        f"/v1/namespaces/{name}",
        f"/v1/namespaces/{name}/tables",
        f"/v1/namespaces/{name}/tables/trips",
        f"/v1/namespaces/sales/tables/{name}",
        f"/{name}/v1/config",
        f"/v1/{name}/namespaces",
    ]
    for path in unknown:
        code, _ = refused(ask(catalog, path))
        assert code == 404, path
        assert ask(catalog, path, method="HEAD").status == 404
    parents = ask(catalog, "/v1/namespaces", f"parent={name}")
    assert parents.status == (404 if name else 200)


def test_a_target_is_bounded(catalog):
    code, _ = refused(ask(catalog, "/v1/namespaces/" + "a" * TARGET_BYTES_MAX))
    assert code == 414
    code, _ = refused(ask(catalog, "/v1/namespaces", "a&" * TARGET_BYTES_MAX))
    assert code == 414


@pytest.mark.parametrize(
    "shown",
    ["", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}"],
)
def test_nothing_is_told_without_the_token(catalog, shown):
    endpoint = IcebergRest(catalog, token=TOKEN)
    for path in ("/v1/config", "/v1/namespaces", TRIPS, "/", "/../.."):
        for method in ("GET", "POST"):
            answer = endpoint.answer(Request(method, path, "", shown))
            assert refused(answer) == (401, "NotAuthorizedException")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert TOKEN.encode() not in answer.body
    told = endpoint.answer(Request("GET", "/v1/config", "", f"bearer {TOKEN}"))
    assert told.status == 200


def test_a_damaged_table_is_told_without_its_paths(catalog, caplog):
    put(catalog.table("sales.trips"), 1)
    location = catalog.location("sales.trips")
    store = open_store(location)
    store.delete([".meta/table.json"])
    store.put(".meta/table.json", b"{")
    answer = ask(catalog, TRIPS)
    assert refused(answer) == (503, "ServiceUnavailableException")
    assert location.encode() not in answer.body
    assert "a request was not answered" in caplog.text


def test_a_bug_is_told_without_its_traceback(catalog, caplog, monkeypatch):
    put(catalog.table("sales.trips"), 1)

    def broken(*_: object) -> None:
        message = "secret"
        raise RuntimeError(message)

    monkeypatch.setattr(IcebergPublisher, "newest", broken)
    answer = ask(catalog, TRIPS)
    assert refused(answer) == (500, "InternalServerError")
    assert b"secret" not in answer.body
    assert "secret" in caplog.text


def test_the_names_of_the_answers_are_those_of_the_catalog(catalog):
    listed = {
        str(TableName(each["namespace"][0], each["name"]))
        for (namespace,) in said(catalog, "/v1/namespaces")["namespaces"]
        for each in said(catalog, f"/v1/namespaces/{namespace}/tables")["identifiers"]
    }
    assert listed == {entry.name for entry in catalog.tables()}


def test_loads_at_once_publish_a_version_once(catalog, monkeypatch):
    """INV-17 would hold without; but each publication writes files that nobody needs."""
    trips = catalog.table("sales.trips")
    trips.alter.set({"publish": "", "publish.deadline": "1h"})
    put(trips, 1)
    trips.alter.set({"publish": "iceberg"})
    finish_upkeep()
    store = open_store(catalog.location("sales.trips"))
    store.delete([info.path for info in store.list("metadata")])
    started, caught, inside, crowds = threading.Barrier(4), [], [], []
    first, asked = threading.Lock(), threading.Semaphore(0)
    catch_up = IcebergPublisher.catch_up

    class Noted(WeakValueDictionary):
        def setdefault(self, *args):
            found = super().setdefault(*args)
            asked.release()
            return found

    def counted(self, state, **named):
        inside.append(self)
        crowds.append(len(inside))
        if first.acquire(blocking=False):
            for _ in range(4):  # all are here before the first publishes
                asked.acquire()
        done = catch_up(self, state, **named)
        caught.append(done.published)
        inside.remove(self)
        return done

    monkeypatch.setattr(IcebergPublisher, "catch_up", counted)

    def load(_: int) -> int:
        started.wait()
        return version_shown(endpoint)

    endpoint = IcebergRest(catalog)
    endpoint._publishing = Noted()
    with ThreadPoolExecutor(4) as pool:
        shown = list(pool.map(load, range(4)))
    assert shown == [trips.version] * 4
    assert crowds == [1, 1, 1, 1], "nobody looks for what another one is publishing"
    assert sorted(map(bool, caught)) == [False, False, False, True]
    assert not endpoint._publishing, "nothing is remembered of a table"
