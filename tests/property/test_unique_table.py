"""Keys that are unique in the table (RFC 0030), against a dictionary, with clients in between.

Each step is a write of one client; others write while it is about to publish. Under serializable
isolation the table is what the committed writes give one after another, in the order of their
versions. Under any isolation, and each policy, no version has a key twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import Insert, Table, Update
from plait.errors import ConflictError, DuplicateKeyError
from plait.model.decision import CommitResult
from tests.support.build import make
from tests.support.effort import share
from tests.support.protocol import beside

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("place", pa.string()), ("n", pa.int64()), ("at", pa.int64())]
)
Row = tuple[int, str, int, int]
Rows = Mapping[int, Row]
"""By key: key, partition, value and ordering value."""


@dataclass(frozen=True)
class Step:
    """One write, and those of other clients before it is published."""

    kind: str
    rows: tuple[Row, ...]
    beside: tuple[Step, ...] = ()


def data(rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column) for column in columns], schema=_SCHEMA)


def keys(rows: Sequence[Row]) -> pa.Table:
    return pa.table({"id": pa.array([row[0] for row in rows], pa.int64())})


def act(table: Table, step: Step) -> CommitResult:
    """Do a step by one client."""
    rows, retry = step.rows, {"on_conflict": "retry"}
    match step.kind:
        case "insert":
            return table.insert(data(rows), **retry)  # type: ignore[arg-type]  # by name
        case "skip":
            return table.insert(data(rows), on_duplicate="skip", **retry)  # type: ignore[arg-type]  # by name
        case "delete":
            return table.delete(keys=keys(rows), **retry)  # type: ignore[arg-type]  # by name
        case "keep":
            part = data(rows).drop_columns(["n"])
            return table.upsert(part, missing_columns="keep", **retry)  # type: ignore[arg-type]  # by name
        case "merge":
            return table.merge(
                data(once(rows)), matched=[Update()], not_matched=[Insert()], on_conflict="retry"
            )
        case "change":
            with table.writer("upsert", on_conflict="retry") as writer:
                writer.write(data(rows))
                writer.remove(keys(rows[:1]))
                writer.write(data(rows[1:2] or rows))
            return writer.result
        case "replace":
            place = rows[0][1]
            mine = [row for row in rows if row[1] == place]
            return table.overwrite(data(mine), where=f"place = '{place}'", **retry)  # type: ignore[arg-type]  # by name
        case "both":
            with table.transaction(on_conflict="retry") as tx:
                tx.delete(keys=keys(rows[:1]))
                tx.upsert(data(rows))
            return tx.result
        case _:
            return table.upsert(data(rows), **retry)  # type: ignore[arg-type]  # by name


def once(rows: Sequence[Row]) -> list[Row]:
    return list({row[0]: row for row in rows}.values())


def best(rows: Sequence[Row], old: Rows) -> dict[int, Row]:
    """Return the rows that an upsert leaves: the greatest by the ordering column, then the last."""
    found = dict(old)
    for row in rows:
        if row[0] not in found or row[3] >= found[row[0]][3]:
            found[row[0]] = row
    return found


def without(rows: Rows, gone: Sequence[Row]) -> dict[int, Row]:
    return {key: row for key, row in rows.items() if key not in {each[0] for each in gone}}


def after(old: Rows, step: Step) -> dict[int, Row] | None:
    """Return what a step makes of a table; None where it is refused."""
    rows, new = step.rows, best(step.rows, {})
    match step.kind:
        case "insert":
            return None if old.keys() & new.keys() else {**old, **new}
        case "skip":
            return {**new, **old}
        case "delete":
            return without(old, rows)
        case "keep":
            kept = {k: (k, r[1], old[k][2] if k in old else None, r[3]) for k, r in new.items()}
            return best(list(kept.values()), old)  # type: ignore[arg-type]  # n may be null
        case "merge":
            return {**old, **{row[0]: row for row in once(rows)}}
        case "change":
            rest = rows[1:2] or rows
            left = best([row for row in rows if row[0] != rows[0][0]], without(old, rows[:1]))
            return best(rest, left)
        case "replace":
            place = rows[0][1]
            new = best([row for row in rows if row[1] == place], {})
            left = {key: row for key, row in old.items() if row[1] != place}
            return None if left.keys() & new.keys() else {**left, **new}
        case "both":
            return best(rows, without(old, rows[:1]))
        case _:
            return best(rows, old)


def content(table: Table, version: int | None = None) -> dict[int, Row]:
    found = table.scan(version=version).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), f"INV-08: {found}"
    return {row["id"]: (row["id"], row["place"], row["n"], row["at"]) for row in found}


def run(table: Table, steps: Sequence[Step]) -> dict[int, Step]:
    """Run steps; return those that made a version, by version."""
    done: dict[int, Step] = {}

    def one(step: Step) -> None:
        acts: list[Callable[[], object]] = [lambda each=each: one(each) for each in step.beside]  # type: ignore[misc]  # bound now
        client = beside(table, "publish", *acts)
        try:
            result = act(client, step)
        except (DuplicateKeyError, ConflictError):
            return
        if result.version and result.version not in done:
            done[result.version] = step

    for step in steps:
        one(step)
    return done


_KINDS = ("insert", "skip", "delete", "keep", "merge", "change", "replace", "both", "upsert")
_ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 3)),
    min_size=1,
    max_size=4,
).map(tuple)
_PLAIN = st.builds(Step, st.sampled_from((*_KINDS, "upsert", "upsert")), _ROWS)
_STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from((*_KINDS, "upsert", "upsert")),
        _ROWS,
        st.lists(_PLAIN, max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=5,
)


def made(kind: str, policy: str, isolation: str, *, index: bool = False) -> Table:
    table = make(
        "id bigint, place string, n bigint, at bigint",
        partition_by=["place"],
        ordering="at",
        table_type=kind,
        buckets=2,
        policy=policy,
        isolation=isolation,
        unique="table",
    )
    if index:
        table.index.create()
    return table


@settings(max_examples=share(20))
@given(
    st.sampled_from(["cow", "mor"]),
    st.sampled_from(["key", "file_group", "merge"]),
    st.booleans(),
    _STEPS,
)
def test_writes_of_clients_at_once_are_those_of_one_after_another(
    kind: str, policy: str, index: bool, steps: list[Step]
) -> None:
    """INV-07, INV-08; the change feed tells how each version came of the one before."""
    table = made(kind, policy, "serializable", index=index)
    done = run(table, steps)
    model: dict[int, Row] = {}
    for version in range(table.version + 1):
        if version in done:
            following = after(model, done[version])
            assert following is not None
            model = following
        assert content(table, version) == model
    assert not table.check.verify().problems
    assert replayed(table) == model


@settings(max_examples=share(10))
@given(st.sampled_from(["cow", "mor"]), st.sampled_from(["key", "file_group", "merge"]), _STEPS)
def test_a_key_lives_once_at_each_version_also_under_snapshot_isolation(
    kind: str, policy: str, steps: list[Step]
) -> None:
    """INV-08."""
    table = made(kind, policy, "snapshot")
    run(table, steps)
    for version in range(table.version + 1):
        content(table, version)
    assert not table.check.verify().problems
    assert replayed(table) == content(table)


def replayed(table: Table) -> dict[int, Row]:
    """Return what the change feed makes of an empty table; each commit changes a key once."""
    rows: dict[int, Row] = {}
    seen: set[tuple[int, int, str]] = set()
    for row in table.changes(since=0).to_arrow().to_pylist():
        key, kind = row["id"], row["_change_type"]
        now = (key, row["place"], row["n"], row["at"])
        side = "before" if kind in ("delete", "update_preimage") else "after"
        assert (row["_commit_version"], key, side) not in seen, f"twice in one commit: {row}"
        seen.add((row["_commit_version"], key, side))
        if side == "before":
            assert rows.pop(key) == now
        else:
            assert key not in rows
            rows[key] = now
    return rows
