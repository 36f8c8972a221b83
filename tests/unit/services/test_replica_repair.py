"""Buckets whose files are lost are taken from a replica: only those, and only if they are right."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from plait import OptionError, Table
from tests.support import build

_SCHEMA = "id bigint, place string, value string"
_rows = partial(build.rows, place=lambda n: f"p{n % 2}", value="a")


def _pair(tmp_path: Path, kind: str = "cow", **other: object) -> tuple[Table, Table]:
    one, two = (
        Table.create(
            str(tmp_path / name),
            _SCHEMA,
            record_key="id",
            **{"buckets": 8, "table_type": kind, **how},
        )
        for name, how in (("one", {}), ("two", other))
    )
    for table in (one, two):
        table.upsert(_rows(range(500)))
        table.upsert(_rows(range(100, 200), value="b"))
        table.delete(where="id >= 450")
    return one, two


def _live(table: Table) -> list[tuple[int, str]]:
    files = table._handle.cache.refresh().snapshot(table._handle.store).files
    return sorted(zip(files["bucket"].to_pylist(), files["path"].to_pylist(), strict=True))


def _destroy(table: Table, buckets: set[int]) -> None:
    """Remove one file of each bucket, or damage it."""
    for number in buckets:
        path = next(path for bucket, path in _live(table) if bucket == number)
        file = Path(table._handle.store.location(path))
        if number % 2:
            file.unlink()
        else:
            file.write_bytes(b"\0" * file.stat().st_size)


@pytest.mark.parametrize(
    ("kind", "other"),
    [("cow", {}), ("mor", {"table_type": "cow"}), ("cow", {"ordering": "value"})],
    ids=str,
)
def test_only_damaged_buckets_are_read_there_and_written_here(
    tmp_path: Path, kind: str, other: dict[str, object]
) -> None:
    """Also if the replica has another table type or ordering: its buckets are the same."""
    one, two = _pair(tmp_path, kind, **other)
    before, version = dict.fromkeys(_live(one)), one.version
    whole = one.check.repair_from_replica(str(tmp_path / "two"))
    assert (whole.buckets, whole.version, one.version) == ((), None, version)
    _destroy(one, {1, 4, 6})
    planned = one.check.repair_from_replica(str(tmp_path / "two"), dry_run=True)
    assert one.version == version
    report = one.check.repair_from_replica(str(tmp_path / "two"))
    assert {each.place for each in report.buckets} == {"data/1", "data/4", "data/6"}
    assert {each.place for each in planned.buckets} == {each.place for each in report.buckets}
    assert all(each.rows == each.found for each in report.buckets)
    assert report.files_read == sum(bucket in (1, 4, 6) for bucket, _ in _live(two))
    kept = [entry for entry in _live(one) if entry[0] not in (1, 4, 6)]
    assert kept == [entry for entry in before if entry[0] not in (1, 4, 6)]
    assert one.inspect.compare(two).equal
    assert sum(one.changes(version).count().values()) == 0
    live = {path for _, path in _live(one)}
    assert not live.intersection(problem.path for problem in one.check.verify().problems)


def test_rows_that_differ_from_those_that_can_be_read_are_refused(tmp_path: Path) -> None:
    """And fewer than the table had, and those of a table with other columns."""
    one, two = _pair(tmp_path, "mor", buckets=3)
    one.upsert(_rows(range(90), value="only here"))
    before = one.version
    _destroy(one, {0})
    with pytest.raises(OptionError) as caught:
        one.check.repair_from_replica(str(tmp_path / "two"))
    assert caught.value.facts["buckets"] == ["data/0"]
    assert _data_version(one) == before
    assert not one.check.foreign()
    Table.create(str(tmp_path / "other"), "id bigint, place string", record_key="id")
    with pytest.raises(OptionError, match="no replica"):
        one.check.repair_from_replica(str(tmp_path / "other"))
    two.upsert(_rows(range(90), value="only here"))
    assert one.check.repair_from_replica(str(tmp_path / "two")).version == one.version
    assert one.inspect.compare(two).equal, "of another layout, which has the rows too"
    two.delete(where="id < 50")
    _destroy(one, {3})
    with pytest.raises(OptionError, match="data/3"):
        one.check.repair_from_replica(str(tmp_path / "two"))


def _data_version(table: Table) -> int:
    return next(h.version for h in table.inspect.history() if h.operation != "rollback")


def test_a_table_without_a_key_is_repaired_by_partition(tmp_path: Path) -> None:
    one, two = (
        Table.create(str(tmp_path / name), _SCHEMA, partition_by="place") for name in ("a", "b")
    )
    for table in (one, two):
        table.append(_rows(range(100)))
        table.append(_rows(range(100)))
    path = _live(one)[0][1]
    Path(one._handle.store.location(path)).unlink()
    one.check.repair_from_replica(str(tmp_path / "b"))
    assert one.inspect.compare(two).equal


def _file_of(table: Table, version: int) -> Path:
    files = table._handle.cache.refresh().snapshot(table._handle.store).files.to_pylist()
    path = next(file["path"] for file in files if file["version"] == version)
    return Path(table._handle.store.location(path))


@pytest.mark.parametrize("keyed", [True, False], ids=["key", "no key"])
def test_rows_that_can_be_read_here_keep_the_version_that_wrote_them(
    tmp_path: Path, *, keyed: bool
) -> None:
    """Only rows that are lost count as new: they may expire late, and none too early."""
    how = {"record_key": "id", "buckets": 1, "table_type": "mor"} if keyed else {}
    one, two = (
        Table.create(str(tmp_path / name), _SCHEMA, properties={"rows.written": on}, **how)
        for name, on in (("a", "on"), ("b", "off"))
    )
    for table in (one, two):
        for first in (0, 3, 6) if keyed else (0, 0, 0):
            table.append(_rows(range(first, first + 3)))
    _file_of(one, 2).unlink()
    version = one.check.repair_from_replica(str(tmp_path / "b")).version
    found = one.scan(columns=["id", "_written"]).to_arrow()
    came: dict[int, set[int]] = {}
    for row in found.to_pylist():
        came.setdefault(row["id"], set()).add(row["_written"])
    if keyed:
        assert came == {n: {[1, version, 3][n // 3]} for n in range(9)}
    else:
        assert came == {n: {1, version, 3} for n in range(3)}
    assert found.num_rows == 9
    assert one.inspect.compare(two).equal
    live = {path for _, path in _live(one)}
    assert not live.intersection(problem.path for problem in one.check.verify().problems)
