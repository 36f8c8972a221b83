"""The dual write into PostgreSQL: what the kit of sinks does not ask."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
import sqlalchemy as sa

from plait import ReplicationError, Table
from plait.ports import SystemIds
from plait.replicate import Replicas, Retries, SqlSink, repair, status
from tests.services.postgresql import PostgreSql
from tests.support import build

pytestmark = pytest.mark.postgresql

SCHEMA = "id bigint, region string, x double, rev string"
rows = partial(build.rows, region="eu", x=0.0, rev="a")


@pytest.fixture
def sink(postgresql: PostgreSql) -> SqlSink:
    return SqlSink("serving", postgresql.url, f"t_{SystemIds().nonce()}")


@pytest.fixture
def t(tmp_path) -> Table:
    return Table.create(
        str(tmp_path / "t"), SCHEMA, record_key="id", partition_by="region", ordering="rev"
    )


def ask(sink: SqlSink, text: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(sink.url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        return [tuple(row) for row in connection.execute(sa.text(text.format(t=sink.table)))]


def write(t: Table, sink: SqlSink, *data: pa.Table, between: Callable[[], object] = list) -> None:
    with t.writer("upsert", replicas=Replicas([sink], batch_size=2)) as writer:
        for each in data:
            writer.write(each)
            between()


def test_rows_have_the_types_of_the_database(t, sink) -> None:
    write(t, sink, rows(1, 2, x=math.nan))
    found = ask(sink, "SELECT count(*), sum(id), min(x) FROM {t} WHERE region = 'eu'")
    assert found[0][:2] == (2, 3)
    assert math.isnan(found[0][2])
    assert repair(t, sink).equal


def test_texts_are_ordered_by_their_bytes_as_in_the_table(t, sink) -> None:
    """Most collations put 'a' before 'B'."""
    write(t, sink, rows(1, x=1.0, rev="a"))
    write(t, sink, rows(1, x=2.0, rev="B"))
    assert ask(sink, "SELECT x FROM {t}") == [(1.0,)]
    assert repair(t, sink).equal


def test_a_connection_that_the_server_ends_is_opened_again(t, sink) -> None:
    def end_all() -> None:
        ask(sink, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                  " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")  # fmt: skip

    write(t, sink, rows(1, 2), rows(3, 4), rows(5, 6), between=end_all)
    assert ask(sink, "SELECT count(*) FROM {t}") == [(6,)]
    assert [each.in_step for each in status(t)] == [True]


def test_a_row_that_the_database_refuses_fails_the_write_and_leaves_no_part_of_its_batch(
    t, sink
) -> None:
    """Such as a text with a zero byte, which PostgreSQL cannot hold."""
    bad = pa.table({"id": [8, 9], "region": ["eu", "a\0b"], "x": [0.0, 0.0], "rev": ["a", "a"]})
    with pytest.raises(ReplicationError):
        write(t, sink, rows(1, 2), bad)
    assert ask(sink, "SELECT id FROM {t} ORDER BY id") == [(1,), (2,)]
    assert len(status(t)[0].ahead) == 1
    repair(t, sink)
    assert ask(sink, "SELECT count(*) FROM {t}") == [(0,)]


def test_two_writers_of_the_same_keys_leave_the_sink_as_the_table(t, sink) -> None:
    """One is refused; its rows may be in the sink, and status says so."""
    replicas = Replicas([sink], batch_size=1, retries=Retries(attempts=2))
    first, second = (t.writer("upsert", replicas=replicas) for _ in range(2))
    with first, second:
        first.write(rows(1, x=1.0))
        second.write(rows(2, x=2.0))
    assert [each.in_step for each in status(t)] == [True]
    assert repair(t, sink).equal
    assert ask(sink, "SELECT x FROM {t} ORDER BY id") == [(1.0,), (2.0,)]


def test_a_server_that_is_gone_fails_the_write_with_its_reason(t) -> None:
    gone = SqlSink("gone", "postgresql+psycopg://nobody:secret@127.0.0.1:1/db", "t")
    retries = Retries(attempts=2, pause_s=0.01)
    with (
        pytest.raises(ReplicationError) as caught,
        t.writer("upsert", replicas=Replicas([gone], retries=retries)) as writer,
    ):
        writer.write(rows(1))
    assert caught.value.outcomes[0]["attempts"] == 2
    assert "secret" not in str(caught.value)
    assert t.scan().to_arrow().num_rows == 0
