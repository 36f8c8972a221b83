"""A repush from a source: other rows at its beginning, and what is committed since (RFC 0025)."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import (
    InstantExpiredError,
    InstantNotFoundError,
    OptionError,
    RepushOpenError,
    RepushRefusedError,
    RetryableConflictError,
    SchemaMismatchError,
    Table,
)
from plait.model.repush import SourceAddress
from plait.repush.begin import RepushRequest, begin
from plait.repush.load import Load
from plait.repush.shadow import Shadow
from plait.repush.source import WantedSource
from tests.support import build
from tests.support.build import uri_of
from tests.support.protocol import beside
from tests.support.repush_steps import (
    FIRST,
    SCHEMA,
    again,
    content,
    make,
    nothing_is_left,
    rows,
)

_NAMES = itertools.count()
SECOND = sorted([(i, "x" if i < 5 else "y", 0) for i in range(10)])
"""What version 2 of ``make`` has: key 3 is as it was first."""


def kept(**how: object) -> Table:
    """Make a table whose old versions stay for a while."""
    return make(properties={"clean.grace": "0s"}, **how)


def saved(**how: object) -> Table:
    """Make a table with a savepoint of an old version, which is all that keeps it."""
    table = make(**how)
    table.versions.savepoint("old", version=2)
    return table


def wanted(source: int | str, **layout: object) -> RepushRequest:
    asked = WantedSource(SourceAddress.of(source), given=True)
    return RepushRequest(source=asked, **layout)  # type: ignore[arg-type]  # of several tests


def by_content(table: Table, since: int) -> Counter[tuple[int, str, int]]:
    """Return what changes since a version add to its rows, and take away."""
    found: Counter[tuple[int, str, int]] = Counter(content(table, since))
    for change in table.changes(since).to_arrow().to_pylist():
        gone = change["_change_type"] in ("delete", "update_preimage")
        found[change["id"], change["p"], change["v"]] += -1 if gone else 1
    return +found


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("source", [2, "version:2", "kept"])
def test_a_source_replaces_the_rows_and_a_change_read_shows_the_difference(
    source: int | str, table_type: str
) -> None:
    """INV-04: older versions are as they were, and one decision leads to the new rows."""
    table = kept(table_type=table_type)
    table.versions.savepoint("kept", version=2)
    before = table.version
    report = table.layout.repush(source=source, buckets=3, rows_per_task=3)
    assert content(table) == SECOND
    assert (report.rows_loaded, report.source) == (10, str(SourceAddress.of(source)))
    newest = table.inspect.history(1)[0]
    assert (newest.action, newest.operation) == ("replace_commit", "repush-source")
    assert (newest.stats["rows_inserted"], newest.stats["rows_deleted"]) == (10, 10)
    assert content(table, before) == FIRST
    assert by_content(table, before) == Counter(SECOND)
    assert table.changes(before).count()["insert"] == 1, "equal rows are no change"
    assert not table.check.verify(data=True).problems


def test_another_source_is_refused_while_a_repush_is_open() -> None:
    table = kept()
    begin(table._handle, wanted(2, buckets=3))
    for other in (1, None, "savepoint:b"):
        with pytest.raises(RepushOpenError):
            table.layout.repush(buckets=3, source=other)
    assert table.layout.repush(buckets=3, source="version:2").version is not None
    assert content(table) == SECOND


def test_a_clean_keeps_the_version_that_an_open_repush_reads() -> None:
    """INV-05: and lets it go when the repush is over."""
    table = saved()
    begin(table._handle, wanted("old"))
    table.versions.drop_savepoint("old")
    table.maintenance.compact(full=True)
    table.upsert(rows(50))
    for _ in range(2):
        table.maintenance.clean()
    assert content(table, 2) == SECOND
    assert not table.check.verify(data=True).problems
    table.layout.cancel()
    nothing_is_left(table)
    with pytest.raises(InstantExpiredError):
        content(table, 2)


def test_a_source_that_cannot_be_read_is_refused_before_anything_is_written() -> None:
    table = make()
    before = table.version
    table.maintenance.compact(full=True)
    table.maintenance.clean()
    version = table.version
    others = [
        uri_of(build.make(schema))
        for schema in (
            "id bigint, p string",
            "id bigint, p string, v string",
            "id bigint, p string, v bigint, w bigint",
        )
    ]
    for source, error in (
        *((other, SchemaMismatchError) for other in others),
        (99, InstantNotFoundError),
        ("nobody", InstantNotFoundError),
        (1, InstantExpiredError),
        ("no/table", Exception),
        ("parquet:no/files", OptionError),
        ("delta:no/table", OptionError),
        ("iceberg:no/table", OptionError),
        ("", OptionError),
        ("?", OptionError),
        ("s3://me:secret@host/t", OptionError),
    ):
        with pytest.raises(error):
            table.layout.repush(source=source)
    assert (table.version, before < version) == (version, True)


def test_a_source_changes_no_columns_that_make_a_row_one() -> None:
    """INV-08: nobody could tell then which of its rows a later commit changed."""
    table = kept()
    with pytest.raises(OptionError):
        table.layout.repush(source=2, partition_by="p")
    assert table.version == 4
    assert table.layout.repush(source=2, partition_by="id").version is not None
    assert content(table) == SECOND


def test_another_table_is_read_in_the_version_that_the_repush_found() -> None:
    table, other = kept(), kept(table_type="mor", buckets=5)
    other.upsert(rows(3, 77, v=9))
    uri = f"table:{other.inspect.describe()['uri']}"
    opened = begin(table._handle, wanted(uri))
    assert opened.source is not None
    assert (opened.source.version, opened.source.rows) == (5, 11)
    other.upsert(rows(3, 78, v=10))
    assert table.layout.repush(source=uri).rows_loaded == 11
    assert content(table) == content(other, 5)


def test_another_table_that_lost_the_version_ends_the_repush_with_its_name() -> None:
    table, other = kept(), make()
    uri = f"table:{other.inspect.describe()['uri']}"
    begin(table._handle, wanted(uri))
    other.overwrite(rows(1))
    other.maintenance.clean()
    other.maintenance.clean()
    with pytest.raises(RepushRefusedError) as caught:
        table.layout.repush(source=uri)
    assert (caught.value.source, caught.value.version) == (uri, 4)
    assert content(table) == FIRST
    table.layout.cancel()


def test_rows_without_a_key_take_appends_over_and_refuse_other_changes() -> None:
    def make_table() -> Table:
        return kept(record_key=(), buckets=None)

    table = make_table()
    begin(table._handle, wanted(2))
    table.append(rows(7, v=5))
    table.layout.repush(source=2)
    assert content(table) == sorted([*SECOND, (7, "x", 5)])
    table = make_table()
    begin(table._handle, wanted(2))
    table.delete(where="id = 1")
    with pytest.raises(RepushRefusedError):
        table.layout.repush(source=2)
    assert len(content(table)) == 9
    table.layout.cancel()


def test_rows_that_the_shadow_lacks_are_found_before_the_swap() -> None:
    """INV-04: what is there is counted against the source and the commits since."""
    table = kept()
    opened = begin(table._handle, wanted(2))
    shadow = Shadow.open(table._handle, opened)
    load = Load.of(table._handle, shadow)
    fewer = replace(load.parts[0], read=lambda: rows(*range(9)))
    replace(load, parts=(fewer,)).run(shadow, shadow.progress())
    with pytest.raises(RepushRefusedError) as caught:
        table.layout.repush(source=2)
    assert (caught.value.rows, caught.value.loaded, caught.value.found) == (10, 9, 9)
    assert content(table) == FIRST


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_an_undo_brings_the_rows_back_with_what_was_written_since(
    table_type: str, write: bool
) -> None:
    table = kept(table_type=table_type)
    swap = table.layout.repush(source=2, buckets=3).version
    assert swap is not None
    if write:
        table.upsert(rows(1, 40, v=6))
        table.delete(where="id = 8")
    table.layout.undo()
    expected = {row[0]: row for row in FIRST}
    if write:
        expected |= {1: (1, "x", 6), 40: (40, "x", 6)}
        del expected[8]
    assert content(table) == sorted(expected.values())
    assert table.inspect.describe()["bucket_spec"]["count"] == 2  # type: ignore[index]  # of plain values
    assert by_content(table, swap) == Counter(content(table))


def test_an_undo_is_refused_when_the_rows_before_were_cleaned() -> None:
    table = saved()
    table.layout.repush(source="old")
    table.upsert(rows(1, v=6))
    for _ in range(2):
        table.maintenance.clean()
    before = content(table)
    with pytest.raises(InstantExpiredError):
        table.layout.undo()
    assert content(table) == before
    assert table._handle.cache.refresh().table.repush is None


def test_a_restore_and_an_undo_of_the_commit_lead_over_the_swap() -> None:
    table = kept()
    swap = table.layout.repush(source=2).version
    table.versions.undo()
    assert content(table) == FIRST
    table.versions.restore(version=swap)
    assert content(table) == SECOND


@pytest.mark.parametrize("policy", ["key", "merge", "file_group"])
def test_a_writer_at_the_swap_stages_again_unless_it_said_what_it_read(policy: str) -> None:
    """INV-07, INV-15."""
    table = kept(policy=policy)
    blind, computed = table.writer("upsert"), table.writer("upsert", read_from=table.version)
    for writer in (blind, computed):
        writer.__enter__()
    blind.write(rows(0, 61, v=3))
    computed.write(rows(1, v=4))
    again(table).layout.repush(source=2, buckets=3)
    blind.__exit__(None, None, None)
    with pytest.raises(RetryableConflictError):
        computed.__exit__(None, None, None)
    expected = {row[0]: row for row in SECOND} | {0: (0, "x", 3), 61: (61, "x", 3)}
    assert content(table) == sorted(expected.values())


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_from_elsewhere_count_as_written_when_the_repush_began(kind: str) -> None:
    """RFC 0023: those of an older version keep the version that wrote them."""
    properties = {"rows.written": "on", "clean.grace": "0s"}
    table, other = make(properties=properties, table_type=kind), make()
    other.upsert(rows(70))

    def written() -> dict[int, int]:
        found = table.scan(["id", "_written"]).to_arrow()
        return dict(zip(found["id"].to_pylist(), found["_written"].to_pylist(), strict=True))

    table.layout.repush(source=2)
    assert written() == {i: 1 if i < 5 else 2 for i in range(10)}
    uri = f"table:{other.inspect.describe()['uri']}"
    begun = begin(table._handle, wanted(uri)).base + 1
    table.upsert(rows(2, v=1))
    since = table.version
    table.layout.repush(source=uri)
    assert written() == {**dict.fromkeys([*range(10), 70], begun), 2: since}


def test_rows_of_a_source_that_share_a_key_are_refused() -> None:
    """INV-08."""
    table = kept()
    twice = build.make(SCHEMA, record_key=())
    twice.append(pa.concat_tables([rows(1), rows(1)]))
    with pytest.raises(RepushRefusedError):
        table.layout.repush(source=uri_of(twice))
    assert content(table) == FIRST
    table.layout.cancel()


@pytest.mark.parametrize("source", [2, "old"])
def test_rows_of_an_older_version_come_in_the_columns_of_now(source: int | str) -> None:
    """A column is its id: its values never come under the name of another one."""
    table = kept()
    table.versions.savepoint("old", version=2)
    change = table.alter.columns().rename("p", "t").add("p", "string").rename("t", "q")
    change.drop("v").add("v", "bigint", default=7).commit()
    table.upsert(pa.table({"id": [1], "q": ["new"], "p": ["new"], "v": [0]}))
    table.layout.repush(source=source, buckets=3)
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": i, "q": p, "p": None, "v": 7} for i, p, _ in SECOND]
    assert not table.check.verify(data=True).problems


@pytest.mark.parametrize("written", [False, True])
def test_an_undo_gives_rows_back_in_the_columns_of_now(*, written: bool) -> None:
    table = kept()
    table.layout.repush(source=1)
    change = table.alter.columns().rename("p", "q").rename("v", "p2").add("v", "bigint", default=8)
    change.commit()
    if written:
        table.upsert(pa.table({"id": [50], "q": ["z"], "p2": [1], "v": [2]}))
    table.layout.undo()
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    old = [{"id": i, "q": p, "p2": v, "v": 8} for i, p, v in FIRST]
    assert found == old + [{"id": 50, "q": "z", "p2": 1, "v": 2}] * written


@pytest.mark.parametrize("written", ["off", "on"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_that_was_changed_and_changed_back_is_carried_over(
    table_type: str, written: str
) -> None:
    """Somebody put it, whatever other commits of the same round come to; equal rows are not."""
    table = make(table_type=table_type, properties={"rows.written": written})
    table.versions.savepoint("old", version=2)
    table.append(rows(20))
    table.versions.savepoint("other")
    table.update({"v": "v + 50"}, where="true")
    table.delete(where="id = 20")

    def meanwhile() -> None:
        other = again(table)
        now = {row[0]: row for row in content(other)}
        other.upsert(rows(1, v=7))
        other.upsert(rows(1, v=now[1][2]))  # as it was before
        other.delete(where="id = 2")
        other.insert(rows(2, v=now[2][2]))
        other.insert(rows(20, v=8))
        other.delete(where="id = 20")
        other.upsert(rows(4, v=now[4][2]))  # as it is: no change

    beside(table, "repush-follow", meanwhile).layout.repush(source="other", buckets=3)
    expected = {row[0]: row for row in FIRST} | {1: (1, "x", 50), 2: (2, "x", 50)}
    assert content(again(table)) == sorted(expected.values())
    assert not again(table).check.verify(data=True).problems
