"""Tables of a catalog by name in Spark: functions, views and SQL, classic and Connect."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import plait.spark
from plait import Catalog, NamespaceNotFoundError
from plait.services.definition.drop import drop_table
from plait.spark.java import find_java
from tests.conftest import missing
from tests.services.spark import ConnectServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = "id bigint, v bigint"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    for library in ("pyspark", "grpc", "grpc_status", "zstandard"):
        if find_spec(library) is None:
            missing(f"{library} is not installed")
    if find_java(os.environ) is None:
        missing("no Java 17 or newer")
    from pyspark.sql.connect.session import SparkSession as Client

    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        found = Client.builder.remote(server.remote).create()
        yield found
        found.stop()


@pytest.fixture(params=["classic", "connect"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    return request.getfixturevalue("spark" if request.param == "classic" else "remote")


def test_tables_are_read_written_and_queried_by_name(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the processes of the data source are not
    catalog = Catalog.create("it's a lake")
    catalog.create_namespace("sales")
    for name in ("trips", "to-day"):
        catalog.create_table(f"sales.{name}", DDL, record_key=["id"])
    root, trips = "it's a lake", catalog.table("sales.trips")
    rows = session.createDataFrame([(1, 10), (2, 20)], DDL)
    plait.spark.save(rows, root, "Sales.Trips", operation="upsert")
    plait.spark.save(rows.where("id = 2"), root, "sales.trips", operation="upsert")
    assert trips.version == 2
    assert plait.spark.table(session, root, "SALES.trips").count() == 2
    assert plait.spark.table(session, root, "sales.trips", version=0).count() == 0
    plait.spark.save(rows.where("id = 1"), root, "sales.trips", mode="overwrite")
    assert plait.spark.table(session, root, "sales.trips").count() == 1

    views = plait.spark.create_views(session, root, "sales", operation="upsert")
    assert set(views) == {"trips", "to-day"}
    try:
        for view in views:
            session.sql(f"INSERT INTO `{view}` VALUES (1, 11), (5, 50)")
            found = catalog.table(f"sales.{view}").scan().to_arrow()
            assert sorted(found["v"].to_pylist()) == [11, 50]
        # As a DataFrame, a view is of the version that was newest when it was created.
        assert session.sql("SELECT count(*) FROM trips").first()[0] == 1
        plait.spark.create_views(session, root, "sales")
        joined = "SELECT sum(a.v) FROM trips a JOIN `to-day` b ON a.id = b.id"
        assert session.sql(joined).first()[0] == 61
    finally:
        for view in views:
            session.catalog.dropTempView(view)


def test_views_leave_out_what_is_dropped_and_refuse_what_is_not_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    catalog = Catalog.create(str(tmp_path / "lake"))
    catalog.create_namespace("sales")
    for name in ("kept", "going"):
        catalog.create_table(f"sales.{name}", DDL).append(pa.table({"id": [1], "v": [1]}))
    drop_table(catalog._handle(catalog._at(catalog.location("sales.going"))))
    assert plait.spark.create_views(spark, catalog.uri, "sales") == ("kept",)
    spark.catalog.dropTempView("kept")
    with pytest.raises(NamespaceNotFoundError):
        plait.spark.create_views(spark, catalog.uri, "none")
    with pytest.raises(Exception, match=r"no table sales\.none"):
        plait.spark.table(spark, catalog.uri, "sales.none").count()
    with pytest.raises(Exception, match="did you mean 'version'"):
        plait.spark.table(spark, catalog.uri, "sales.kept", versions=1).count()
