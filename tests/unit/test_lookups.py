"""A key that was looked up counts as read, whether or not a row came of it (INV-07, RFC 0011)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from plait import Delete, Insert, Table, Update
from plait.errors import RetryableConflictError
from plait.model.bucket import BucketId
from plait.model.changes import Changes
from plait.model.clauses import Clauses, Matched
from plait.model.request import WritePlan, WriteRequest
from plait.txn.conflict import Judge
from plait.txn.keys import KeyOverlap, Keys
from plait.write import parts
from plait.write.request import (
    merge_request,
    plan_of,
    read_set_of,
    update_request,
    write_request,
)
from plait.write.transaction import Transaction
from tests.support import build
from tests.support.build import again
from tests.support.forge import decision_at
from tests.support.protocol import Phases

_NAMES = itertools.count()
TYPES = ("cow", "mor")
KEY, BESIDE, NEW, FOREIGN = 1, 2, 3, 4
"""The key that is looked up; one that is there; one that we add; one that others add."""
rows = partial(build.tuples, "id ts value", place="a")
SCHEMA = "id bigint, place string, ts bigint, value string"


def make(kind: str, **options: str) -> Table:
    return build.make(
        SCHEMA, partition_by=["place"], ordering="ts", buckets=1, table_type=kind, **options
    )


def content(table: Table) -> dict[tuple[str, int], str]:
    found = table.scan().to_arrow().to_pylist()
    return {(row["place"], row["id"]): row["value"] for row in found}


def sound(table: Table) -> None:
    assert not table.check.verify().problems


def decided() -> str:
    """Return a new commit id: a write that changes nothing is decided only if it has one."""
    return f"commit-{next(_NAMES)}"


# --- operations that look key 1 up and leave it as it is -----------------------------------------


@dataclass(frozen=True)
class Case:
    """One operation, and what is in the table when it begins."""

    operation: str
    data: pa.Table
    before: tuple[int, ...] = ()
    """Keys that are there."""
    on_duplicate: str = "raise"
    clauses: Clauses | None = None
    alone: bool = True
    """Whether it changes nothing, and so is not done again either."""
    anywhere: bool = False
    """Whether the key is looked for in every partition."""

    def table(self, kind: str, **options: str) -> Table:
        table = make(kind, **options)
        for key in self.before:
            table.upsert(rows((key, 5, "old")))
        return table

    def order(self, table: Table, read_from: int | None) -> WriteRequest:
        spec, read = table._handle.cache.known().table.spec, read_set_of(table._handle, read_from)
        if self.clauses is not None:
            return merge_request(self.clauses, None, spec, read_set=read, commit_id=decided())
        return write_request(
            self.operation,
            spec,
            on_duplicate=self.on_duplicate,
            read_set=read,
            commit_id=decided(),
        )

    def run(self, tx: Transaction) -> None:
        if self.clauses is not None:
            each = self.clauses
            tx.merge(self.data, matched=each.matched, not_matched=each.not_matched)
        elif self.operation == "insert":
            tx.insert(self.data, on_duplicate=self.on_duplicate)
        elif self.operation == "delete":
            tx.delete(keys=self.data)
        else:
            tx.upsert(self.data)


def merge(matched: Matched | None, before: tuple[int, ...], insert: Insert | None = None) -> Case:
    clauses = Clauses(() if matched is None else (matched,), () if insert is None else (insert,))
    return Case("merge", rows((KEY, 7, "ours")), before, clauses=clauses)


GONE = pa.table({"id": [KEY], "place": ["a"]})
CASES = {
    "delete of an absent key in an empty place": Case("delete", GONE),
    "delete of an absent key beside other rows": Case("delete", GONE, (BESIDE,)),
    "delete in every partition, empty": Case("delete", GONE.select(["id"]), anywhere=True),
    "delete in every partition, beside": Case(
        "delete", GONE.select(["id"]), (BESIDE,), anywhere=True
    ),
    "delete of a present key and an absent one": Case(
        "delete", pa.table({"id": [KEY, BESIDE], "place": ["a", "a"]}), (BESIDE,), alone=False
    ),
    "insert that skips": Case("insert", rows((KEY, 9, "ours")), (KEY,), on_duplicate="skip"),
    "insert that skips one and adds one": Case(
        "insert", rows((KEY, 9, "ours"), (NEW, 9, "ours")), (KEY,), on_duplicate="skip", alone=False
    ),
    "upsert that loses": Case("upsert", rows((KEY, 1, "ours")), (KEY,)),
    "upsert that loses one and adds one": Case(
        "upsert", rows((KEY, 1, "ours"), (NEW, 1, "ours")), (KEY, BESIDE), alone=False
    ),
    "merge that only updates, in an empty place": merge(Update(), ()),
    "merge that only updates, beside other rows": merge(Update(), (BESIDE,)),
    "merge that only deletes, in an empty place": merge(Delete(), ()),
    "merge whose condition does not hold": merge(Update(when="t.value = 'x'"), (KEY,)),
    "merge that only inserts, and finds the key": merge(None, (KEY,), Insert()),
    "merge whose insert does not hold": merge(None, (BESIDE,), Insert(when="s.value = 'x'")),
}


# --- how a read comes to count -------------------------------------------------------------------

Way = Callable[[Case, Table, Callable[[], object]], None]


def by_writer(case: Case, table: Table, meanwhile: Callable[[], object]) -> None:
    with table._writer(case.order(table, None)) as writer:
        writer.write(case.data)
        meanwhile()


def by_read_from(case: Case, table: Table, meanwhile: Callable[[], object]) -> None:
    with table._writer(case.order(table, table.version)) as writer:
        writer.write(case.data)
        meanwhile()


def by_read_from_of_old(case: Case, table: Table, meanwhile: Callable[[], object]) -> None:
    """The other commit lies between the read and the base."""
    version = table.version
    meanwhile()
    with table._writer(case.order(table, version)) as writer:
        writer.write(case.data)


def by_transaction(case: Case, table: Table, meanwhile: Callable[[], object]) -> None:
    with table.transaction(commit_id=decided()) as tx:
        case.run(tx)
        meanwhile()


def by_scan_before(case: Case, table: Table, meanwhile: Callable[[], object]) -> None:
    with table.transaction(commit_id=decided()) as tx:
        tx.scan(where="id = 99").to_arrow()
        case.run(tx)
        meanwhile()


def by_scan_after(case: Case, table: Table, meanwhile: Callable[[], object]) -> None:
    with table.transaction(commit_id=decided()) as tx:
        case.run(tx)
        meanwhile()
        tx.scan(where="id = 99").to_arrow()


COUNTS: dict[str, tuple[str, Way]] = {
    "serializable, a writer": ("serializable", by_writer),
    "serializable, a transaction": ("serializable", by_transaction),
    "read_from": ("snapshot", by_read_from),
    "read_from of an older version": ("snapshot", by_read_from_of_old),
    "a scan before": ("snapshot", by_scan_before),
    "a scan after": ("snapshot", by_scan_after),
}
each_way = pytest.mark.parametrize(("isolation", "way"), COUNTS.values(), ids=COUNTS.keys())
some_ways = pytest.mark.parametrize(
    ("isolation", "way"),
    [("serializable", by_writer), ("snapshot", by_read_from), ("snapshot", by_scan_after)],
)
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
each_kind = pytest.mark.parametrize("kind", TYPES)


def changes(case: Case) -> dict[str, Callable[[Table], object]]:
    """Give what others may do to key 1."""
    if KEY not in case.before:
        found: dict[str, Callable[[Table], object]] = {
            "inserted": lambda t: t.insert(rows((KEY, 6, "theirs")))
        }
        if case.anywhere:
            found["elsewhere"] = lambda t: t.insert(rows((KEY, 6, "theirs"), place="z"))
        return found
    return {
        "changed": lambda t: t.upsert(rows((KEY, 6, "theirs"))),
        "deleted": lambda t: t.delete(keys=GONE),
        "overwritten": lambda t: t.overwrite(rows((KEY, 0, "theirs"))),
    }


@pytest.mark.long(30)
@pytest.mark.slow
@each_way
@each_kind
@each_case
def test_a_key_that_was_looked_up_is_protected(
    case: Case, kind: str, isolation: str, way: Way
) -> None:
    """INV-07: a concurrent change of that key is a conflict."""
    every = list(changes(case).values())
    for change in every if case.anywhere else every[:1]:
        table = case.table(kind, isolation=isolation)
        with pytest.raises(RetryableConflictError):
            way(case, table, lambda t=table, c=change: c(t))  # type: ignore[misc]  # bound at once
        assert table.inspect.history()[0].action == "rollback"
        sound(table)


@pytest.mark.long(30)
@some_ways
@each_kind
@each_case
def test_a_change_of_another_key_is_no_conflict(
    case: Case, kind: str, isolation: str, way: Way
) -> None:
    """Of the same bucket, and of the same key in another partition."""
    others = rows((FOREIGN, 6, "theirs"))
    if not case.anywhere:
        others = pa.concat_tables([others, rows((KEY, 6, "theirs"), place="z")])
    table = case.table(kind, isolation=isolation)
    way(case, table, lambda: table.insert(others))
    assert list(content(table).values()).count("theirs") == others.num_rows
    sound(table)


@pytest.mark.long(20)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "way"),
    [("file_group", by_writer), ("key", by_writer), ("merge", by_transaction)],
)
@each_kind
@each_case
def test_a_serializable_commit_is_refused_or_comes_last(
    case: Case, kind: str, policy: str, way: Way
) -> None:
    """INV-07: under every policy the table is as if ours had begun after theirs."""
    for name, change in changes(case).items():
        table = case.table(kind, isolation="serializable", policy=policy)
        serial = case.table(kind)
        with contextlib.suppress(RetryableConflictError):
            way(case, table, lambda t=table, c=change: c(t))  # type: ignore[misc]  # bound at once
        committed = table.inspect.history()[0].action != "rollback"
        assert committed is (policy == "merge" and name != "overwritten")
        change(serial)
        if committed:
            by_writer(case, serial, lambda: None)
        assert content(table) == content(serial)
        sound(table)


@pytest.mark.long(20)
@pytest.mark.parametrize("way", [by_writer, by_transaction])
@each_kind
@each_case
def test_under_snapshot_isolation_a_look_alone_is_no_conflict(
    case: Case, kind: str, way: Way
) -> None:
    table = case.table(kind)
    way(case, table, lambda: None)
    assert table.inspect.history()[0].stats["keys_unchanged"] == 1
    table = case.table(kind)
    change = next(iter(changes(case).values()))
    way(case, table, lambda: change(table))
    for version in range(table.version + 1):
        assert not decision_at(table._handle.store, version).changes.lookups.num_rows
    sound(table)


# --- several that only look ----------------------------------------------------------------------


@some_ways
@each_kind
@each_case
def test_two_that_look_the_same_key_up_are_not_in_each_others_way(
    case: Case, kind: str, isolation: str, way: Way
) -> None:
    """A claim is one-way: what was only looked up is in nobody's way."""
    table = case.table(kind, isolation=isolation)
    other = case.data.slice(0, 1)
    twin = Case(case.operation, other, case.before, case.on_duplicate, case.clauses)
    way(case, table, lambda: by_writer(twin, table, lambda: None))
    sound(table)


@each_kind
def test_a_retry_looks_again(kind: str) -> None:
    """INV-07: each time on the newer head."""
    table = make(kind, isolation="serializable")
    with table._writer(
        write_request(
            "insert",
            table._handle.cache.known().table.spec,
            on_duplicate="skip",
            on_conflict="retry",
        )
    ) as writer:
        writer.write(rows((1, 9, "ours"), (2, 9, "ours")))
        table.insert(rows((1, 0, "theirs")))
    assert content(table) == {("a", 1): "theirs", ("a", 2): "ours"}
    sound(table)


class Rival(Phases):
    """Does something while the other does its buckets again."""

    def __init__(self, deed: Callable[[], object]) -> None:
        super().__init__()
        self._deed = deed

    def phase(self, name: str, **facts: object) -> None:
        super().phase(name, **facts)
        if name == "redo" and self.heard.count("redo") == 1:
            self._deed()


@pytest.mark.parametrize("name", [name for name in COUNTS if "older" not in name])
@each_kind
def test_what_was_looked_up_counts_from_the_read_on_also_after_a_redo(kind: str, name: str) -> None:
    """INV-07: a redo looks again on the new head, and is judged again from there."""
    isolation, way = COUNTS[name]
    case = CASES["insert that skips one and adds one"]
    table = case.table(kind, isolation=isolation)
    rival = Rival(lambda: table.upsert(rows((KEY, 6, "theirs"))))
    ours = again(table)
    ours._opened.handle = replace(ours._handle, ports=replace(ours._handle.ports, observer=rival))
    with pytest.raises(RetryableConflictError):
        way(case, ours, lambda: table.insert(rows((FOREIGN, 6, "theirs"))))
    assert rival.heard.count("redo") == 1
    assert content(table) == {("a", KEY): "theirs", ("a", FOREIGN): "theirs"}
    sound(table)


@each_kind
def test_an_update_without_keys_meets_rows_that_others_added(kind: str) -> None:
    """INV-07: a table without a key has no look-ups; the predicate is asked again."""
    for isolation, found in (("snapshot", "bad"), ("serializable", "good")):
        table = build.make(
            "id bigint, value string", record_key=(), table_type=kind, isolation=isolation
        )
        spec = table._handle.cache.known().table.spec
        order = update_request(
            {"value": "'good'"}, spec, where="value = 'bad'", commit_id=decided()
        )
        with table._writer(order):
            table.append(pa.table({"id": [1], "value": ["bad"]}))
        assert table.scan().to_arrow()["value"].to_pylist() == [found]
        sound(table)


@each_kind
def test_a_predicate_that_matched_nothing_meets_an_overwrite_of_the_table(kind: str) -> None:
    """INV-07: the rows that the overwrite brought were never asked."""
    for isolation in ("snapshot", "serializable"):
        table = make(kind, isolation=isolation)
        table.insert(rows((1, 0, "good")))
        spec = table._handle.cache.known().table.spec
        strict = isolation == "serializable"
        refused = pytest.raises(RetryableConflictError) if strict else contextlib.nullcontext()
        order = write_request("delete", spec, where="value = 'bad'", commit_id=decided())
        with refused, table._writer(order):
            table.overwrite(rows((2, 0, "bad")))
        assert content(table) == {("a", 2): "bad"}
        sound(table)


@each_kind
def test_many_keys_are_looked_up_through_a_file(kind: str) -> None:
    """Past 512 keys a sidecar holds them; the version that needs it keeps it."""
    for data in (
        pa.table({"id": range(1000), "place": ["a"] * 1000}),
        pa.table({"id": range(1000)}),
    ):
        table = make(kind, isolation="serializable")
        table.insert(rows((5000, 0, "old")))
        case = Case("delete", data)
        by_writer(case, table, lambda t=table: t.insert(rows((4000, 0, "theirs"))))  # type: ignore[misc]  # bound at once
        sound(table)
        with pytest.raises(RetryableConflictError):
            by_writer(case, table, lambda t=table: t.insert(rows((999, 0, "theirs"))))  # type: ignore[misc]  # bound at once
        sound(table)
        table.maintenance.clean()
        sound(table)


@each_kind
def test_a_file_of_keys_that_no_read_asked_for_is_garbage(kind: str) -> None:
    """INV-06: a transaction keeps what it looked up until it is known that nobody asks."""
    table = make(kind)
    table.insert(rows((5000, 0, "old")))
    case = Case("delete", pa.table({"id": range(1000), "place": ["a"] * 1000}))
    by_transaction(case, table, lambda: None)
    (path,) = decision_at(table._handle.store, 2).changes.garbage["path"].to_pylist()
    assert path.endswith(".keys.bin")
    report = table.check.verify()
    assert (report.problems, report.notes) == ((), ())


# --- the timeline alone tells --------------------------------------------------------------------


@some_ways
@pytest.mark.parametrize("case", [case for case in CASES.values() if case.alone])
def test_verify_finds_a_commit_over_a_change_of_what_it_looked_up(
    case: Case, isolation: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-07: the commit was not judged by its look-ups; the decision names them."""
    table = case.table("cow", isolation=isolation)
    with monkeypatch.context() as patched:
        patched.setattr(Judge, "looked_up_in", lambda *_: frozenset())
        patched.setattr(Keys, "overlap", written_alone)
        way(case, table, lambda: next(iter(changes(case).values()))(table))
    assert table.inspect.history()[0].action != "rollback"
    (problem,) = table.check.verify(history=True).problems
    assert problem.invariant == "INV-07"
    assert "keys that ours looked up" in problem.message


def written_alone(keys: Keys, ours: Changes, theirs: Changes, bucket: BucketId) -> KeyOverlap:
    one, other = keys.of(ours, bucket), keys.of(theirs, bucket)
    assert one is not None, "a write set that names every key hides what is tested"
    assert other is not None, "so does theirs"
    return KeyOverlap(known=True, hashes=np.intersect1d(one, other))


@some_ways
@each_case
def test_verify_finds_a_commit_that_does_not_say_what_it_looked_up(
    case: Case, isolation: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-07: nothing could be compared, neither then nor now; the counts show it."""
    table = case.table("mor", isolation=isolation)
    monkeypatch.setattr(parts, "plan_of", blind_plan)
    way(case, table, lambda: table.insert(rows((FOREIGN, 6, "theirs"))))
    (problem,) = table.check.verify(history=True).problems
    assert problem.invariant == "INV-07"
    assert "looked 1 keys up that it did not change, but names 0" in problem.message


def blind_plan(*args: object, **named: object) -> WritePlan:
    return replace(plan_of(*args, **named), claims=False)  # type: ignore[arg-type]  # passed on
