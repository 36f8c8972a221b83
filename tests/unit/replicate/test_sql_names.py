"""No name of a column or a table breaks a SQL sink, in any of its dialects."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import psycopg

from plait import Table
from plait.replicate import Replicas, SqlSink, repair
from plait.replicate.sink import SinkSchema
from plait.replicate.sql_sink import Encoding, SqlSession, _define
from tests.support.memory import forget

NAMES = [
    "%(id)s", "%(a", "a)s", "%s", "%%", ":x", "a:b", "a b", "a_b", "a.b", 'a"b', "a'b", "a`b",
    "a?b",
    "(x)", "[x]", "key_0", "c0", "c1", "x\ny", "é", "select", "excluded", "--", ";",
]  # fmt: skip


def rows(schema: pa.Schema, *ids: str, number: int) -> pa.Table:
    columns = [pa.array(ids) if f.type == pa.string() else [number] * len(ids) for f in schema]
    return pa.table(columns, schema=schema)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_name_is_no_more_than_a_name(name: str, tmp_path: Path, *, ordered: bool) -> None:
    """In the key, the ordering, the values and the table; put, put again, removed, compared."""
    schema = pa.schema([(name, pa.string()), (f"{name}_o", pa.int64()), (f"{name}_v", pa.int64())])
    forget("memory://sql-names")
    ordering = f"{name}_o" if ordered else None
    table = Table.create("memory://sql-names", schema, record_key=[name], ordering=ordering)
    sink = SqlSink("s", f"sqlite:///{tmp_path}/x.db", f"t{name}")
    for number, ids in enumerate((("a", "b", "c"), ("b",))):
        with table.writer("upsert", replicas=Replicas([sink])) as writer:
            writer.write(rows(schema, *ids, number=number))
            writer.remove(pa.table({name: ["c"]}))
    quoted = f"t{name}".replace('"', '""')
    with sqlite3.connect(tmp_path / "x.db") as database:
        found = database.execute(f'SELECT * FROM "{quoted}"').fetchall()
    database.close()
    assert sorted(found) == [("a", 0, 0), ("b", 1, 1)]
    assert repair(table, sink, dry_run=True).equal


def test_parameters_of_postgresql_are_told_apart_whatever_columns_are_called() -> None:
    schema = pa.schema([pa.field(name, pa.int64()) for name in NAMES])
    wanted = SinkSchema(schema, (NAMES[0],), None)
    encodings = {each.name: Encoding.of(each, "postgresql") for each in schema}
    made = _define("t", wanted, encodings)
    engine = sa.create_engine("postgresql+psycopg://h/d")
    session = SqlSession(engine, None, made, wanted, encodings, "")  # type: ignore[arg-type]
    batch = pa.record_batch([[n] for n in range(len(NAMES))], schema=schema)
    (row,) = session._rows(batch)
    compiled = session._upsert().compile(dialect=psycopg.dialect(), column_keys=list(row))
    assert sorted(compiled.construct_params(row).values()) == list(range(len(NAMES)))
    assert dict(compiled.escaped_bind_names) == {}
