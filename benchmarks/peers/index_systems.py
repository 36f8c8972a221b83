"""How each of the two makes a table with a record index, upserts, and looks keys up.

Runs in both environments, so nothing is imported here but the standard library and Spark.
"""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from plait import Table
from plait.table import handle_of

Row: TypeAlias = tuple[str, str, int, int, str]
Place: TypeAlias = tuple[str, str]

COLUMNS = "key string, part string, ts bigint, v bigint, note string"
PARTITIONS, BUCKETS = 40, 2


def key_of(number: int) -> str:
    """Return a key that says nothing of its number, nor of its partition."""
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


class Indexed(ABC):
    """A system with a table of each configuration; the last look-ups were of ``ASKED``."""

    configs: ClassVar[tuple[str, ...]]
    asked: ClassVar[str]
    """The configuration whose index is asked."""

    def __init__(self, place: Path, session: SparkSession) -> None:
        self.place, self.session = place, session

    @staticmethod
    @abstractmethod
    def settings() -> dict[str, str]:
        """Return what its session needs."""

    def at(self, config: str) -> str:
        """Say where a table is."""
        return str(self.place / f"{type(self).__name__.lower()}-{config.replace(' ', '-')}")

    def create(self, config: str) -> None:
        """Make room for an empty table."""
        shutil.rmtree(self.at(config), ignore_errors=True)

    @abstractmethod
    def load(self, config: str, source: Path) -> None:
        """Load rows into it, and build its index."""

    @abstractmethod
    def upsert(self, config: str, source: Path) -> None:
        """Update rows by key, and insert those that are new."""

    @abstractmethod
    def smallest(self) -> object:
        """Run the smallest query that the engine can run: what it takes by itself."""

    @abstractmethod
    def open(self) -> None:
        """Open the table and its index for look-ups."""

    @abstractmethod
    def close(self) -> None:
        """Close what was opened."""

    @abstractmethod
    def rows(self, keys: Sequence[str]) -> list[Row]:
        """Look rows up, with everything opened before."""

    @abstractmethod
    def rows_anew(self, keys: Sequence[str]) -> list[Row]:
        """Look rows up; open the table first."""

    @abstractmethod
    def rows_without(self, keys: Sequence[str]) -> list[Row]:
        """Look rows up, without the index."""

    @abstractmethod
    def files(self, keys: Sequence[str]) -> int:
        """Count the data files that a look-up reads."""

    @abstractmethod
    def files_without(self, keys: Sequence[str]) -> int:
        """Count those that one without the index reads."""

    @abstractmethod
    def ready(self, keys: Sequence[str]) -> Callable[[], object]:
        """Return what asks the index alone, opened before."""

    @abstractmethod
    def ready_anew(self, keys: Sequence[str]) -> Callable[[], object]:
        """Return what opens the index and asks it."""

    @abstractmethod
    def places(self, found: object) -> list[Place]:
        """Return the partition of each key that the index knows."""

    @abstractmethod
    def totals(self, config: str) -> Iterable[int]:
        """Return the number of rows, and the sum of a column."""

    @abstractmethod
    def sizes(self) -> dict[str, object]:
        """Return what the index takes on the disk."""


_YES = True
_SETS_FROM = "spark.sql.optimizer.inSetConversionThreshold"
_KEY = "hoodie.datasource.write.recordkey.field"
_INDEX = "hoodie.metadata.global.record.level.index.enable"


class Hudi(Indexed):
    """Apache Hudi, copy-on-write.

    ``none`` and ``kept`` find rows by buckets; ``kept`` has a record index beside. ``used`` finds
    them by the record index, and keeps keys unique in the table. Column statistics are off, so that
    it is the index alone that leaves files out, and that costs.
    """

    configs = ("none", "kept", "used")
    asked = "used"

    @staticmethod
    def settings() -> dict[str, str]:
        from benchmarks.peers.systems import SYSTEMS as OTHERS

        return OTHERS["hudi-cow"]("hudi", Path()).settings()

    def load(self, config: str, source: Path) -> None:
        self._write(config, self.session.read.parquet(str(source)), "bulk_insert")

    def upsert(self, config: str, source: Path) -> None:
        self._write(config, self.session.read.parquet(str(source)), "upsert")

    def smallest(self) -> object:
        return self.session.range(1).collect()

    def open(self) -> None:
        self._frame = self._read(skipping=True)
        self._plain = self._read(skipping=False)
        self._metadata = self._opened()

    def close(self) -> None:
        self._metadata.close()

    def rows(self, keys: Sequence[str]) -> list[Row]:
        return _collected(self._asked(self._frame, keys, index=True))

    def rows_anew(self, keys: Sequence[str]) -> list[Row]:
        return _collected(self._asked(self._read(skipping=True), keys, index=True))

    def rows_without(self, keys: Sequence[str]) -> list[Row]:
        return _collected(self._asked(self._plain, keys, index=False))

    def files(self, keys: Sequence[str]) -> int:
        return _files_read(self._asked(self._frame, keys, index=True))

    def files_without(self, keys: Sequence[str]) -> int:
        return _files_read(self._asked(self._plain, keys, index=False))

    def ready(self, keys: Sequence[str]) -> Callable[[], object]:
        wanted = self._listed(keys)
        return lambda: self._ask(self._metadata, wanted)

    def ready_anew(self, keys: Sequence[str]) -> Callable[[], object]:
        wanted = self._listed(keys)

        def ask() -> object:
            metadata = self._opened()
            found = self._ask(metadata, wanted)
            metadata.close()
            return found

        return ask

    def places(self, found: Any) -> list[Place]:
        return [(pair.getLeft(), pair.getRight().getPartitionPath()) for pair in found]

    def totals(self, config: str) -> Iterable[int]:
        frame = self.session.read.format("hudi").load(self.at(config))
        return list(frame.selectExpr("count(1)", "sum(v)").collect()[0])

    def sizes(self) -> dict[str, object]:
        folder = Path(self.at(self.asked), ".hoodie", "metadata", "record_index")
        return {"index bytes": sum(each.stat().st_size for each in folder.rglob("*"))}

    # Spark has no way to ask the index alone, so these call Hudi's own reader of its metadata in
    # this JVM, on the driver and without a job.

    def _opened(self) -> Any:
        apache = self._java.org.apache
        configuration = apache.hudi.storage.hadoop.HadoopStorageConfiguration(
            self.session.sparkContext._jsc.hadoopConfiguration()
        )
        return apache.hudi.metadata.HoodieBackedTableMetadata(
            apache.hudi.common.engine.HoodieLocalEngineContext(configuration),
            apache.hudi.storage.hadoop.HoodieHadoopStorage(self.at(self.asked), configuration),
            apache.hudi.common.config.HoodieMetadataConfig.newBuilder().enable(_YES).build(),
            self.at(self.asked),
        )

    def _listed(self, keys: Sequence[str]) -> Any:
        wanted = self._java.java.util.ArrayList()
        for key in keys:
            wanted.add(key)
        return wanted

    def _ask(self, metadata: Any, wanted: Any) -> Any:
        listed = self._java.org.apache.hudi.common.data.HoodieListData.eager(wanted)
        return metadata.readRecordIndexLocationsWithKeys(listed).collectAsList()

    @property
    def _java(self) -> Any:
        return self.session._jvm

    def _asked(self, frame: DataFrame, keys: Sequence[str], *, index: bool) -> DataFrame:
        # Of more than ten values Spark makes a set, of which Hudi's index knows nothing. A list of
        # them lets it be used; but Spark compares each row with each value of a list.
        self.session.conf.set(_SETS_FROM, "100000" if index else "10")
        return _chosen(frame, keys)

    def _read(self, *, skipping: bool) -> DataFrame:
        told = {
            "hoodie.metadata.enable": "true",
            _INDEX: "true",
            "hoodie.enable.data.skipping": str(skipping).lower(),
        }
        return self.session.read.format("hudi").options(**told).load(self.at(self.asked))

    def _write(self, config: str, rows: DataFrame, operation: str) -> None:
        options = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            _KEY: "key",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.datasource.write.operation": operation,
            "hoodie.parquet.compression.codec": "snappy",
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.index.column.stats.enable": "false",
            _INDEX: str(config != "none").lower(),
        }
        if config == "used":
            options |= {
                "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
                # The rows of a partition in few files: fewer than the buckets of the others.
                "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
                "hoodie.bulkinsert.shuffle.parallelism": str(PARTITIONS * BUCKETS),
            }
        else:
            options |= {
                "hoodie.index.type": "BUCKET",
                "hoodie.index.bucket.engine": "SIMPLE",
                "hoodie.bucket.index.num.buckets": str(BUCKETS),
                "hoodie.bucket.index.hash.field": "key",
            }
        rows.write.format("hudi").options(**options).mode("append").save(self.at(config))


class Plait(Indexed):
    """This library, copy-on-write.

    It always finds rows by buckets. It asks its index where nothing says the partition: for
    look-ups, and for upserts of keys that are unique in the table (``unique``).
    """

    configs = ("arrow none", "arrow kept", "arrow unique", "spark none", "spark kept")
    asked = "arrow kept"

    @staticmethod
    def settings() -> dict[str, str]:
        from plait.spark.session import RECOMMENDED, RECOMMENDED_LOCAL, RECOMMENDED_START

        return {**RECOMMENDED, **RECOMMENDED_START, **RECOMMENDED_LOCAL}

    def __init__(self, place: Path, session: SparkSession) -> None:
        super().__init__(place, session)
        self._tables: dict[str, Table] = {}

    def load(self, config: str, source: Path) -> None:
        from plait import Table

        table = self._tables[config] = Table.create(
            self.at(config),
            COLUMNS,
            record_key="key",
            partition_by="part",
            ordering="ts",
            buckets=BUCKETS,
            unique="table" if "unique" in config else "partition",
        )
        table.insert(self._read(config, source))
        if "none" not in config:
            table.index.create()

    def upsert(self, config: str, source: Path) -> None:
        self._tables[config].upsert(self._read(config, source))

    def smallest(self) -> object:
        return self._tables[self.asked].version

    def open(self) -> None:
        self._opened = self._open()

    def close(self) -> None:
        del self._opened  # nothing else is held

    def rows(self, keys: Sequence[str]) -> list[Row]:
        return self._rows(self._opened, keys)

    def rows_anew(self, keys: Sequence[str]) -> list[Row]:
        return self._rows(self._open(), keys)

    def rows_without(self, keys: Sequence[str]) -> list[Row]:
        return self._rows(self._tables["arrow none"], keys)

    def files(self, keys: Sequence[str]) -> int:
        return self._files(self._opened, keys)

    def files_without(self, keys: Sequence[str]) -> int:
        return self._files(self._tables["arrow none"], keys)

    def ready(self, keys: Sequence[str]) -> Callable[[], object]:
        return lambda: self._ask(self._opened, keys)

    def ready_anew(self, keys: Sequence[str]) -> Callable[[], object]:
        return lambda: self._ask(self._open(), keys)

    def places(self, found: Any) -> list[Place]:
        wanted, hashes, entries, places = found
        keys = dict(zip(hashes.tolist(), wanted, strict=True))
        pairs = zip(entries.hashes.tolist(), entries.places.tolist(), strict=True)
        return [(keys[each], _name(places.texts[at])) for each, at in pairs]

    def totals(self, config: str) -> Iterable[int]:
        import pyarrow.compute as pc

        rows = self._tables[config].scan(columns=["v"]).to_arrow()
        return [rows.num_rows, pc.sum(rows["v"]).as_py()]

    def sizes(self) -> dict[str, object]:
        status = self._tables[self.asked].index.status().to_dict()
        chosen = ("bytes", "entries", "runs", "lag", "usable")
        return {f"index {name}": status[name] for name in chosen}

    def _read(self, config: str, source: Path) -> Any:
        import pyarrow.parquet as pq

        if config.startswith("spark"):
            return self.session.read.parquet(str(source))
        return pq.read_table(source)

    def _open(self) -> Table:
        from plait import Table

        return Table.open(self.at(self.asked))

    @staticmethod
    def _rows(table: Table, keys: Sequence[str]) -> list[Row]:
        found = table.get(keys).to_pydict()
        return list(zip(*(found[name] for name in ("key", "part", "ts", "v", "note")), strict=True))

    @staticmethod
    def _files(table: Table, keys: Sequence[str]) -> int:
        from plait.queries.lookup import look_up

        return look_up(handle_of(table), keys).files

    @staticmethod
    def _ask(table: Table, keys: Sequence[str]) -> object:
        import numpy as np
        import pyarrow as pa

        from plait.files.hash import key_hashes
        from plait.txn.key_window import entries_of, load_known_keys

        handle = handle_of(table)
        known = load_known_keys(handle, handle.cache.refresh())
        assert known is not None
        assert known.usable
        hashes = key_hashes(pa.table({"key": keys}), ("key",))
        return keys, hashes, *entries_of(handle, known, np.sort(hashes))


SYSTEMS: dict[str, type[Indexed]] = {"hudi": Hudi, "plait": Plait}


def _chosen(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    return frame.where(F.col("key").isin(list(keys))).select("key", "part", "ts", "v", "note")


def _collected(frame: DataFrame) -> list[Row]:
    return [tuple(row) for row in frame.collect()]


def _files_read(frame: DataFrame) -> int:
    """Run it, and return how many files its scan read, as Spark counted them."""
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    counted = [leaves.apply(at).metrics().apply("numFiles").value() for at in range(leaves.size())]
    return int(sum(counted))


def _name(text: str) -> str:
    """Return the one value of a partition."""
    from plait.model.bucket import partition_parse

    (value,) = partition_parse(text)
    return str(value)
