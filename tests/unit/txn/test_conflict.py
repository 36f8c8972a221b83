"""Who stands in whose way: the matrix, and where two operations meet (INV-07)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from plait.definition.policy import POLICIES, Verdict
from plait.errors import IncompatibleConflictError, RetryableConflictError
from plait.expr import parse_where, to_json
from plait.model.bucket import BucketId, BucketSpec, partition_text
from plait.model.changes import KEYS_ALL, PATHS, TOUCHED, Changes
from plait.model.decision import (
    SCOPE_APPEND,
    SCOPE_BUCKETS,
    SCOPE_PARTITIONS,
    SCOPE_TABLE,
    Decision,
    ReadSet,
    Scope,
)
from plait.model.instant import Action, Instant, Operation
from plait.model.plan import TableLayout, TableSpec
from plait.model.schema import Schema
from plait.txn.conflict import OTHER_LAYOUT, Compare, Conflict, Judge
from plait.txn.keys import KeyOverlap
from plait.txn.matrix import DATA, HARMLESS, KINDS, MATRIX, REWRITES, WRITERS, Kind
from plait.txn.refusal import conflict_error

A0: BucketId = (("a",), 0)
A1: BucketId = (("a",), 1)
B0: BucketId = (("b",), 0)
OURS = (*DATA, *REWRITES)
BUCKETS = Scope(SCOPE_BUCKETS)
TABLE = Scope(SCOPE_TABLE)
APPEND = Scope(SCOPE_APPEND)
SEEN_TO = ("clean", "archive", "savepoint", "rollback", "property", "reserve", "rebuild")


def places(*names: str) -> Scope:
    return Scope(SCOPE_PARTITIONS, tuple((name,) for name in names))


def touched(*buckets: BucketId) -> Changes:
    row = {"keys": KEYS_ALL, "key_count": 0}
    rows = [{**row, "partition": partition_text(p), "bucket": b} for p, b in buckets]
    return Changes(touched=pa.Table.from_pylist(rows, schema=TOUCHED))


def judge(scope: Scope, *buckets: BucketId, operation: Operation = Operation.UPSERT) -> Judge:
    return Judge(operation, scope, touched(*buckets))


def theirs(
    scope: Scope,
    *buckets: BucketId,
    operation: Operation = Operation.UPSERT,
    version: int = 7,
) -> Decision:
    return Decision(
        version=version,
        instant=Instant.at(version, "b" * 16),
        action=Action.COMMIT,
        operation=operation,
        base=version - 1,
        completed_ms=version,
        attempt="",
        previous="",
        changes=touched(*buckets),
        scope=scope,
    )


def test_the_matrix_has_a_verdict_for_every_operation() -> None:
    assert set(KINDS) == set(Operation)
    assert set(MATRIX) == set(itertools.product(WRITERS, Kind))
    assert all(set(cells) == set(POLICIES) for cells in MATRIX.values())


ROWS = ("append", "insert", "upsert", "update", "delete", "merge", "transaction")
SERVICE = ("compact", "cluster")
WRITES = (*ROWS, "overwrite", *SERVICE)
BY_POLICY = {
    "file_group": ("retry", "retry"),
    "key": ("rebase", "retry"),
    "merge": ("rebase", "rebase"),
}


def expected(ours: str, other: str, policy: str) -> tuple[str, str]:
    """Return the verdicts where others wrote other keys of the bucket, and where the same ones."""
    if ours in SERVICE or other in SERVICE:
        return "carry", "carry"
    return BY_POLICY["file_group" if "overwrite" in (ours, other) else policy]


def met(*hashes: int, known: bool = True) -> Compare:
    found = KeyOverlap(known=known, hashes=np.array(hashes, dtype=np.uint64))
    return lambda _: found


def scope_of(operation: str) -> Scope:
    return places("a") if operation == "overwrite" else BUCKETS


@pytest.mark.parametrize("policy", POLICIES)
def test_writers_conflict_as_the_policy_says_and_only_in_buckets_of_both(policy: str) -> None:
    """INV-07, for each cell of the matrix."""
    for ours, other in itertools.product(WRITES, repeat=2):
        mine = replace(judge(scope_of(ours), A0, A1, operation=Operation(ours)), policy=policy)
        others = theirs(scope_of(other), A0, operation=Operation(other))
        apart, same = expected(ours, other, policy)
        for compare, verdict in (
            (met(), apart),
            (met(7), same),
            (met(known=False), same),
            (None, same),
        ):
            conflict = mine.conflict_with(others, compare)
            assert conflict is not None, (ours, other)
            assert conflict.verdict.value == verdict, (ours, other)
            assert A0 in conflict.buckets
    for mine_is, theirs_is in itertools.product(OURS, repeat=2):
        mine = replace(judge(BUCKETS, A0, operation=mine_is), policy=policy)
        elsewhere = theirs(BUCKETS, A1, B0, operation=theirs_is)
        assert mine.conflict_with(elsewhere, met(7)) is None, (mine_is, theirs_is)


def test_a_key_that_both_wrote_is_named() -> None:
    conflict = replace(judge(BUCKETS, A0), policy="key").conflict_with(
        theirs(BUCKETS, A0), met(7, 255)
    )
    assert conflict is not None
    assert conflict.keys == ("0000000000000007", "00000000000000ff")
    assert conflict.to_dict()["verdict"] == "retry"


def test_rows_that_were_computed_from_a_read_are_no_blind_writes() -> None:
    """Under ``merge`` the update of somebody else would be lost."""
    blind = replace(judge(BUCKETS, A0), policy="merge", read_set=ReadSet(3))
    read = replace(blind, read_set=ReadSet(3, (None,)))
    for mine, verdict in ((blind, Verdict.REBASE), (read, Verdict.RETRY)):
        conflict = mine.conflict_with(theirs(BUCKETS, A0), met(7))
        assert conflict is not None
        assert conflict.verdict is verdict


def test_a_serializable_commit_conflicts_where_it_read() -> None:
    """INV-07, on read sets: partition b was read, and only a written."""
    spec = partitioned()
    where = to_json(parse_where("place = 'b'", spec.schema.arrow))
    mine = replace(judge(BUCKETS, A0), policy="key", spec=spec, read_set=ReadSet(3, (where,)))
    strict = replace(mine, serializable=True)
    for other, expected in ((B0, True), (A1, False)):
        assert mine.conflict_with(theirs(BUCKETS, other), met()) is None
        conflict = strict.conflict_with(theirs(BUCKETS, other), met())
        assert (conflict is not None) is expected
        assert conflict is None or conflict.whole_operation
    assert strict.conflict_with(theirs(TABLE, operation=Operation.OVERWRITE), met()) is not None
    assert strict.conflict_with(theirs(BUCKETS, B0, operation=Operation.COMPACT), met()) is None


@pytest.mark.parametrize(
    ("table_type", "removes"), list(itertools.product(("cow", "mor"), (True, False)))
)
@pytest.mark.parametrize("policy", POLICIES)
def test_an_expiry_is_met_by_places_and_redone_only_by_who_copied_rows(
    table_type: str, removes: bool, policy: str
) -> None:
    """INV-15: nobody is refused, and what was read counts as read before."""
    spec = partitioned()
    spec = replace(spec, layout=replace(spec.layout, table_type=table_type))
    removed = pa.table({"path": ["a"] if removes else []}, schema=PATHS)
    changes = replace(touched(A0), removed=removed)
    read = ReadSet(3, (None,))
    mine = Judge(
        Operation.UPDATE,
        BUCKETS,
        changes,
        spec=spec,
        policy=policy,
        serializable=True,
        read_set=read,
    )
    conflict = mine.conflict_with(theirs(BUCKETS, A0, operation=Operation.EXPIRE), met())
    assert conflict is not None
    copied = table_type == "cow" and removes
    assert conflict.verdict is (Verdict.REBASE if copied else Verdict.CARRY)
    assert conflict.verdict in HARMLESS
    assert mine.conflict_with(theirs(BUCKETS, B0, operation=Operation.EXPIRE), met()) is None
    service = Judge(Operation.EXPIRE, BUCKETS, changes, spec=spec)
    for operation in Operation:
        drafted = service.conflict_with(theirs(BUCKETS, B0, operation=operation), met())
        assert drafted is not None
        assert drafted.verdict is Verdict.CARRY


def test_a_serializable_predicate_is_asked_again_where_others_brought_rows() -> None:
    """INV-07: a delete by predicate must not miss rows that came meanwhile."""
    spec = partitioned()
    where = to_json(parse_where("place = 'b'", spec.schema.arrow))
    mine = replace(judge(Scope(SCOPE_BUCKETS, predicate=where)), policy="key", spec=spec)
    assert mine.conflict_with(theirs(BUCKETS, B0), met()) is None
    conflict = replace(mine, serializable=True).conflict_with(theirs(BUCKETS, A0, B0), met())
    assert conflict is not None
    assert (conflict.verdict, conflict.buckets) == (Verdict.REBASE, {B0})


def partitioned() -> TableSpec:
    schema = Schema.create(pa.schema([("id", pa.int64()), ("place", pa.string())]))
    return TableSpec(schema, TableLayout(("place",), BucketSpec(0, ("id",), 2), None, "cow"))


@pytest.mark.parametrize("operation", SEEN_TO)
def test_a_writer_never_fails_because_of_a_service(operation: str) -> None:
    others = theirs(TABLE, A0, operation=Operation(operation))
    assert judge(TABLE, A0).conflict_with(others) is None


@pytest.mark.parametrize(
    ("operation", "read", "verdict"),
    [
        (Operation.RESTORE, (), Verdict.INCOMPATIBLE),
        (Operation.CREATE, (), Verdict.INCOMPATIBLE),
        (Operation.SCHEMA, (), Verdict.RESTAGE),
        (Operation.SCHEMA, (None,), Verdict.RETRY),
    ],
    ids=["restore", "create", "other columns", "other columns, computed from a read"],
)
@pytest.mark.parametrize("scope", [BUCKETS, APPEND, TABLE], ids=["buckets", "append", "table"])
def test_what_changes_the_meaning_of_writes_meets_all_of_them(
    operation: Operation, read: tuple[None, ...], verdict: Verdict, scope: Scope
) -> None:
    """INV-07: no bucket can be done again for it; the operation must run again as a whole."""
    mine = replace(judge(scope, A0), read_set=ReadSet(1, read))
    conflict = mine.conflict_with(theirs(BUCKETS, operation=operation))
    assert conflict is not None
    assert (conflict.verdict, conflict.whole_operation) == (verdict, verdict is not Verdict.RESTAGE)


SCOPES = {
    "append": (APPEND, (A0,)),
    "bucket a/0": (BUCKETS, (A0,)),
    "bucket a/1": (BUCKETS, (A1,)),
    "bucket b/0": (BUCKETS, (B0,)),
    "partition a": (places("a"), (A0,)),
    "empty partition a": (places("a"), ()),
    "partition b": (places("b"), (B0,)),
    "table": (TABLE, (A0, B0)),
    "empty table": (TABLE, ()),
}
MEET = {
    ("bucket a/0", "bucket a/0"),
    ("bucket a/1", "bucket a/1"),
    ("bucket b/0", "bucket b/0"),
    *itertools.product(["partition a", "empty partition a"], repeat=2),
    ("partition b", "partition b"),
    *itertools.product(
        ["partition a", "empty partition a"], ["bucket a/0", "bucket a/1", "append"]
    ),
    *itertools.product(["bucket a/0", "bucket a/1"], ["partition a", "empty partition a"]),
    ("partition b", "bucket b/0"),
    ("bucket b/0", "partition b"),
    *itertools.product(["table", "empty table"], SCOPES),
    *itertools.product(set(SCOPES) - {"append"}, ["table", "empty table"]),
}


def test_scopes_meet_where_both_reach() -> None:
    """INV-07; two overwrites of one place conflict, even of an empty one."""
    found = set()
    for (ours, (scope, buckets)), (other, (their_scope, their_buckets)) in itertools.product(
        SCOPES.items(), repeat=2
    ):
        if judge(scope, *buckets).conflict_with(theirs(their_scope, *their_buckets)) is not None:
            found.add((ours, other))
    assert found == MEET


def test_an_append_without_keys_never_conflicts_with_data() -> None:
    for other in OURS:
        for scope, buckets in SCOPES.values():
            conflict = judge(APPEND, A0).conflict_with(theirs(scope, *buckets, operation=other))
            assert conflict is None


@pytest.mark.parametrize(
    ("scope", "ours", "others", "again"),
    [
        (TABLE, (A0,), (A1,), {A0, A1}),
        (places("a"), (A0,), (A1, B0), {A0, A1}),
        (places("a", "b"), (A0,), (A1, B0), {A0, A1, B0}),
        (BUCKETS, (A0, B0), (A0, A1), {A0}),
    ],
    ids=["table", "partition", "partitions", "buckets"],
)
def test_a_writer_does_again_what_others_brought_into_its_place_and_no_more(
    scope: Scope, ours: tuple[BucketId, ...], others: tuple[BucketId, ...], again: set[BucketId]
) -> None:
    """INV-07: an overwrite also buckets that it had not touched, because they were empty."""
    conflict = judge(scope, *ours).conflict_with(theirs(BUCKETS, *others))
    assert conflict is not None
    assert conflict.buckets == again


def test_the_error_names_the_winner_and_the_place() -> None:
    mine = judge(BUCKETS, A0, A1)
    found = [
        conflict
        for version, bucket in ((7, A0), (9, A1))
        if (conflict := mine.conflict_with(theirs(BUCKETS, bucket, version=version)))
    ]
    ours = Instant.at(1, "a" * 16)
    error = conflict_error(ours, found)
    assert isinstance(error, RetryableConflictError)
    assert (error.ours, error.version, error.versions) == (str(ours), 7, [7, 9])
    assert error.theirs == str(Instant.at(7, "b" * 16))
    assert (error.operation, error.verdict) == ("upsert", "retry")
    assert [group.rsplit("/")[-1] for group in error.file_groups] == ["0", "1"]  # type: ignore[attr-defined]  # a fact


def test_the_error_puts_no_winner_where_another_one_was() -> None:
    moved = Conflict(theirs(BUCKETS, A0, version=7), Verdict.RETRY, frozenset(), OTHER_LAYOUT)
    met = judge(BUCKETS, A1).conflict_with(theirs(BUCKETS, A1, version=9))
    assert met is not None
    error = conflict_error(Instant.at(1, "a" * 16), [moved, met])
    assert isinstance(error, RetryableConflictError)
    assert error.version == 7
    assert error.message.endswith(f"was first: {OTHER_LAYOUT}")
    assert error.versions == [7, 9]
    assert [group.rsplit("/")[-1] for group in error.file_groups] == ["1"]


def test_a_meeting_that_cannot_be_retried_says_so() -> None:
    conflict = judge(BUCKETS, A0).conflict_with(theirs(TABLE, operation=Operation.RESTORE))
    assert conflict is not None
    error = conflict_error(Instant.at(1, "a" * 16), [conflict])
    assert isinstance(error, IncompatibleConflictError)
