"""A stream of rows and removals, over several writers' runs, against a dict (INV-08, INV-09)."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import Table
from plait.stream.participant import Participant
from plait.stream.transport import Hub
from tests.property.test_writer_model import SCHEMA, Model, Row, definitions, keyed_rows, sizes
from tests.support.effort import share

_NUMBERS = itertools.count()
steps = st.tuples(
    st.lists(keyed_rows, max_size=8),
    st.one_of(st.none(), st.lists(keyed_rows, max_size=4)),
    st.sampled_from(["write", "remove", "turn", "late", "commit", "commit"]),
)


def table_of(rows: list[Row], names: list[str] | None = None) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA).select(names or SCHEMA.names)


class Changes:
    """One writer with its coordinator, and what the table should hold once all is decided."""

    def __init__(self, table: Table) -> None:
        hub, stream = Hub(), table.stream("s")
        self.coordinator = stream.coordinator(hub.coordinator(), "upsert")
        self.writer: Participant = stream.participant(hub.writer(), "w")
        self.model = Model(table._handle.cache.known().table)  # type: ignore[arg-type]  # it has a spec
        self.names = list(
            dict.fromkeys([*self.model.spec.key, *self.model.spec.layout.partition_by])
        )
        self.coordinator.start()
        for _ in range(2):
            self.writer.poll()
            self.coordinator.poll()

    def take(self, rows: list[Row], gone: list[Row] | None, how: str) -> None:
        start = self.writer.offset("a")
        place = {"source": "a", "start": start, "end": str(int(start or 0) + 1)}
        removals = None if gone is None else table_of(gone, self.names)
        for row in gone or ():
            self.model.rows.pop(self.model.key(row), None)
        if how == "remove" and removals is not None:
            self.writer.remove(removals, **place)
            return
        self.model.rows = self.model.newest(rows, self.model.rows)
        self.writer.write(table_of(rows), **place, removals=removals)

    def turn(self, *, settles: bool = True) -> None:
        self.coordinator.checkpoint(wait_s=0)
        self.writer.poll()
        if settles:
            self.writer.settle()

    def close(self) -> None:
        self.writer.settle()
        self.turn()
        self.coordinator.complete()
        self.writer.close()
        self.coordinator.close()


@given(definition=definitions, buffer=sizes, bucket=sizes, work=st.lists(steps, max_size=9))
@settings(max_examples=share(40))
def test_a_stream_of_changes_leaves_what_a_dict_would(
    definition: dict[str, Any], buffer: int, bucket: int, work: list[Any]
) -> None:
    definition = {**definition, "record_key": definition["key"]}
    del definition["key"]
    table = Table.create(
        f"memory://modelled-removals-{next(_NUMBERS)}",
        SCHEMA,
        properties={"write.buffer.size": str(buffer), "write.bucket.size": str(bucket)},
        **definition,
    )
    changes, numbers = Changes(table), itertools.count()
    for rows, gone, how in work:
        changes.take([{**row, "v": next(numbers)} for row in rows], gone, how)
        if how in ("turn", "late", "commit"):
            changes.turn(settles=how != "late")
        if how == "commit":
            changes.coordinator.complete()
    changes.close()
    found = sorted(table.scan().to_arrow().to_pylist(), key=repr)
    wanted = ({name: row[name] for name in SCHEMA.names} for row in changes.model.rows.values())
    assert found == sorted(wanted, key=repr)
    assert table.stream("s").audit().problems == ()
