"""Engines that tests of this folder share, each started when first asked for; and a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from plait import Catalog
from tests.integration.interop.lives import values
from tests.services import engines as services
from tests.services.engines import DeltaSpark, DuckDB, Engine, IcebergSpark, Reader

Start = Callable[[str], Any]
"""Returns an engine by its name in ``NEEDS``."""


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Give a function that returns an engine, and skips the test where it is not installed."""
    started: dict[str, Engine] = {}
    with ExitStack() as stack:

        def one(name: str) -> Engine:
            reason = services.missing(*NEEDS[name], jars=JARS.get(name))
            if reason:
                pytest.skip(reason)
            if name not in started:
                folder = tmp_path_factory.mktemp(name)
                made: dict[str, Callable[[], Engine]] = {
                    "duckdb": DuckDB,
                    "delta-spark": lambda: DeltaSpark(folder),
                    "iceberg-spark": lambda: IcebergSpark(folder),
                }
                started[name] = stack.enter_context(made.get(name, lambda: Reader(name))())
            return started[name]

        yield one


NEEDS = {
    "duckdb": ("duckdb",),
    "delta-spark": (),
    "iceberg-spark": ("spark-iceberg",),
    "readers": ("readers",),
    "datafusion-iceberg": ("datafusion-iceberg",),
}
JARS = {"delta-spark": "delta", "iceberg-spark": "iceberg"}


@pytest.fixture
def duckdb(start: Start) -> DuckDB:
    """Give the older DuckDB."""
    found = start("duckdb")
    assert isinstance(found, DuckDB)
    return found


@pytest.fixture
def delta_spark(start: Start) -> DeltaSpark:
    """Give Spark with Delta Lake."""
    found = start("delta-spark")
    assert isinstance(found, DeltaSpark)
    return found


@pytest.fixture
def iceberg_spark(start: Start) -> IcebergSpark:
    """Give Spark with Iceberg."""
    found = start("iceberg-spark")
    assert isinstance(found, IcebergSpark)
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """Give a catalog with a table of some versions, whose deletes are files of their own."""
    catalog = Catalog.create(str(tmp_path / "a lake"))
    catalog.create_namespace("sales")
    catalog.create_namespace("stock")
    first = values(range(400), 1)
    trips = catalog.create_table(
        "sales.trips",
        first.schema,
        record_key=[first.schema.names[0]],
        table_type="mor",
        properties={"publish": "iceberg", "publish.deadline": "1h"},
    )
    trips.upsert(first)
    trips.upsert(values(range(200, 600), 2))
    trips.delete(where="tiny < 0")
    return catalog
