"""The runner keeps tables in shape, one failing table beside the others, and shares the work."""

from __future__ import annotations

import json
from functools import cache, partial

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import CorruptMetadataError, SchemaMismatchError, TableNotFoundError
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.services.maintenance.compaction import compact
from plait.services.maintenance.rewrite import Sharing
from plait.services.maintenance.runner import Looks, OptimizeReport, serve
from plait.testing import SimClock
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from tests.support import build
from tests.support.build import LITTLE, uri_of
from tests.support.expiry import filled
from tests.support.expiry import make as make_expiring
from tests.support.forge import forge_schema
from tests.support.protocol import Work, beside, client, create, memory

rows = partial(build.rows, value=0)


@cache
def _made() -> Table:
    table = build.make("id bigint, value bigint", table_type="mor", buckets=1, properties=LITTLE)
    for value in range(4):
        table.upsert(rows(*range(20 * value, 20 * value + 25), value=value))
    return table


def make() -> Table:
    """Give a table of its own that needs a compaction and a clean."""
    return build.copy_of(_made())


def opened(uri: str) -> TableHandle:
    return Table.open(uri)._handle


def of_three_partitions() -> Table:
    """Give a table with a task of compaction for each partition."""
    table = build.make(
        "id bigint, place string",
        partition_by="place",
        table_type="mor",
        properties={"services.task.size": 1},
    )
    for number in range(3):
        table.upsert(pa.table({"id": [number] * 3, "place": ["a", "b", "c"]}))
    return table


def test_optimize_does_what_falls_due_and_then_nothing() -> None:
    """INV-14: the dead are ended, logs merged, versions let go; the rows stay."""
    table = make()
    before, sizes = table.scan().to_arrow().sort_by("id"), table.inspect.files()["bytes"]
    report = table.maintenance.optimize()
    assert not report.idle
    compaction = report.compaction
    assert compaction.files_removed > 1
    assert compaction.rows_moved == table.scan().count()
    assert compaction.bytes_read == sum(sizes.to_pylist())
    assert compaction.bytes_written == sum(table.inspect.files()["bytes"].to_pylist())
    assert report.clean.deleted
    assert report.clean.bytes_freed == sum(sizes.to_pylist())
    assert table._handle.cache.snapshot().files.num_rows == 1
    assert table.scan().to_arrow().sort_by("id") == before
    table.maintenance.optimize()
    assert table.maintenance.optimize().idle
    assert not table.check.verify().problems


def test_a_table_that_fails_does_not_stop_the_others() -> None:
    """Nor does what is no error of Plait."""
    tables = [make(), make()]

    def handle(uri: str) -> TableHandle:
        if uri == "broken":
            message = "a bug"
            raise KeyError(message)
        return opened(uri)

    uris = [uri_of(tables[0]), "memory://runner-nowhere", "broken", uri_of(tables[1])]
    first, lost, broken, last = serve(uris, handle)
    assert isinstance(lost.error, TableNotFoundError)
    assert isinstance(broken.error, KeyError)
    assert broken.to_dict()["error"] == {"code": "bug", "message": "KeyError: 'a bug'"}
    for each in (first, last):
        assert each.report is not None
        assert each.report.compaction.commits
        assert not each.idle
    json.dumps([run.to_dict() for run in (first, lost, last)])


def test_what_has_expired_goes_before_it_is_compacted_and_is_not_looked_for_all_the_time() -> None:
    """A look may read a column: there are 24 within a time to live, and one an hour."""
    table = filled(make_expiring("mor"))
    uri, looks = uri_of(table), dict[str, Looks]()
    (run,) = serve([uri], opened, looks)
    assert run.expiry is not None
    assert run.expiry.rows_deleted == 6
    assert not run.idle
    json.dumps(run.to_dict())
    (again,) = serve([uri], opened, looks)
    assert again.expiry is None
    assert looks[uri].expiry_s is not None
    looks[uri].expiry_s -= 3_601
    (later,) = serve([uri], opened, looks)
    assert later.expiry is not None
    assert later.expiry.commits == ()
    (none,) = serve([uri_of(make())], opened)
    assert none.expiry is None


def test_a_bucket_at_which_a_living_compaction_works_is_left_to_it() -> None:
    """It would waste the work of one of them; nothing else hangs on it."""
    table = make()
    request = WriteRequest(Operation.COMPACT, partitions=((),))
    other = OptimisticTransaction.begin(table._handle, request)
    assert table.maintenance.optimize().compaction.commits == ()
    other.abort("it died", wrote=False)
    assert table.maintenance.optimize().compaction.commits


# --- what fails is in nobody's way ---------------------------------------------------------


def break_a_file(table: Table) -> None:
    """Damage a file that a compaction must read."""
    store = table._handle.store
    path = table._handle.cache.snapshot().files["path"][0].as_py()
    body = store.find(path) or b""
    store.put(path, b"x" * len(body))


def test_a_service_that_fails_keeps_no_other_from_its_turn() -> None:
    """Else one damaged file would let storage and the timeline of its table grow for ever."""
    table = make()
    table.alter.set({"checkpoint.interval": 1, "archive.keep": 1, "compact.hidden.percent": 1})
    for value in range(3):
        table.upsert(rows(value, value=value))
    break_a_file(table)
    with pytest.raises(CorruptMetadataError):
        table.maintenance.optimize()
    (run,) = serve([uri_of(table)], opened)
    assert isinstance(run.error, CorruptMetadataError)
    assert run.report is not None
    assert run.report.compaction is None
    assert run.report.clean is not None
    assert table._handle.cache.refresh().archive.files
    assert table._handle.cache.refresh().horizon > 0
    json.dumps(run.to_dict())


def test_a_time_to_live_that_nobody_can_tell_does_not_keep_a_table_from_its_upkeep() -> None:
    """Also where each look is a process of its own, as a scheduler starts it."""
    table = filled(make_expiring("mor"))
    for value in range(4):
        table.append(table.scan().to_arrow().slice(0, 0))
        table.delete(where=f"id = {value}")
    forge_schema(table._handle.store, lambda arrow: arrow.remove(arrow.get_field_index("ts")))
    (run,) = serve([uri_of(table)], opened)
    assert isinstance(run.error, SchemaMismatchError)
    assert run.expiry is None
    assert run.report is not None
    assert run.report.compaction is not None


def test_a_runner_knows_the_dead_of_a_machine_that_slept(clock: SimClock) -> None:
    """INV-06: it opens the table anew for each look, and remembers whom it doubted."""
    store = memory(clock)
    create(store)
    clock.advance(1_000)
    work = Work.begin(client(store, clock), mark="died")
    clock.suspend(8 * 3_600)
    looks: dict[str, Looks] = {}
    for _ in range(2):
        (run,) = serve(["t"], lambda _: client(store, clock), looks)
        assert run.report is not None
        assert run.report.rollback is not None
        ended = [each.instant for each in run.report.rollback.ended]
        clock.advance(30)
    assert ended == [work.txn.instant]


# --- the work is shared --------------------------------------------------------------------


def test_a_runner_leaves_partitions_to_others_that_came_to_them_meanwhile() -> None:
    """It asks before each commit, not only when it plans; and it may end a turn after each."""
    table = of_three_partitions()
    partitions = tuple(task.bucket[0] for task in table.maintenance.compact(dry_run=True).tasks)
    assert len(partitions) == 3
    pending: list[OptimisticTransaction] = []

    def come() -> None:
        request = WriteRequest(Operation.COMPACT, partitions=partitions)
        pending.append(OptimisticTransaction.begin(table._handle, request))

    report = beside(table, "publish", come).maintenance.optimize()
    assert report.compaction is not None
    assert len(report.compaction.commits) == 1
    pending[0].abort("a test", wrote=False)
    for left in (2, 1, 0):  # a table with work for hours does not make the others wait for it
        plan = table.maintenance.compact(dry_run=True)
        assert len(plan.tasks) == left
        done = compact(table._handle, plan, sharing=Sharing(over=lambda: True))
        assert len(done.commits) == min(left, 1)


def test_a_table_to_which_nothing_came_is_not_planned_again_at_each_look() -> None:
    """To plan a clean or a compaction of a large table takes seconds and much memory."""
    table, looks = make(), dict[str, Looks]()

    def look() -> OptimizeReport:
        (run,) = serve([uri_of(table)], opened, looks)
        assert run.report is not None
        assert run.error is None
        return run.report

    first = look()
    assert first.compaction is not None
    assert first.compaction.commits
    assert first.clean is not None
    while look().compaction is not None:
        pass
    again = look()
    assert (again.compaction, again.clustering, again.clean) == (None, None, None)
    assert again.idle
    table.upsert(rows(1, value=9))
    assert look().compaction is not None
    mine = looks[uri_of(table)]
    assert mine.clean_s is not None
    mine.clean_s -= 600
    assert look().clean is not None
    mine.idle = mine.idle[0], mine.idle[1] - 600
    assert look().compaction is not None
