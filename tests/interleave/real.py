"""The same with real Parquet: the facade's writers, a scan and a clean, call by call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa

from plait import RestoreRefusedError, Table
from plait.definition.create import define_table
from plait.model.decision import CommitResult
from plait.storage.port import Store
from plait.testing import SeqIds, SimClock, sim_ports
from plait.txn.read_pin import TTL_S
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.interleave.actors import lineage_of, recover_dead
from tests.scheduler import CALL_EVENTS, End, Scenario, Start
from tests.support.build import LITTLE
from tests.support.protocol import client, memory

OLD_FILES = ((1, 2, 3), (4,), (1,))
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])


def rows(value: str, *ids: int) -> pa.Table:
    return pa.table({"id": ids, "value": [value] * len(ids)}, schema=SCHEMA)


def put_two(handle: TableHandle) -> CommitResult | None:
    with Table(handle).writer("upsert", on_conflict="retry") as writer:
        writer.write(rows("new", 2, 5))
    return writer.result


def drop_one(handle: TableHandle) -> CommitResult | None:
    with Table(handle).writer("delete", on_conflict="retry") as writer:
        writer.write(pa.table({"id": pa.array([4], pa.int64())}))
    return writer.result


def scan(handle: TableHandle) -> str:
    """Read all; what is seen is some version, whole."""
    found = values(Table(handle))
    assert found.keys() >= {1, 2, 3}, f"rows are lost: {found}"
    assert ("new" in found.values()) == (5 in found) == (found[2] == "new"), f"half: {found}"
    return "read"


def values(table: Table) -> dict[int, str]:
    read = table.scan().to_arrow()
    ids = read["id"].to_pylist()
    assert len(ids) == len(set(ids)), f"INV-08: {sorted(ids)}"
    return dict(zip(ids, read["value"].to_pylist(), strict=True))


def clean(handle: TableHandle) -> object:
    return Table(handle).maintenance.clean()


def compact(handle: TableHandle) -> object:
    report = Table(handle).maintenance.compact(full=True)
    assert all(each.rebased == 0 for each in report.commits)
    return report


def undo(handle: TableHandle) -> object:
    """Undo the newest commit of rows, unless another one came meanwhile."""
    try:
        return Table(handle).versions.undo()
    except RestoreRefusedError:
        return "refused"


def redo(handle: TableHandle) -> object:
    """Undo the restore that is the newest decision, if one is."""
    table = Table(handle)
    newest = table.inspect.history(limit=1)[0]
    if newest.operation != "restore":
        return "nothing"
    try:
        return table.versions.restore(version=newest.version - 1)
    except RestoreRefusedError:
        return "refused"


def check_contained(end: End) -> None:
    """What is there follows from the commits that the table contains, in their order."""
    handle = end.handle()
    written: dict[str, dict[int, str]] = {"a": {2: "new", 5: "new"}, "b": {}}
    oldest = [{}, *(dict.fromkeys(ids, "old") for ids in OLD_FILES)]
    decisions = list(handle.cache.timeline.load_after(-1, limit=1_000))
    expected: dict[int, str] = {}
    for version in sorted(lineage_of(decisions)):
        decision = decisions[version]
        if version < len(oldest):
            expected |= oldest[version]
        elif decision.operation.value in ("upsert", "delete"):
            name = next(
                n for n in written if decision.instant.nonce.startswith(end.outcomes[n].nonces)
            )
            expected |= written[name]
            if name == "b":
                expected.pop(4, None)
    assert values(Table(handle)) == expected


def check(end: End) -> None:
    """What is there follows from who committed, in any order."""
    handle = end.handle()
    done = {
        name
        for name, each in end.outcomes.items()
        for row in handle.cache.refresh().commits(end.store).to_pylist()
        if row["operation"] in ("upsert", "delete")
        and row["instant"].rsplit("-", 1)[-1].startswith(each.nonces)
    }
    expected = dict.fromkeys((1, 2, 3, 4), "old")
    if "a" in done:
        expected |= {2: "new", 5: "new"}
    if "b" in done:
        del expected[4]
    assert values(Table(handle)) == expected, f"{sorted(done)} committed"


@cache
def start(table_type: str, *, files: int = 1) -> Start:
    """Make a table of the same rows in one file, or in several of which one has a hidden row."""
    return Start.of(made(table_type, files=files)._handle.store)


def made(
    table_type: str,
    *,
    files: int,
    around: Callable[[Store], Store] = lambda store: store,
    **properties: object,
) -> Table:
    """Make that table, with some properties, in a store that may have another one around it."""
    clock = SimClock()
    store = around(memory(clock))
    definition = define_table(
        SCHEMA,
        record_key=("id",),
        buckets=1,
        table_type=table_type,
        lock="none",
        properties={
            **LITTLE,
            **{name.replace("_", "."): each for name, each in properties.items()},
        },
    )
    create_table(store, sim_ports(ids=SeqIds("0")), definition)
    table = Table(client(store, clock, nonces="8"))
    if files == 1:
        table.upsert(rows("older", 1, 2))
        table.upsert(rows("old", 1, 2, 3, 4))
    else:
        for ids in OLD_FILES:
            table.upsert(rows("old", *ids))
    assert table._handle.cache.snapshot().files.num_rows == files
    return table


def real(table_type: str) -> Scenario:
    """Make a scenario of real writers."""
    return Scenario(
        f"real {table_type} writers",
        start(table_type),
        {"a": put_two, "b": drop_one, "c": clean, "d": recover_dead, "f": scan},
        check=check,
        events=CALL_EVENTS,
        jumps=(TTL_S / 5 + 1,),
        beats=1,
        lock_lost=True,
    )


def compacting() -> Scenario:
    """Make a scenario of writers beside two compactions, which nobody may notice."""
    acts = {"a": put_two, "b": drop_one, "e": compact, "g": compact}
    return Scenario(
        "compactions beside writers",
        start("mor", files=3),
        {**acts, "c": clean, "d": recover_dead, "f": scan},
        check=check,
        events=CALL_EVENTS,
        jumps=(TTL_S / 5 + 1,),
        beats=1,
        lock_lost=True,
    )


def undoing() -> Scenario:
    """Make a scenario of writers beside a compaction and restores."""
    acts = {"a": put_two, "b": drop_one, "e": compact, "u": undo, "v": redo}
    return Scenario(
        "restores beside writers and a compaction",
        start("mor", files=3),
        {**acts, "d": recover_dead},
        check=check_contained,
        events=CALL_EVENTS,
        jumps=(TTL_S / 5 + 1,),
        beats=1,
        lock_lost=True,
    )


def compacting_one() -> Scenario:
    """Make a short one: one writer beside one compaction."""
    return Scenario(
        "a writer and a compaction",
        start("mor", files=3),
        {"a": put_two, "e": compact},
        check=check,
    )
