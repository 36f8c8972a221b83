"""The codec of a table: set while it lives, for new files; for all of them by a repush."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from plait import Insert, OptionError, Table, Update
from tests.support import build

ZSTD = {"file.compression": "zstd", "file.compression.level": 3}
rows = partial(build.rows, name=lambda n: f"name {n}")


def make(uri: str, table_type: str = "cow", **options: object) -> Table:
    return Table.create(
        uri,
        "id bigint, name string",
        record_key="id",
        buckets=2,
        table_type=table_type,
        properties=options,
    )


def codecs(table: Table) -> dict[str, str]:
    """Return the codec of each live file."""
    handle = table._handle
    files = handle.cache.refresh().snapshot(handle.store).files["path"].to_pylist()
    found = {}
    for path in files:
        with handle.store.filesystem().open_input_file(path) as file:
            found[path] = pq.read_metadata(file).row_group(0).column(0).compression
    return found


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_writer_packs_new_files_as_the_table_says_from_then_on(
    tmp_path: Path, kind: str
) -> None:
    table = make(f"{tmp_path}/t", kind)
    table.upsert(rows(*range(20)))
    old = codecs(table)
    assert set(old.values()) == {"SNAPPY"}
    table.alter.set(ZSTD)
    writes: tuple[Callable[[], object], ...] = (
        lambda: table.upsert(rows(1, 2, 30)),
        lambda: table.update({"name": "'x'"}, where="id = 5"),
        lambda: table.merge(rows(6, 40), matched=Update(), not_matched=Insert()),
        lambda: table.delete(where="id = 7"),
        lambda: table.maintenance.compact(full=True),
        lambda: table.maintenance.cluster(order_by="name"),
        lambda: table.overwrite(rows(*range(9))),
    )
    for write in writes:
        write()
        fresh = {path: codec for path, codec in codecs(table).items() if path not in old}
        assert set(fresh.values()) <= {"ZSTD"}
    assert set(codecs(table).values()) == {"ZSTD"}
    assert table.scan().count() == 9


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_repush_packs_every_file_anew_and_keeps_the_layout(kind: str) -> None:
    table = make(f"memory://packed-anew-{kind}", kind)
    table.upsert(rows(*range(20)))
    table.upsert(rows(3, 4, 50))
    before = table.scan().to_arrow().sort_by("id")
    table.layout.repush(properties=ZSTD)
    assert table.scan().to_arrow().sort_by("id").equals(before)
    table.upsert(rows(60))
    assert set(codecs(table).values()) == {"ZSTD"}
    unkeyed = Table.create(f"memory://packed-rows-{kind}", table.schema, properties=ZSTD)
    unkeyed.append(rows(1, 2))
    assert set(codecs(unkeyed).values()) == {"ZSTD"}


def test_a_level_that_does_not_fit_is_refused_wherever_it_is_named_and_nothing_is_written() -> None:
    bad = {"file.compression": "gzip", "file.compression.level": 10}
    with pytest.raises(OptionError):
        make("memory://packed-badly", **bad)
    table = make("memory://packed-well", **ZSTD)
    version = table.version
    changes: tuple[Callable[[], object], ...] = (
        lambda: table.alter.set({"file.compression.level": 23}),
        lambda: table.alter.set({"file.compression": "snappy"}),
        lambda: table.layout.repush(properties={"file.compression": "snappy"}),
    )
    for change in changes:
        with pytest.raises(OptionError) as caught:
            change()
        assert caught.value.key == "file.compression.level"
    assert table.version == version
    table.alter.set({"file.compression": "snappy", "file.compression.level": 0})
    table.upsert(rows(1))
    assert set(codecs(table).values()) == {"SNAPPY"}
