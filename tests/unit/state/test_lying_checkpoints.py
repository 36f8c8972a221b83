"""INV-11: a checkpoint that is whole and wrong costs time, never correctness."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from unittest import mock

import pyarrow as pa
import pytest

from plait import Table
from plait.state import part_file, selected
from plait.timeline import paths
from tests.support import build
from tests.support.build import again, make
from tests.support.lies import LIES, Checkpoint

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
rows = partial(build.rows, p=lambda n: "xy"[n % 2])


@contextlib.contextmanager
def read_in(pieces: str) -> Iterator[None]:
    """Read parts whole, or as those of a large table."""
    with contextlib.ExitStack() as stack:
        if pieces != "whole":
            stack.enter_context(mock.patch.object(selected, "WHOLE_ROWS_MAX", 0))
            stack.enter_context(mock.patch.object(part_file, "WHOLE_BYTES_MAX", 0))
            stack.enter_context(mock.patch.object(part_file, "GROUP_ROWS", 2))
        yield


def lied_to(lie: str, *, older: int = 0) -> tuple[Table, Checkpoint]:
    """Make a table whose newest checkpoint is at its head, and lies; ``older``: commits before."""
    table = make(
        SCHEMA,
        partition_by=["p"],
        buckets=2,
        table_type="mor",
        properties={"checkpoint.interval": "4", "archive.keep": "1"},
    )
    for _ in range(older + 1):
        table.upsert(rows(range(20)))
    table.upsert(rows(range(8)))
    table.delete(keys=rows(range(4, 6)))
    table.upsert(rows(range(3)))
    store = table._handle.store
    checkpoint = Checkpoint(lambda p: store.find(p) or b"", store.put, paths.checkpoint(4 + older))
    assert checkpoint.lie(lie)
    return table, checkpoint


LEFT = sorted({*range(20)} - {4, 5})


def ids(table: Table, **how: object) -> list[int]:
    return sorted(table.scan(**how).to_arrow()["id"].to_pylist())  # type: ignore[arg-type]


@pytest.mark.parametrize("pieces", ["whole", "pieces"])
@pytest.mark.parametrize("lie", LIES)
def test_a_checkpoint_that_lies_is_found_and_not_used(
    lie: str, pieces: str, caplog: pytest.LogCaptureFixture
) -> None:
    with read_in(pieces), caplog.at_level(logging.WARNING, logger="plait"):
        table, _ = lied_to(lie)
        opened = again(table)
        assert opened._handle.cache.known().checkpoint == 4
        found = [*ids(opened, where="p = 'x'"), *ids(opened, where="p = 'y'")]
        assert sorted(found) == LEFT
        assert ids(opened) == LEFT
    assert "is wrong" in caplog.text


@pytest.mark.long(3)
@pytest.mark.parametrize("pieces", ["whole", "pieces"])
@pytest.mark.parametrize("lie", LIES)
def test_writers_go_on_behind_a_checkpoint_that_lies(lie: str, pieces: str) -> None:
    """What they write is right, and so are their sums and the next checkpoints."""
    with read_in(pieces):
        table, checkpoint = lied_to(lie)
        opened = again(table)
        for _ in range(5):  # the newest checkpoint is another one then
            opened.upsert(rows(range(2)))
        assert ids(again(table)) == LEFT
    fresh = again(table)._handle.cache
    fresh.snapshot()
    assert fresh.known().checkpoint == 8
    assert not fresh.known().verification.wrong
    problems = opened.check.verify().problems
    assert {each.path: each.message for each in problems if each.path != checkpoint.path} == {}


@pytest.mark.parametrize("lie", LIES)
def test_a_checkpoint_that_lies_is_found_behind_an_archive(lie: str) -> None:
    """The decisions are then in the archive."""
    table, _ = lied_to(lie, older=4)
    table.maintenance.archive()
    assert table._handle.store.find(paths.slot(3)) == b""
    assert ids(again(table)) == LEFT
