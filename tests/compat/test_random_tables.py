"""Whatever Plait writes, the second reader reads it as Plait does, at every version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import (
    BadRecordError,
    DuplicateKeyError,
    InstantExpiredError,
    InstantNotFoundError,
    RepushRefusedError,
    Table,
)
from tests.compat.golden import Golden
from tests.compat.reader import Reader
from tests.compat.rows import listed
from tests.support.effort import share

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 40),
            "s": st.sampled_from(["a", "ü", ""]),
            "p": st.sampled_from([None, "", "x/y", "é"]),
            "v": st.sampled_from([None, 1.0, -0.0, float("nan"), 2.5]),
            "l": st.sampled_from([None, [], [1, None]]),
        }
    ),
    min_size=1,
    max_size=40,
)
DEFINITIONS = st.fixed_dictionaries(
    {
        "table_type": st.sampled_from(["cow", "mor"]),
        "isolation": st.sampled_from(["snapshot", "serializable"]),
        "partition_by": st.sampled_from([(), ("p",)]),
        "record_key": st.sampled_from([(), ("id",), ("id", "s")]),
        "buckets": st.sampled_from([1, 3, 8]),
        "ordering": st.sampled_from([None, "v"]),
    }
)


def _upsert(table: Table, rows: pa.Table, definition: dict[str, Any]) -> None:
    (table.upsert if definition["record_key"] else table.append)(rows)


def _places(table: Table) -> tuple[str, ...]:
    return table._handle.cache.refresh().table.spec.layout.partition_by


def _delete(table: Table, rows: pa.Table, definition: dict[str, Any]) -> None:
    key = dict.fromkeys((*definition["record_key"], *_places(table)))
    if definition["record_key"]:
        table.delete(keys=rows.select(list(key)))
    else:
        table.delete(where="v IS NULL")


def _dynamic(table: Table, rows: pa.Table, _definition: dict[str, Any]) -> None:
    table.overwrite(rows, partitions="dynamic" if _places(table) else None)


def _transaction(table: Table, rows: pa.Table, definition: dict[str, Any]) -> None:
    with table.transaction() as tx:
        tx.delete(where="id = 3 OR p = 'é'")
        _upsert(tx, rows, definition)
        tx.delete(where="id = 5")


def _restore(table: Table, rows: pa.Table, _definition: dict[str, Any]) -> None:
    with suppress(InstantExpiredError):
        table.versions.restore(version=rows.num_rows % (table.version + 1))


def _undo(table: Table, _rows: pa.Table, _definition: dict[str, Any]) -> None:
    with suppress(InstantExpiredError, InstantNotFoundError):
        table.versions.undo()


def _rebuild(table: Table, _rows: pa.Table, _definition: dict[str, Any]) -> None:
    table.alter.set({"metadata.statistics": "on"})
    table.maintenance.rebuild_metadata()


def _repush(table: Table, rows: pa.Table, definition: dict[str, Any]) -> None:
    count = rows.num_rows
    places = () if _places(table) else ("p", "s")[: 1 + count % 2]
    buckets = 1 + count % 4 if definition["record_key"] else None
    try:
        table.layout.repush(
            buckets=buckets, partition_by=places, table_type=("cow", "mor")[count // 2 % 2]
        )
    except RepushRefusedError:
        table.layout.cancel()


ACTS: dict[str, Callable[[Table, pa.Table, dict[str, Any]], object]] = {
    "upsert": _upsert,
    "upsert again": _upsert,
    "delete": _delete,
    "delete where": lambda table, _rows, _definition: table.delete(where="id < 20 AND p = ''"),
    "dynamic": _dynamic,
    "update": lambda table, _rows, _definition: table.update({"v": "v + 1"}, where="id > 30"),
    "transaction": _transaction,
    "restore": _restore,
    "undo": _undo,
    "savepoint": lambda table, _rows, _definition: table.versions.savepoint(f"s{table.version}"),
    "no bounds": lambda table, _rows, _definition: table.alter.set({"metadata.statistics": "off"}),
    "rebuild": _rebuild,
    "repush": _repush,
    "repush again": _repush,
    "clean": lambda table, _rows, _definition: table.maintenance.clean(),
    "archive": lambda table, _rows, _definition: table.maintenance.archive(),
}


@settings(max_examples=share(12))
@given(
    definition=DEFINITIONS,
    acts=st.lists(st.tuples(st.sampled_from(sorted(ACTS)), ROWS), min_size=3, max_size=10),
    checkpoints=st.integers(1, 4),
)
def test_second_reader_reads_every_table_alike(
    definition, acts, checkpoints: int, tmp_path_factory
) -> None:
    if not definition["record_key"]:
        definition = {**definition, "buckets": None, "ordering": None}
    options = {
        "checkpoint.interval": str(checkpoints),
        "clean.retain.time": "0s",
        "clean.grace": "0s",
    }
    options |= {"clean.retain.versions": "2", "write.bucket.size": "1KiB", "archive.keep": "1"}
    schema = "id bigint, s string, p string, v double, l array<int>"
    golden = Golden("random", schema, properties=options, **definition)
    expected = {0: listed([])}
    for name, rows in acts:
        try:
            ACTS[name](golden.table, golden.arrow(rows), definition)
        except (DuplicateKeyError, BadRecordError):  # nothing orders two rows of a key, or NaN
            continue
        golden.clock.advance(1)
        scan = golden.table.scan()
        expected[golden.table.version] = listed(scan.to_arrow().to_pylist())
    saved = {each.version for each in golden.table.versions.savepoints}
    place: Path = tmp_path_factory.mktemp("random")
    golden.save(place)
    for reader in (Reader(str(place / "random")), Reader(str(place / "random"), checkpoints=False)):
        for version in filter(lambda each: each >= reader.horizon or each in saved, expected):
            assert listed(reader.rows(version)) == expected[version], version
        reader.check_archive()
        assert all(len(hashes) == row["key_count"] for row, hashes in reader.key_digests()
                   if row["keys"] in ("inline", "sidecar"))  # fmt: skip
