"""The systems that are compared: how each makes a table, inserts, upserts, and reads.

Runs in every environment, so nothing is imported here but the standard library and Spark.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from plait import Table

COLUMNS = (
    "id bigint, part string, ts bigint, d1 double, d2 double, l1 bigint, l2 bigint, "
    "s1 string, s2 string"
)
PARTITIONS, BUCKETS = 8, 2


def source_of(place: Path, rows: int, upsert: int) -> Path:
    """Say where the source data of this size is."""
    return place / f"source-{rows}-{upsert}"


class System:
    """Plain Parquet, which the others are compared with on their own Spark; it has no upsert."""

    spark = "4.2"
    jars: ClassVar[str | None] = None
    updates = True
    merges_on_read = False
    looks_after_itself = False
    """Whether a table made with ``kept`` does its upkeep with its upserts, without a call."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.place = name, place
        self.session: SparkSession

    def settings(self) -> dict[str, str]:
        """Return what its session needs."""
        return {}

    def at(self, table: str) -> str:
        """Tell where a table is."""
        return str(self.place / self.name / table)

    def create(self, table: str, *, kept: bool = False) -> None:  # noqa: ARG002 - where it can
        """Make an empty table, in place of one that is there.

        Args:
            table: its name.
            kept: whether its upserts do the upkeep, in a system that can.
        """
        shutil.rmtree(self.at(table), ignore_errors=True)

    def insert(self, table: str, rows: DataFrame) -> None:
        """Load rows into an empty table."""
        rows.write.mode("append").parquet(self.at(table))

    def upsert(self, table: str, rows: DataFrame) -> None:
        """Update rows by key and insert those that are new."""
        raise NotImplementedError

    def compact(self, table: str) -> None:
        """Put the files of upserts together, with one call of the system's own upkeep."""
        raise NotImplementedError

    def read(self, table: str) -> DataFrame:
        """Read it."""
        return self.session.read.parquet(self.at(table))

    def find(self, table: str, key: int) -> DataFrame:
        """Read one row by its key."""
        return self.read(table).where(f"id = {key}")


class Plain(System):
    """Parquet as Spark writes it."""

    updates = False


class Plain41(Plain):
    """The same on Spark 4.1, for Delta and Iceberg."""

    spark = "4.1"


class Plain35(Plain):
    """The same on Spark 3.5, for Hudi."""

    spark = "3.5"


class Plait(System):
    """This library: the same partitions and file groups as the others."""

    kind: Literal["cow", "mor"] = "cow"
    looks_after_itself = True

    def settings(self) -> dict[str, str]:
        from plait.spark.session import (
            RECOMMENDED,
            RECOMMENDED_LOCAL,
            RECOMMENDED_START,
        )

        return {**RECOMMENDED, **RECOMMENDED_START, **RECOMMENDED_LOCAL}

    def create(self, table: str, *, kept: bool = False) -> None:
        from plait import Table

        super().create(table)
        Table.create(
            self.at(table),
            COLUMNS,
            record_key=["id"],
            partition_by=["part"],
            ordering="ts",
            buckets=BUCKETS,
            table_type=self.kind,
            properties={"compact": "inline"} if kept else {},
        )

    def insert(self, table: str, rows: DataFrame) -> None:
        self._open(table).insert(rows)

    def upsert(self, table: str, rows: DataFrame) -> None:
        self._open(table).upsert(rows)

    def compact(self, table: str) -> None:
        self._open(table).maintenance.compact(full=True, spark=self.session)

    def read(self, table: str) -> DataFrame:
        return self._open(table).scan().to_spark(self.session)

    def find(self, table: str, key: int) -> DataFrame:
        return self._open(table).scan(where=f"id = {key}").to_spark(self.session)

    def _open(self, table: str) -> Table:
        # Loaded here: Spark versions of others have no Plait beside them.
        from plait import Table

        return Table.open(self.at(table))


class PlaitMor(Plait):
    """The same, merge-on-read."""

    kind = "mor"
    merges_on_read = True


_MERGE = (
    "MERGE INTO {table} t USING changes c ON t.id = c.id AND t.part = c.part "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


class Delta(System):
    """Delta Lake, copy-on-write."""

    spark, jars = "4.1", "delta"
    vectors = "false"

    def settings(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def create(self, table: str, *, kept: bool = False) -> None:  # noqa: ARG002 - its default
        super().create(table)
        self.session.sql(
            f"CREATE TABLE delta.`{self.at(table)}` ({COLUMNS}) USING delta PARTITIONED BY (part) "
            f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{self.vectors}')"
        )

    def insert(self, table: str, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(self.at(table))

    def upsert(self, table: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView("changes")
        self.session.sql(_MERGE.format(table=f"delta.`{self.at(table)}`")).collect()

    def compact(self, table: str) -> None:
        # OPTIMIZE leaves files of the target size alone, whatever their deletion vectors hide.
        self.session.sql(f"OPTIMIZE delta.`{self.at(table)}`").collect()
        self.session.sql(f"REORG TABLE delta.`{self.at(table)}` APPLY (PURGE)").collect()

    def read(self, table: str) -> DataFrame:
        return self.session.read.format("delta").load(self.at(table))


class DeltaVectors(Delta):
    """Delta Lake with deletion vectors."""

    vectors = "true"
    merges_on_read = True


class Iceberg(System):
    """Apache Iceberg, copy-on-write."""

    spark, jars = "4.1", "iceberg"
    mode, version = "copy-on-write", 2

    def settings(self) -> dict[str, str]:
        extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        return {
            "spark.sql.extensions": extensions,
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(self.place / "ice"),
        }

    def at(self, table: str) -> str:
        return f"ice.{self.name.replace('-', '_')}.{table}"

    def create(self, table: str, *, kept: bool = False) -> None:  # noqa: ARG002 - it has no upkeep
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.at(table).rpartition('.')[0]}")
        self.session.sql(f"DROP TABLE IF EXISTS {self.at(table)} PURGE")
        self.session.sql(
            f"CREATE TABLE {self.at(table)} ({COLUMNS}) USING iceberg PARTITIONED BY (part) "
            f"TBLPROPERTIES ('format-version' = '{self.version}', "
            f"'write.merge.mode' = '{self.mode}', 'write.parquet.compression-codec' = 'snappy')"
        )

    def insert(self, table: str, rows: DataFrame) -> None:
        rows.writeTo(self.at(table)).append()

    def upsert(self, table: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView("changes")
        self.session.sql(_MERGE.format(table=self.at(table))).collect()

    def compact(self, table: str) -> None:
        self.session.sql(
            f"CALL ice.system.rewrite_data_files(table => '{self.at(table)}', options => "
            "map('min-input-files', '2', 'delete-file-threshold', '1'))"
        ).collect()

    def read(self, table: str) -> DataFrame:
        return self.session.read.table(self.at(table))


class IcebergMor(Iceberg):
    """Apache Iceberg, merge-on-read with deletion vectors."""

    mode, version = "merge-on-read", 3
    merges_on_read = True


class Hudi(System):
    """Apache Hudi, copy-on-write, with its bucket index: 2 buckets in each of 8 partitions."""

    spark, jars = "3.5", "hudi"
    kind = "COPY_ON_WRITE"

    def settings(self) -> dict[str, str]:
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def insert(self, table: str, rows: DataFrame) -> None:
        self._write(table, rows, "bulk_insert")

    def upsert(self, table: str, rows: DataFrame) -> None:
        self._write(table, rows, "upsert")

    def compact(self, table: str) -> None:
        for work in ("schedule", "run"):
            order = f"CALL run_compaction(op => '{work}', path => '{self.at(table)}')"
            self.session.sql(order).collect()

    def read(self, table: str) -> DataFrame:
        return self.session.read.format("hudi").load(self.at(table))

    def _write(self, table: str, rows: DataFrame, operation: str) -> None:
        options = {
            "hoodie.table.name": table,
            "hoodie.datasource.write.table.type": self.kind,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.datasource.write.operation": operation,
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE",
            "hoodie.bucket.index.num.buckets": str(BUCKETS),
            "hoodie.bucket.index.hash.field": "id",
            "hoodie.parquet.compression.codec": "snappy",
            "hoodie.compact.inline": "false",
        }
        rows.write.format("hudi").options(**options).mode("append").save(self.at(table))


class HudiMor(Hudi):
    """Apache Hudi, merge-on-read."""

    kind = "MERGE_ON_READ"
    merges_on_read = True


SYSTEMS: dict[str, type[System]] = {
    "plain": Plain,
    "plait-cow": Plait,
    "plait-mor": PlaitMor,
    "plain-41": Plain41,
    "delta-cow": Delta,
    "delta-dv": DeltaVectors,
    "iceberg-cow": Iceberg,
    "iceberg-mor": IcebergMor,
    "plain-35": Plain35,
    "hudi-cow": Hudi,
    "hudi-mor": HudiMor,
}
