"""Tables that were written once stay readable: by Plait, and by a reader that knows only the
specification. What Plait writes onto them is what the specification says."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaError

from plait import InstantExpiredError, Table, TableDroppedError, UnsupportedFeatureError
from plait.interop.publication import newest_metadata
from tests.compat import make_v1
from tests.compat.reader import Reader, RefusedError, slot
from tests.compat.rows import listed
from tests.compat.values import live_sums
from tests.compat.written import written_versions
from tests.support.engines import DELTA, ICEBERG

V1 = Path(__file__).parent / "v1"
TABLES = sorted(path.stem for path in V1.glob("*.json"))


def versions_of(name: str, *, folder: Path = V1) -> dict[int, list[str]]:
    """Return what each version shows, as the script that made the table says."""
    document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    shown: dict[int, list[str]] = {}
    rows: list[object] = []
    for version, found in document["versions"].items():
        rows = rows if found is None else found
        shown[int(version)] = sorted(json.dumps(row, ensure_ascii=False) for row in rows)
    return shown


def shown_by(rows: list[dict[str, object]]) -> list[str]:
    return listed(list(row.values()) for row in rows)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[object]:
    """Give what copies a golden table: to open one takes a lease, and golden tables stay as they
    are."""

    def copy(name: str) -> str:
        place = tmp_path / name
        shutil.copytree(V1 / name, place, copy_function=shutil.copyfile)
        return str(place)

    return copy


def test_all_golden_tables_are_tested() -> None:
    assert sorted(path.name for path in V1.iterdir() if path.is_dir()) == TABLES
    assert sorted(build.__name__ for build in make_v1.TABLES) == TABLES


def test_second_reader_imports_nothing_of_plait() -> None:
    names: list[str] = []
    for file in ("reader.py", "values.py", "written.py"):
        tree = ast.parse(Path(__file__).with_name(file).read_text(encoding="utf-8"))
        names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    ours = {"tests.compat.values", "tests.compat.reader"}
    others = {name.split(".")[0] for name in names if name not in ours}
    assert others - sys.stdlib_module_names == {"pyarrow", "pyroaring", "xxhash"}


@pytest.mark.parametrize("checkpoints", [True, False])
def test_second_reader_knows_which_version_wrote_a_row(checkpoints: bool) -> None:
    """The table has the version in a column of its own too."""
    reader = Reader(str(V1 / "written"), checkpoints=checkpoints)
    copied = 0
    for version in versions_of("written"):
        told = written_versions(reader, version)
        assert [row["by"] for row, _ in told] == [number for _, number in told]
        copied += sum(number < version for _, number in told)
    assert copied


@pytest.mark.parametrize("name", TABLES)
def test_second_reader_and_plait_read_every_version_as_it_was_written(name: str, copies) -> None:
    """Whether the second reader starts from a checkpoint or from the first decision."""
    expected, table = versions_of(name), Table.open(copies(name))
    readers = [Reader(str(V1 / name), checkpoints=each) for each in (True, False)]
    assert {each.version for each in (table, *readers)} == {max(expected)}
    for version, rows in expected.items():
        gone = version < readers[0].horizon and version not in readers[0].savepoints.values()
        for reader in readers:
            if gone:
                with pytest.raises(RefusedError):
                    reader.live(version)
            else:
                assert shown_by(reader.rows(version)) == rows, version
        if gone:
            with pytest.raises(InstantExpiredError):
                table.scan(version=version)
        else:
            assert shown_by(table.scan(version=version).to_arrow().to_pylist()) == rows, version


@pytest.mark.parametrize("checkpoints", [True, False])
def test_second_reader_checks_the_archive(checkpoints: bool) -> None:
    reader = Reader(str(V1 / "archived"), checkpoints=checkpoints)
    reader.check_archive()
    assert reader.archive


@pytest.mark.parametrize("name", TABLES)
def test_second_reader_finds_what_decisions_tell_and_checkpoints_keep(name: str) -> None:
    """Sums over live files, also as those over the places of a checkpoint; keys; what is kept."""
    reader, whole = Reader(str(V1 / name), checkpoints=False), Reader(str(V1 / name))
    assert whole.streams == reader.streams
    assert whole.reservations == reader.reservations
    assert (whole.table, whole.horizon) == (reader.table, reader.horizon)
    for version, commit in reader.commits.items():
        assert whole.commits[version].get("commit_id") == commit.get("commit_id")
    for version in range(reader.horizon, reader.version + 1):
        assert reader.commits[version]["live"] == live_sums(reader.live(version)), version
    for row, hashes in reader.key_digests():
        assert (len(hashes) > 0) == (row["keys"] in ("inline", "sidecar"))
    for file in sorted((V1 / name).rglob("state.json")):
        state = json.loads(json.loads(file.read_text(encoding="utf-8"))["state"])
        named = [
            each[1] for part in state["parts"] for each in part["files"] if each[0] == "places"
        ]
        rows = [row for path in named for row in pq.read_table(V1 / name / path).to_pylist()]
        live, visible, total = (sum(row[n] for row in rows) for n in ("live", "rows", "hash"))
        told = [live, visible, f"{total % 2**64:016x}"]
        assert told == reader.commits[state["version"]]["live"], file


@pytest.mark.parametrize("name", TABLES)
def test_a_downgrade_of_every_table_is_planned_and_names_what_uses_each_feature(
    name: str, copies
) -> None:
    """RFC 0029: to any set of features that the table may use now."""
    table = Table.open(copies(name))
    before = table.alter.downgrade(to=(), dry_run=True).before
    for left_out in (before, *((feature,) for feature in before)):
        plan = table.alter.downgrade(
            to=[each for each in before if each not in left_out], dry_run=True
        )
        assert {each.feature for each in plan.uses} <= set(left_out)
        assert all(each.what and each.remedy for each in plan.uses)


@pytest.mark.parametrize("name", TABLES)
def test_plait_writes_on_and_the_second_reader_reads_it(name: str, copies) -> None:
    place = copies(name)
    table = Table.open(place)
    before = table.scan().to_arrow()
    row, key = before.slice(0, 1), Reader(place).table["bucket_spec"]["key"]
    if key:
        fields = Reader(place).table["partition_by"]
        sources = [re.sub(r"\w+\((?:\d+, )?(\w+)\)", r"\1", field) for field in fields]
        table.delete(keys=row.select([*key, *sources]))
        assert shown_by(Reader(place).rows()) == shown_by(before.slice(1).to_pylist())
        table.upsert(row)
        after = before
    else:
        table.append(row)
        after = pa.concat_tables([before, row])
    reader = Reader(place)
    assert shown_by(reader.rows()) == shown_by(after.to_pylist())
    assert shown_by(reader.rows(max(versions_of(name)))) == shown_by(before.to_pylist())
    assert table.check.verify().clean


@pytest.mark.parametrize("build", make_v1.TABLES, ids=lambda build: build.__name__)
def test_golden_tables_made_anew_show_the_same_rows(build, tmp_path: Path) -> None:
    make_v1.make(tmp_path, [build])
    name = build.__name__
    assert versions_of(name, folder=tmp_path) == versions_of(name)
    assert shown_by(Reader(str(tmp_path / name)).rows()) == versions_of(name).popitem()[1]


def test_another_engine_reads_the_golden_log_wherever_it_was_moved_to(copies) -> None:
    """INV-17, as far as deltalake understands it: it refuses wider types."""
    place, versions = copies("published"), versions_of("published")
    for version in (0, 1, 2):
        assert shown_by(DELTA["deltalake"](place, version).to_pylist()) == versions[version]
    with pytest.raises(DeltaError, match="TypeWidening"):
        DELTA["deltalake"](place, 3)


def test_golden_metadata_of_iceberg_is_known_as_ours_and_published_anew_where_it_was_moved_to(
    copies,
) -> None:
    """INV-17: its paths are absolute, so a copy begins with the newest version."""
    table, versions = Table.open(copies("published_iceberg")), versions_of("published_iceberg")
    (status,) = table.inspect.publications()
    assert (status.version, status.foreign) == (max(versions), 0)
    assert "memory://golden-published_iceberg" in (status.problem or "")
    (done,) = table.maintenance.publish().targets
    assert (done.published, done.undone) == (1, ())
    assert table.inspect.publications()[0].problem is None
    found = newest_metadata(table._handle)
    assert found is not None
    rows = ICEBERG["pyiceberg"](found[0], max(versions)).to_pylist()
    assert shown_by(rows) == versions[max(versions)]
    table.delete(where="id = 1")
    table.maintenance.publish()
    found = newest_metadata(table._handle)
    assert found is not None
    rows = ICEBERG["pyiceberg"](found[0], table.version).to_pylist()
    assert shown_by(rows) == [row for row in versions[max(versions)] if not row.startswith("[1,")]


FREE = ("hints", "pending", "heartbeats", "leases", "locks", "checkpoints")
"""Below ``.meta``: what may be damaged without harm to a reader that has all decisions."""


def damaged(path: Path) -> bytes:
    """Flip a byte in the middle of a file; return what it was."""
    whole = path.read_bytes()
    at = len(whole) // 2
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    return whole


def read_all(place: str) -> list[list[str]]:
    """Read everything that the specification has a checksum for."""
    reader, replayed = Reader(place), Reader(place, checkpoints=False)
    assert list(replayed.key_digests()) is not None
    found = [shown_by(reader.rows(v)) for v in range(reader.horizon, reader.version + 1)]
    assert shown_by(replayed.rows()) == found[-1]
    return found


def test_second_reader_refuses_every_damaged_file(copies) -> None:
    place = copies("cleaned")
    whole = read_all(place)
    for path in sorted(Path(place).rglob("*.*")):
        parts = path.relative_to(place).parts
        if not path.is_file():
            continue
        body = damaged(path)
        if parts[0] == ".meta" and parts[1] in FREE:
            assert read_all(place) == whole
        else:
            with pytest.raises(RefusedError):
                read_all(place)
        path.write_bytes(body)
    assert read_all(place) == whole


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("large", "*.dv.bin"), ("large", "*.keys.bin"), ("large", "*.base.parquet"),
     ("wide", "*-touched.parquet"), ("wide", "*-added.parquet")],
)  # fmt: skip
def test_second_reader_refuses_damage_of_side_files(name: str, pattern: str, copies) -> None:
    place = copies(name)
    path = next(iter(Path(place, ".meta/manifests" if name == "wide" else "data").rglob(pattern)))
    damaged(path)
    with pytest.raises(RefusedError):
        read_all(place)


def test_second_reader_refuses_an_unknown_feature_and_a_gap_in_the_timeline(copies) -> None:
    place = copies("types")
    slots = Path(place, ".meta/timeline", f"{0:020d}")
    path = slots / f"{6:020d}.json"
    text = path.read_text(encoding="utf-8").split('"decision":', 1)[1].removesuffix("}\n")
    body = text.replace('"slots-1"', '"slots-2"').encode()
    seal = hashlib.sha256(body).hexdigest().encode()
    path.write_bytes(b'{"checksum":"' + seal + b'",\n"decision":' + body + b"}\n")
    with pytest.raises(RefusedError, match="slots-2"):
        Reader(place)
    with pytest.raises(UnsupportedFeatureError):
        Table.open(place)
    (slots / f"{5:020d}.json").unlink()
    with pytest.raises(RefusedError, match="is missing"):
        Reader(place)


def test_slots_may_be_empty_where_a_checkpoint_covers_them(copies) -> None:
    place = copies("merged")
    for version in range(9):
        Path(place, ".meta/timeline", f"{0:020d}", f"{version:020d}.json").write_bytes(b"")
    with pytest.raises(RefusedError):
        Reader(place, checkpoints=False)
    reader, table = Reader(place), Table.open(place)
    for version, rows in versions_of("merged").items():
        assert shown_by(reader.rows(version)) == rows
        assert shown_by(table.scan(version=version).to_arrow().to_pylist()) == rows


def test_a_table_that_is_dropped_is_refused_by_both(tmp_path: Path) -> None:
    """INV-12: its last decision is the drop; the one that took it back is cut off here."""
    place = tmp_path / "dropped"
    shutil.copytree(V1 / "dropped", place)
    (place / slot(6)).unlink()
    with pytest.raises(RefusedError):
        Reader(str(place))
    with pytest.raises(TableDroppedError):
        Table.open(str(place))
