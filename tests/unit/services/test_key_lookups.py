"""Look-ups by key cost little wherever rows stand: files opened, row groups read."""

from __future__ import annotations

import base64
import logging
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Insert, Table, Update
from plait.errors import CorruptMetadataError
from plait.files.data_file import parse_path
from plait.files.key_index import INDEX_NAME, KeyIndexBuilder
from plait.files.reader import OpenFile
from plait.model.changes import BASE, LOG
from plait.services.verify.repair import plan_repair, repair
from plait.storage.local import LocalStore
from plait.testing import CountingStore, open_wrapped
from tests.support import build
from tests.support.build import copied, uri_of

ROWS = 4_000
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("text", pa.string())])
BY = {"cluster.by": "x", "cluster.kind": "sort", "cluster.after": "0s"}
GROUP_ROWS = 100


def rows(ids: object, seed: int) -> pa.Table:
    ids = np.asarray(ids)
    x = np.random.default_rng(seed).integers(0, 1_000_000, len(ids))
    return pa.table([ids, x, [f"{seed}-{each}" for each in ids.tolist()]], schema=SCHEMA)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.arrow.output.ORDERED_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr("plait.files.key_index.BLOCK_ENTRIES", 256)


@cache
def _made(table_type: str, properties: tuple[tuple[str, str], ...]) -> Table:
    table = build.make(SCHEMA, buckets=1, table_type=table_type, properties=dict(properties))
    table.insert(rows(np.arange(ROWS), 0))
    return table


def make(place: Path | None = None, table_type: str = "mor", **properties: str) -> Table:
    """Give a table of its own, in memory or in a directory."""
    made = _made(table_type, tuple(properties.items()))
    into = None if place is None else LocalStore(str(place))
    return Table.open(copied(made._handle.store, into).address.uri)


@pytest.fixture
def clustered(tmp_path: Path) -> Table:
    """Give a table whose one bucket is in the order of ``x``, in 40 row groups."""
    table = make(tmp_path / "t", **BY)
    table.maintenance.cluster()
    return table


class Reads:
    """Which columns of which row groups are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[int, tuple[str, ...]]] = []
        plain = OpenFile.batches

        def noted(file: OpenFile, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
            if file.group_count > 1:  # not the few rows that came in
                self.found.append((group, tuple(columns)))
            return plain(file, group, columns)

        monkeypatch.setattr(OpenFile, "batches", noted)

    def take(self) -> int:
        """Give the number of row groups that were read since the last call."""
        groups = {group for group, _ in self.found}
        self.found.clear()
        return len(groups)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


MANY = ", ".join(map(str, range(0, ROWS, ROWS // 21)))
FEW: dict[str, tuple[Callable[[Table], object], int]] = {
    "look-up": (lambda t: t.scan(where="id = 77").to_arrow(), 1),
    "look-up of a column": (lambda t: t.scan("x", where="id = 77").to_arrow(), 1),
    "count": (lambda t: t.scan(where="id = 77 AND x >= 0").count(), 1),
    "look-up of three": (lambda t: t.scan(where="id IN (5, 1000, 3999)").to_arrow(), 3),
    "look-up of many": (lambda t: t.scan(where=f"id IN ({MANY})").count(), ROWS // GROUP_ROWS),
    "look-up of none": (lambda t: t.scan(where="id = 100000").to_arrow(), 0),
    "upsert": (lambda t: t.upsert(rows([7, 9_000], 1)), 1),
    "insert": (lambda t: t.insert(rows([9_000], 1)), 0),
    "insert that skips": (lambda t: t.insert(rows([9_000, 8], 1), on_duplicate="skip"), 1),
    "delete keys": (lambda t: t.delete(keys=pa.table({"id": [5, 9_000]})), 1),
    "delete where": (lambda t: t.delete(where="id = 5"), 1),
    "update": (lambda t: t.update({"x": "x + 1"}, where="id = 5"), 1),
    "merge": (lambda t: t.merge(rows([5], 1), matched=[Update()], not_matched=[Insert()]), 1),
}


@pytest.mark.parametrize("act", FEW)
def test_a_few_keys_in_a_clustered_bucket_read_only_the_row_groups_that_have_them(
    act: str, clustered: Table, reads: Reads
) -> None:
    """Of 40; a hash that begins like another may lead to one more, and none does here.

    Of more than half as many keys as there are row groups, the key column is read instead.
    """
    run, groups = FEW[act]
    run(clustered)
    assert reads.take() == groups
    assert not clustered.check.verify().problems


SERVICES: dict[str, tuple[dict[str, str], Callable[[Table], object]]] = {
    "inline": ({"compact": "inline"}, lambda _: None),
    "optimize": ({}, lambda table: table.maintenance.optimize()),
}


@pytest.mark.long(3)
@pytest.mark.slow
@pytest.mark.parametrize("services", SERVICES)
@pytest.mark.parametrize("order", [{}, BY], ids=["by key", "clustered"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_look_up_by_key_opens_at_most_two_data_files_after_any_number_of_upserts(
    table_type: str, order: dict[str, str], services: str
) -> None:
    """With services on, files of deletion vectors counted too: the base, and one log."""
    properties, serve = SERVICES[services]
    table = make(None, table_type, **order, **properties)
    uri = uri_of(table)
    if order:
        table.maintenance.cluster()
    chance = np.random.default_rng(3)
    newest = dict.fromkeys(range(ROWS), 0)
    for seed in range(1, 16):
        ids = chance.choice(ROWS + 100, 60, replace=False)
        table.upsert(rows(ids, seed))
        newest |= dict.fromkeys(ids.tolist(), seed)
        serve(table)
        reader, store = open_wrapped(uri, CountingStore)
        for key in (int(ids[0]), int(chance.integers(ROWS)), 10**6):
            store.reset()
            found = reader.scan("text", where=f"id = {key}").to_arrow()["text"].to_pylist()
            assert found == ([f"{newest[key]}-{key}"] if key in newest else [])
            opened = [c.path for c in store.calls if c.operation == "open_input"]
            assert len(opened) <= 2, opened
            kinds = {name.kind for name in map(parse_path, opened) if name is not None}
            assert kinds <= {BASE, LOG}
    assert not table.check.verify().problems


# --- indexes that are damaged, missing or wrong -------------------------------------------------


def base_of(table: Table) -> Path:
    files = table.inspect.files().to_pylist()
    path = max(files, key=lambda file: file["rows"])["path"]
    return Path(uri_of(table), path)


def index_start(path: Path) -> int:
    directory = base64.b64decode(pq.read_metadata(path).metadata[INDEX_NAME.encode()])
    return int.from_bytes(directory[:8], "little")


def damage_index(table: Table) -> None:
    """Flip a bit in every block of the index of the table's base file."""
    path = base_of(table)
    body, start = bytearray(path.read_bytes()), index_start(path)
    for at in range(start, start + ROWS * 8, 256 * 8):
        body[at] ^= 1
    path.write_bytes(bytes(body))


def act(table: Table) -> None:
    """Do what looks keys up."""
    assert table.scan(where="id = 77").to_arrow()["text"].to_pylist() == ["0-77"]
    assert table.scan(where="id = 100000").count() == 0
    table.upsert(rows([77, 9_000], 5))
    assert table.scan(where="id = 77").to_arrow()["text"].to_pylist() == ["5-77"]
    table.delete(keys=pa.table({"id": [77]}))
    assert table.scan(where="id = 77").count() == 0
    assert table.scan().count() == ROWS


@pytest.mark.parametrize("lost", ["damaged", "absent"])
def test_an_index_that_is_damaged_or_absent_costs_time_only(
    lost: str,
    tmp_path: Path,
    reads: Reads,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INV-08, INV-11: every key is found in the key column, and a person is told of damage."""
    table = make(tmp_path / "t", **BY)
    with monkeypatch.context() as patch:
        if lost == "absent":  # a writer that knows of no index
            patch.setattr(KeyIndexBuilder, "write", lambda *_: {})
        table.maintenance.cluster()
    if lost == "damaged":
        damage_index(table)
    file = base_of(table).name
    with caplog.at_level(logging.WARNING, "plait"):
        act(table)
    assert reads.take() == ROWS // GROUP_ROWS
    assert (f"{file} is damaged" in caplog.text) is (lost == "damaged")
    assert lost == "damaged" or not table.check.verify().problems


def test_verify_finds_a_damaged_index_and_repair_says_what_to_do(
    clustered: Table, tmp_path: Path
) -> None:
    """INV-11: the same bytes from a copy, or a new file by two clusterings."""
    path = base_of(clustered)
    whole = path.read_bytes()
    damage_index(clustered)
    (problem,) = clustered.check.verify().problems
    assert (problem.invariant, Path(problem.path).name) == ("INV-11", path.name)
    assert "key index" in problem.message
    (finding,) = clustered.check.repair(dry_run=True).findings
    assert (finding.kind, finding.answer) == ("index", "choose")
    assert "cluster" in finding.what
    damaged = path.read_bytes()
    backup = tmp_path / "backup"
    shutil.copytree(uri_of(clustered), backup)
    handle = clustered._handle
    (finding,) = plan_repair(handle, LocalStore(str(backup))).findings
    assert finding.answer == "choose"  # the copy is damaged in the same place
    (backup / path.relative_to(path.parents[1])).write_bytes(whole)
    source = LocalStore(str(backup))
    assert repair(handle, plan_repair(handle, source), source).left == ()
    assert path.read_bytes() == whole
    path.write_bytes(damaged)
    clustered.maintenance.cluster(order_by="text", kind="sort")
    clustered.maintenance.cluster()
    assert not clustered.check.verify().problems


def test_verify_finds_an_index_that_leads_to_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of a writer: every checksum is right, and keys are not where it says."""
    table = make(tmp_path / "t", **BY)
    with monkeypatch.context() as patch:
        plain = KeyIndexBuilder.add
        patch.setattr(KeyIndexBuilder, "add", lambda index, hashes: plain(index, ~hashes))
        table.maintenance.cluster()
    (problem,) = table.check.verify().problems
    assert problem.invariant == "INV-11"
    assert "other rows" in problem.message
    table.upsert(rows([77], 1))  # the row before is not found, and stays
    assert {each.invariant for each in table.check.verify().problems} == {"INV-08", "INV-11"}


def test_a_damaged_row_is_not_hidden_by_an_index(clustered: Table) -> None:
    """INV-04: pages have their own checksums, wherever a look-up goes."""
    path = base_of(clustered)
    body = bytearray(path.read_bytes())
    for at in range(100, index_start(path), 50):
        body[at] ^= 255
    path.write_bytes(bytes(body))
    with pytest.raises(CorruptMetadataError):
        clustered.scan(where="id IN (5, 77, 1000)").to_arrow()
