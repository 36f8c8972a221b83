"""Changes against a dictionary: replayed over one version they give any later one."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import Table
from plait.queries.pins import net_changes, pin_changes
from plait.read.change_scan import ChangeScan
from plait.read.changed import DELETE, INSERT, POST, PRE
from plait.state.delta import changed_files
from tests.support.effort import share

SCHEMA = pa.schema([("v", pa.int64()), ("p", pa.string()), ("id", pa.int64())])
_NAMES = itertools.count()
Key = tuple[str, int]
State = dict[Key, int]
"""The value of each key."""

places = st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 7))
values = st.integers(0, 2)
rows = st.dictionaries(places, values, max_size=6)
bounds = st.integers(0, 8)
OPERATIONS = [
    "upsert",
    "upsert",
    "insert",
    "delete",
    "where",
    "replace",
    "dynamic",
    "some",
    "several",
    "compact",
]
steps = st.lists(st.tuples(st.sampled_from(OPERATIONS), rows, bounds), min_size=1, max_size=8)


def data(given: State) -> pa.Table:
    found = [{"v": v, "p": p, "id": i} for (p, i), v in given.items()]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def keys(given: State) -> pa.Table:
    return data(given).select(["p", "id"])


def keyed(table: Table, now: State, step: tuple[str, State, int]) -> State:
    """Do one step, and give what the table should hold then."""
    operation, given, bound = step
    match operation:
        case "upsert":
            table.upsert(data(given))
            return now | given
        case "insert":
            table.insert(data(given), on_duplicate="skip")
            return given | now
        case "delete":
            table.delete(keys=keys(given))
            return {k: v for k, v in now.items() if k not in given}
        case "where":
            table.delete(where=f"id < {bound}")
            return {k: v for k, v in now.items() if k[1] >= bound}
        case "replace":
            table.overwrite(data(given))
            return dict(given)
        case "dynamic":
            table.overwrite(data(given), partitions="dynamic")
            here = {p for p, _ in given}
            return {k: v for k, v in now.items() if k[0] not in here} | given
        case "some":
            fresh = {k: v for k, v in given.items() if k[1] < bound}
            table.overwrite(data(fresh), where=f"id < {bound}")
            return {k: v for k, v in now.items() if k[1] >= bound} | fresh
        case "compact":
            table.maintenance.compact()
            return now
        case _:
            with table.transaction() as tx:
                tx.upsert(data(given))
                tx.delete(where=f"id < {bound}")
                tx.upsert(data({k: v + 1 for k, v in given.items() if k[1] % 2}))
            left = {k: v for k, v in (now | given).items() if k[1] >= bound}
            return left | {k: v + 1 for k, v in given.items() if k[1] % 2}


def replayed(table: Table, since: int, until: int, states: dict[int, State]) -> State:
    """Apply changes one by one; each must fit what was there."""
    now = dict(states[since])
    changes = table.changes(since, until).to_arrow().to_pylist()
    assert [c["_commit_version"] for c in changes] == sorted(c["_commit_version"] for c in changes)
    for version, group in itertools.groupby(changes, lambda c: c["_commit_version"]):
        found = list(group)
        for at, row in enumerate(found):
            key, kind = (row["p"], row["id"]), row["_change_type"]
            if kind in (PRE, DELETE):
                assert now.pop(key) == row["v"], "the row as it was"
            else:
                assert key not in now
                now[key] = row["v"]
            if kind == POST:
                before = found[at - 1]
                assert (before["p"], before["id"], before["_change_type"]) == (*key, PRE)
                assert before["v"] != row["v"], "equal rows are no change"
        once = Counter((r["p"], r["id"]) for r in found if r["_change_type"] != PRE)
        assert set(once.values()) <= {1}, "one change a key and commit"
        assert now == states[version]
    return now


@given(
    table_type=st.sampled_from(["cow", "mor"]),
    buckets=st.sampled_from([1, 2]),
    work=steps,
    span=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
@settings(max_examples=share(60))
def test_changes_lead_from_any_version_to_any_later_one(
    table_type: str, buckets: int, work: list[Any], span: tuple[int, int]
) -> None:
    """INV-04, for every operation; several rounds on one key come one by one."""
    uri = f"memory://changes-{next(_NAMES)}"
    table = Table.create(
        uri,
        SCHEMA,
        record_key=["id"],
        partition_by=["p"],
        table_type=table_type,
        buckets=buckets,
        properties={"checkpoint.interval": 3},
    )
    states: dict[int, State] = {0: {}}
    for step in work:
        last = max(states)
        now = keyed(table, states[last], step)
        for version in range(last + 1, table.version + 1):
            states[version] = now
    reopened = Table.open(uri)
    since, until = sorted(at % len(states) for at in span)
    assert replayed(reopened, since, until, states) == states[until]
    assert replayed(table, 0, table.version, states) == states[table.version]
    assert_files_are_what_versions_differ_in(table)
    if since < table.version:
        table.versions.restore(version=since)
        states[table.version] = states[since]
    for version in states:
        assert_net_changes(table, version, table.version, states)


def assert_net_changes(table: Table, since: int, until: int, states: dict[int, State]) -> None:
    """See to it that what commits come to all together is how two states differ (INV-04)."""
    window, lease = pin_changes(table._handle, since, until)
    net = ChangeScan(table._handle.store, net_changes(table._handle, window))
    found = net.to_arrow().to_pylist()
    lease.release()
    then, now = states[since], states[until]
    expected = Counter(
        (*key, value, kind)
        for side, other, kinds in ((then, now, (PRE, DELETE)), (now, then, (POST, INSERT)))
        for key, value in side.items()
        for kind in [kinds[0] if key in other else kinds[1]]
        if other.get(key) != value
    )
    assert Counter((r["p"], r["id"], r["v"], r["_change_type"]) for r in found) == expected


def assert_files_are_what_versions_differ_in(table: Table) -> None:
    """See to it that the quick way to changed files gives what comparing snapshots gives."""
    handle = table._handle
    state = handle.cache.refresh()
    folded = state.folded(handle.store)
    every = changed_files(folded, dict.fromkeys(range(1, state.version + 1), 0)).to_pylist()
    columns = ("path", "masked", "inline", "dv_path", "dv_offset", "version")
    found = {(row["at"], row["after"], *(row[c] for c in columns)) for row in every}
    expected = set()
    for version in range(1, state.version + 1):
        old, new = (
            {tuple(row[c] for c in columns) for row in folded.live(at).to_pylist()}
            for at in (version - 1, version)
        )
        expected |= {(version, False, *row) for row in old - new}
        expected |= {(version, True, *row) for row in new - old}
    assert found == expected
    assert len(every) == len(expected)
