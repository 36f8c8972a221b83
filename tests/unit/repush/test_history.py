"""Versions of Delta and of Iceberg brought over, each as one version of the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from plait import (
    OptionError,
    RepushRefusedError,
    Table,
    TableExistsError,
    TableNotFoundError,
    import_table,
)
from plait.model.consent import Consent, given
from plait.model.repush import SourceAddress
from plait.repush.begin import RepushRequest
from plait.repush.history import HistoryImport, find_history
from plait.repush.run import repush
from plait.repush.source import WantedSource
from tests.support.repush_steps import killed

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("p", pa.string())]
)


def rows(low: int, high: int, text: str = "a") -> pa.Table:
    made = [
        {"id": each, "v": None if each % 5 == 0 else text, "p": str(each % 2)}
        for each in range(low, high)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def content(found: pa.Table) -> list[dict[str, object]]:
    return found.select(SCHEMA.names).sort_by([("id", "ascending"), ("v", "ascending")]).to_pylist()


def delta(place: Path, *, keyed: bool = True) -> dict[int, list[dict[str, object]]]:
    """Write a table of each kind of commit; return the rows of each version."""
    write = partial(deltalake.write_deltalake, place, partition_by=["p"])
    write(rows(0, 20))
    write(rows(20, 30), mode="append")
    deltalake.DeltaTable(place).delete("id % 3 = 0")
    deltalake.DeltaTable(place).update({"v": "'b'"}, predicate="id < 8")
    write(rows(40, 50), mode="append")
    deltalake.DeltaTable(place).optimize.compact()
    write(rows(45 if not keyed else 60, 70), mode="append")
    write(rows(0, 5, "c"), mode="overwrite")
    last = deltalake.DeltaTable(place).version()
    return {
        number: content(deltalake.DeltaTable(place, version=number).to_pyarrow_table())
        for number in range(last + 1)
    }


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    options = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/lake"}
    with closing(SqlCatalog("lake", **options)) as made:
        made.create_namespace("n")
        yield made


def iceberg(catalog: SqlCatalog) -> tuple[str, dict[int, list[dict[str, object]]]]:
    table = catalog.create_table("n.t", SCHEMA)
    table.append(rows(0, 20))
    table.append(rows(20, 30))
    table.delete("id < 7")
    table.overwrite(rows(100, 110))
    table.append(rows(0, 3))
    expected = {
        each.snapshot_id: content(table.scan(snapshot_id=each.snapshot_id).to_arrow())
        for each in table.metadata.snapshots
    }
    return f"iceberg:{table.metadata_location}", expected


def shown(place: Path, source: str) -> dict[int, list[dict[str, object]]]:
    """Return the rows of each version that was brought over, by the version of the source."""
    table = Table.open(str(place))
    found = {}
    for row in table.inspect.history():
        name = row.commit_id or ""
        if name.startswith(f"import {source} version "):
            number = int(name.removeprefix(f"import {source} version ").split()[0])
            assert number not in found, "a version came twice"
            found[number] = content(table.scan(version=row.version).to_arrow())
    return found


KEYED = [{"record_key": "id"}, {"record_key": "id", "table_type": "mor", "buckets": 2}]


@pytest.mark.parametrize("how", [*KEYED, {}], ids=str)
def test_each_version_of_delta_is_a_version_of_the_table(
    how: dict[str, object], tmp_path: Path
) -> None:
    """INV-04, INV-09: equal rows in each, none twice, and later versions by the same call."""
    expected = delta(tmp_path / "old", keyed=bool(how))
    source = f"delta:{tmp_path}/old"
    bring = partial(import_table, source, str(tmp_path / "new"), history=True, rows_per_task=8)
    plan = bring(dry_run=True, **how)
    assert plan.versions == len(expected)
    assert any("time of the copy" in each for each in plan.lost)
    with pytest.raises(TableNotFoundError):
        Table.open(str(tmp_path / "new"))
    done = bring(**how)
    assert (done.versions, done.source_version) == (len(expected), max(expected))
    assert shown(tmp_path / "new", source) == expected
    assert bring(**how).versions == 0
    deltalake.write_deltalake(tmp_path / "old", rows(80, 90), mode="append")
    assert (bring(**how).versions, bring(**how).versions) == (1, 0)
    newest = content(deltalake.DeltaTable(tmp_path / "old").to_pyarrow_table())
    assert shown(tmp_path / "new", source) == {**expected, max(expected) + 1: newest}
    assert Table.open(str(tmp_path / "new")).check.verify().problems == ()


@pytest.mark.parametrize("how", [*KEYED, {}], ids=str)
def test_each_snapshot_of_iceberg_is_a_version_of_the_table(
    how: dict[str, object], catalog: SqlCatalog, tmp_path: Path
) -> None:
    """INV-04, INV-09: also where a snapshot deletes by files of their own."""
    source, expected = iceberg(catalog)
    done = import_table(source, str(tmp_path / "new"), history=True, **how)
    assert (done.versions, done.rows > 0) == (len(expected), True)
    assert shown(tmp_path / "new", source) == expected


def test_vectors_are_part_of_the_history(tmp_path: Path) -> None:
    """INV-17: what was published, version by version, comes back."""
    table = Table.create(
        str(tmp_path / "old"),
        SCHEMA,
        record_key="id",
        table_type="mor",
        properties={"publish": "delta", "publish.deadline": "1h"},
    )
    for part in (rows(0, 30), rows(20, 40, "b"), rows(5, 7, "c")):
        table.upsert(part)
    table.delete(where="id in (4, 8, 22)")
    source = f"delta:{tmp_path}/old"
    import_table(source, str(tmp_path / "new"), record_key="id", history=True)
    found = shown(tmp_path / "new", source)
    assert found == {
        number: content(table.scan(version=number).to_arrow())
        for number in range(table.version + 1)
    }


def test_the_time_of_the_source_is_in_the_commit_id(tmp_path: Path) -> None:
    delta(tmp_path / "old")
    import_table(f"delta:{tmp_path}/old", str(tmp_path / "new"), record_key="id", history=True)
    said = deltalake.DeltaTable(tmp_path / "old").history()
    names = {row.commit_id for row in Table.open(str(tmp_path / "new")).inspect.history()}
    for each in said:
        when = pa.scalar(each["timestamp"], pa.timestamp("ms", "UTC")).as_py()
        text = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert f"import delta:{tmp_path}/old version {each['version']} of {text}" in names


def test_appends_are_appended_and_not_copied_anew(tmp_path: Path) -> None:
    for number in range(4):
        deltalake.write_deltalake(
            tmp_path / "old", rows(number * 10, number * 10 + 10), mode="append"
        )
    deltalake.DeltaTable(tmp_path / "old").optimize.compact()
    done = import_table(f"delta:{tmp_path}/old", str(tmp_path / "new"), history=True)
    assert (done.versions, done.rows) == (5, 40)
    told = [str(r.operation) for r in Table.open(str(tmp_path / "new")).inspect.history()]
    assert sorted(told).count("append") == 4


def test_versions_whose_files_or_columns_are_others_are_told_and_left_out(tmp_path: Path) -> None:
    old = tmp_path / "old"
    deltalake.write_deltalake(old, rows(0, 5).drop_columns("v"))
    deltalake.write_deltalake(old, rows(5, 9), mode="append", schema_mode="merge")
    deltalake.write_deltalake(old, rows(9, 12), mode="append")
    plan = import_table(f"delta:{old}", str(tmp_path / "new"), history=True, dry_run=True)
    assert plan.versions == 2
    assert any("versions 0 to 0" in each and "columns" in each for each in plan.lost)
    deltalake.write_deltalake(old, rows(0, 3), mode="overwrite")
    gone = deltalake.DeltaTable(old)
    gone.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    plan = import_table(f"delta:{old}", str(tmp_path / "new"), history=True, dry_run=True)
    assert plan.versions == 3  # the last one, and two that a vacuum adds to the log
    assert any("versions 0 to 2" in each and "gone" in each for each in plan.lost)


def test_snapshots_that_expired_are_told(catalog: SqlCatalog, tmp_path: Path) -> None:
    source, expected = iceberg(catalog)
    table = catalog.load_table("n.t")
    first = min(table.metadata.snapshots, key=lambda each: each.sequence_number).snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    source = f"iceberg:{table.metadata_location}"
    done = import_table(source, str(tmp_path / "new"), history=True)
    assert any("expired" in each for each in done.lost)
    expected.pop(first)
    assert shown(tmp_path / "new", source) == expected


def test_rows_of_others_are_not_replaced_by_later_versions(tmp_path: Path) -> None:
    """INV-10: the target belongs to its writers once they write."""
    delta(tmp_path / "old")
    bring = partial(
        import_table,
        f"delta:{tmp_path}/old",
        str(tmp_path / "new"),
        record_key="id",
        history=True,
    )
    bring()
    table = Table.open(str(tmp_path / "new"))
    table.upsert(rows(500, 501))
    table.maintenance.compact()
    assert bring().versions == 0
    deltalake.write_deltalake(tmp_path / "old", rows(80, 90), mode="append")
    with pytest.raises(OptionError) as caught:
        bring()
    assert caught.value.key == "history"
    assert {"id": 500, "v": None, "p": "0"} in content(table.scan().to_arrow())
    assert 80 not in table.scan().to_arrow()["id"].to_pylist()


def test_a_version_with_rows_that_share_a_key_stops_before_it(tmp_path: Path) -> None:
    """INV-08: whether it is appended or loaded as a whole; the same call goes on once mended."""
    deltalake.write_deltalake(tmp_path / "old", rows(0, 10))
    deltalake.write_deltalake(tmp_path / "old", rows(10, 20), mode="append")
    source, target = f"delta:{tmp_path}/old", tmp_path / "new"
    for part, mode in ((rows(15, 25), "append"), (pa.concat_tables([rows(0, 5)] * 2), "overwrite")):
        deltalake.write_deltalake(tmp_path / "old", part, mode=mode)
        with pytest.raises(RepushRefusedError):
            import_table(source, str(target), record_key="id", history=True)
        table = Table.open(str(target))
        assert content(table.scan().to_arrow()) == content(rows(0, 20))
        assert table._handle.cache.refresh().table.repush is None
        deltalake.DeltaTable(tmp_path / "old").restore(1)


def test_history_is_refused_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    pa.parquet.write_table(rows(0, 5), tmp_path / "old" / "a.parquet")
    with pytest.raises(OptionError) as caught:
        import_table(str(tmp_path / "old"), str(tmp_path / "new"), history=True)
    assert caught.value.key == "history"
    deltalake.write_deltalake(tmp_path / "delta", rows(0, 5))
    import_table(str(tmp_path / "delta"), str(tmp_path / "new"))
    with pytest.raises(TableExistsError):
        import_table(str(tmp_path / "delta"), str(tmp_path / "new"), history=True)


@pytest.mark.parametrize("how", [{"record_key": "id"}, {}], ids=str)
def test_a_kill_at_any_storage_call_costs_no_version_and_brings_none_twice(
    how: dict[str, object], tmp_path: Path
) -> None:
    """INV-09, INV-15: the same call goes on, and every version is equal."""
    old = tmp_path / "old"
    deltalake.write_deltalake(old, rows(0, 6))
    deltalake.write_deltalake(old, rows(6, 9), mode="append")
    deltalake.DeltaTable(old).delete("id = 1")
    versions = [deltalake.DeltaTable(old, version=n).to_pyarrow_table() for n in range(3)]
    source = f"delta:{old}"
    wanted = WantedSource(SourceAddress.of(source), given=True)
    consent = Consent.of().also(str(old))
    history = find_history(wanted, given(str(old)), consent)
    request = RepushRequest(source=wanted, commit_id=f"import {source}", rows_per_task=3)

    def bring(client: Table) -> None:
        work = HistoryImport(client._handle, request, consent)
        work.run(history, lambda handle, asked: repush(handle, asked).rows_loaded)

    nth = 1
    while True:
        place = tmp_path / f"new-{nth}"
        table = Table.create(str(place), SCHEMA, **how)  # type: ignore[arg-type]  # by name
        came_so_far = killed(table, nth, bring)
        bring(Table.open(str(place)))
        assert shown(place, source) == {at: content(each) for at, each in enumerate(versions)}
        if not came_so_far:
            break
        nth += 7
    assert nth > 60
