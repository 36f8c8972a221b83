"""What a small commit costs, in calls of the storage port: the budget of RFC 0001."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from plait import Table
from plait.model.bucket import partition_path
from plait.testing import CountingStore, open_wrapped
from plait.txn.conflict import Judge
from plait.txn.conflict_checker import ConflictChecker

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "place": ["a"] * 100})
PLACE = partition_path(("a",))
MANY = 120
"""Versions: a checkpoint, and twenty after it."""
LEAN = {"find": 3, "put": 1, "put_if_absent": 1, "delete": 1}
"""One look at the head, the pending record, a look whether the table is the same, the slot, that
look again, the record removed. No list, no lock."""


def warm(place: Path, *, versions: int, partitioned: bool) -> tuple[Table, CountingStore]:
    uri = str(place / "t")
    table = Table.create(uri, ROWS.schema, partition_by=["place"] if partitioned else [])
    while table.version < versions - 1:
        table.append(ROWS.slice(0, 1))
    opened, store = open_wrapped(uri, CountingStore)
    opened.append(ROWS)  # a client's first commit meets each directory, and syncs the way to it
    assert opened.version == versions
    store.reset()
    return opened, store


@pytest.mark.long(2)
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("versions", [10, MANY])
def test_a_small_append_stays_in_its_budget_at_any_version(
    tmp_path: Path, versions: int, *, partitioned: bool
) -> None:
    """2 metadata writes, 3 reads, 1 delete, no listing, no lock; not more with history."""
    table, store = warm(tmp_path, versions=versions, partitioned=partitioned)
    table.append(ROWS)
    assert store.counts("metadata") == LEAN
    assert store.count("list") == 0
    assert not any("/locks/" in call.path for call in store.calls)


def test_a_commit_that_meets_nobody_compares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit touches is gathered for conflicts alone, and may be 100,000 buckets."""
    table, _ = warm(tmp_path, versions=3, partitioned=True)
    asked: list[object] = []
    real = ConflictChecker.judge_of

    def counted(self: ConflictChecker, *rest: Any, **named: Any) -> Judge:
        asked.append(rest)
        return real(self, *rest, **named)

    monkeypatch.setattr(ConflictChecker, "judge_of", counted)
    table.append(ROWS)
    assert asked == []
    table.append(ROWS, read_from=table.version - 1)
    assert len(asked) == 1


def test_a_small_append_syncs_file_slot_and_their_names(tmp_path: Path) -> None:
    """Durable: data file, its directory, the slot, its directory."""
    table, store = warm(tmp_path, versions=3, partitioned=False)
    table.append(ROWS)
    assert store.fsyncs == 4


def test_opening_reads_the_newest_checkpoint_and_what_follows(tmp_path: Path) -> None:
    """Opening never replays history: hint, checkpoint, at most an interval of slots, the head,
    and the identity.
    """
    warm(tmp_path, versions=MANY, partitioned=False)
    _, store = open_wrapped(str(tmp_path / "t"), CountingStore)
    assert store.counts("metadata") == {"find": 2 + 20 + 1 + 1}


def test_a_writer_that_learns_of_a_partition_writes_one_record_more(tmp_path: Path) -> None:
    """The partition is named before a file appears in it."""
    table, store = warm(tmp_path, versions=1, partitioned=True)
    with table.writer() as writer:
        writer.write(ROWS)
    assert [path.split("/")[0] for path in table.inspect.files()["path"].to_pylist()] == [PLACE] * 2
    assert store.count("put", "metadata") == 2
    assert store.count("put_if_absent") == 1
    calls = [(call.operation, call.path) for call in store.calls]
    named = next(n for n, (_, path) in enumerate(calls) if ".inflight" in path)
    written = next(n for n, (name, _) in enumerate(calls) if name == "open_output")
    assert named < written
