"""Many processes at one catalog, some killed: every table keeps one entry, every name one table."""

from __future__ import annotations

import json
import random
import signal
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Catalog
from plait.catalog.names import DIRECTORY
from plait.errors import TableDroppedError, TableError
from plait.table import Table
from tests.services.forked import Forked

PROCESSES, ACTS, KILLED = 5, 12, 2
NAMES = [f"{namespace}.{name}" for namespace in ("a", "b") for name in ("x", "y", "z")]


def act(root: str, number: int) -> None:
    """Do what chance says; report each table that was made, with its place."""
    catalog, chance = Catalog(root), random.Random(number)
    for _ in range(ACTS):
        name, other = chance.choice(NAMES), chance.choice(NAMES)
        kind = chance.choice(["create", "create", "rename", "drop", "undrop", "purge"])
        report: dict[str, object] = {"kind": kind, "error": None}
        try:
            if kind == "create":
                table = catalog.create_table(name, "id bigint", record_key=["id"])
                place = table._handle.store.address.uri
                report["place"] = place
                table.upsert(pa.table({"id": [1]}))
            elif kind == "rename":
                catalog.rename(name, other)
            elif kind == "drop":
                catalog.drop(name)
            elif kind == "undrop":
                for entry in catalog.dropped()[:1]:
                    catalog.undrop(entry.location, other)
            else:
                report["purged"] = [each.location for each in catalog.purge(now=True).purged]
        except TableError as error:
            report["error"] = error.code
        print(json.dumps(report), flush=True)  # noqa: T201 - the report to the parent


@pytest.mark.long(2)
@pytest.mark.parametrize("seed", range(6))
def test_no_table_is_lost_and_no_name_is_given_twice(tmp_path: Path, seed: int) -> None:
    """INV-08, INV-18."""
    root = str(tmp_path / "lake")
    catalog = Catalog.create(root)
    for namespace in ("a", "b"):
        catalog.create_namespace(namespace)
    processes = [Forked(act, root, 100 * seed + each) for each in range(PROCESSES)]
    try:
        for each in processes[:KILLED]:
            for _ in range(ACTS // 3):
                each.hear()
            each.send(signal.SIGKILL)
        reports = [report for each in processes for report in each.hear_all()]
        assert [each.wait() for each in processes[KILLED:]] == [0] * (PROCESSES - KILLED)
    finally:
        for each in processes:
            each.stop()
    strange = {report["error"] for report in reports} - {
        *(None, "exists", "not_found", "dropped", "namespace_not_found")
    }
    assert strange == set()
    catalog = Catalog(root)
    entries = [*catalog.tables(), *catalog.dropped()]
    places = [entry.location for entry in entries]
    assert len(places) == len(set(places))
    names = [entry.name for entry in catalog.tables()]
    assert len(names) == len(set(names))
    there = {
        f"{root}/tables/{path.name}"
        for path in Path(root, "tables").glob("*")
        if (path / ".meta" / "table.json").exists()
    }
    assert there <= set(places), "no table is without an entry"
    for entry in catalog.tables():
        with suppress(TableDroppedError):  # who dropped it was killed before the name went
            assert catalog.table(entry.name).scan().to_arrow().num_rows <= 1
            continue
        catalog.drop(entry.name)
    assert Table.open(f"{root}/{DIRECTORY}").check.verify().problems == ()
