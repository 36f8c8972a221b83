"""A repush removes rows that are too old if it is told to, in commits that everyone can see."""

from __future__ import annotations

import pytest

from plait import OptionError, SchemaMismatchError, Table, TableError
from plait.repush.begin import RepushRequest, begin
from tests.support.expiry import KINDS, OLD, YOUNG, content, filled, ids, make, rows, sound
from tests.support.repush_steps import again, killed

_AGE = "ts 30d row"


def _table(table_type: str = "mor", *, keyed: bool = True, **how: object) -> Table:
    return filled(make(table_type, keyed=keyed, **{"ttl": None, **how}))


@pytest.mark.parametrize(("table_type", "keyed"), KINDS)
def test_old_rows_go_and_no_others(table_type: str, keyed: bool) -> None:
    """INV-04: change reads show deletes, older versions have the rows, null never expires."""
    table = _table(table_type, keyed=keyed)
    before, version = content(table), table.version
    report = table.layout.repush(table_type="cow" if table_type == "mor" else "mor", expire=_AGE)
    assert ids(table) == YOUNG
    assert (report.rows_expired, report.rows_kept) == (len(before) - len(YOUNG), len(YOUNG))
    assert report.rows_loaded == len(YOUNG)
    assert content(table, version) == before
    found = table.changes(since=version).to_arrow()
    assert set(found["_change_type"].to_pylist()) == {"delete"}
    assert found.num_rows == report.rows_expired
    assert table.inspect.describe().get("ttl") is None
    sound(table)


def test_nothing_expires_unless_it_is_asked_for() -> None:
    table = _table()
    before = content(table)
    report = table.layout.repush(table_type="cow")
    assert (report.rows_expired, content(table)) == (0, before)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"expire": "v 30d row"}, OptionError),
        ({"expire": "nowhere 30d row"}, SchemaMismatchError),
        ({"expire": "ts soon"}, OptionError),
        ({"expire": "ts 30d partition"}, OptionError),
        ({"expire": "written 30d row"}, OptionError),
        ({"expire": _AGE, "source": 1}, OptionError),
        ({"expire": _AGE, "buckets": 0}, OptionError),
    ],
)
def test_what_cannot_be_is_refused_before_a_row_goes(
    how: dict[str, object], error: type[TableError]
) -> None:
    table = _table()
    before, version = content(table), table.version
    with pytest.raises(error):
        table.layout.repush(**how)  # type: ignore[arg-type]  # of several kinds
    assert (content(table), table.version) == (before, version)


def test_rows_that_sinks_hold_do_not_expire() -> None:
    """RFC 0022: a sink never has rows that the table expired behind its back."""
    table = _table()
    Table.create(
        "memory://expire-sink", table.schema, record_key=["id"], buckets=1, if_not_exists=True
    )
    table.replicas.add("eu=memory://expire-sink")
    before = content(table)
    with pytest.raises(OptionError, match="eu"):
        table.layout.repush(table_type="cow", expire=_AGE)
    with pytest.raises(OptionError, match="eu"):
        table.maintenance.expire(ttl=_AGE, dry_run=True)
    assert content(table) == before


def test_a_repush_that_is_open_has_its_rows_already() -> None:
    """A row that became too old since is left to an expiry, because the copy has begun."""
    table = _table()
    begin(table._handle, RepushRequest(buckets=3))
    table.append(rows((60, OLD, "a", 0)))
    before = content(table)
    report = table.layout.repush(buckets=3, expire=_AGE)
    assert (report.rows_expired, report.version is not None) == (0, True)
    assert content(table) == before
    sound(table)


def test_a_repush_that_is_killed_expires_the_same_rows() -> None:
    """INV-04: whatever was done of it, the same call ends with the young rows, each once."""
    for nth in range(1, 400, 7):
        table = _table()
        reached = killed(table, nth, lambda one: one.layout.repush(buckets=3, expire=_AGE))
        again(table).layout.repush(buckets=3, expire=_AGE)
        assert ids(again(table)) == YOUNG
        if not reached:
            return
    pytest.fail("the repush has no end")


def test_a_plan_goes_by_the_time_to_live_that_the_caller_named() -> None:
    """Also if the table has another one, and if that changes meanwhile."""
    table = _table(ttl="ts 90000d row")
    plan = table.maintenance.expire(ttl=_AGE, dry_run=True)
    table.alter.set_ttl("ts 80000d row")
    assert plan.named
    assert table.maintenance.expire(plan).rows_deleted == 6
    assert ids(table) == YOUNG
    assert not table.maintenance.expire(dry_run=True).tasks
    sound(table)
