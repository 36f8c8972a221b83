"""Bitmaps of hidden rows are loaded by several threads, or by none."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from plait import Table
from plait.files.data_file import live_files
from plait.spark.masks import _words_of


def test_bitmaps_are_loaded_where_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read raised a bare RuntimeError."""
    table = Table.create(
        "memory://masks-without-threads", "id bigint", record_key=["id"], table_type="mor"
    )
    table.append(pa.table({"id": range(100)}))
    table.delete(where="id < 40")
    scan = table.scan()
    files = list(live_files(scan.plan.files))
    known = _words_of(scan.store, files)

    def refuse(_: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    found = _words_of(scan.store, files)
    assert sum(int(word).bit_count() for words in found for word in words.view("u8")) == 40
    assert all((one == other).all() for one, other in zip(known, found, strict=True))
