"""A table that a newer Plait wrote: what is unknown here is refused by name (RFC 0029)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest

from plait import Table, UnsupportedFeatureError
from plait.definition.features import KNOWN, WRITERS_ONLY, definition_features, divided
from plait.services.definition.drop import drop_table
from plait.state.checkpoint import load_checkpoint, write_checkpoint
from plait.state.state import require_writable
from plait.storage.port import Store
from plait.timeline import paths
from tests.support import build
from tests.support.build import again
from tests.support.forge import reseal_checkpoint, rewrite

Edit = Callable[[dict[str, object]], object]
NEW = ["writer-features-1"]


rows = partial(build.rows, v=lambda _: 0, schema=pa.schema([("id", pa.int64()), ("v", pa.int32())]))


@pytest.fixture
def t() -> Table:
    how = {"table_type": "mor", "buckets": 1, "properties": {"checkpoint.interval": "3"}}
    table = build.make("id bigint, v int", **how)
    for number in range(4):
        table.upsert(rows(number))
    return table


def newer_writes(t: Table, **keys: object) -> Store:
    """Let the newest decision be one of a newer Plait."""
    store = t._handle.store

    def edit(document: dict[str, object]) -> None:
        named = [*document["features"], *NEW]  # type: ignore[misc]  # a list
        document.update({"features": named, **keys})

    rewrite(store, t.version, edit)
    return store


def files(store: Store) -> set[str]:
    """Return what a table has, but for the pins of its readers and hints."""
    free = (f"{paths.LEASES}/", ".meta/hints/", ".meta/locks/")
    return {info.path for info in store.list("") if not info.path.startswith(free)}


WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows(9)),
    "delete": lambda t: t.delete(where="id = 1"),
    "update": lambda t: t.update({"v": "7"}, where="id = 1"),
    "merge of rows": lambda t: t.upsert(rows(1), on_conflict="retry"),
    "transaction": lambda t: t.transaction().__enter__().append(rows(9)),
    "stream": lambda t: t.stream("app").writer("insert", after=None, end="1").__enter__(),
    "options": lambda t: t.alter.set({"clean.grace": "1h"}),
    "columns": lambda t: t.alter.columns().add("n", "int").commit(),
    "compaction": lambda t: t.maintenance.compact(full=True),
    "savepoint": lambda t: t.versions.savepoint("here"),
    "restore": lambda t: t.versions.restore(version=1),
    "repush": lambda t: t.layout.repush(buckets=4),
    "contract": lambda t: t.alter.contract(failed_writes="lazy"),
    "sink": lambda t: t.replicas.add("eu=memory://features-eu"),
}


@pytest.mark.parametrize("name", WRITES)
def test_an_unknown_feature_of_writers_refuses_every_write_and_leaves_nothing(
    t: Table, name: str
) -> None:
    store = newer_writes(t, writer_features=["checks-9"])
    older = again(t)
    before = files(store)
    with pytest.raises(UnsupportedFeatureError, match="checks-9") as refused:
        WRITES[name](older)
    assert refused.value.features == ["checks-9"]
    assert files(store) == before


def test_a_table_with_an_unknown_feature_of_writers_is_read_as_every_other(t: Table) -> None:
    """INV-04: by scans, time travel, changes and reports; an unknown property is read over.

    A client that may not write writes no checkpoint: it would leave out what it does not know.
    """
    t.alter.set({"clean.grace": "1h"})

    def edit(document: dict[str, object]) -> None:
        document["table"]["properties"]["encoding.newer"] = "on"  # type: ignore[index]  # a dict

    rewrite(t._handle.store, t.version, edit)
    with pytest.raises(UnsupportedFeatureError) as refused:
        again(t).upsert(rows(9))
    assert refused.value.features == ["property encoding.newer"]
    store = newer_writes(again(t), writer_features=["checks-9"])
    older = again(t)
    assert older.scan().to_arrow().num_rows == 4
    assert older.scan(version=2).to_arrow().num_rows == 2
    assert older.changes(since=2).to_arrow().num_rows == 2
    assert older.check.verify().clean
    assert older.inspect.history()[0].version == 5
    state, before = older._handle.cache.known(), files(store)
    assert state.tail
    with pytest.raises(UnsupportedFeatureError):
        write_checkpoint(store, state, t._handle.ports)
    assert files(store) == before
    newer_writes(again(t), features=["slots-1", "encoding-9"], writer_features=["checks-9"])
    with pytest.raises(UnsupportedFeatureError) as refused:
        again(t)
    assert refused.value.features == ["encoding-9"]


def test_a_writer_at_work_is_refused_when_a_newer_one_turns_a_feature_on(t: Table) -> None:
    """INV-05: what it staged is never seen. A client that knows the feature removes it."""
    late = t.writer("upsert").__enter__()
    late.write(rows(7))
    other = again(t)
    version = other.upsert(rows(8)).version
    newer_writes(other, writer_features=["checks-9"])
    with pytest.raises(UnsupportedFeatureError) as refused:
        late.__exit__(None, None, None)
    assert refused.value.features == ["checks-9"]
    opened = again(t)
    assert opened.version == version
    assert 7 not in opened.scan().to_arrow()["id"].to_pylist()


def test_a_checkpoint_tells_what_writers_must_know(t: Table) -> None:
    """INV-11: whoever opens by a checkpoint sees no decision that says so."""
    store = t._handle.store
    at = max(v for v in range(t.version + 1) if store.find(paths.checkpoint(v)))
    reseal_checkpoint(store, at, writer_features=["checks-9"])
    state = load_checkpoint(store, at)
    assert state is not None
    with pytest.raises(UnsupportedFeatureError):
        require_writable(state)


def test_features_of_writers_are_told_apart_and_marked(t: Table) -> None:
    assert set(WRITERS_ONLY) <= set(KNOWN)
    assert divided(frozenset()).writers == ()
    assert "writer-features-1" not in divided(frozenset({"ttl-1"})).readers
    t.alter.set({"rows.written": "on"})
    t.upsert(rows(9))
    decision = t._handle.cache.timeline.find(t.version)
    assert decision is not None
    assert decision.writer_features == ("rows-written-1",)
    assert decision.features[-1] == "writer-features-1"


DDL = "id bigint, at timestamp, place string, v int"


def plain(change: Callable[[Table], object]) -> Table:
    """Return a table that was changed once."""
    table = build.make(DDL, buckets=1)
    change(table)
    return table


unkeyed = partial(build.make, DDL, record_key=())
DEFINED: dict[str, Callable[[], Table]] = {
    "ttl-1": lambda: unkeyed(ttl="at 30d row"),
    "rows-written-1": lambda: unkeyed(properties={"rows.written": "on"}),
    "bucket-by-1": lambda: build.make(DDL, record_key=["id", "place"], bucket_by="id", buckets=2),
    "partition-fields-1": lambda: unkeyed(partition_by="day(at)"),
    "replicas-1": lambda: build.make(DDL, replicas=["far=memory://features-sink"]),
    "checks-1": lambda: unkeyed(checks={"some": "v > 0"}),
    "unique-table-1": lambda: build.make(DDL, partition_by="place", unique="table"),
    "generated-columns-1": lambda: unkeyed(generated={"v": "length(place)"}),
    "published-1": lambda: unkeyed(properties={"publish": "delta"}),
    "dropped-1": lambda: plain(lambda table: drop_table(table._handle)),
    "defaults-1": lambda: plain(lambda table: table.alter.columns().default("v", 1).commit()),
    "repush-1": lambda: plain(lambda table: table.layout.repush(buckets=2)),
}


@pytest.mark.parametrize("feature", DEFINED)
def test_a_definition_needs_what_its_bytes_need(feature: str) -> None:
    """What a writer asks before it decides, and what the decision then says, are the same."""
    table = DEFINED[feature]()
    defined = table._handle.cache.known().table
    needed = set(definition_features(defined.to_dict()))
    assert needed == set(defined.features) == {feature}
