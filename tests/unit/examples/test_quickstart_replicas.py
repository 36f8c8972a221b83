"""A small form of the dual-write quickstart: every step, on a few flights."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from examples.quickstart.place import Place
from examples.quickstart_replicas.run import REGIONS, Run
from plait import Table
from plait.cli.exits import RefusedError

SCHEDULED = pa.timestamp("us", "UTC")


def flights(*months: int) -> pa.Table:
    """Return 20 flights of each month, of which every fifth is cancelled."""
    days = [datetime(2013, month, 1 + at, tzinfo=UTC) for month in months for at in range(20)]
    count = len(days)
    delays = pa.array([None if at % 5 == 0 else at for at in range(count)], pa.int32())
    texts = pa.array(["UA"] * count)
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "carrier": texts,
            "flight": pa.array(range(count), pa.int32()),
            "origin": texts,
            "dest": texts,
            "scheduled": pa.array(days, SCHEDULED),
            "dep_delay": delays,
            "arr_delay": delays,
        }
    )


def test_a_region_that_was_away_is_repaired_and_equal_in_the_end(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = Run(tmp_path, flights(3, 4, 5, 9), said.append, batch=4).execute()
    assert (outcome.flights, outcome.rows) == (80, 64)
    assert outcome.failed == "us held, eu failed"
    assert outcome.behind == 4, "an upsert and a delete in each of two months"
    # A region commits many batches together, so it had none of April's when it died.
    assert outcome.different == 2 * 16
    tables = [Table.open(str(tmp_path / name)) for name in ("flights", *REGIONS)]
    table, *regions = (each.scan().to_arrow().sort_by("id") for each in tables)
    assert all(region.equals(table) for region in regions)
    assert sum("tablectl compare" in line for line in said) == 3


def test_a_previous_run_is_removed_with_its_regions_and_nothing_else(tmp_path: Path) -> None:
    place = Place(tmp_path / "q", others=REGIONS)
    place.prepare(force=False)
    (place.directory / "eu").mkdir()
    place.prepare(force=True)
    assert not (place.directory / "eu").exists()
    (place.directory / "mine").touch()
    with pytest.raises(RefusedError):
        place.prepare(force=True)
