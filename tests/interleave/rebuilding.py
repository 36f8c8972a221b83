"""Rebuilds of bounds beside writers of real Parquet, a cleaner and each other."""

from __future__ import annotations

from functools import cache

from plait import Table
from plait.files.data_file import live_files
from plait.files.reader import load_stats
from plait.services.verify.rebuild import RebuildReport
from plait.txn.read_pin import TTL_S
from plait.txn.table_handle import TableHandle
from tests.interleave.actors import recover_dead
from tests.interleave.real import check, clean, drop_one, made, put_two, rows, scan, values
from tests.scheduler import CALL_EVENTS, End, Oracle, Scenario, Start


def rebuild(handle: TableHandle) -> object:
    """Tell the bounds that no decision tells."""
    return Table(handle).maintenance.rebuild_metadata()


def check_bounds(end: End) -> None:
    """INV-04, INV-11: whatever bounds are told are those of the files, and rows are all there."""
    check(end)
    handle = end.handle()
    snapshot = handle.cache.snapshot()
    table, told = handle.cache.known().table, snapshot.files["stats"].to_pylist()
    for file, text in zip(live_files(snapshot.files), told, strict=True):
        found = load_stats(handle.store, file, table.spec, table.schemas)
        assert text in (None, found), f"{file.path}: {text} is told, it has {found}"
    reports = [each for each in end.results.values() if isinstance(each, RebuildReport)]
    unread = {path for report in reports for path in report.unread}
    assert not unread.intersection(snapshot.files["path"].to_pylist()), f"{unread} was not read"
    known = values(Table(handle))
    for key in range(1, 7):
        read = Table(handle).scan(where=f"id = {key}").to_arrow()["value"].to_pylist()
        assert read == ([known[key]] if key in known else []), f"id = {key} gives {read}"


def rebuild_on(handle: TableHandle) -> object:
    """Write, and make every bound known."""
    table = Table(handle)
    table.upsert(rows("next", 6))
    table.maintenance.rebuild_metadata()
    missing = table.inspect.files()["stats"].null_count
    assert missing == 0, f"{missing} bounds are unknown after a rebuild"
    return None


@cache
def untold(table_type: str, interval: int) -> Start:
    """Make a table of which no decision tells bounds so far."""
    files = 3 if table_type == "mor" else 1
    table = made(table_type, files=files, metadata_statistics="off")
    table.alter.set({"metadata.statistics": "on", "checkpoint.interval": str(interval)})
    return Start.of(table._handle.store)


def rebuilding(table_type: str) -> Scenario:
    """Make a scenario of two rebuilds beside two writers, a cleaner and a recoverer."""
    acts = {"a": put_two, "b": drop_one, "m": rebuild, "n": rebuild}
    return Scenario(
        f"rebuilds beside {table_type} writers",
        untold(table_type, 1),
        {**acts, "c": clean, "d": recover_dead, "f": scan},
        check=check_bounds,
        events=CALL_EVENTS,
        jumps=(TTL_S / 5 + 1,),
        beats=1,
        lock_lost=True,
        oracle=Oracle(next_write=rebuild_on),
    )
