"""What others write to a published log is refused by them, or undone and told (INV-17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import deltalake
import polars as pl
import pytest

from plait import Table
from tests.integration.interop.lives import PUBLISHED, commits, held, only_strays, shown, version_of
from tests.services.engines import DuckDB
from tests.support import build
from tests.support.build import rows

SOME = rows(1, 100, v=9)


def _merge(at: str) -> object:
    merger = deltalake.DeltaTable(at).merge(SOME, "s.id = t.id", source_alias="s", target_alias="t")
    return merger.when_matched_update_all().execute()


REFUSED: Mapping[str, Callable[[str], object]] = {
    "append": lambda at: deltalake.write_deltalake(at, SOME, mode="append"),
    "overwrite": lambda at: deltalake.write_deltalake(at, SOME, mode="overwrite"),
    "delete": lambda at: deltalake.DeltaTable(at).delete("id = 1"),
    "delete all": lambda at: deltalake.DeltaTable(at).delete(),
    "update": lambda at: deltalake.DeltaTable(at).update({"v": "0"}, predicate="id = 1"),
    "merge": _merge,
    "optimize": lambda at: deltalake.DeltaTable(at).optimize.compact(),
    "z-order": lambda at: deltalake.DeltaTable(at).optimize.z_order(["v"]),
    "restore": lambda at: deltalake.DeltaTable(at).restore(0),
    "vacuum": lambda at: deltalake.DeltaTable(at).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    ),
    "properties": lambda at: deltalake.DeltaTable(at).alter.set_table_properties(
        {"delta.appendOnly": "true"}
    ),
    "polars": lambda at: pl.from_arrow(SOME).write_delta(at, mode="append"),
}
"""What deltalake and Polars refuse, because of the feature that they do not know."""
PASSES: Mapping[str, Callable[[str], object]] = {
    "create_checkpoint": lambda at: deltalake.DeltaTable(at).create_checkpoint(),
    "cleanup_metadata": lambda at: deltalake.DeltaTable(at).cleanup_metadata(),
    "repair": lambda at: deltalake.DeltaTable(at).repair(dry_run=False),
}
"""What deltalake does all the same; none of it changes a row."""


@pytest.fixture(params=["cow", "mor"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Give a published table of several versions."""
    table = build.make(
        uri=tmp_path / "t",
        table_type=request.param,
        buckets=2,
        properties=PUBLISHED,
        upsert=rows(range(50), v=1),
    )
    table.upsert(rows(range(0, 50, 3), v=2))
    table.delete(where="id = 7")
    table.maintenance.compact(full=True)  # so that there is something to vacuum
    return table


def _is_whole(table: Table) -> None:
    """Publish, and look at each version that the log still has, and at the table."""
    table.maintenance.publish()
    table.upsert(rows(200, v=2))
    at = commits(table)
    assert shown(table, "deltalake", at[-1]) == held(table, version_of(table))
    for number in at:
        if number <= version_of(table) and at[-1] == version_of(table):
            assert shown(table, "deltalake", number) == held(table, number), number
    assert only_strays(table)


@pytest.mark.parametrize("write", REFUSED)
def test_writes_are_refused_and_leave_the_log_as_it_was(written: Table, write: str) -> None:
    place_of, before = build.uri_of(written).removeprefix("file://"), commits(written)
    with pytest.raises(Exception, match=r"(?i)feature|plait"):
        REFUSED[write](place_of)
    assert commits(written) == before
    assert held(written, version_of(written))
    _is_whole(written)


@pytest.mark.parametrize("write", PASSES)
def test_what_is_not_refused_changes_no_row(written: Table, write: str) -> None:
    with suppress(Exception):
        PASSES[write](build.uri_of(written).removeprefix("file://"))
    _is_whole(written)


@pytest.mark.processes
def test_duckdb_inserts_nothing(written: Table, duckdb: DuckDB) -> None:
    place_of, before = build.uri_of(written).removeprefix("file://"), commits(written)
    duckdb.query(f"ATTACH '{place_of}' AS theirs (TYPE delta)")
    try:
        with pytest.raises(RuntimeError, match=r"(?i)feature|plait|read-only|not support"):
            duckdb.query("INSERT INTO theirs SELECT * FROM theirs LIMIT 1")
    finally:
        duckdb.query("DETACH theirs")
    assert commits(written) == before
    _is_whole(written)
