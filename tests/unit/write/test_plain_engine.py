"""An engine of nothing but the methods that every engine has writes; what it lacks is refused."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from plait import Table
from plait.arrow.engine import sum_rows
from plait.arrow.staging import ArrowStaging
from plait.engine import Engine, ForwardingStaging, Staging, engine_within
from plait.errors import InvariantError, OptionError, RetryableConflictError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import Digest, WriteStatus
from plait.model.plan import Snapshot
from plait.model.request import WritePlan
from plait.replicate import Replicas, TableSink
from plait.write.request import write_request
from plait.write.writer import Writer

ROWS = pa.table({"id": [1, 2], "v": [1, 2]})


class PlainStaging(Staging):
    """Has the three methods that a staging must have."""

    engine: ClassVar[str] = "plain"

    def __init__(self, inner: Staging) -> None:
        self._inner = inner

    def write(self, data: object) -> None:
        self._inner.write(data)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        return self._inner.stage(snapshot, buckets)

    def close(self) -> None:
        self._inner.close()


class PlainEngine(Engine):
    """Has the four methods that an engine must have."""

    @property
    def name(self) -> str:
        return "plain"

    def accepts(self, data: object) -> bool:
        return isinstance(data, pa.Table)

    def staging(
        self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]
    ) -> PlainStaging:
        return PlainStaging(ArrowStaging(plan, announce))

    def digest(self, data: object, plan: WritePlan) -> Digest:
        return sum_rows(data, plan)


@pytest.fixture
def t(request) -> Table:
    return Table.create(f"memory://{request.node.name}", "id bigint, v bigint", record_key="id")


def writer(t: Table, operation: str, **asked: Any) -> Writer:
    spec = t._handle.cache.known().table.spec
    return Writer(t._handle, write_request(operation, spec, **asked), default=PlainEngine())


def test_rows_are_written_and_replaced(t: Table) -> None:
    for value in (1, 2):
        with writer(t, "upsert") as w:
            w.write(pa.table({"id": [1, 2], "v": [value, value]}))
    assert t.scan().to_arrow()["v"].to_pylist() == [2, 2]


def test_what_the_engine_lacks_is_refused_by_its_name(t: Table) -> None:
    with (
        pytest.raises(OptionError, match="the engine plain does not take removals") as refused,
        writer(t, "upsert") as w,
    ):
        w.remove(pa.table({"id": [1]}))
    assert (refused.value.facts["key"], refused.value.facts["value"]) == ("keys", "plain")
    with (
        pytest.raises(OptionError, match="the engine plain does not add columns"),
        writer(t, "upsert", evolve="add") as w,
    ):
        w.write(ROWS)
    assert t.scan().count() == 0
    engine = PlainEngine()
    with pytest.raises(OptionError, match="the engine plain cannot rewrite files"):
        _ = engine.width
    assert engine.within(object()) is None
    assert engine_within(None, engine) is engine, "it is the default where none is given"


def test_rows_that_sinks_would_not_get_are_refused_however_often_they_are_given(t: Table) -> None:
    sinks = Replicas([TableSink("copy", f"{t._handle.store.address.uri}-copy")])
    order = write_request("upsert", t._handle.cache.known().table.spec)
    w = Writer(t._handle, order, default=PlainEngine(), replicas=sinks).__enter__()
    for _ in range(2):
        with pytest.raises(OptionError, match="cannot send rows to replicas"):
            w.write(ROWS)
    with pytest.raises(OptionError, match="cannot send rows to replicas"):
        w.__exit__(None, None, None)
    assert t.scan().count() == 0
    assert not t.inspect.timeline().pending


def test_rows_are_not_staged_again_under_another_layout(t: Table) -> None:
    with writer(t, "upsert") as w:
        w.write(ROWS)
        assert w._parts is not None
        inner = w._parts.begun[0].staging
        for staging in (inner, ForwardingStaging(inner)):
            with pytest.raises(RetryableConflictError, match="engine plain cannot stage rows"):
                staging.restaged(None)  # type: ignore[arg-type]


def test_what_a_staging_does_not_know_counts_as_possible(t: Table) -> None:
    with writer(t, "upsert") as w:
        w.write(ROWS)
        assert w._parts is not None
        inner = w._parts.begun[0].staging
        for each in (inner, ForwardingStaging(inner)):
            assert each.wrote
            assert (each.read_set, each.reach(), each.keys_asked()) == (None, None, None)
            assert not each.relays
            assert not each.relayed
            with pytest.raises(InvariantError):
                each.relay_through(None)  # type: ignore[arg-type]
