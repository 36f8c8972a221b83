"""A published Delta log shows the rows of each version, or says that it cannot (INV-17)."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import operator
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import (
    CapabilityMissingError,
    CorruptMetadataError,
    OptionError,
    PublishRefusedError,
    Table,
)
from plait.interop.delta_actions import MAPPING, add_action
from plait.interop.delta_log import (
    LAST_CHECKPOINT,
    checkpoint_path,
    commit_path,
    read_foreign,
    read_mark,
)
from plait.interop.publication import delta_publisher
from plait.storage.port import Capabilities
from plait.testing import open_wrapped
from plait.testing.faults import Fault, FaultStore, SimulatedCrashError
from plait.testing.wrapper import WrappedStore
from tests.compat.rows import plain
from tests.integration.interop.lives import (
    PUBLISHED,
    acts,
    commits,
    held,
    make,
    shown,
    values,
    version_of,
)
from tests.support import build
from tests.support.build import rows
from tests.support.effort import places
from tests.support.engines import DELTA


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_version_of_a_life_is_read_alike_by_every_engine(tmp_path: Path, kind: str) -> None:
    table = make(uri=tmp_path / "t", table_type=kind, properties=PUBLISHED)
    table.upsert(values(range(6_000), 1))
    table.upsert(values(range(0, 6_000, 2), 2))  # masks too large to stand in a decision
    table.delete(where="tiny < 0")
    table.update({"text": "'new'"}, where="whole < 0")
    table.maintenance.compact(full=True)
    table.versions.restore(version=2)
    table.upsert(values(range(5_990, 6_050), 3))
    for version in range(version_of(table) + 1):
        wanted = held(table, version)
        assert shown(table, "deltalake", version) == wanted, version
        assert shown(table, "polars", version) == wanted, version
        if kind == "cow":
            assert shown(table, "pyarrow", version) == wanted, version
    assert table.inspect.publications()[0].lag_versions == 0


@pytest.mark.long(3)
@pytest.mark.parametrize("seed", range(8))
def test_random_lives_are_published_whole(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    properties = {
        **PUBLISHED,
        "checkpoint.interval": draw.choice([1, 3, 50]),
        "clean.retain.time": "0s",
        "clean.retain.versions": 3,
        "clean.grace": draw.choice(["0s", "1h"]),
        "archive.keep": 1,
    }
    kind = draw.choice(["cow", "mor"])
    table = build.make(uri=tmp_path / "t", table_type=kind, buckets=2, properties=properties)
    whatever = acts()
    for _ in range(14):
        whatever[draw.choice(list(whatever))](table, draw)
    oldest = table._handle.cache.refresh().horizon
    named = [number for number in commits(table) if number >= oldest]
    assert named, "INV-17: the newest version is there"
    for version in named:
        mark = read_mark((table._handle.store.find(commit_path(version)) or b"").splitlines()[0])
        assert mark is not None
        engines = ("deltalake",) if MAPPING in mark.features else ("deltalake", "polars")
        for engine in engines:
            assert shown(table, engine, version) == held(table, version), (engine, version)


def test_a_version_is_published_by_one_commit_of_the_same_number(tmp_path: Path) -> None:
    table = build.make(uri=tmp_path / "t", properties=PUBLISHED, upsert=rows(1, v=1))
    table.versions.savepoint("kept")
    assert commits(table) == [0, 1, 2]
    body = table._handle.store.find(commit_path(1)) or b""
    mark = read_mark(body.splitlines()[0])
    assert mark is not None
    assert mark.version == 1


def test_a_table_that_begins_to_publish_shows_what_it_has_and_nothing_older(
    tmp_path: Path,
) -> None:
    table = build.make(uri=tmp_path / "t", upsert=rows(range(9), v=1))
    table.delete(keys=rows(3))
    version = table.alter.set({"publish": "delta"}).version
    table.upsert(rows(100, v=2))
    assert commits(table) == [version, version + 1]
    for each in (version, version + 1):
        assert shown(table, "deltalake", each) == held(table, each)
        assert shown(table, "polars", each) == held(table, each)
    with pytest.raises(Exception, match=r"."):
        shown(table, "deltalake", version - 1)


def test_what_a_client_did_not_publish_the_next_one_does(tmp_path: Path) -> None:
    lazy = {"publish": "delta", "publish.deadline": "0s"}
    table = build.make(uri=tmp_path / "t", properties=lazy, upsert=rows(1, v=1))
    table.upsert(rows(2, v=1))
    (status,) = table.inspect.publications()
    assert (status.version, status.lag_versions) == (None, 3)
    report = build.again(table).maintenance.publish()
    assert report.targets[0].published == 1
    assert commits(table) == [2]
    table.upsert(rows(3, v=1))
    table.upsert(rows(4, v=1))
    report = build.again(table).maintenance.publish()
    assert report.targets[0].published == 2
    assert commits(table) == [2, 3, 4]
    assert shown(table, "deltalake", 3) == held(table, 3)
    assert build.again(table).maintenance.publish().idle


def test_a_publisher_far_behind_leaves_versions_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.interop.delta.BEHIND_MAX", 2)
    table = build.make(uri=tmp_path / "t", properties=PUBLISHED, upsert=rows(1, v=1))
    table.alter.set({"publish.deadline": "0s"})
    for key in range(5):
        table.upsert(rows(key, v=key))
    report = table.maintenance.publish()
    newest = version_of(table)
    assert (report.targets[0].published, report.targets[0].left_out) == (1, newest - 2)
    assert shown(table, "deltalake", newest) == held(table, newest)
    assert shown(table, "polars", newest) == held(table, newest)
    assert shown(table, "deltalake", 1) == held(table, 1)
    with pytest.raises(Exception, match=r"."):
        shown(table, "deltalake", newest - 1)


@pytest.fixture
def published(tmp_path: Path) -> Table:
    """Give a published table with files, masks and two schemas."""
    table = build.make(
        uri=tmp_path / "t",
        table_type="mor",
        buckets=2,
        properties=PUBLISHED,
        upsert=rows(range(9), v=1),
    )
    table.upsert(rows(3, v=2))
    return table


def foreign(table: Table, *actions: dict[str, Any], number: int | None = None) -> int:
    """Write a commit of somebody else to the log; return its number."""
    at = commits(table)[-1] + 1 if number is None else number
    lines = [{"commitInfo": {"operation": "DELETE", "inCommitTimestamp": 1}}, *actions]
    body = "\n".join(json.dumps(each) for each in lines)
    assert table._handle.store.put_if_absent(commit_path(at), body.encode())
    return at


def _shown_files(table: Table) -> list[dict[str, object]]:
    state = table._handle.cache.refresh()
    return state.folded(table._handle.store).live(state.version).to_pylist()


@pytest.mark.parametrize("then", ["a commit", "publish"])
def test_what_others_wrote_is_undone_and_told(published: Table, then: str) -> None:
    schemas = published._handle.cache.known().table.schemas
    (first, *_) = _shown_files(published)
    theirs = add_action(first, schemas, modificationTime=1, dataChange=True)["add"]
    assert isinstance(theirs, dict)
    gone = {key: value for key, value in theirs.items() if key in ("path", "deletionVector")}
    unmasked = {key: value for key, value in theirs.items() if key != "deletionVector"}
    at = foreign(
        published,
        {"remove": {**gone, "dataChange": True}},
        {"add": {**unmasked, "path": "data/stranger.parquet"}},
        {"metaData": {"id": "x", "schemaString": "{}"}},
    )
    assert published.inspect.publications()[0].foreign == 1
    if then == "publish":
        (target,) = published.maintenance.publish().targets
        assert [each.commits for each in target.undone] == [(at,)]
        assert target.undone[0].operations == ("DELETE",)
    else:
        published.upsert(rows(50, v=5))
    newest = version_of(published)
    for engine in ("deltalake", "polars"):
        # first the version before them again, then what came since
        for back, number in enumerate(reversed(commits(published)[at + 1 :])):
            assert shown(published, engine, number) == held(published, newest - back)
    assert published.inspect.publications()[0].foreign == 0
    published.upsert(rows(51, v=5))
    assert shown(published, "deltalake", commits(published)[-1]) == held(published, newest + 1)


def test_more_than_is_read_of_others_is_undone_all_the_same(
    published: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a reader that has applied it already: it meets a gap, and starts anew."""
    monkeypatch.setattr("plait.interop.delta.FOREIGN_BYTES_MAX", 200)
    (first, *_) = _shown_files(published)
    gone = {"path": first["path"], "dataChange": True}
    at = [foreign(published, {"remove": gone}, {"add": {"path": "x" * 150}}) for _ in range(2)]
    reader = deltalake.DeltaTable(build.uri_of(published).removeprefix("file://"), version=1)
    (target,) = published.maintenance.publish().targets
    assert [each.commits for each in target.undone] == [tuple(at)]
    newest, number = version_of(published), commits(published)[-1]
    assert number == at[-1] + 2
    for engine in ("deltalake", "polars"):
        assert shown(published, engine, number) == held(published, newest)
    with suppress(Exception):
        reader.update_incremental()
        assert reader.version() != at[-1] + 1
    assert published.inspect.publications()[0].foreign == 0


def test_a_client_leaves_to_services_what_writes_out_a_large_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first publication, and what undoes others, cost a commit nothing."""
    table = build.make(uri=tmp_path / "t", buckets=4, upsert=rows(range(40), v=1))
    monkeypatch.setattr("plait.interop.delta.INLINE_FILES_MAX", 2)
    table.alter.set({"publish": "delta", "publish.deadline": "1h"})
    assert commits(table) == []
    table.maintenance.publish()
    table.upsert(rows(1, v=2))
    at = commits(table)
    assert at[-1] == version_of(table), "what needs no more than a commit is published at once"
    strange = foreign(table, {"add": {"path": "data/stranger.parquet"}})
    table.upsert(rows(2, v=2))
    assert commits(table) == [*at, strange]
    assert table.maintenance.publish().targets[0].undone
    assert shown(table, "deltalake", commits(table)[-1]) == held(table, version_of(table))


def test_rubbish_in_the_log_is_named_and_costs_no_commit(published: Table) -> None:
    store, at = published._handle.store, commits(published)[-1] + 1
    store.put(commit_path(at), b"no json")
    result = published.upsert(rows(50, v=5))
    assert held(published, result.version)
    with pytest.raises(Exception, match="no commit of a Delta log"):
        published.maintenance.publish()
    (status,) = published.inspect.publications()
    assert status.foreign == 1
    store.delete([commit_path(at)])
    published.maintenance.publish()
    newest = version_of(published)
    assert shown(published, "deltalake", newest) == held(published, newest)


def test_the_commit_that_undoes_others_says_all_of_it(tmp_path: Path) -> None:
    """INV-17: its checkpoint is only for who begins with it."""
    options = {"properties": PUBLISHED, "buckets": 1, "upsert": rows(range(9), v=1)}
    table = build.make(uri=tmp_path / "t", **options)
    number = commits(table)[-1] + 1
    file = next(str(path) for path in table.inspect.files()["path"].to_pylist())
    gone = {"remove": {"path": file, "dataChange": True}}
    body = json.dumps({"commitInfo": {"operation": "X"}}) + "\n" + json.dumps(gone)
    table._handle.plain_store.put(commit_path(number), body.encode())
    assert deltalake.DeltaTable(str(tmp_path / "t")).count() == 0
    table.maintenance.publish()
    log = [*Path(tmp_path, "t", "_delta_log").iterdir()]
    begins = [each for each in log if "checkpoint" in each.name]
    assert begins
    for each in begins:
        each.unlink()
    assert deltalake.DeltaTable(str(tmp_path / "t")).count() == 9


TYPES = "id bigint, x int, s string, f double, g float, b boolean, m decimal(15,5), n decimal(20,2)"


def test_predicates_select_through_the_log_what_they_select_of_the_rows(tmp_path: Path) -> None:
    """INV-17: bounds skip no file that has a row, also where one of them cannot be said."""
    table = build.make(f"{TYPES}, d date, ts timestamp", uri=tmp_path / "t", properties=PUBLISHED)
    schema = table.schema
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    usual = {"f": 1.0, "g": 0.1, "b": True, "m": Decimal("0.00001"), "n": Decimal(1)}
    usual |= {"x": 1, "s": "a", "d": dt.date(2020, 1, 1), "ts": last.replace(year=2020)}
    odd = {"f": float("nan"), "g": float("inf"), "m": Decimal("-0.00001"), "ts": last}
    files: list[list[dict[str, object]]] = [
        [usual, {}],
        [{**usual, **odd, "b": False, "s": "b"}],
        [{}, {}],
        [{**usual, "x": -5, "s": "\U0010ffff" * 40, "m": Decimal("9999999999.99999")}],
        [{**usual, "f": -0.0, "s": "", "d": dt.date(1, 1, 1)}],
    ]
    numbers = itertools.count()
    for file in files:
        table.append(pa.Table.from_pylist([{**row, "id": next(numbers)} for row in file], schema))
    table.alter.columns().add("late", "int").commit()
    schema = table.schema
    table.append(pa.Table.from_pylist([{"id": 90, "late": 1}, {"id": 91, **usual}], schema))
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    rows_there = found.to_table()
    compare = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    asked = 0
    for name in rows_there.column_names:
        field, column = pc.field(name), rows_there[name]
        asks = [field.is_null(), field.is_valid()]
        values = [each for each in column.unique() if each.is_valid and str(each) != "nan"]
        asks += [does(field, value) for value in values for does in compare]
        for ask in asks:
            read, wanted = (
                sorted(each["id"].to_pylist())
                for each in (found.to_table(filter=ask), rows_there.filter(ask))
            )
            assert read == wanted, ask
            asked += 1
    assert asked > 100


@pytest.mark.parametrize("kind", ["crash_before", "lost_reply", "error"])
def test_a_publisher_that_fails_at_any_call_is_finished_by_the_next(
    tmp_path: Path, kind: str
) -> None:
    """INV-17, and no commit fails because of it."""
    for at in places():
        properties = {**PUBLISHED, "checkpoint.interval": 1}
        table = build.make(
            uri=tmp_path / str(at), table_type="mor", buckets=1, properties=properties
        )
        table.upsert(rows(range(6_000), v=1))
        fault = Fault(kind, path="_d*", nth=at)
        client, _ = open_wrapped(build.uri_of(table), lambda inner, f=fault: FaultStore(inner, [f]))
        with suppress(SimulatedCrashError):
            client.upsert(rows(range(0, 6_000, 2), v=2))
        again = build.again(table)
        assert again.maintenance.publish().targets[0].version == 2
        for version in (1, 2):
            assert shown(table, "deltalake", version) == held(table, version), (at, version)
        if fault._seen < at:
            break
    assert at > 4, "a copy of vectors, a commit, a checkpoint and its hint at least"


def test_publishers_at_once_write_one_log(tmp_path: Path) -> None:
    lazy = {"publish": "delta", "publish.deadline": "0s", "checkpoint.interval": 3}
    table = build.make(uri=tmp_path / "t", table_type="mor", properties=lazy, upsert=rows(1, v=0))
    table.alter.set({"publish.deadline": "1h"})
    first = commits(table)[0]

    def write(worker: int) -> None:
        mine = build.again(table)
        for step in range(6):
            mine.upsert(rows(step, 10 + worker, v=worker), on_conflict="retry")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    table.maintenance.publish()
    newest = version_of(table)
    assert commits(table) == list(range(first, newest + 1))
    for version in range(first, newest + 1):
        assert shown(table, "deltalake", version) == held(table, version), version


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_what_others_publish_meanwhile_is_not_taken_for_foreign(tmp_path: Path, times: int) -> None:
    """Whoever looks at the log may know less of the table than the log shows."""
    table = build.make(uri=tmp_path / "t", properties=PUBLISHED, upsert=rows(1, v=1))
    other, keys = build.again(table), itertools.count(100)

    def busy() -> Table:
        """Open a client during whose first listings another one commits and publishes."""
        fault = Fault("step", operation="list", path="_delta_log*", times=times)
        fault.run = lambda: other.upsert(rows(next(keys), v=0))  # type: ignore[assignment]
        return open_wrapped(build.uri_of(table), lambda inner: FaultStore(inner, [fault]))[0]

    assert [each.foreign for each in busy().inspect.publications()] == [0]
    assert busy().maintenance.publish().targets[0].undone == ()
    assert commits(table) == list(range(version_of(table) + 1))


@pytest.mark.parametrize("since", [0, 1, 3])
def test_a_log_of_a_history_that_was_cut_off_is_brought_back(tmp_path: Path, since: int) -> None:
    """An older backup of ``.meta`` was put back; the log still shows what was decided since."""
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = build.make(uri=place, properties=PUBLISHED, upsert=rows(1, v=1))
    shutil.copytree(place / ".meta", backup)
    table.upsert(rows(2, v=2))
    table.upsert(rows(3, v=3))
    shutil.rmtree(place / ".meta")
    shutil.copytree(backup, place / ".meta")
    restored = Table.open(str(place))
    assert restored.inspect.publications()[0].foreign == 2
    for key in range(7, 7 + since):
        restored.upsert(rows(key, v=key))
    restored.maintenance.publish()
    (status,) = restored.inspect.publications()
    newest = version_of(restored)
    assert (status.version, status.foreign, status.problem) == (newest, 0, None)
    assert shown(restored, "deltalake", commits(restored)[-1]) == held(restored, newest)


def test_a_log_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    deltalake.write_deltalake(place, rows(1, 2, v=9))
    table = build.make(uri=place, properties={**PUBLISHED, **build.LITTLE}, upsert=rows(5, v=5))
    table.upsert(rows(6, v=6))
    table.upsert(rows(6, v=7))
    assert DELTA["deltalake"](place, 0).num_rows == 2
    assert commits(table) == [0]
    with pytest.raises(PublishRefusedError, match="did not write"):
        table.maintenance.publish()
    assert "did not write" in str(table.inspect.publications()[0].problem)
    assert table.maintenance.clean().plan.horizon > 0, "it stands in nobody's way"


def test_a_log_that_is_deleted_is_begun_anew_and_never_read_without_its_beginning(
    tmp_path: Path,
) -> None:
    place = tmp_path / "t"
    table = build.make(uri=place, properties=PUBLISHED, upsert=rows(range(50), v=1))
    table.upsert(rows(100, v=1))
    shutil.rmtree(place / "_delta_log")
    table.alter.columns().add("w", "int").commit()
    newest = table.upsert(rows(101, v=1, w=pa.array([1], pa.int32()))).version
    build.again(table).maintenance.publish()
    assert shown(table, "deltalake", commits(table)[-1]) == held(table, newest)
    assert shown(table, "polars", commits(table)[-1]) == held(table, newest)


def test_a_clean_that_dies_in_a_trim_leaves_no_version_that_is_read_wrong(tmp_path: Path) -> None:
    properties = {**PUBLISHED, **build.LITTLE, "checkpoint.interval": 3}
    for at in places():
        table = build.make(uri=tmp_path / str(at), properties=properties, upsert=rows(1, v=1))
        table.alter.columns().add("w", "int").commit()
        for key in range(2, 8):
            table.upsert(rows(key, v=1, w=pa.array([1], pa.int32())))
        wanted = {version: held(table, version) for version in range(version_of(table) + 1)}
        fault = Fault("crash_before", operation="delete", path="_delta_log*", nth=at)
        client, _ = open_wrapped(build.uri_of(table), lambda inner, f=fault: FaultStore(inner, [f]))
        with suppress(SimulatedCrashError):
            client.maintenance.clean()
        for version, rows_then in wanted.items():
            with suppress(Exception):
                found = shown(table, "deltalake", version)
                assert found == rows_then, (at, version)
        if fault._seen < at:
            break
    assert at > 5


def test_the_very_first_publication_that_dies_is_finished_by_the_next(tmp_path: Path) -> None:
    """It left a checkpoint and no commit: it is known as the table's own."""
    table = build.make(uri=tmp_path / "t", upsert=rows(1, v=1))
    dying, store = open_wrapped(build.uri_of(table), FaultStore)
    store._script.append(Fault("crash_before", "put_if_absent", "_delta_log/*.json"))
    with pytest.raises(SimulatedCrashError):
        dying.alter.set(PUBLISHED)
    assert [path.suffix for path in (tmp_path / "t" / "_delta_log").iterdir()].count(".json") == 0
    table.upsert(rows(2, v=1))
    assert version_of(table) in commits(table)
    assert shown(table, "deltalake", version_of(table)) == held(table, version_of(table))


def test_the_checkpoint_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """A log with nothing but a checkpoint is the table's only if the checkpoint says so."""
    other = build.make(uri=tmp_path / "o", properties=PUBLISHED, upsert=rows(1, v=1))
    other.alter.columns().add("w", "int").commit()  # has a checkpoint
    table = build.make(uri=tmp_path / "t", upsert=rows(1, v=1))
    strange = checkpoint_path(version_of(other))
    for body in (other._handle.store.find(strange), b"", b"PAR1"):
        assert body is not None
        (tmp_path / "t" / "_delta_log").mkdir(exist_ok=True)
        (tmp_path / "t" / strange).write_bytes(body)
        with pytest.raises(PublishRefusedError):
            table.alter.set(PUBLISHED) and table.maintenance.publish()
        assert commits(table) == []


def test_another_checkpoint_is_not_where_readers_begin(tmp_path: Path) -> None:
    table = build.make(uri=tmp_path / "t", properties=PUBLISHED, upsert=rows(1, 2, v=1))
    other = build.make(uri=tmp_path / "o", properties={**PUBLISHED, "checkpoint.interval": 1})
    other.upsert(rows(range(7), v=7))
    strange = other._handle.store.find(checkpoint_path(1))
    assert strange is not None
    table._handle.store.put(checkpoint_path(50), strange)
    table.maintenance.publish()
    newest = version_of(table)
    assert shown(table, "deltalake", commits(table)[-1]) == held(table, newest)


def test_another_spelling_of_a_path_is_another_file(published: Table) -> None:
    (first, *_) = _shown_files(published)
    schemas = published._handle.cache.known().table.schemas
    theirs = add_action(first, schemas, modificationTime=1, dataChange=True)["add"]
    assert isinstance(theirs, dict)
    spelled = {**theirs, "path": str(theirs["path"]).replace("data", "%64ata")}
    at = foreign(published, {"add": spelled}, {"add": {**theirs, "path": "\ud800"}})
    published.maintenance.publish()
    assert shown(published, "deltalake", at + 1) == held(published, version_of(published))
    published.maintenance.clean()
    published.maintenance.optimize()


def test_an_absurd_number_is_named(published: Table) -> None:
    foreign(published, number=(1 << 63) - 2)
    with pytest.raises(CorruptMetadataError, match="absurd"):
        published.maintenance.publish()
    assert "absurd" in str(published.inspect.publications()[0].problem)
    published.upsert(rows(60, v=6))
    published.maintenance.clean()


def test_a_repush_that_ends_publishing_is_seen(tmp_path: Path) -> None:
    table = build.make(uri=tmp_path / "t", properties=PUBLISHED, upsert=rows(1, 2, v=1))
    table.layout.repush(properties={"publish": ""})
    table.alter.columns().add("c", "int", default=7).commit()
    wrong = version_of(table)
    table.overwrite(rows(1, v=1, c=pa.array([1], pa.int32())), where="id >= 0")
    table.alter.set({"publish": "delta"})
    assert wrong not in commits(table)
    assert shown(table, "deltalake", commits(table)[-1]) == held(table, version_of(table))


def test_a_store_that_cannot_decide_who_is_first_publishes_nothing(tmp_path: Path) -> None:
    table = build.make(uri=tmp_path / "t", lock="process")

    class Plain(WrappedStore):
        @property
        def capabilities(self) -> Capabilities:
            return replace(super().capabilities, put_if_absent=False)

    client, _ = open_wrapped(build.uri_of(table), Plain)
    with pytest.raises(CapabilityMissingError):
        client.alter.set({"publish": "delta"})


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"version": "x"}', b"\xff", b"[" * 10**5])
def test_a_damaged_hint_of_checkpoints_costs_nothing(tmp_path: Path, body: bytes) -> None:
    every = {**PUBLISHED, "checkpoint.interval": 1}
    table = build.make(uri=tmp_path / "t", properties=every, upsert=rows(1, v=1))
    table._handle.store.put(LAST_CHECKPOINT, body)
    table.upsert(rows(2, v=1))
    newest = version_of(table)
    assert shown(table, "deltalake", newest) == held(table, newest)
    assert json.loads(table._handle.store.find(LAST_CHECKPOINT) or b"")["version"] == newest


def test_a_clean_keeps_what_a_lagging_publication_shows(tmp_path: Path) -> None:
    """INV-05 for readers of a published log: they have no pins."""
    lazy = {"publish": "delta", **build.LITTLE}
    table = build.make(uri=tmp_path / "t", properties=lazy, upsert=rows(range(9), v=1))
    table.alter.set({"publish.deadline": "0s"})
    behind = version_of(table) - 1
    assert commits(table)[-1] == behind
    table.upsert(rows(range(9), v=2))
    publisher = delta_publisher(table._handle)
    patch = pytest.MonkeyPatch()

    def refuse(*_: object, **__: object) -> None:
        raise OSError("the log cannot be written")

    patch.setattr(type(publisher._log), "put", refuse)
    try:
        with pytest.raises(OSError, match="cannot be written"):
            table.maintenance.publish()
        from plait.errors import StorageError

        def fail(*_: object, **__: object) -> None:
            raise StorageError("the log cannot be written")

        patch.setattr(type(publisher._log), "put", fail)
        report = table.maintenance.clean()
        assert report.plan.horizon <= behind
        table.maintenance.clean()
        assert shown(table, "deltalake", behind) == held(table, behind)
    finally:
        patch.undo()
    table.maintenance.publish()
    report = table.maintenance.clean()
    assert report.plan.horizon > behind
    assert report.deleted
    assert min(commits(table)) >= report.plan.horizon
    for version in commits(table):
        assert shown(table, "deltalake", version) == held(table, version)


@pytest.mark.parametrize("then", ["delta", ""])
def test_a_clean_deletes_copies_of_vectors_with_their_files(tmp_path: Path, then: str) -> None:
    properties = {**PUBLISHED, **build.LITTLE}
    table = make(uri=tmp_path / "t", table_type="mor", properties=properties)
    table.upsert(values(range(9_000), 1))
    table.upsert(values(range(0, 9_000, 2), 2))
    store = table._handle.store
    assert list(store.list("_dv"))
    table.alter.set({"publish": then})
    table.maintenance.compact(full=True)
    table.maintenance.clean()
    table.maintenance.clean()
    assert not list(store.list("_dv"))
    assert not table.check.verify().problems


def test_what_the_log_cannot_say_is_refused_before_the_change(tmp_path: Path) -> None:
    def change() -> object:
        return table.alter.columns().add("d", "int", default=7).commit()

    table = build.make(uri=tmp_path / "t", properties=PUBLISHED, upsert=rows(1, 2, v=1))
    before = version_of(table)
    with pytest.raises(PublishRefusedError, match="the default") as refused:
        change()
    assert refused.value.target == "delta"
    assert version_of(table) == before
    table.alter.set({"publish": ""})
    change()
    with pytest.raises(PublishRefusedError, match="the default"):
        table.alter.set({"publish": "delta"})
    table.layout.repush(buckets=2)
    table.alter.set({"publish": "delta"})
    newest = version_of(table)
    assert shown(table, "deltalake", newest) == held(table, newest)


def test_versions_of_a_time_without_publishing_are_left_out(tmp_path: Path) -> None:
    """INV-17: what the log cannot say was allowed then, and may be over again."""
    table = build.make(uri=tmp_path / "t", properties=PUBLISHED, upsert=rows(1, 2, v=1))
    before = version_of(table)
    table.alter.set({"publish": ""})
    table.alter.columns().add("d", "int", default=7).commit()
    wrong = version_of(table)
    table.layout.repush(buckets=2)
    table.alter.set({"publish": "delta"})
    newest = version_of(table)
    assert shown(table, "deltalake", before) == held(table, before)
    assert shown(table, "deltalake", newest) == held(table, newest)
    assert wrong not in commits(table)
    table.upsert(rows(3, v=1, d=pa.array([1], pa.int32())))
    assert commits(table)[-1] == newest + 1
    assert shown(table, "deltalake", newest + 1) == held(table, newest + 1)


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.int32()),
        ("w", pa.int32()),
        ("pair", pa.struct([("x", pa.int16()), ("y", pa.string())])),
        ("many", pa.list_(pa.struct([("x", pa.int16())]))),
    ]
)


def nested(first: int, names: Mapping[str, str] | None = None) -> pa.Table:
    """Return rows of NESTED, its columns under other names."""
    found = [
        {
            "id": key,
            "v": key * 2,
            "w": key * 3,
            "pair": {"x": key, "y": str(key)} if key % 3 else None,
            "many": [{"x": key}, None],
        }
        for key in range(first, first + 20)
    ]
    table = pa.Table.from_pylist(found, schema=NESTED)
    return table.rename_columns([(names or {}).get(name, name) for name in table.column_names])


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("since", ["the first version", "now"])
def test_renamed_and_dropped_columns_are_found_in_files_from_before(
    tmp_path: Path, kind: str, since: str
) -> None:
    """Files keep the names that fields had at first, at every level (RFC 0046)."""
    properties = PUBLISHED if since == "the first version" else {}
    table = build.make(NESTED, uri=tmp_path / "t", table_type=kind, properties=properties)
    table.upsert(nested(0))
    table.alter.columns().rename("v", "u").rename("pair.x", "z").commit()
    table.upsert(nested(10, {"v": "u"}).cast(table.scan().schema))
    table.alter.columns().drop("w").rename("u", "w").rename("many.element.x", "y").commit()
    now = table.scan().schema
    table.alter.columns().add("v", "string").add("pair.x", "bigint").commit()
    table.upsert(table.scan(where="id < 5").to_arrow().set_column(4, "v", [["new"] * 5]))
    table.delete(where="id > 20")
    assert now.names == ["id", "w", "pair", "many"]
    table.alter.set({"publish": "delta"})
    first, newest = commits(table)[0], version_of(table)
    for version in range(first, newest + 1):
        assert shown(table, "deltalake", version) == held(table, version), version
    restored = table.versions.restore(version=1)
    assert shown(table, "deltalake", version_of(table)) == held(table, 1), restored


@pytest.mark.parametrize("value", ["paimon", "delta,delta", "delta;iceberg"])
def test_unknown_formats_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(OptionError):
        build.make(uri=tmp_path / "t", properties={"publish": value})


def test_hostile_commits_are_only_recognised() -> None:
    body = b'{"add":{"path":"../../etc/passwd"}}\n{"add":{"path":"a%2Fb","deletionVector":[]}}\n'
    found = read_foreign([body, b'{"remove":{"path":"a/b"}}'])
    assert found.paths == {"../../etc/passwd", "a/b"}
    assert set(found.added) == {("../../etc/passwd", ""), ("a%2Fb", "")}
    assert read_mark(b'{"commitInfo":{"plait":{"version":-1}}}') is None
    assert read_mark(b"[" * 10**6) is None


def test_the_log_of_the_golden_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    golden = Path(__file__).parents[2] / "compat" / "v1"
    said = json.loads((golden / "published.json").read_text("utf-8"))["versions"]
    place = shutil.copytree(golden / "published", tmp_path / "t", copy_function=shutil.copyfile)
    for version in (1, 2):  # without what deltalake does not read
        found = DELTA["deltalake"](str(place), version).to_pylist()
        rows = sorted([plain(value) for value in row.values()] for row in found)
        assert rows == said[str(version)]
