"""Published Iceberg metadata shows the rows of each version, or does not name it (INV-17)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from plait import CorruptMetadataError, MissingDependencyError, PublishRefusedError, Table
from plait.interop.iceberg import ENTRIES_MAX
from plait.interop.iceberg_metadata import HINT, metadata_path
from plait.interop.publication import iceberg_publisher, newest_metadata
from plait.services.maintenance.upkeep import finish_upkeep
from plait.testing import open_wrapped
from plait.testing.faults import Fault, FaultStore, SimulatedCrashError
from tests.integration.interop.lives import acts, held, make, values, version_of
from tests.integration.interop.test_delta import NESTED as NESTED_SCHEMA
from tests.integration.interop.test_delta import nested
from tests.support import build
from tests.support.build import rows
from tests.support.effort import places
from tests.support.engines import ICEBERG, comparable

AS_ICEBERG = {"publish": "iceberg", "publish.deadline": "1h"}
KINDS = [("cow", "positions"), ("mor", "positions"), ("mor", "vectors")]


def newest(table: Table) -> tuple[str, dict[str, Any]]:
    found = newest_metadata(build.again(table)._handle)
    assert found is not None
    place, said = found
    return place, dict(said)


def named(table: Table) -> list[int]:
    """Return the versions that the newest metadata names."""
    return [each["snapshot-id"] for each in newest(table)[1]["snapshots"]]


def require_equal(table: Table, engines: tuple[str, ...] = tuple(ICEBERG)) -> list[int]:
    """Compare each named version in each engine; return the versions."""
    place, _ = newest(table)
    versions = named(table)
    for version in versions:
        wanted = held(table, version)
        for engine in engines:
            assert comparable(ICEBERG[engine](place, version)) == wanted, (engine, version)
    return versions


def files(table: Table) -> list[str]:
    return [info.path for info in table._handle.plain_store.list("metadata")]


@pytest.mark.parametrize(("kind", "deletes"), KINDS)
def test_every_version_of_a_life_is_read_alike_by_every_engine(
    tmp_path: Path, kind: str, deletes: str
) -> None:
    properties = {**AS_ICEBERG, "publish.iceberg.deletes": deletes}
    table = make(uri=tmp_path / "a t", table_type=kind, properties=properties)
    table.upsert(values(range(6_000), 1))
    table.upsert(values(range(0, 6_000, 2), 2))  # several vectors in a commit
    table.delete(where="tiny < 0")
    table.update({"text": "'new'"}, where="whole < 0")
    table.maintenance.compact(full=True)
    table.versions.restore(version=2)
    table.upsert(values(range(5_990, 6_050), 3))
    table.versions.savepoint("kept")
    table.maintenance.publish()
    assert require_equal(table) == list(range(1, version_of(table) + 1))
    _, said = newest(table)
    assert said["format-version"] == (3 if deletes == "vectors" else 2)
    assert said["refs"]["kept"] == {"snapshot-id": version_of(table) - 1, "type": "tag"}
    assert table.inspect.publications()[0].lag_versions == 0


@pytest.mark.long(3)
@pytest.mark.parametrize("seed", range(8))
def test_random_lives_are_published_whole(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    properties = {
        "publish": draw.choice(["iceberg", "delta,iceberg"]),
        "publish.iceberg.deletes": draw.choice(["positions", "vectors"]),
        "publish.deadline": "1h",
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
        if draw.random() < 0.2:
            finish_upkeep()
    table.maintenance.publish()
    assert version_of(table) in require_equal(table)


@pytest.mark.parametrize(("kind", "deletes"), KINDS)
def test_changes_of_columns_are_read_alike(tmp_path: Path, kind: str, deletes: str) -> None:
    properties = {**AS_ICEBERG, "publish.iceberg.deletes": deletes}
    table = build.make(NESTED_SCHEMA, uri=tmp_path / "t", table_type=kind, properties=properties)
    table.upsert(nested(0))
    table.alter.columns().rename("v", "u").rename("pair.x", "z").commit()
    table.upsert(nested(10, {"v": "u"}).cast(table.scan().schema))
    table.alter.columns().drop("w").rename("u", "w").rename("many.element.x", "y").commit()
    table.alter.columns().add("v", "string").add("pair.x", "bigint").widen("w", "bigint").commit()
    table.upsert(table.scan(where="id < 5").to_arrow().set_column(4, "v", [["new"] * 5]))
    table.delete(where="id > 20")
    table.alter.columns().add("late", "decimal(9,2)", default="1.50").commit()
    table.upsert(table.scan(where="id = 7").to_arrow())
    table.maintenance.publish()
    assert len(require_equal(table)) == version_of(table)
    assert newest(table)[1]["format-version"] == 3, "defaults need it"


@pytest.mark.parametrize(
    ("before", "after"), [("date", "timestamp_ntz"), ("decimal(9,2)", "decimal(12,3)")]
)
def test_a_type_that_iceberg_does_not_widen_is_refused(
    tmp_path: Path, before: str, after: str
) -> None:
    table = Table.create(
        str(tmp_path / "t"), f"id bigint not null, c {before}", record_key="id",
        properties=AS_ICEBERG,
    )  # fmt: skip
    table.upsert(pa.table({"id": [1], "c": pa.nulls(1, table.scan().schema.field("c").type)}))
    version = version_of(table)
    with pytest.raises(PublishRefusedError) as refused:
        table.alter.columns().widen("c", after).commit()
    assert (refused.value.target, refused.value.column) == ("iceberg", "c")
    assert version_of(table) == version


@pytest.fixture
def published(tmp_path: Path) -> Table:
    """Give a published table with files and hidden rows."""
    table = build.make(
        uri=tmp_path / "t",
        table_type="mor",
        buckets=2,
        properties=AS_ICEBERG,
        upsert=rows(range(9), v=1),
    )
    finish_upkeep()  # a thread that begins later begins with a later version
    table.upsert(rows(3, v=2))
    table.maintenance.publish()
    finish_upkeep()  # its thread may be about to find out that nothing is left to do
    return table


# --- crashes and races --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["crash_before", "lost_reply", "error"])
def test_a_publisher_that_fails_at_any_call_is_finished_by_the_next(
    tmp_path: Path, kind: str
) -> None:
    """INV-17."""
    for at in places():
        table = build.make(
            uri=tmp_path / str(at), table_type="mor", buckets=1, properties=AS_ICEBERG
        )
        table.upsert(rows(range(30), v=1))
        table.maintenance.publish()
        table.upsert(rows(range(0, 30, 2), v=2))
        finish_upkeep()
        lazy = build.again(table)
        lazy.alter.set({"publish.deadline": "0s"})
        lazy.upsert(rows(range(0, 30, 3), v=3))
        fault = Fault(kind, path="metadata*", nth=at)
        client, _ = open_wrapped(build.uri_of(table), lambda inner, f=fault: FaultStore(inner, [f]))
        with suppress(SimulatedCrashError, OSError):
            client.maintenance.publish()
        again = build.again(table)
        again.maintenance.publish()
        assert require_equal(table)[-1] == version_of(table), at
        if fault._seen < at:
            break
    assert at > 5, "deletes, two manifests, a list, metadata and its hint at least"


def test_clients_that_come_by_a_link_publish_for_one_place(tmp_path: Path) -> None:
    table = build.make(uri=tmp_path / "t", table_type="mor", properties=AS_ICEBERG)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    other = Table.open(str(tmp_path / "link"))
    table.upsert(rows(range(10), v=1))
    other.upsert(rows(20, v=1))
    table.delete(where="id < 5")
    finish_upkeep()
    table.maintenance.publish()
    other.maintenance.publish()
    assert require_equal(table) == [1, 2, 3]


def test_metadata_of_another_path_is_not_built_on(tmp_path: Path) -> None:
    """Deletes that name a file by one path hide no row of a file that is named by another one."""
    table = build.make(uri=tmp_path / "t", table_type="mor", properties=AS_ICEBERG)
    table.upsert(rows(range(10), v=1))
    finish_upkeep()
    table.alter.set({"publish.deadline": "0s"})
    state = table._handle.cache.refresh()
    ours, theirs = (iceberg_publisher(table._handle) for _ in range(2))
    theirs._location = lambda: "file:///mnt/t"  # type: ignore[method-assign]  # another mount
    seen = [publisher.look(state, table._handle.cache.refresh) for publisher in (ours, theirs)]
    assert seen[0][0].ours is not None
    table.delete(where="id < 5")
    never, refresh = (lambda: False), table._handle.cache.refresh
    theirs.catch_up(refresh(), late=never, refresh=refresh)
    ours.catch_up(refresh(), late=never, refresh=refresh)
    assert require_equal(table) == [version_of(table)]


@pytest.mark.parametrize(("kind", "deletes"), KINDS)
def test_bounds_of_a_column_that_came_back_have_its_type(
    tmp_path: Path, kind: str, deletes: str
) -> None:
    """Between the two it was wider, and then gone: the last schema tells nothing of it."""
    properties = {**AS_ICEBERG, "publish.iceberg.deletes": deletes}
    table = build.make(
        "id bigint, x int", uri=tmp_path / "t", table_type=kind, properties=properties
    )
    x = pa.array([1, 2], pa.int32())
    table.upsert(rows(range(2), x=x))
    table.alter.columns().widen("x", "bigint").commit()
    table.alter.columns().drop("x").commit()
    table.versions.restore(version=1)
    finish_upkeep()
    table.maintenance.publish()
    require_equal(table)
    found = StaticTable.from_metadata(newest(table)[0]).scan(row_filter="x > 1").to_arrow()
    assert found["x"].to_pylist() == [2]


def test_publishers_at_once_write_one_history(tmp_path: Path) -> None:
    table = build.make(uri=tmp_path / "t", table_type="mor", properties=AS_ICEBERG)

    def write(worker: int) -> None:
        mine = build.again(table)
        for step in range(5):
            mine.upsert(rows(step, 10 + worker, v=worker), on_conflict="retry")
            mine.maintenance.publish()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert require_equal(table, ("pyiceberg",)) == list(range(1, version_of(table) + 1))
    assert len(set(named(table))) == len(named(table))


def test_what_a_client_did_not_publish_the_next_one_does(tmp_path: Path) -> None:
    lazy = {"publish": "delta,iceberg", "publish.deadline": "0s"}
    table = build.make(uri=tmp_path / "t", properties=lazy, upsert=rows(1, v=1))
    finish_upkeep()
    found = {each.target: each.lag_versions for each in table.inspect.publications()}
    assert found == {"delta": 2, "iceberg": 2}
    report = build.again(table).maintenance.publish()
    assert {each.target: each.version for each in report.targets} == {"delta": 1, "iceberg": 1}
    assert build.again(table).maintenance.publish().idle


def test_a_commit_touches_few_manifests_of_a_large_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.interop.iceberg.ENTRIES_MAX", 4)
    table = build.make(uri=tmp_path / "t", buckets=32, properties=AS_ICEBERG)
    table.upsert(rows(range(500), v=1))
    finish_upkeep()
    known = {name for name in files(table) if "/m-" in name}
    assert len(known) >= 8
    for step in range(3):
        table.upsert(rows(7, v=step))
        finish_upkeep()
    assert len({name for name in files(table) if "/m-" in name} - known) <= 6, "one is split"
    require_equal(table)
    assert ENTRIES_MAX <= 500


# --- clean --------------------------------------------------------------------------------------


def cleaned(tmp_path: Path, grace: str = "0s") -> Table:
    properties = {
        **AS_ICEBERG,
        "clean.retain.time": "0s",
        "clean.retain.versions": 2,
        "clean.grace": grace,
    }
    table = build.make(uri=tmp_path, table_type="mor", buckets=1, properties=properties)
    for step in range(6):
        table.upsert(rows(range(step, 30), v=step))
        if step == 1:
            table.versions.savepoint("kept")
        if step > 1:
            table.maintenance.compact(full=True)
        table.maintenance.publish()
    return table


def everything_named(table: Table) -> set[int]:
    """Read each version that any metadata file names, through that file."""
    found: set[int] = set()
    for name in files(table):
        if not name.endswith(".metadata.json"):
            continue
        static = StaticTable.from_metadata(table._handle.plain_store.location(name))
        for snapshot in static.metadata.snapshots:
            version = snapshot.snapshot_id
            wanted = held(table, version)
            assert comparable(static.scan(snapshot_id=version).to_arrow()) == wanted, name
            found.add(version)
    return found


def test_a_clean_leaves_nothing_that_names_what_it_deletes(tmp_path: Path) -> None:
    """INV-05, INV-17: with no grace, and files of older metadata go with what they name."""
    table = cleaned(tmp_path / "t")
    before = files(table)
    table.maintenance.clean()
    horizon = table._handle.cache.refresh().horizon
    assert horizon > 3
    table.maintenance.publish()
    assert everything_named(table) == {2, *range(horizon, version_of(table) + 1)}
    table.maintenance.clean()
    assert len(files(table)) < len(before)
    assert newest(table)[1]["refs"]["kept"]["snapshot-id"] == 2


def test_readers_keep_what_they_began_with_until_the_grace_is_over(tmp_path: Path) -> None:
    table = cleaned(tmp_path / "t", "1h")
    static = StaticTable.from_metadata(newest(table)[0])
    wanted = {version: held(table, version) for version in named(table)}
    table.maintenance.clean()
    assert min(set(named(table)) - {2}) > 3
    for version, expected in wanted.items():
        assert comparable(static.scan(snapshot_id=version).to_arrow()) == expected


def test_a_clean_that_dies_at_any_deletion_leaves_readable_metadata(tmp_path: Path) -> None:
    for at in places():
        table = cleaned(tmp_path / str(at))
        fault = Fault("crash_before", operation="delete", nth=at)
        client, _ = open_wrapped(build.uri_of(table), lambda inner, f=fault: FaultStore(inner, [f]))
        with suppress(SimulatedCrashError):
            client.maintenance.clean()
        require_whole(table)
        table.maintenance.clean()
        table.maintenance.publish()
        assert version_of(table) in everything_named(table)
        if fault._seen < at:
            break
    assert at > 3


def require_whole(table: Table) -> None:
    """Read what the newest metadata names, even where the table let go of the version."""
    place, said = newest(table)
    for each in said["snapshots"]:
        StaticTable.from_metadata(place).scan(snapshot_id=each["snapshot-id"]).to_arrow()


# --- others -------------------------------------------------------------------------------------


def registered(table: Table, tmp_path: Path) -> Any:
    """Register the newest metadata with a catalog of pyiceberg, which writes beside it."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path))
    catalog.create_namespace("n")
    return catalog.register_table("n.t", newest(table)[0])


def test_what_pyiceberg_wrote_is_told_and_named_by_no_later_metadata(
    published: Table, tmp_path: Path
) -> None:
    theirs = registered(published, tmp_path)
    theirs.append(theirs.scan().to_arrow())
    assert published.inspect.publications()[0].foreign == 1
    (target,) = published.maintenance.publish().targets
    assert len(target.undone) == 1
    assert published.inspect.publications()[0].foreign == 0
    assert published.maintenance.publish().idle
    assert require_equal(published) == [1, 2]


def test_metadata_of_others_at_the_next_number_is_undone(published: Table, tmp_path: Path) -> None:
    theirs = registered(published, tmp_path)
    theirs.delete("id < 5")
    store = published._handle.plain_store
    number = int(newest(published)[0].rpartition("/v")[2].split(".")[0]) + 1
    body = Path(theirs.metadata_location.removeprefix("file://")).read_bytes()
    assert store.put_if_absent(metadata_path(number), body)
    store.put(HINT, str(number).encode())
    published.upsert(rows(50, v=5))
    finish_upkeep()
    assert newest(published)[0].endswith(f"v{number + 1}.metadata.json")
    assert store.find(HINT) == str(number + 1).encode()
    assert require_equal(published) == [1, 2, 3]
    (status,) = published.inspect.publications()
    assert (status.lag_versions, status.foreign) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["properties"].update({"gc.enabled": "true"}),
        lambda said: said["snapshots"].clear(),
        lambda said: said.update({"location": "file:///etc"}),
    ],
)
def test_metadata_that_was_changed_is_not_ours(
    published: Table, change: Callable[[dict[str, Any]], object]
) -> None:
    place, said = newest(published)
    change(said)
    number = int(place.rpartition("/v")[2].split(".")[0]) + 1
    published._handle.plain_store.put(metadata_path(number), json.dumps(said).encode())
    published.upsert(rows(50, v=5))
    published.maintenance.publish()
    assert newest(published)[0].endswith(f"v{number + 1}.metadata.json")
    require_equal(published)


@pytest.mark.parametrize(
    "body", [b"", b"[" * 10**6, b"{}", b'{"properties":[]}', b"\xff", b" " * (65 << 20)]
)
@pytest.mark.parametrize("hint", [b"999999999999", b"-1", b"\xff" * 200, None])
def test_rubbish_at_the_next_number_costs_no_version(
    published: Table, body: bytes, hint: bytes | None
) -> None:
    store = published._handle.plain_store
    number = int(newest(published)[0].rpartition("/v")[2].split(".")[0]) + 1
    store.put(metadata_path(number), body)
    if hint is None:
        store.delete([HINT])
    else:
        store.put(HINT, hint)
    build.again(published).upsert(rows(50, v=5))
    finish_upkeep()
    assert published.inspect.publications()[0].foreign == 0
    assert require_equal(published) == [1, 2, 3]
    assert store.find(HINT) == str(number + 1).encode()


def test_any_number_of_names_of_others_is_undone_once(published: Table) -> None:
    store, names = published._handle.plain_store, [f"n{at:04d}" for at in range(100)]
    for name in names:
        store.put(f"metadata/{name}.metadata.json", b"{}")
    for change in ("none", "one more", "one less", "another"):
        if change == "one more":
            store.put("metadata/a.metadata.json", b"{}")
        elif change == "one less":
            store.delete(["metadata/n0007.metadata.json"])
        elif change == "another":
            store.put("metadata/z.metadata.json", b"{}")
        published.maintenance.publish()
        published.upsert(rows(50, v=5))
        finish_upkeep()
        for _ in range(2):
            assert published.maintenance.publish().idle, change
            (status,) = published.inspect.publications()
            assert (status.lag_versions, status.foreign) == (0, 0)
    require_equal(published)


@pytest.mark.parametrize("number", [999_999_999_999_999, 1 << 40])
def test_a_number_that_leaves_no_room_is_named_before_anything_is_written(
    published: Table, number: int
) -> None:
    store = published._handle.plain_store
    store.put(metadata_path(number), b"{}")
    before = files(published)
    with pytest.raises(CorruptMetadataError) as raised:
        published.maintenance.publish()
    assert raised.value.path == metadata_path(number)
    assert files(published) == before
    assert metadata_path(number) in str(published.inspect.publications()[0].problem)
    assert metadata_path(number) in str(published.maintenance.clean().held_back)
    store.delete([metadata_path(number)])
    assert published.maintenance.publish().idle


@pytest.mark.parametrize("begins", [True, False])
def test_metadata_of_ours_below_much_of_others_is_never_taken_for_theirs(
    published: Table, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.interop.iceberg_metadata._LOOKED_AT_MAX", 3)
    store = published._handle.plain_store
    last = int(newest(published)[0].rpartition("/v")[2].split(".")[0])
    if not begins:
        store.put(metadata_path(1), b"{}")
    for number in range(last + 1, last + 6):
        store.put(metadata_path(number), b"{}")
    if begins:
        published.maintenance.publish()
        assert published.inspect.publications()[0].foreign == 0
        assert require_equal(published) == [version_of(published)]
        return
    with pytest.raises(CorruptMetadataError, match="is of this table"):
        published.maintenance.publish()


@pytest.mark.parametrize("what", ["m-", "d-", "snap-"])
def test_manifests_that_were_changed_are_written_anew(published: Table, what: str) -> None:
    store = published._handle.plain_store
    for name in files(published):
        if f"/{what}" in name:
            store.put(name, b"Obj\x01 and rubbish")
    published.upsert(rows(range(9), v=9))  # all manifests are touched
    published.maintenance.publish()
    place, _ = newest(published)
    version = version_of(published)
    assert comparable(ICEBERG["pyiceberg"](place, version)) == held(published, version)


def test_metadata_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    table = build.make(uri=tmp_path / "t", upsert=rows(1, v=1))
    store = table._handle.plain_store
    store.put("metadata/00000-a.metadata.json", b"{}")
    table.alter.set(AS_ICEBERG)
    finish_upkeep()
    assert files(table) == ["metadata/00000-a.metadata.json"]
    with pytest.raises(PublishRefusedError):
        table.maintenance.publish()
    assert table.inspect.publications()[0].problem
    table.maintenance.clean()
    assert files(table) == ["metadata/00000-a.metadata.json"]


# --- beginnings ---------------------------------------------------------------------------------


def test_a_table_that_begins_to_publish_names_what_it_has_and_nothing_older(
    tmp_path: Path,
) -> None:
    table = build.make(uri=tmp_path / "t", table_type="mor", upsert=rows(range(9), v=1))
    table.delete(keys=rows(3))
    version = table.alter.set(AS_ICEBERG).version
    table.upsert(rows(100, v=2))
    table.maintenance.publish()
    assert require_equal(table) in ([version, version + 1], [version + 1])


def test_a_publisher_far_behind_leaves_versions_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.interop.iceberg.BEHIND_MAX", 2)
    table = build.make(uri=tmp_path / "t", properties=AS_ICEBERG, upsert=rows(1, v=1))
    table.maintenance.publish()
    table.alter.set({"publish.deadline": "0s"})
    for key in range(5):
        table.upsert(rows(key, v=key))
    finish_upkeep()
    report = table.maintenance.publish()
    last = version_of(table)
    assert (report.targets[0].published, report.targets[0].left_out) == (1, last - 2)
    assert require_equal(table) == [last]


def test_a_table_that_was_moved_is_published_anew(published: Table, tmp_path: Path) -> None:
    place = build.uri_of(published).removeprefix("file://")
    shutil.move(place, tmp_path / "moved")
    moved = Table.open(str(tmp_path / "moved"))
    moved.upsert(rows(60, v=1))
    moved.maintenance.publish()
    assert newest(moved)[1]["location"] == f"file://{tmp_path}/moved"
    assert require_equal(moved) == [version_of(moved)]


def test_cleans_go_on_after_a_table_was_moved(tmp_path: Path) -> None:
    """Lists from before name files of another place, and stay for the grace."""
    properties = {**AS_ICEBERG, **build.LITTLE, "clean.grace": "1h"}
    table = build.make(uri=tmp_path / "t", properties=properties, upsert=rows(range(9), v=1))
    table.maintenance.publish()
    shutil.move(tmp_path / "t", tmp_path / "moved")
    moved = Table.open(str(tmp_path / "moved"))
    moved.upsert(rows(1, v=2))
    finish_upkeep()
    assert moved.maintenance.clean().plan.horizon == version_of(moved) - 1
    finish_upkeep()
    assert require_equal(moved) == [version_of(moved) - 1, version_of(moved)]


def test_more_than_a_hundred_versions_are_not_named(
    published: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.interop.iceberg.SNAPSHOTS_MAX", 3)
    published.versions.savepoint("old", version=1)
    for key in range(5):
        published.upsert(rows(key, v=key))
    published.maintenance.publish()
    last = version_of(published)
    assert require_equal(published) == [1, last - 2, last - 1, last]


def test_without_fastavro_the_property_is_refused_and_a_later_client_lags(
    published: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(MissingDependencyError) as refused:
        build.make(uri=tmp_path / "other", properties=AS_ICEBERG)
    assert refused.value.extra == "iceberg"
    assert not (tmp_path / "other").exists()
    plain = build.make(uri=tmp_path / "plain")
    for named in ("iceberg", "delta, iceberg"):
        with pytest.raises(MissingDependencyError):
            plain.alter.set({"publish": named})
        with pytest.raises(MissingDependencyError):
            plain.layout.repush(properties={"publish": named})
    assert plain.version == 0
    result = published.upsert(rows(70, v=1))
    finish_upkeep()
    (status,) = published.inspect.publications()
    assert status.lag_versions == 1
    assert "fastavro" in (status.problem or "")
    published.maintenance.clean()
    assert published._handle.cache.refresh().horizon == 0, "it cannot take versions out"
    monkeypatch.undo()
    published.maintenance.publish()
    assert require_equal(published)[-1] >= result.version


def test_the_next_publication_of_a_client_lists_nothing(published: Table) -> None:
    publisher = iceberg_publisher(published._handle)
    state = published._handle.cache.refresh()
    found, _ = publisher.find_position(state, published._handle.cache.refresh)
    assert (found.version, found.foreign) == (2, 0)
