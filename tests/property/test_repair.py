"""Whatever is damaged: repair puts back the very bytes that were lost, or says what is left."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait import Table
from plait.errors import CorruptMetadataError, OptionError, TableNotFoundError
from plait.services.verify.repair import plan_repair, repair
from plait.storage import open_store
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import Fault, FaultStore, SimulatedCrashError
from plait.timeline import paths
from tests.support.effort import share
from tests.support.protocol import client

_NAMES = itertools.count()
ROUNDS = 6
"""More than a chain of damaged slots needs here: verify names one missing slot at a time."""


@functools.cache
def pristine(table_type: str) -> Mapping[str, bytes]:
    """Give the files of a table with changes, checkpoints, vectors and files of the past."""
    uri = f"memory://pristine-{table_type}"
    table = Table.create(
        uri,
        "id bigint, v bigint",
        record_key=["id"],
        table_type=table_type,
        buckets=2,
        lock="none",
        properties={"checkpoint.interval": 4},
    )
    for number in range(6):
        ids = list(range(number, 200, number + 1))
        table.upsert(pa.table({"id": ids, "v": [number] * len(ids)}))
    table.delete(where="id < 20")
    return files_of(open_store(uri))


def files_of(store: Store) -> dict[str, bytes]:
    return {info.path: store.find(info.path) or b"" for info in store.list("")}


def copy_of(files: Mapping[str, bytes]) -> MemoryStore:
    store = open_store(f"memory://repair-{next(_NAMES)}")
    assert isinstance(store, MemoryStore)
    for path, body in files.items():
        store.put(path, body)
    return store


def damage(store: Store, path: str, how: str, other: str, at: int) -> None:
    body = store.find(path) or b""
    if how == "missing":
        store.delete([path])
    elif how == "cut":
        store.put(path, body[: at % max(len(body), 1)])
    elif how == "replaced":
        store.put(path, store.find(other) or b"")
    elif body:
        at %= len(body)
        store.put(path, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])


def rows(store: Store) -> list[tuple[int, int]]:
    table = Table.open(store.address.uri).scan().to_arrow()
    return sorted(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def whole(path: str) -> bool:
    """Whether repair may change this file only to what it was."""
    return not path.startswith((paths.CHECKPOINTS, f"{paths.META}/hints"))


DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 1_000),
        st.sampled_from(["missing", "cut", "flipped", "replaced"]),
        st.integers(0, 1_000),
        st.integers(0, 100_000),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=share(20))
@given(st.sampled_from(["cow", "mor"]), DAMAGE, DAMAGE)
@example("cow", [(354, "cut", 0, 0)], [(0, "missing", 0, 0), (354, "cut", 0, 0)])
def test_repair_never_writes_other_bytes_than_those_that_were_lost(
    table_type: str, hurt: list[tuple[int, str, int, int]], spoiled: list[tuple[int, str, int, int]]
) -> None:
    """INV-01, INV-04: also when the copy is damaged in other places, or in the same."""
    before = pristine(table_type)
    names = sorted(before)
    store, backup = copy_of(before), copy_of(before)
    for target, places in ((store, hurt), (backup, spoiled[1:])):
        for at, how, other, where in places:
            damage(target, names[at % len(names)], how, names[other % len(names)], where)
    hurt_files = files_of(store)
    try:
        for _ in range(ROUNDS):
            report = repair(client(store), plan_repair(client(store), backup), backup)
            if not report.mended:
                break
    except TableNotFoundError:  # nothing that says that there is a table
        return
    except OptionError:  # the copy is no longer known as a copy of this table
        return
    after = files_of(store)
    for path in {*after, *before}:
        if whole(path) and after.get(path) != hurt_files.get(path):
            assert after.get(path) == before[path], f"{path} is neither what it was nor untouched"
    newest = max(path for path in before if path.startswith(paths.TIMELINE))
    if after.get(paths.TABLE) != before[paths.TABLE]:  # both were hurt; no client comes so far
        with pytest.raises(CorruptMetadataError):
            rows(store)
        return
    if not report.left and newest in after:  # nothing tells of a newest decision that is gone
        assert rows(store) == rows(copy_of(before))


def test_a_repair_that_is_killed_at_any_call_is_finished_by_the_next() -> None:
    """INV-01: each mend is one write or deletion of what was lost anyway."""
    before = pristine("cow")
    hurt = copy_of(before)
    for path in (paths.slot(2), paths.checkpoint(4)):
        damage(hurt, path, "flipped", path, 200)
    live = next(path for path in sorted(before) if path.endswith(".base.parquet"))
    hurt.delete([live])
    files, backup = files_of(hurt), copy_of(before)
    for number in range(1, 5):
        store = copy_of(files)
        changing = FaultStore(store, [Fault("crash_before", nth=number, operation="put")])
        try:
            for _ in range(3):
                repair(client(changing), plan_repair(client(changing), backup), backup)
        except SimulatedCrashError:
            for _ in range(3):
                report = repair(client(store), plan_repair(client(store), backup), backup)
            assert report.left == ()
        assert rows(store) == rows(copy_of(before))
        assert store.find(live) == before[live]
