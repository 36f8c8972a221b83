"""A repush in a session that cannot do its work is refused before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import CapabilityMissingError, OptionError, Table
from tests.support.build import uri_of
from tests.support.repush_steps import make


class SparkSession:
    """Looks like a session of Spark, and can do nothing."""


SparkSession.__module__ = "pyspark.sql.session"


@pytest.mark.parametrize("expire", [None, "v 1d row"])
def test_what_is_no_session_is_refused_before_anything_is_written(expire: str | None) -> None:
    table = make()
    for session in (5, "local", object()):
        with pytest.raises(OptionError, match="session"):
            table.layout.repush(buckets=3, expire=expire, spark=session)  # type: ignore[arg-type]  # that is the point
    assert table.version == 4


@pytest.mark.parametrize("kind", ["table", "source"])
def test_what_executors_cannot_reach_is_refused_before_anything_is_written(
    kind: str, tmp_path: Path
) -> None:
    near = make()
    how: dict[str, object] = {"buckets": 3}
    table = near
    if kind == "source":
        table = Table.create(str(tmp_path / "t"), near.schema, record_key="id")
        how = {"source": uri_of(near)}
    before = table.version
    with pytest.raises(CapabilityMissingError):
        table.layout.repush(spark=SparkSession(), **how)  # type: ignore[arg-type]  # that is the point
    assert table.version == before
