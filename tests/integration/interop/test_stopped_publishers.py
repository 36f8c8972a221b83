"""A publisher that stood still for a day: whatever a clean leaves, what is named is readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from plait import Table
from plait.interop.delta import BEHIND_MAX as DELTA_BEHIND_MAX
from plait.interop.iceberg import BEHIND_MAX as ICEBERG_BEHIND_MAX
from tests.integration.interop.lives import commits, held, shown, version_of
from tests.support import build
from tests.support.build import rows
from tests.support.engines import ICEBERG, comparable

STOPPED = {"publish.deadline": "0s"}
GOING = {"publish.deadline": "1h"}
CLEANED = {"clean.retain.time": "0s", "clean.retain.versions": 3, "clean.grace": "0s"}


def named(table: Table, target: str) -> Iterator[tuple[int, list[str]]]:
    """Give each version that any metadata names still, and the rows that an engine reads."""
    if target == "delta":
        for number in commits(table):
            yield number, shown(table, "deltalake", number)
        return
    place = Path(build.uri_of(table).removeprefix("file://"))
    for file in sorted(place.glob("metadata/v*.metadata.json")):
        for snapshot in StaticTable.from_metadata(str(file)).snapshots():
            version = snapshot.snapshot_id
            yield version, comparable(ICEBERG["pyiceberg"](str(file), version))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("target", "behind"),
    [
        ("delta", 40),
        ("iceberg", ICEBERG_BEHIND_MAX + 5),
        pytest.param("delta", DELTA_BEHIND_MAX + 5, marks=pytest.mark.long(0)),
    ],
)
def test_what_is_named_after_a_day_without_publications_is_readable(
    tmp_path: Path, target: str, behind: int, kind: str
) -> None:
    """INV-05, INV-17: after cleans with no grace, while it stood and after it went on."""
    properties = {"publish": target, **GOING, **CLEANED}
    table = build.make(uri=tmp_path / "t", table_type=kind, buckets=2, properties=properties)
    for seed in range(3):
        table.upsert(rows(range(30), v=seed))
    table.maintenance.publish()
    table.alter.set(STOPPED)
    for seed in range(behind):
        table.upsert(rows(range(seed % 7, 30, 3), v=100 + seed))
        if seed % 15 == 0:
            table.maintenance.compact(full=True)
    lag = table.inspect.publications()[0].lag_versions
    assert lag > behind, "it stood still"
    table.maintenance.clean()
    found = list(named(table, target))
    assert max(version for version, _ in found) == version_of(table) - 1, "all but the clean"
    for version, read in found:
        assert read == held(table, version), version
    table.alter.set(GOING)
    table.upsert(rows(range(5), v=7))
    table.maintenance.clean()
    table.maintenance.publish()
    found = list(named(table, target))
    assert max(version for version, _ in found) == version_of(table)
    for version, read in found:
        assert read == held(table, version), version
