"""What every sink of the dual write must do. Subclass it and provide the fixture ``sink``.

The fixture is a new, empty sink for rows of ``SinkKit.schema``, with an ordering column. If your
sink has to be prepared, such as a table that must exist, prepare it in the fixture.
"""

# Tests: their names say what is promised, and their asserts are the point.
# ruff: noqa: S101, D102

from __future__ import annotations

import datetime as dt
import pickle  # noqa: TID251 - sinks travel to executors so; nothing foreign is loaded
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import ClassVar, TypeAlias

import pyarrow as pa

from plait.model.sink_ledger import is_sink_name
from plait.replicate.sink import Sink, SinkSchema, SinkSession

Row: TypeAlias = Mapping[str, object]


class SinkKit:
    """The guarantees of the sink protocol."""

    schema: ClassVar[SinkSchema] = SinkSchema(
        pa.schema(
            [
                pa.field("region", pa.string(), nullable=False),
                pa.field("id", pa.int64(), nullable=False),
                ("rev", pa.int64()),
                ("x", pa.float64()),
                ("label", pa.string()),
                ("flag", pa.bool_()),
                ("day", pa.date32()),
                ("seen", pa.timestamp("us", "UTC")),
                ("price", pa.decimal128(10, 2)),
                ("raw", pa.binary()),
            ]
        ),
        ("region", "id"),
        "rev",
    )
    """The columns of the rows. Override it if your sink cannot hold some of these types, or cannot
    compare ordering values."""

    # --- what the tests are made of ------------------------------------------------------------

    def records(self, rows: Iterable[Row]) -> pa.RecordBatch:
        """Return records of the schema; columns that a row does not name are null."""
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], self.schema.arrow)

    def row(self, key: int, label: str | None, rev: int | None = 0, region: str = "eu") -> Row:
        """Return a row of four columns."""
        return {"region": region, "id": key, "rev": rev, "label": label}

    def put(self, sink: Sink, *batches: Iterable[Row], ordered: bool = True) -> None:
        """Put batches in one session."""
        schema = self.schema if ordered else replace(self.schema, ordering=None)
        with closing(sink.open(schema)) as session:
            for rows in batches:
                session.batch_put(self.records(rows))
                session.flush()

    def remove(self, session: SinkSession, *keys: tuple[str, int]) -> None:
        """Remove keys of (region, id)."""
        rows = [dict(zip(self.schema.key, key, strict=True)) for key in keys]
        session.batch_remove(pa.RecordBatch.from_pylist(rows, self.schema.keys))
        session.flush()

    def held(self, sink: Sink) -> list[Row]:
        """Return all rows by key, read in a session of their own."""
        with closing(sink.open(self.schema)) as session:
            batches = list(session.held())
        assert all(batch.schema.equals(self.schema.arrow) for batch in batches)
        rows = [row for batch in batches for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: tuple(row[name] for name in self.schema.key))

    def labels(self, sink: Sink) -> list[tuple[object, object]]:
        """Return the id and the label of each row."""
        return [(row["id"], row["label"]) for row in self.held(sink)]

    # --- what it is ----------------------------------------------------------------------------

    def test_it_has_a_name_for_ledgers_and_travels_to_other_processes(self, sink: Sink) -> None:
        assert is_sink_name(sink.name)
        copy = pickle.loads(pickle.dumps(sink))  # noqa: S301 - our own bytes
        self.put(copy, [self.row(1, "a")])
        assert (copy.name, self.labels(sink)) == (sink.name, [(1, "a")])

    def test_a_new_one_holds_nothing(self, sink: Sink) -> None:
        assert self.held(sink) == []

    # --- put -----------------------------------------------------------------------------------

    def test_what_was_flushed_is_held_whatever_becomes_of_the_session(self, sink: Sink) -> None:
        session = sink.open(self.schema)
        session.batch_put(self.records([self.row(1, "a"), self.row(2, "b")]))
        session.flush()
        assert self.labels(sink) == [(1, "a"), (2, "b")]
        session.close()
        assert self.labels(sink) == [(1, "a"), (2, "b")]

    def test_it_holds_exactly_the_values_that_were_put(self, sink: Sink) -> None:
        whole: Row = {
            "region": "eu 'quoted' \u00fc",
            "id": -(1 << 63),
            "rev": (1 << 63) - 1,
            "x": 1e-300,
            "label": "",
            "flag": False,
            "day": dt.date(1, 1, 1),
            "seen": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
            "price": Decimal("-12345678.90"),
            "raw": b"\x00\xff",
        }
        empty: Row = dict.fromkeys(self.schema.arrow.names) | {"region": "", "id": 0}
        self.put(sink, [whole, empty])
        kept = set(self.schema.arrow.names)
        expected = [{k: v for k, v in row.items() if k in kept} for row in (empty, whole)]
        assert self.held(sink) == expected

    def test_putting_again_changes_nothing(self, sink: Sink) -> None:
        batch = [self.row(1, "a"), self.row(2, "b")]
        self.put(sink, batch, batch)
        self.put(sink, batch)
        assert self.labels(sink) == [(1, "a"), (2, "b")]

    def test_a_put_replaces_the_whole_row_with_its_key_and_no_other(self, sink: Sink) -> None:
        self.put(sink, [self.row(1, "a"), self.row(2, "b"), self.row(1, "c", region="us")])
        self.put(sink, [self.row(1, None)])
        assert self.labels(sink) == [(1, None), (2, "b"), (1, "c")]

    def test_later_batches_and_later_records_of_a_batch_win(self, sink: Sink) -> None:
        self.put(sink, [self.row(1, "a"), self.row(1, "b")], [self.row(2, "a")])
        self.put(sink, [self.row(2, "b")], [self.row(2, "c")])
        assert self.labels(sink) == [(1, "b"), (2, "c")]

    def test_a_batch_that_was_not_flushed_can_be_put_again(self, sink: Sink) -> None:
        session = sink.open(self.schema)
        session.batch_put(self.records([self.row(1, "a"), self.row(2, "b")]))
        session.close()
        self.put(sink, [self.row(1, "a"), self.row(2, "b")])
        assert self.labels(sink) == [(1, "a"), (2, "b")]

    def test_two_sessions_work_at_the_same_time(self, sink: Sink) -> None:
        with closing(sink.open(self.schema)) as one, closing(sink.open(self.schema)) as two:
            for at in range(3):
                for session, key in ((one, at), (two, 10 + at)):
                    session.batch_put(self.records([self.row(key, "x")]))
                    session.flush()
        assert [key for key, _ in self.labels(sink)] == [0, 1, 2, 10, 11, 12]

    def test_more_rows_than_one_fetch_are_held(self, sink: Sink) -> None:
        rows = [self.row(key, str(key)) for key in range(25_000)]
        self.put(sink, rows)
        assert self.labels(sink) == [(key, str(key)) for key in range(25_000)]

    # --- the ordering column -------------------------------------------------------------------

    def test_the_row_with_the_greater_ordering_value_stays(self, sink: Sink) -> None:
        if self.schema.ordering is None:
            return
        self.put(sink, [self.row(1, "new", 7), self.row(2, "new", 7)])
        self.put(sink, [self.row(1, "old", 6), self.row(2, "newer", 8)])
        assert self.labels(sink) == [(1, "new"), (2, "newer")]
        self.put(sink, [self.row(3, "b", 2), self.row(3, "a", 1)])
        assert self.labels(sink)[2] == (3, "b")

    def test_of_equal_ordering_values_the_later_put_wins(self, sink: Sink) -> None:
        self.put(sink, [self.row(1, "a", 7)], [self.row(1, "b", 7)])
        self.put(sink, [self.row(2, "a", None)], [self.row(2, "b", None)])
        assert self.labels(sink) == [(1, "b"), (2, "b")]

    def test_null_is_less_than_every_ordering_value(self, sink: Sink) -> None:
        if self.schema.ordering is None:
            return
        self.put(sink, [self.row(1, "value", -5), self.row(2, "null", None)])
        self.put(sink, [self.row(1, "null", None), self.row(2, "value", -5)])
        assert self.labels(sink) == [(1, "value"), (2, "value")]

    def test_without_an_ordering_column_the_last_put_wins(self, sink: Sink) -> None:
        """So repair can set a row back to what the table has."""
        self.put(sink, [self.row(1, "new", 7)])
        self.put(sink, [self.row(1, "old", 6)], ordered=False)
        assert self.labels(sink) == [(1, "old")]

    # --- remove --------------------------------------------------------------------------------

    def test_removed_keys_are_gone_and_no_other(self, sink: Sink) -> None:
        self.put(sink, [self.row(1, "a"), self.row(2, "b"), self.row(1, "c", region="us")])
        if not sink.removes:
            return
        with closing(sink.open(self.schema)) as session:
            self.remove(session, ("eu", 1), ("eu", 9))
            self.remove(session, ("eu", 1))
        assert self.labels(sink) == [(2, "b"), (1, "c")]

    def test_a_removed_row_may_come_again_with_a_smaller_ordering_value(self, sink: Sink) -> None:
        self.put(sink, [self.row(1, "a", 7)])
        if not sink.removes:
            return
        with closing(sink.open(self.schema)) as session:
            self.remove(session, ("eu", 1))
        self.put(sink, [self.row(1, "b", 6)])
        assert self.labels(sink) == [(1, "b")]

    # --- close ---------------------------------------------------------------------------------

    def test_closing_raises_nothing_not_even_twice(self, sink: Sink) -> None:
        session = sink.open(self.schema)
        session.close()
        session.close()
