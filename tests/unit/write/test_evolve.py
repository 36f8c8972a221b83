"""What a writer promises that adds the columns of its rows (RFC 0027)."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa
import pytest

from plait import (
    OptionError,
    RepushOpenError,
    RetryableConflictError,
    SchemaError,
    SchemaMismatchError,
    Table,
)
from plait.repush.begin import RepushRequest, begin
from tests.support import build
from tests.support.build import again, content

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int32())])


def rows(*ids: int, **more: object) -> pa.Table:
    table = pa.table({"id": ids, "v": [0] * len(ids)}, schema=SCHEMA)
    for name, value in more.items():
        column = value if isinstance(value, pa.Array) else pa.array([value] * len(ids))
        table = table.append_column(name, column)
    return table


def make(**how: object) -> Table:
    return build.make(SCHEMA, append=rows(1, 2), **{"buckets": 2, **how})


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("operation", ["append", "insert", "upsert", "overwrite"])
def test_a_column_comes_with_its_rows_in_one_decision(operation: str, kind: str) -> None:
    """INV-04, INV-05: no version has the column and not the rows, or the other way round."""
    table = make(table_type=kind)
    result = getattr(table, operation)(rows(3, note="x"), evolve="add")
    assert result.version == 2
    assert content(table, 1) == [{"id": 1, "v": 0}, {"id": 2, "v": 0}]
    before = [] if operation == "overwrite" else [1, 2]
    expected = [{"id": number, "v": 0, "note": None} for number in before]
    assert content(table) == [*expected, {"id": 3, "v": 0, "note": "x"}]
    assert not table.check.verify(data=True).problems


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_members_of_structs_come_with_rows(kind: str) -> None:
    old, new = pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int32()), ("b", pa.string())])
    table = build.make(
        pa.schema([("id", pa.int64()), ("s", old), ("l", pa.list_(old))]), table_type=kind
    )
    table.append(pa.table({"id": [1], "s": pa.array([{"a": 1}], old), "l": [[{"a": 1}]]}))
    given = {"s": pa.array([{"a": 2, "b": "x"}], new), "l": pa.array([[{"a": 2, "b": "y"}]])}
    table.append(pa.table({"id": [2], **given}), evolve="add")
    assert content(table) == [
        {"id": 1, "s": {"a": 1, "b": None}, "l": [{"a": 1, "b": None}]},
        {"id": 2, "s": {"a": 2, "b": "x"}, "l": [{"a": 2, "b": "y"}]},
    ]


def test_what_cannot_be_added_or_was_not_asked_is_refused_before_anything_is_written() -> None:
    table = make()
    with pytest.raises(SchemaMismatchError):
        table.append(rows(3, note="x"))
    for more in ({"V": 1}, {"none": pa.array([None])}, {"_change_type": "x"}):
        with pytest.raises(SchemaError):
            table.append(rows(3, **more), evolve="add")
    with pytest.raises(OptionError):
        table.writer("delete", evolve="add")
    with pytest.raises(OptionError):
        table.append(rows(3), evolve="widen")
    assert table.version == 1


def test_rows_that_lack_columns_are_judged_as_before() -> None:
    table = make()
    with pytest.raises(SchemaMismatchError):
        table.upsert(rows(1, note="x").drop_columns("v"), evolve="add")
    table.upsert(rows(1, note="x").drop_columns("v"), missing_columns="keep", evolve="add")
    assert content(table) == [{"id": 1, "v": 0, "note": "x"}, {"id": 2, "v": 0, "note": None}]


def test_the_first_rows_of_a_writer_say_what_is_added() -> None:
    table = make()
    with table.writer("upsert", evolve="add") as writer:
        writer.write(rows(3, note="x"))
        writer.remove(rows(1).select(["id"]))
        writer.write(rows(4, note="y"))
    assert [row["id"] for row in content(table)] == [2, 3, 4]
    writer = table.writer("append", evolve="add")
    with writer:
        writer.write(rows(5))
        with pytest.raises(SchemaMismatchError):
            writer.write(rows(6, more=1))
    writer = table.writer("upsert", evolve="add")
    with pytest.raises(OptionError), writer:
        writer.remove(rows(1).select(["id"]))
    assert [row["id"] for row in content(table)] == [2, 3, 4, 5]


# --- beside others -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("theirs", ["same", "other"])
def test_of_two_writers_that_bring_columns_both_count(theirs: str, kind: str) -> None:
    """Ids are given out once, though both took the next one for theirs."""
    table, work = make(table_type=kind), ExitStack()
    one = work.enter_context(again(table).writer("upsert", evolve="add"))
    one.write(rows(1, 3, note="mine", at=1.5))
    if theirs == "same":
        again(table).upsert(rows(2, 4, note="theirs"), evolve="add")
    else:
        again(table).upsert(rows(2, 4, more="theirs"), evolve="add")
    work.close()
    name = "note" if theirs == "same" else "more"
    blank = {"note": None, "at": None} | ({} if theirs == "same" else {"more": None})
    mine = {"note": "mine", "at": 1.5}
    assert content(table) == [
        {"id": number, "v": 0, **blank, **(mine if number % 2 else {name: "theirs"})}
        for number in (1, 2, 3, 4)
    ]
    schemas = again(table)._handle.cache.refresh().table.schemas
    assert sorted(schemas) == [0, 1, 2]
    ids = [schemas[2].ids[each] for each in schemas[2].names]
    assert len(set(ids)) == len(ids)
    assert not table.check.verify(data=True).problems


def _struct(**values: object) -> pa.Array:
    return pa.array([values], pa.struct([(name, pa.int64()) for name in values]))


_AROUND = {
    "struct": lambda each: each,
    "list": lambda each: pa.ListArray.from_arrays([0, 1], each),
    "map": lambda each: pa.MapArray.from_arrays([0, 1], pa.array(["k"]), each),
    "member": lambda each: pa.StructArray.from_arrays([each], ["inner"]),
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("around", _AROUND)
@pytest.mark.parametrize("ours", [{"a": 1}, {"a": 1, "b": 2}])
def test_of_two_writers_that_bring_one_struct_the_members_of_both_count(
    ours: dict[str, int], around: str, kind: str
) -> None:
    """INV-07: the later one adds what its struct has and that of the first has not."""
    table, wrap = make(table_type=kind), _AROUND[around]
    with again(table).writer("upsert", evolve="add") as writer:
        writer.write(rows(3, z=wrap(_struct(**ours))))
        again(table).upsert(rows(4, z=wrap(_struct(b=5))), evolve="add")
    expected = [wrap(_struct(**{"a": None, "b": None, **each})) for each in (ours, {"b": 5})]
    found = [row["z"] for row in content(table)[2:]]
    assert [_sorted(each) for each in found] == [_sorted(each[0].as_py()) for each in expected]
    assert not table.check.verify(data=True, history=True).problems


def _sorted(value: object) -> object:
    """Forget the order of members."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list | tuple) else value


def test_a_member_is_refused_whose_struct_became_another_one_meanwhile() -> None:
    """INV-07: its values are never dropped in silence."""
    table = make()
    table.upsert(rows(2, z=_struct(a=1)), evolve="add")
    work = ExitStack()
    writer = work.enter_context(again(table).writer("upsert", evolve="add"))
    writer.write(rows(3, z=_struct(a=1, b=2)))
    table.alter.columns().drop("z").add("z", pa.struct([("a", pa.int64())])).commit()
    with pytest.raises(RetryableConflictError, match=r"'z\.b'"):
        work.close()
    assert [row["id"] for row in content(table)] == [1, 2]


def test_a_column_that_came_meanwhile_keeps_its_type() -> None:
    table = make()
    for first, second, fits in ((pa.int64(), pa.int32(), True), (pa.int32(), pa.int64(), False)):
        work, name = ExitStack(), f"n{first}"
        writer = work.enter_context(again(table).writer("upsert", evolve="add"))
        known = again(table).scan().to_arrow().column_names
        mine = rows(1, **dict.fromkeys(known[2:]))
        mine = mine.cast(again(table).scan().to_arrow().slice(0, 0).schema)
        writer.write(mine.append_column(name, pa.array([7], second)))
        again(table).append(
            rows(10 + first.bit_width, **{name: pa.array([1], first)}), evolve="add"
        )
        if fits:
            work.close()
            assert content(table)[0][name] == 7
        else:
            with pytest.raises(RetryableConflictError):
                work.close()
    assert not table.check.verify(data=True).problems


@pytest.mark.parametrize("operation", ["append", "insert", "upsert", "overwrite"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_writer_that_brings_nothing_commits_after_one_that_does(
    operation: str, kind: str
) -> None:
    """INV-07."""
    table = make(table_type=kind)
    retry = "retry" if operation == "overwrite" else "raise"
    with again(table).writer(operation, on_conflict=retry) as writer:
        writer.write(rows(4))
        again(table).append(rows(3, note="x"), evolve="add")
    found = {row["id"]: row["note"] for row in content(table)}
    assert found == ({4: None} if operation == "overwrite" else {1: None, 2: None, 3: "x", 4: None})


def test_the_same_key_conflicts_as_ever_and_is_done_again_if_that_was_asked() -> None:
    """INV-07."""
    for retry in ("raise", "retry"):
        table, work = make(), ExitStack()
        work.enter_context(again(table).writer("upsert", on_conflict=retry)).write(rows(1))
        again(table).upsert(rows(1, note="x"), evolve="add")
        if retry == "raise":
            with pytest.raises(RetryableConflictError):
                work.close()
            assert content(table)[0]["note"] == "x"
        else:
            work.close()
            assert content(table)[0]["note"] is None


def test_rows_that_were_computed_from_a_read_commit_beside_a_column_that_comes() -> None:
    """INV-07: what was read is as it was."""
    table = make()
    read = again(table).scan()
    read.to_arrow()
    with again(table).writer("upsert", read_from=read) as writer:
        writer.write(rows(1))
        again(table).append(rows(3, note="x"), evolve="add")
    assert len(content(table)) == 3


def test_a_compaction_and_an_alteration_go_on_beside_a_column_that_comes() -> None:
    """INV-05: a comment takes the next id of a schema."""
    table = make(table_type="mor")
    with again(table).writer("upsert", evolve="add") as writer:
        writer.write(rows(1, note="x"))
        table.maintenance.compact(full=True)
        table.alter.columns().rename("v", "w").add("n", "int", default=3).commit()
    table.maintenance.compact(full=True)
    assert content(table)[0] == {"id": 1, "w": 0, "n": 3, "note": "x"}
    with again(table).writer("append", evolve="add") as writer:
        writer.write(pa.table({"id": [3], "w": pa.array([0], pa.int32()), "more": ["y"]}))
        table.alter.columns().comment("w", "a word").commit()
    assert content(table)[-1] == {"id": 3, "w": 0, "note": None, "n": 3, "more": "y"}
    assert not table.check.verify(data=True).problems


def test_a_column_that_comes_is_no_other_column_that_got_its_name() -> None:
    table, work = make(), ExitStack()
    work.enter_context(again(table).writer("append", evolve="add")).write(rows(3, note=1))
    table.alter.columns().rename("v", "note").commit()
    with pytest.raises(RetryableConflictError):
        work.close()
    assert content(table) == [{"id": 1, "note": 0}, {"id": 2, "note": 0}]


def test_no_column_comes_while_a_repush_is_open() -> None:
    table, work = make(), ExitStack()
    work.enter_context(again(table).writer("append", evolve="add")).write(rows(3, note="x"))
    begin(table._handle, RepushRequest(buckets=3))
    with pytest.raises(RepushOpenError):
        work.close()
    with pytest.raises(RepushOpenError):
        table.append(rows(3, note="x"), evolve="add")
    table.append(rows(3), evolve="add")  # it brings none
    table.layout.repush(buckets=3)
    with again(table).writer("append", evolve="add") as writer:
        writer.write(rows(4, note="x"))
        table.layout.repush(buckets=2)
    assert content(table)[-1] == {"id": 4, "v": 0, "note": "x"}
    assert not table.check.verify(data=True).problems
