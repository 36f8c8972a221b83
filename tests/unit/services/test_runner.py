"""The runner keeps tables in shape, one failing table beside the others, and shares the work."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa

from plait import Table
from plait.errors import TableNotFoundError
from plait.services.runner import serve
from tests.support.expiry import filled
from tests.support.expiry import make as make_expiring

NAMES = map(str, itertools.count())


def rows(*ids: int, value: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids)})


def make() -> Table:
    table = Table.create(
        f"memory://runner-{next(NAMES)}",
        "id bigint, value bigint",
        record_key="id",
        table_type="mor",
        buckets=1,
        properties={"clean.retain.time": "0s", "clean.retain.versions": 1, "clean.grace": "0s"},
    )
    for value in range(4):
        table.upsert(rows(*range(20 * value, 20 * value + 25), value=value))
    return table


def uri_of(table: Table) -> str:
    return str(table.describe()["uri"])


def test_optimize_does_what_falls_due_and_then_nothing() -> None:
    """INV-14: the dead are ended, logs merged, versions let go; the rows stay."""
    table = make()
    before = table.scan().to_arrow().sort_by("id")
    report = table.optimize()
    assert not report.idle
    assert report.compaction.files_removed > 1
    assert report.clean.deleted
    assert table.handle.cache.snapshot().files.num_rows == 1
    assert table.scan().to_arrow().sort_by("id") == before
    table.optimize()
    assert table.optimize().idle
    assert not table.verify().problems


def test_a_table_that_fails_does_not_stop_the_others() -> None:
    tables = [make(), make()]
    uris = [uri_of(tables[0]), "memory://runner-nowhere", uri_of(tables[1])]
    first, lost, last = serve(uris, lambda uri: Table.open(uri).handle)
    assert isinstance(lost.error, TableNotFoundError)
    for each in (first, last):
        assert each.report is not None
        assert each.report.compaction.commits
    json.dumps([run.to_dict() for run in (first, lost, last)])


def test_what_has_expired_goes_before_it_is_compacted_and_is_not_looked_for_all_the_time() -> None:
    """A look may read a column: there are 24 within a time to live, and one an hour."""
    table = filled(make_expiring("mor"))
    uri, looked = uri_of(table), dict[str, float]()
    (run,) = serve([uri], lambda uri: Table.open(uri).handle, looked)
    assert run.expiry is not None
    assert run.expiry.rows_deleted == 6
    assert not run.idle
    json.dumps(run.to_dict())
    (again,) = serve([uri], lambda uri: Table.open(uri).handle, looked)
    assert again.expiry is None
    looked[uri] -= 3_601
    (later,) = serve([uri], lambda uri: Table.open(uri).handle, looked)
    assert later.expiry is not None
    assert later.expiry.commits == ()
    (none,) = serve([uri_of(make())], lambda uri: Table.open(uri).handle)
    assert none.expiry is None


def test_a_bucket_at_which_a_living_compaction_works_is_left_to_it() -> None:
    """It would waste the work of one of them; nothing else hangs on it."""
    from plait.model.instant import Operation
    from plait.model.request import WriteRequest
    from plait.txn.transaction import OptimisticTransaction

    table = make()
    request = WriteRequest(Operation.COMPACT, partitions=((),))
    other = OptimisticTransaction.begin(table.handle, request)
    assert table.optimize().compaction.commits == ()
    other.abort("it died", wrote=False)
    assert table.optimize().compaction.commits
