"""What constraints of a table promise (RFC 0027)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from plait import ConstraintError, Insert, OptionError, PredicateError, SchemaError, Table, Update
from plait.errors import BadRecordError
from plait.expr.alter import parse_steps
from plait.expr.checks import renamed_check
from plait.model.schema import Check
from plait.model.steps import AddCheck, DropCheck, RequireColumn
from plait.services.definition.alter import alter
from tests.support import build
from tests.support.build import again, listed

SCHEMA = pa.schema([("id", pa.int64()), ("low", pa.int32()), ("high", pa.int32())])
RULE = {"order": "low <= high"}


rows = partial(build.rows, schema=SCHEMA, low=0, high=5)
make = partial(build.make, SCHEMA, append=rows(1, 2), buckets=2, checks=RULE)
BAD = rows(2, 3, 4, low=9)
WRITES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.append(rows(3, 4, 5, low=9)),
    "insert": lambda table: table.insert(rows(3, 4, 5, low=9)),
    "upsert": lambda table: table.upsert(BAD),
    "partial upsert": lambda table: table.upsert(
        BAD.select(["id", "low"]).slice(0, 1), missing_columns="keep"
    ),
    "overwrite": lambda table: table.overwrite(BAD),
    "overwrite where": lambda table: table.overwrite(BAD, where="id > 1"),
    "update": lambda table: table.update({"high": "low - 1"}, where="id = 1"),
    "merge": lambda table: table.merge(BAD, matched=[Update()], not_matched=[Insert()]),
    "merge by source": lambda table: table.merge(
        rows(7), not_matched_by_source=[Update({"low": 6})]
    ),
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("name", WRITES)
def test_no_operation_makes_rows_that_break_a_check(name: str, kind: str) -> None:
    """INV-03: nothing of the write is visible, and the error says what is wrong."""
    table = make(table_type=kind)
    with pytest.raises(ConstraintError) as caught:
        WRITES[name](table)
    facts = caught.value.facts
    assert (facts["constraint"], facts["predicate"]) == ("order", "low <= high")
    assert facts["rows"] >= 1
    assert facts["sample"]["low"] > facts["sample"]["high"]
    assert listed(table) == [(1, 0, 5), (2, 0, 5)]
    assert not table.check.verify(data=True).problems


def test_a_block_and_a_stream_are_checked_too_and_every_row_is_counted() -> None:
    """But null breaks no check, and a deleted row is asked nothing."""
    table, work = make(), ExitStack()
    block = work.enter_context(table.transaction())
    with pytest.raises(ConstraintError):
        block.upsert(BAD)
    with pytest.raises(Exception, match="failed"):
        work.close()
    epoch = table.stream("app").writer("upsert", after=None, end="1")
    with pytest.raises(ConstraintError), epoch as writer:
        writer.write(BAD)
    with pytest.raises(ConstraintError) as caught:
        table.append(pa.concat_tables([rows(*range(10, 20)), rows(*range(20, 60), low=7)]))
    assert caught.value.facts["rows"] == 40
    assert listed(table) == [(1, 0, 5), (2, 0, 5)]
    table.append(rows(3, low=None))
    table.delete(keys=rows(1).select(["id"]))
    assert listed(table) == [(2, 0, 5), (3, None, 5)]


def test_a_check_that_cannot_be_computed_for_a_row_says_which() -> None:
    """INV-03: a divisor of zero is an error that names the constraint, and nothing is written."""
    table = make(checks={"tenth": "10 / high < 9"})
    with pytest.raises(BadRecordError, match=r"constraint 'tenth'.*divide by zero") as caught:
        table.append(pa.concat_tables([rows(3), rows(4, high=0), rows(5, high=1)]))
    assert caught.value.facts["column"] == "high"
    assert caught.value.facts["sample"] == {"high": "0", "id": "4", "low": "0"}
    assert listed(table) == [(1, 0, 5), (2, 0, 5)]
    with pytest.raises(BadRecordError, match=r"constraint 'low'.*divide by zero"):
        table.alter.columns().add_check("low", "10 / low < 9").commit()
    assert table.alter.columns().add_check(
        "low", "CASE WHEN low = 0 THEN TRUE ELSE 10 / low < 9 END"
    )


# --- added beside others -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_that_are_there_are_looked_at_and_masked_ones_are_not(kind: str) -> None:
    table = make(table_type=kind)
    table.append(rows(3, 4, low=4))
    for change in (
        table.alter.columns().add_check("flat", "low < 4"),
        table.alter.columns().rename("low", "least").add_check("flat", "least < 4"),
    ):
        with pytest.raises(ConstraintError) as caught:
            change.commit()
        assert caught.value.facts["rows"] == 2
    with pytest.raises(ConstraintError):
        table.alter.columns().add_check("flat", "low < 4").commit(dry_run=True)
    table.delete(where="id = 3")
    table.update({"low": "3"}, where="id = 4")
    assert table.alter.columns().add_check("flat", "low < 4").commit()
    with pytest.raises(ConstraintError):
        table.append(rows(5, low=4))


def test_a_column_is_required_once_no_row_lacks_it() -> None:
    table = make()
    table.append(rows(3, high=None))
    with pytest.raises(ConstraintError) as caught:
        table.alter.columns().require("high").commit()
    assert (caught.value.facts["rows"], caught.value.facts["column"]) == (1, "high")
    table.delete(where="high is null")
    work = ExitStack()
    work.enter_context(again(table).writer("append")).write(rows(4, high=None))
    table.alter.columns().require("high").commit()
    with pytest.raises(BadRecordError):
        work.close()
    with pytest.raises(BadRecordError):
        again(table).append(rows(4, high=None))
    table.alter.columns().add("n", "int", default=1).require("n").commit()
    table.alter.columns().allow_null("n").allow_null("high").commit()
    table.append(rows(4, high=None).append_column("n", pa.array([None], pa.int32())))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    "operation", ["append", "insert", "upsert", "overwrite", "block", "update"]
)
def test_a_writer_that_staged_before_the_check_is_judged_in_its_commit(
    operation: str, kind: str
) -> None:
    """INV-07: no row that breaks it is in any version that has it."""
    for low, fits in ((2, True), (4, False)):
        table, work = make(table_type=kind), ExitStack()
        client = again(table)
        if operation == "update":
            block = work.enter_context(client.transaction())
            block.update({"low": str(low)}, where="id = 1")
        elif operation == "block":
            work.enter_context(client.transaction()).upsert(rows(8, low=low))
        else:
            work.enter_context(client.writer(operation)).write(rows(8, low=low))
        table.alter.columns().add_check("flat", "low < 4").commit()
        if fits:
            work.close()
        else:
            with pytest.raises(ConstraintError):
                work.close()
            assert listed(table) == [(1, 0, 5), (2, 0, 5)]
        assert all(int(str(row[1])) < 4 for row in listed(table))
        assert not table.check.verify(data=True).problems


def test_rows_that_come_while_others_are_looked_at_are_looked_at_too() -> None:
    """No commit slips in between the look and the decision."""
    table = make()
    other, met = again(table), list[str]()

    class Meanwhile:
        def phase(self, name: str, **_: object) -> None:
            if name == "publish" and not met:
                met.append(name)
                other.append(rows(9, low=4))

    ports = replace(table._handle.ports, observer=Meanwhile())
    with pytest.raises(ConstraintError):
        alter(replace(table._handle, ports=ports), [AddCheck("flat", "low < 4")])
    assert met
    assert "flat" not in str(again(table).inspect.describe()["schema"])


# --- as columns change ---------------------------------------------------------------------------


def test_a_check_follows_the_names_of_its_columns() -> None:
    """And versions, restores and a repush have the checks of their time."""
    check = Check("c", "a > 0 AND b.a = 'a' OR upper(A) = `a`")
    assert renamed_check(check, "a", "x y").predicate == (
        "`x y` > 0 AND b.a = 'a' OR UPPER(`x y`) = `x y`"
    )
    table = make()
    with again(table).writer("append") as writer:
        writer.write(rows(8))
        table.layout.repush(buckets=3)
    table.alter.columns().rename("low", "the least").widen("high", "bigint").commit()
    named = ["id", "the least", "high"]
    with pytest.raises(ConstraintError):
        table.append(rows(3, low=9).rename_columns(named))
    table.append(rows(3).rename_columns(named))
    with pytest.raises(SchemaError):
        table.alter.columns().drop("high").commit()
    table.alter.columns().drop_check("ORDER").drop("high").commit()
    table.append(rows(4, low=9).rename_columns(named).drop_columns("high"))
    table.versions.restore(version=1)
    with pytest.raises(ConstraintError):
        again(table).append(rows(3, low=9))


REFUSED: dict[str, tuple[str, str]] = {
    "no condition": ("c", "low + 1"),
    "unknown column": ("c", "lowest > 1"),
    "taken name": ("Order", "low > 1"),
    "no name": ("", "low > -1"),
    "no text": ("c", ""),
    "alias of a merge": ("c", "t.low > -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_check_that_makes_no_sense_is_refused(name: str) -> None:
    table = make()
    with pytest.raises((SchemaError, PredicateError)):
        table.alter.columns().add_check(*REFUSED[name]).commit()
    with pytest.raises(SchemaError):
        table.alter.columns().drop_check("nothing").commit()
    with pytest.raises(SchemaError):
        table.alter.columns().require("id.part").commit()
    assert table.version == 1
    if name not in ("taken name", "no name"):
        with pytest.raises((SchemaError, PredicateError)):
            make(checks=dict([REFUSED[name]]))
    for given in ("low > 0", ["low > 0"], {"c": None}, {3: "low > 0"}, 7):
        with pytest.raises(OptionError):
            make(checks=given)


def test_sql_says_the_same() -> None:
    """``tablectl alter`` and ``Alteration.sql``."""
    assert parse_steps("add constraint `a b` check (low > (1))") == (AddCheck("a b", "low > (1)"),)
    assert parse_steps("DROP CONSTRAINT c") == (DropCheck("c"),)
    assert parse_steps("ALTER COLUMN `x` SET NOT NULL") == (RequireColumn("x"),)
    table = make()
    table.alter.columns().sql("ADD CONSTRAINT flat CHECK (low < 4 AND high IN (5, 6))").commit()
    with pytest.raises(ConstraintError):
        table.append(rows(4, low=0, high=7))


def test_more_constraints_than_readers_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.definition.constraints.CHECKS_MAX", 2)
    table = make()
    table.alter.columns().add_check("second", "id > 0").commit()
    with pytest.raises(SchemaError, match="combine"):
        table.alter.columns().add_check("third", "id > 0").commit()
