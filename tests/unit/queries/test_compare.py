"""``compare``: two tables have the same rows, or exactly these differ."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import OptionError, SchemaMismatchError
from plait.queries import compare as module
from tests.support.build import make

_SCHEMA = "id bigint, part string, x double, tags array<string>"
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)


def _rows(count, *, shift=0.0):
    return pa.table(
        {
            "id": list(range(count)),
            "part": [f"p{n % 3}" for n in range(count)],
            "x": [n / 2 + shift for n in range(count)],
            "tags": [["a", None][: n % 3] if n % 5 else None for n in range(count)],
        },
        schema=_ARROW,
    )


@pytest.fixture
def small_parts(monkeypatch):
    """Many parts, and few of them at once."""
    monkeypatch.setattr(module, "_PART_ROWS", 8)
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 16)


def test_tables_of_different_layouts_with_the_same_rows_are_equal(small_parts):
    one = make(_SCHEMA, buckets=3, upsert=_rows(500))
    two = make(_SCHEMA, buckets=7, table_type="mor", partition_by="part")
    rows = _rows(500)
    for start in (400, 0, 250):
        two.upsert(rows.slice(start, 250))
    two.upsert(rows.slice(100, 60))
    found = one.inspect.compare(two)
    assert (found.equal, found.rows, found.other_rows) == (True, 500, 500)
    assert found.sample.num_rows == 0
    other = make(_SCHEMA, buckets=3, upsert=_rows(500, shift=1.0))
    found = one.inspect.compare(other, limit=7)
    assert (found.changed, found.missing, found.extra) == (500, 0, 0), "counts stay whole"
    assert Counter(found.sample["_difference"].to_pylist()) == {"before": 7, "after": 7}
    assert one.inspect.compare(other, limit=0).sample.num_rows == 0


def test_exactly_the_rows_that_differ_are_found(small_parts):
    one = make(_SCHEMA, buckets=3, upsert=_rows(500))
    two = make(_SCHEMA, buckets=2, upsert=_rows(501))
    two.delete(where="id = 77")
    two.update({"x": "-1.0"}, where="id = 300")
    found = one.inspect.compare(two)
    assert (found.missing, found.extra, found.changed) == (1, 1, 1)
    told = {(row["_difference"], row["id"], row["x"]) for row in found.sample.to_pylist()}
    assert told == {
        ("missing", 77, 38.5), ("extra", 500, 250.0), ("before", 300, 150.0), ("after", 300, -1.0),
    }  # fmt: skip
    kinds = found.sample["_difference"].to_pylist()
    assert kinds.index("after") == kinds.index("before") + 1


def test_a_difference_of_one_bit_is_one():
    nan = float("nan")
    one = make("id bigint, x double", upsert=pa.table({"id": [1, 2, 3], "x": [0.0, nan, None]}))
    two = make("id bigint, x double", upsert=pa.table({"id": [1, 2, 3], "x": [-0.0, nan, 0.0]}))
    assert one.inspect.compare(two).changed == 2
    assert one.inspect.compare(two, where="id = 2").equal


def test_older_versions_chosen_columns_and_a_condition_are_compared():
    t = make("id bigint, x bigint")
    first = t.upsert(pa.table({"id": [1, 2], "x": [1, 1]})).version
    t.upsert(pa.table({"id": [2], "x": [5]}))
    assert t.inspect.compare(t.scan(version=first)).changed == 1
    assert t.inspect.compare(t.scan(["id"], version=first), columns=["id"]).equal
    assert t.inspect.compare(t.scan(where="id = 1", version=first), where="id = 1").equal


def test_columns_that_differ_are_named_and_an_odd_limit_is_refused():
    one = make("id bigint, x bigint, y string", record_key=())
    two = make("id bigint, x string", record_key=())
    with pytest.raises(SchemaMismatchError, match=r"x \(bigint / string\), y \(string / absent\)"):
        one.inspect.compare(two)
    assert one.inspect.compare(two, columns=["id"]).equal
    with pytest.raises(OptionError, match="limit=-1"):
        one.inspect.compare(two, columns=["id"], limit=-1)
    with pytest.raises(OptionError, match="no engine works in a session"):
        one.inspect.compare(two, columns=["id"], spark=object())


_BAG = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["a", "b", None])), max_size=12)


@pytest.mark.slow
@given(_BAG, _BAG)
def test_counts_are_those_of_bags_of_rows(ours, theirs):
    mine, others = Counter(ours), Counter(theirs)
    scans = []
    for rows in (ours, theirs):
        t = make("k bigint, v string", record_key=())
        if rows:
            t.append(pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}))
        scans.append(t)
    found = scans[0].inspect.compare(scans[1], limit=100)
    assert (found.missing, found.extra) == ((mine - others).total(), (others - mine).total())
    told = Counter((r["_difference"], r["k"], r["v"]) for r in found.sample.to_pylist())
    expected = {("missing", *row): n for row, n in (mine - others).items()}
    assert told == expected | {("extra", *row): n for row, n in (others - mine).items()}
