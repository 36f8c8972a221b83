"""Real tables on the local disk, made once and copied for each test that damages one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from plait import Table
from plait.storage.local import LocalStore

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
Copy = Callable[[str], LocalStore]


def rows(start: int, stop: int, text: str, *, step: int = 1) -> pa.Table:
    ids = np.arange(start, stop, step)
    return pa.table({"id": ids, "text": [text] * len(ids)}, schema=SCHEMA)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one table of each type: 6 versions, a checkpoint at 4, nothing cleaned."""
    root = tmp_path_factory.mktemp("tables")
    for kind in ("cow", "mor"):
        table = Table.create(
            str(root / kind),
            SCHEMA,
            record_key=["id"],
            table_type=kind,
            buckets=2,
            lock="none",
            properties={"checkpoint.interval": 4},
        )
        table.upsert(rows(0, 20_000, "first"))
        table.upsert(rows(0, 20_000, "second", step=3))
        table.upsert(rows(10, 30, "third"))
        table.delete(where="id < 5")
        table.upsert(rows(20_000, 20_010, "fifth"))
        table.upsert(rows(20_005, 20_020, "sixth"), commit_id="six")
    return root


@pytest.fixture
def copy(tables: Path, tmp_path: Path) -> Copy:
    """Give a function that copies a table by its type."""

    def make(kind: str) -> LocalStore:
        shutil.copytree(tables / kind, tmp_path / kind)
        return LocalStore(str(tmp_path / kind))

    return make
