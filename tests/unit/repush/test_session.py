"""A repush in a session that cannot do its work is refused before it begins."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from plait import CapabilityMissingError, OptionError, Table
from tests.support.repush_steps import make


class SparkSession:
    """Looks like a session of Spark, and can do nothing."""


SparkSession.__module__ = "pyspark.sql.session"


@pytest.mark.parametrize("session", [5, "local", object()])
def test_what_is_no_session_is_refused_before_anything_is_written(session: object) -> None:
    table = make()
    before = table.version
    with pytest.raises(OptionError, match="session"):
        table.layout.repush(buckets=3, expire="v 1d row", spark=session)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(OptionError, match="session"):
        table.layout.repush(buckets=3, spark=session)  # type: ignore[arg-type]  # that is the point
    assert table.version == before


def test_a_table_that_executors_cannot_reach_is_refused_before_anything_is_written() -> None:
    table = make()
    before = table.version
    with pytest.raises(CapabilityMissingError):
        table.layout.repush(buckets=3, spark=SparkSession())  # type: ignore[arg-type]  # that is the point
    assert table.version == before


def test_a_source_that_executors_cannot_reach_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    table = Table.create(str(tmp_path / "t"), make().schema, record_key="id")
    table.upsert(pa.table({"id": [1], "p": ["x"], "v": [1]}))
    source = str(make().inspect.describe()["uri"])
    with pytest.raises(CapabilityMissingError):
        table.layout.repush(source=source, spark=SparkSession())  # type: ignore[arg-type]  # that is the point
    assert table.version == 1
