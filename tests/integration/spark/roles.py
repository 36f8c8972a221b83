"""Four Spark jobs that write one table at once, and the model that judges what came of it.

``python -m tests.integration.spark.roles ROLE`` is one of them in a driver of its own. Each commit
is journaled with what it did: rows put or keys taken. Replayed in the order of versions, journals
give the table, row by row, or a commit was lost; and no correction may rest on a row that was
another one when it landed, or an update was lost.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from plait import ConflictError, Table
from plait.spark import session
from tests.services.local_spark import PATIENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "id bigint, part string, rev bigint, who string"
COUNTERS = 12
"""Ids that the correction counts up, and others write over and take away."""
BACKFILLED = 60
STOCK = 5_000
"""Where the rows begin that only deletes by predicate touch."""
TRIES_MAX = 60


@dataclass(frozen=True)
class Commit:
    """What one commit did."""

    version: int
    role: str
    put: dict[int, int] = field(default_factory=dict)
    """Revision by id."""
    taken: tuple[int, ...] = ()
    lost: int = 0
    """Conflicts before it."""


def create(uri: str, table_type: str, lock: str) -> Table:
    """Make the table that the jobs meet in."""
    table = Table.create(
        uri,
        DDL,
        record_key=["id"],
        partition_by=["part"],
        table_type=table_type,
        buckets=2,
        lock=lock,
    )
    table.alter.set({"checkpoint.interval": "7"})
    return table


def rows(spark: SparkSession, source: str, rev: int, who: str) -> DataFrame:
    """Give rows for ids of a query."""
    select = "id, concat('p', id % 2) AS part"
    return spark.sql(f"SELECT {select}, {rev}L AS rev, '{who}' AS who FROM ({source})")


def stock(spark: SparkSession, table: Table) -> Commit:
    """Put the first rows in."""
    ids = [*range(COUNTERS), *range(STOCK, STOCK + 200)]
    source = f"SELECT id FROM range({STOCK + 200}) WHERE id < {COUNTERS} OR id >= {STOCK}"
    done = table.insert(rows(spark, source, 0, "stock"))
    return Commit(done.version, "stock", dict.fromkeys(ids, 0))


def ingest(spark: SparkSession, table: Table, number: int) -> Commit:
    """Insert keys that nobody has."""
    start = 10_000 + 100 * number
    new = rows(spark, f"SELECT id FROM range({start}, {start + 50})", 0, "ingest")
    done = table.insert(new, on_conflict="retry")
    return Commit(done.version, "ingest", dict.fromkeys(range(start, start + 50), 0))


def backfill(spark: SparkSession, table: Table, number: int) -> Commit:
    """Upsert through the data source, over counters too."""
    rev = 1_000 * (number + 1)
    source = f"SELECT id FROM range({BACKFILLED}) WHERE id < 3 OR id >= {COUNTERS}"
    writer = rows(spark, source, rev, "backfill").write.format("plait").mode("append")
    name = f"backfill-{number}"
    allow = shlex.join(table._handle.consent.patterns)
    options = {"operation": "upsert", "on_conflict": "retry", "commit_id": name, "allow": allow}
    writer.options(**options).save(str(table.inspect.describe()["uri"]))
    done = table.inspect.find_commit(name)
    assert done is not None
    return Commit(
        done.version, "backfill", dict.fromkeys([0, 1, 2, *range(COUNTERS, BACKFILLED)], rev)
    )


def correction(spark: SparkSession, table: Table, number: int) -> Commit:
    """Count up what is there: an update that is computed from a read."""
    del number
    read = table.scan(["id", "part", "rev"], where=f"id < {COUNTERS}")
    found = read.to_spark(spark).selectExpr("id", "part", "rev + 1 AS rev", "'correction' AS who")
    with table.writer("upsert", read_from=read) as writer:
        writer.write(found)
    put = {row.id: row.rev for row in found.collect()}
    return Commit(writer.result.version, "correction", put)


def takeaway(spark: SparkSession, table: Table, number: int) -> Commit:
    """Delete a counter by its key, and put others away by a predicate."""
    if number % 2:
        low = STOCK + 10 * number
        done = table.delete(where=f"id >= {low} AND id < {low + 10}", on_conflict="retry")
        return Commit(done.version, "delete", taken=tuple(range(low, low + 10)))
    key = COUNTERS - 1 - number % 8
    keys = spark.sql(f"SELECT {key}L AS id, 'p{key % 2}' AS part")
    done = table.delete(keys=keys, on_conflict="retry")
    return Commit(done.version, "delete", taken=(key,))


ROLES: dict[str, Callable[[SparkSession, Table, int], Commit]] = {
    "ingest": ingest,
    "backfill": backfill,
    "correction": correction,
    "delete": takeaway,
}


def play(
    role: str, spark: SparkSession, uri: str, rounds: int, allow: Sequence[str] = ()
) -> Iterator[Commit]:
    """Do a role's work; a conflict sends it back to its read, as the error says."""
    table = Table.open(uri, allow=allow)
    for number in range(rounds):
        for lost in range(TRIES_MAX):
            try:
                done = ROLES[role](spark, table, number)
            except ConflictError:
                continue
            yield Commit(**{**asdict(done), "lost": lost})
            break
        else:
            message = f"{role} lost {TRIES_MAX} times"
            raise RuntimeError(message)


def judge(table: Table, commits: list[Commit]) -> None:
    """See to it that the table is what its commits make of it, in order, one by one."""
    ordered = sorted(commits, key=lambda commit: commit.version)
    versions = [commit.version for commit in ordered]
    landed = [e.version for e in table.inspect.history() if e.operation in _WRITING]
    assert versions == sorted(landed), "INV-10: every commit was reported, and none twice"
    model: dict[int, int] = {}
    for commit in ordered:
        if commit.role == "correction":
            before = {key: model.get(key, -1) + 1 for key in commit.put}
            assert commit.put == before, f"a lost update in version {commit.version}"
        if commit.role == "ingest":
            assert not set(commit.put) & set(model)
        model |= commit.put
        for key in commit.taken:
            model.pop(key, None)
    found = table.scan(["id", "rev"]).to_arrow()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), "INV-08: one live row a key"
    assert dict(zip(ids, found["rev"].to_pylist(), strict=True)) == model, "rows were lost"
    table.maintenance.rollback()
    assert table.check.verify(history=True).problems == ()
    assert table.check.verify().problems == ()


_WRITING = {"insert", "upsert", "delete"}


def main(role: str) -> None:
    """Be one job: a line with a table and the rounds comes in, one for each commit goes out."""
    config = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    spark = session(master="local[1]", **PATIENT, **config)
    spark.range(1).count()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        order = json.loads(line)
        for commit in play(role, spark, order["uri"], order["rounds"], order["allow"]):
            sys.stdout.write(json.dumps(asdict(commit)) + "\n")
        sys.stdout.write("done\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
