"""Spark Connect: clients without a JVM, against a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import BadRecordError, DuplicateKeyError, RolledBackError, SchemaMismatchError, Table
from plait.spark.java import find_java
from tests.conftest import missing
from tests.integration.spark.tables import (
    arrow_rows,
    assert_sound,
    assert_sound_in_the_end,
    frame,
    make,
    revisions,
)
from tests.integration.spark.test_cancel import ASLEEP_S, ended_while_it_runs, slow
from tests.integration.spark.test_cancel import make as slow_table
from tests.integration.spark.test_stream import Pipe, ids
from tests.services.spark import ConnectServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
CLASSIC = ("getLocalProperty(_QUERY)", "# of classic sessions alone")
INSIDE = re.compile(r"py4j|_jvm\b|_jdf\b|_jsparkSession|_jsc\b|_jc\b|_jconf\b|sparkContext|\.rdd\b")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    for library in ("pyspark", "grpc", "grpc_status", "zstandard"):
        if find_spec(library) is None:
            missing(f"{library} is not installed")
    if find_java(os.environ) is None:
        missing("no Java 17 or newer")
    with ConnectServer(tmp_path_factory.mktemp("connect")) as found:
        yield found


@pytest.fixture(scope="module")
def remote(server: ConnectServer) -> Iterator[SparkSession]:
    """Give a session beside the classic one that other tests of this process have."""
    from pyspark.sql.connect.session import SparkSession as Client

    found = Client.builder.remote(server.remote).create()
    yield found
    found.stop()


def test_nothing_reaches_into_the_jvm() -> None:
    """Connect has none, so whatever uses one works in no Connect session.

    The one that may: in a classic session the driver's thread knows whose batch it has, and the
    code looks which kind of session it is first.
    """
    found = [
        f"{file.name}:{number}"
        for file in (ROOT / "src").rglob("*.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if INSIDE.search(line) and not any(classic in line for classic in CLASSIC)
    ]
    assert found == []


@pytest.mark.long(1)
@pytest.mark.parametrize(("kind", "partitioned"), [("cow", False), ("mor", True)])
def test_every_operation_gives_what_a_dict_gives(
    remote: SparkSession, tmp_path: Path, kind: str, *, partitioned: bool
) -> None:
    """INV-07, INV-08: the same as in a classic session, also where another writer was first."""
    table = make(tmp_path / "t", kind, partitioned=partitioned)
    model = dict.fromkeys(range(90), 1)
    table.append(frame(remote, 0, 90, 1))
    result = table.upsert(frame(remote, 60, 120, 2))
    model |= dict.fromkeys(range(60, 120), 2)
    assert (result.stats.rows_inserted, result.stats.rows_updated) == (30, 30)
    table.insert(frame(remote, 110, 130, 3), on_duplicate="skip")
    model |= dict.fromkeys(range(120, 130), 3)
    table.delete(keys=frame(remote, 0, 20, 0).select("id"))
    table.delete(where="id = 20")
    model = {key: value for key, value in model.items() if key > 20}
    assert revisions(table) == model
    table.overwrite(frame(remote, 0, 6, 4), where="id < 30")
    model = {k: v for k, v in model.items() if k >= 30} | dict.fromkeys(range(6), 4)
    if partitioned:
        rows = frame(remote, 0, 60, 5).where("part = 'p1' and id < 4")
        table.overwrite(rows, partitions="dynamic")
        model = {key: value for key, value in model.items() if key % 3 != 1} | {1: 5}
    assert revisions(table) == model
    with table.writer("upsert", on_conflict="retry") as writer:
        writer.write(frame(remote, 30, 45, 6))
        Table.open(str(tmp_path / "t")).upsert(arrow_rows(40, 70, 7, step=2))
    model |= dict.fromkeys(range(40, 70, 2), 7) | dict.fromkeys(range(30, 45), 6)
    assert revisions(table) == model
    assert writer.result.rebased > 0
    found = table.scan(["rev", "id"]).to_spark(remote)
    assert {row.id: row.rev for row in found.collect()} == model
    some = table.scan(where="rev = 2 and id > 100").to_spark(remote)
    assert some.count() == sum(rev == 2 and key > 100 for key, rev in model.items())
    old = table.scan(version=1).to_spark(remote)
    assert old.selectExpr("count(*) n", "max(rev) rev").first() == (90, 1)
    assert_sound(table)


@pytest.mark.long(0)
def test_facts_of_errors_reach_the_client(remote: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", buckets=1)
    with pytest.raises(SchemaMismatchError) as mismatch:
        table.append(frame(remote, 0, 10, 1).withColumnRenamed("name", "naem"))
    assert mismatch.value.column == "naem"
    with pytest.raises(BadRecordError) as bad:
        table.append(frame(remote, 0, 10, 1).selectExpr("if(id = 7, null, id) id", "part"))
    assert bad.value.column == "id"
    table.insert(arrow_rows(0, 10, 1))
    with pytest.raises(DuplicateKeyError) as duplicate:
        table.insert(frame(remote, 9, 20, 2))
    assert duplicate.value.keys == [{"id": 9}]
    assert revisions(table) == dict.fromkeys(range(10), 1)
    assert_sound(table)


def test_the_job_of_a_writer_is_cancelled_and_the_writer_is_told(
    remote: SparkSession, tmp_path: Path
) -> None:
    """INV-03: by the tag of its operations; others of the session go on."""
    table = slow_table(tmp_path / "t")
    error, after_s = ended_while_it_runs(table, lambda: table.upsert(slow(remote, table)))
    assert isinstance(error, RolledBackError)
    assert after_s < ASLEEP_S / 2
    assert table.upsert(frame(remote, 0, 40, 2)).stats.rows_inserted == 40
    assert_sound_in_the_end(table, 2)


@pytest.mark.long(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_data_source_works_on_the_server(
    remote: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = make(tmp_path / "t", kind)
    uri = str(tmp_path / "t")
    frame(remote, 0, 90, 1).write.format("plait").mode("append").save(uri)
    save = frame(remote, 60, 120, 2).write.format("plait").option("operation", "upsert")
    save.mode("append").save(uri)
    assert revisions(table) == dict.fromkeys(range(60), 1) | dict.fromkeys(range(60, 120), 2)
    read = remote.read.format("plait")
    assert read.load(uri).selectExpr("count(*)", "sum(rev)").first() == (120, 180)
    assert read.option("version", 1).load(uri).selectExpr("count(*)").first() == (90,)
    assert_sound(table)


@pytest.mark.long(0)
def test_foreach_batch_knows_whose_batch_it_has(remote: SparkSession, tmp_path: Path) -> None:
    """INV-09: a query that lost its checkpoint is no replay of the one before."""
    table, pipe = make(tmp_path / "t"), Pipe(remote, tmp_path)
    pipe.feed(0, 10, 0)
    pipe.each(table)
    pipe.feed(5, 15, 1)
    pipe.each(table)
    assert ids(table) == list(range(15))
    with pytest.raises(Exception, match="EpochRewoundError"):
        pipe.each(table, "other")
    assert_sound(table)


def test_foreach_batch_beside_another_query_asks_for_its_name_or_checkpoint(
    remote: SparkSession, tmp_path: Path
) -> None:
    table, pipe = make(tmp_path / "t"), Pipe(remote, tmp_path)
    pipe.feed(0, 10, 0)
    other = remote.readStream.format("rate").load().writeStream.format("noop")
    running = other.option("checkpointLocation", str(tmp_path / "noop")).start()
    try:
        with pytest.raises(Exception, match=r"queryName\('each'\)"):
            pipe.each(table, told=False)
        pipe.each(table, name="each", told=False)
        pipe.feed(10, 20, 0)
        pipe.each(table)
    finally:
        running.stop()
    assert ids(table) == list(range(20))
    audit = table.stream("each").audit()
    assert [bool(entry.offsets) for entry in audit.epochs] == [False, True]


CLIENT = """
import json, sys
import plait.spark
from plait import Table
spark = plait.spark.session(remote=sys.argv[1], **{"spark.sql.shuffle.partitions": 2})
table = Table.create(sys.argv[2], "id bigint, at timestamp", record_key=["id"])
table.upsert(spark.range(10).selectExpr("id", "timestamp'2026-01-01 12:00:00' at"))
table.delete(where="id = 3")
found = table.scan().to_spark(spark)
assert plait.spark.session(remote=sys.argv[1]) is spark, "it is used again"
zone = spark.conf.get("spark.sql.session.timeZone")
print(json.dumps({"n": found.count(), "zone": zone, "gateway": "py4j.java_gateway" in sys.modules}))
spark.stop()
"""


def test_a_client_needs_no_java(server: ConnectServer, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, server.remote, str(tmp_path / "t")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["n"], said["zone"]) == (9, "UTC")
