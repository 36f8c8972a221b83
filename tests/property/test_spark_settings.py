"""No setting of a session changes what Plait has Spark read, compute and write."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from plait import Insert, Table, Update
from plait.spark.exchange import SETTING as EXCHANGE
from tests.support.effort import MORE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
UTC = dt.UTC
FLIPPED: Mapping[str, str] = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.preserveCharVarcharTypeInfo": "true",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "true",
    "spark.sql.legacy.bangEqualsNot": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.duplicateBetweenInput": "true",
    "spark.sql.legacy.nullInEmptyListBehavior": "true",
    "spark.sql.legacy.disableMapKeyNormalization": "true",
    "spark.sql.legacy.collationAwareHashFunctions": "true",
    "spark.sql.legacy.javaCharsets": "true",
    "spark.sql.legacy.codingErrorAction": "true",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.optimizer.inSetConversionThreshold": "0",
    "spark.sql.optimizer.inSetSwitchThreshold": "0",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.optimizer.expression.nestedPruning.enabled": "false",
    "spark.sql.optimizer.nestedPredicatePushdown.supportedFileSources": "",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.pushdown.inFilterThreshold": "0",
    "spark.sql.parquet.recordLevelFilter.enabled": "true",
    "spark.sql.parquet.aggregatePushdown": "true",
    "spark.sql.parquet.respectSummaryFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    "spark.sql.execution.arrow.compression.codec": "zstd",
    "spark.sql.execution.pandas.convertToArrowArraySafely": "true",
    "spark.sql.execution.pandas.structHandlingMode": "dict",
    "spark.sql.execution.pyspark.binaryAsBytes": "false",
    "spark.sql.pyspark.inferNestedDictAsStruct.enabled": "true",
}
"""Each with a value that is not its own."""
APART: tuple[Mapping[str, str], ...] = (
    {"spark.sql.ansi.enabled": "false"},
    {
        "spark.sql.ansi.enforceReservedKeywords": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.parquet.enableNestedColumnVectorizedReader": "false",
        "spark.sql.variable.substitute": "false",
    },
    {"spark.sql.sources.useV1SourceList": ""},
    {"spark.sql.execution.arrow.useLargeVarTypes": "true"},
    {"spark.sql.execution.arrow.pyspark.enabled": "false"},
    {"spark.sql.execution.pandas.respectSessionTimeZone": "false"},
    {"spark.sql.parquet.filterPushdown": "false", "spark.sql.session.timeZone": "Asia/Kathmandu"},
    {EXCHANGE: "shuffle", "spark.sql.timestampType": "TIMESTAMP_NTZ"},
)
"""Settings that others hide, or that go together."""
ROUNDS: list[Mapping[str, str]] = [
    {**FLIPPED, **APART[1], **APART[2]},
    {**FLIPPED, **APART[0], **APART[3], **APART[-1]},
]
if MORE:
    ROUNDS += [{name: value} for name, value in FLIPPED.items()] + list(APART)
ODD = 'it\'s ${spark.app.name} \\n "q" 50%'
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("d", pa.date32()),
        ("text", pa.string()),
        ("body", pa.binary()),
        ("price", pa.decimal128(9, 2)),
        ("tiny", pa.int8()),
        ("f", pa.float64()),
        ("select `from`.x", pa.int32()),
        ("${x}", pa.int32()),
        ("s", pa.struct([("a", pa.int32()), ("b.c", pa.string())])),
        ("m", pa.map_(pa.string(), pa.struct([("a", pa.float32())]))),
    ]
)
ADDED: dict[str, tuple[str, Any]] = {
    "since": ("timestamp", dt.datetime(2024, 1, 1, tzinfo=UTC)),
    "until": ("timestamp_ntz", dt.datetime(2024, 3, 10, 2, 30)),  # noqa: DTZ001 - it has no zone
    "day": ("date", dt.date(1, 1, 1)),
    "note": ("string", ODD),
    "raw": ("binary", b"\x00'\xff"),
    "cost": ("decimal(12,4)", Decimal("-1.5000")),
    "big": ("bigint", -(1 << 63)),
    "real": ("double", 1e300),
    "flag": ("boolean", True),
}
WHERES = (
    "at >= TIMESTAMP '2024-01-01 05:00:00Z'",
    "at < TIMESTAMP '2024-01-01 05:00:00'",
    "at IN ('2024-01-01T03:00:00Z', '2024-01-01T23:00:00-05:00')",
    "since = TIMESTAMP '2024-01-01 00:00:00Z' AND id < 4",
    "local = TIMESTAMP_NTZ '2024-03-10 02:30:00' OR until > '2024-03-10 02:00:00'",
    "d BETWEEN DATE '1582-10-04' AND DATE '1582-10-16'",
    "text = 'it\\'s ${spark.app.name} \\\\n \"q\" 50%'",
    "text LIKE '%\\\\%' OR text LIKE '%${spark%'",
    "body = X'00ff' OR raw > X'00'",
    "price = 1.50 OR cost <= -1.5",
    "tiny < 1000 AND big < -9223372036854775807",
    "f = 1e0 OR real > 1e299",
    "`select ``from``.x` = 2",
    "`${x}` IN (1, 3)",
    "s.`b.c` = 'x' AND s.a IS NOT NULL",
    "NOT (flag <=> false) AND id IN (" + ", ".join(map(str, range(0, 40, 2))) + ")",
    "s.new IS NULL AND NOT id != 3",
)


def rows(first: int, count: int) -> pa.Table:
    listed = [
        {
            "id": key,
            "at": dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(hours=key),
            "local": dt.datetime(2024, 3, 10, 2, 30) + dt.timedelta(minutes=key),  # noqa: DTZ001
            "d": dt.date(1582, 10, 4) + dt.timedelta(days=key),
            "text": ODD if key % 2 else "plain",
            "body": b"\x00\xff" if key % 3 else b"\xfe",
            "price": Decimal("1.50") * key,
            "tiny": key,
            "f": key / 2,
            "select `from`.x": key % 4,
            "${x}": key % 5,
            "s": {"a": key, "b.c": "x" if key % 2 else None},
            "m": [("k", {"a": -0.0}), ("l", None)],
        }
        for key in range(first, first + count)
    ]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Make a table whose files are of several schemas, some with hidden rows."""
    place = str(tmp_path_factory.mktemp("settings") / "t")
    made = Table.create(place, SCHEMA, record_key=["id"], table_type="mor", buckets=1)
    made.upsert(rows(0, 8))
    alter = made.alter.columns()
    for name, (kind, default) in ADDED.items():
        alter = alter.add(name, kind, default=default)
    alter.add("s.new", "int").rename("s.a", "z").add("s.a", "string").rename("s.z", "q").commit()
    made.alter.columns().drop("s.a").rename("s.q", "a").widen("tiny", "int").commit()
    made.alter.columns().add("m.value.b", "bigint").widen("m.value.a", "double").commit()
    made.delete(where="id = 5")
    return made


def plain(found: pa.Table, like: pa.Schema) -> list[dict[str, Any]]:
    """Give rows in the types of a table: Arrow says timestamps in the zone of a session."""
    found = pa.table([found[name].cast(like.field(name).type) for name in like.names], like.names)
    return found.sort_by("id").to_pylist()


@contextmanager
def session_with(spark: SparkSession, some: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in some}
    try:
        for name, value in some.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@pytest.mark.long(1)
@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_settings_do_not_change_what_is_read_and_written(
    spark: SparkSession, tmp_path: Path, table: Table, number: int
) -> None:
    """INV-04: each setting that Spark's parser, casts, functions and readers look at."""
    schema = pa.schema(table.schema)
    everything = plain(table.scan().to_arrow(), schema)
    selected = {where: ids(table, where) for where in WHERES}
    assert all(selected.values()), "each condition selects some rows"
    copy = Table.create(
        str(tmp_path / "copy"), schema, record_key=["id"], partition_by=["day(at)"], buckets=2
    )
    with session_with(spark, ROUNDS[number]):
        assert plain(table.scan().to_spark(spark).toArrow(), schema) == everything
        assert in_spark(table, spark) == selected
        copy.upsert(table.scan().to_spark(spark))
        assert plain(copy.scan().to_arrow(), schema) == everything
        source = spark.read.format("plait").option("where", WHERES[0])
        kept = source.load(place_of(table))
        again = kept.write.format("plait").option("operation", "upsert").mode("append")
        again.save(str(tmp_path / "copy"))
        assert plain(copy.scan().to_arrow(), schema) == everything
        changed(copy, spark, everything)
    assert not copy.check.verify(data=True).problems


def changed(copy: Table, spark: SparkSession, everything: list[dict[str, Any]]) -> None:
    """Update, merge and delete on executors, by conditions and values of ours."""
    copy.update({"note": "upper(text)"}, where=WHERES[0], spark=spark)
    data = copy.scan(["id", "at"]).to_spark(spark)
    copy.merge(
        data,
        matched=[Update({"until": "TIMESTAMP_NTZ '2000-01-01 00:00:00'"}, when=f"t.{WHERES[0]}")],
        not_matched=[Insert()],
    )
    copy.delete(where="at < TIMESTAMP '2024-01-01 02:00:00'", spark=spark)
    found = plain(copy.scan().to_arrow(), pa.schema(copy.schema))
    late = dt.datetime(2024, 1, 1, 5, tzinfo=UTC)
    for row in (wanted := [dict(row) for row in everything if row["id"] >= 2]):
        if row["at"] >= late:
            row |= {"note": row["text"].upper(), "until": dt.datetime(2000, 1, 1)}  # noqa: DTZ001
    assert found == wanted


def ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())


def in_spark(table: Table, spark: SparkSession) -> dict[str, list[int]]:
    """Select in one job; each condition has its own scan and its own filters."""
    whole: DataFrame | None = None
    for number, where in enumerate(WHERES):
        part = table.scan(["id"], where=where).to_spark(spark).selectExpr(f"{number} AS n", "id")
        whole = part if whole is None else whole.unionAll(part)
    assert whole is not None
    found: dict[str, list[int]] = {where: [] for where in WHERES}
    for row in whole.collect():
        found[WHERES[row["n"]]].append(row["id"])
    return {where: sorted(some) for where, some in found.items()}


def place_of(table: Table) -> str:
    return str(table.inspect.describe()["uri"])
