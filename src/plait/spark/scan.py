"""Scans as Spark DataFrames: plain Parquet scans, and a native filter where rows are hidden."""

from __future__ import annotations

import itertools
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from plait.errors import SchemaMismatchError
from plait.expr.tree import paths_in
from plait.files.data_file import LiveFile, live_files
from plait.files.reader import check_footer
from plait.model.decision import ReadSet
from plait.model.schema import WRITTEN_COLUMN, is_written
from plait.read.change_scan import ChangeScan
from plait.read.scan import Scan
from plait.read.stretches import StretchScan
from plait.spark.change_shares import changes_to_spark
from plait.spark.columns import StoredColumns
from plait.spark.frame import require_reachable
from plait.spark.masks import without_hidden
from plait.spark.stretches import stretches_to_spark
from plait.spark.values import Values, aliases_of, is_connect, spark_schema
from plait.storage import local_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HELD_MAX = 16
"""Number of scans of a session that keep their read pins, even if their DataFrames are gone."""

_OPTIONS = {
    "recursiveFileLookup": "true",  # or directories named a=b would become columns
    "ignoreMissingFiles": "false",  # a file that is gone is an error, never an empty file
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",  # files hold proleptic Gregorian dates
    "int96RebaseMode": "CORRECTED",
}
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_V1_SOURCES = "spark.sql.sources.useV1SourceList"
_LISTED_ANYWAY, _LISTED_HERE = 32, 1000
"""Number of files that Spark lists itself: by default, and where listing is quick."""
_COMPARED_MAX = 1_000
"""Maximum number of files whose footers are compared before Spark reads them."""
_GLOB = re.compile(r"([\\*?{}\[\]])")
_lock = threading.Lock()
_settling = threading.Lock()
_scans: WeakKeyDictionary[object, Scan | ChangeScan] = WeakKeyDictionary()
_held: WeakKeyDictionary[object, deque[Scan | ChangeScan]] = WeakKeyDictionary()


def to_spark(scan: Scan | ChangeScan | StretchScan, spark: SparkSession) -> DataFrame:
    """Return a DataFrame of a scan; nothing is read yet, and the executors read the files.

    Spark's own vectorised reader reads every file, with the columns and filters that it pushes
    down. Where rows of a file are hidden, a filter on its row index hides them. The scan, and with
    it the lease that keeps its files, lives as long as the DataFrame; so do the last ``HELD_MAX``
    scans of a session, since DataFrames made from this one cannot hold it.

    Raises:
        CapabilityMissingError: the table is inside of this process, where no executor is.
        CorruptMetadataError: a file on a disk is not the one that the metadata names.
        PredicateError: the scan's predicate is a pyarrow expression.
        SchemaMismatchError: the scan has the hidden column ``_written``.
    """
    require_reachable(scan.store.address)
    if isinstance(scan, StretchScan):
        return stretches_to_spark(scan, spark)
    _require_plain(scan)
    rows = changes_to_spark(scan, spark) if isinstance(scan, ChangeScan) else _files(scan, spark)
    with _lock:
        _scans[rows] = scan
        _held.setdefault(spark, deque(maxlen=HELD_MAX)).append(scan)
    return rows


def _require_plain(scan: Scan | ChangeScan) -> None:
    """Refuse the version that wrote a row: Spark reads files itself, and few of them say it."""
    if not isinstance(scan, Scan) or not is_written(WRITTEN_COLUMN, scan.snapshot.spec.schema):
        return
    condition = scan.plan.condition
    if WRITTEN_COLUMN in (*scan.schema.names, *(condition.columns if condition else ())):
        message = f"Spark cannot read {WRITTEN_COLUMN}, the version that wrote a row"
        hint = "leave it out, or read it in this process, with to_arrow() for example"
        raise SchemaMismatchError(message, hint=hint, column=WRITTEN_COLUMN)


def _files(scan: Scan, spark: SparkSession) -> DataFrame:
    """Let Spark read the Parquet files of a version itself."""
    schema, condition = scan.snapshot.spec.schema, scan.plan.condition
    names, values = scan.schema.names, Values.of(spark)
    aliases = aliases_of(paths_in(condition.predicate) if condition else (), schema.names)
    frame: DataFrame | None = None
    for part in _parts(scan, spark, aliases):
        frame = part if frame is None else frame.unionAll(part)
    if frame is None:
        return spark.createDataFrame([], spark_schema(scan.schema))
    if condition is not None:
        frame = frame.where(values.holds(condition.predicate, aliases))
    frame = frame.select(*map(values.column, names)) if aliases else frame
    return frame if scan.limit is None else frame.limit(scan.limit)


def held_scans() -> list[Scan]:
    """Return the scans whose DataFrames may still be in use, each once."""
    with _lock:
        held = [scan for scans in _held.values() for scan in scans]
        every = dict.fromkeys([*held, *_scans.values()])
    return [scan for scan in every if isinstance(scan, Scan)]


def find_reads(frame: DataFrame, uri: str) -> tuple[Scan, ...]:
    """Return the scans of a table that a DataFrame reads; () if none is known.

    ``DataFrame.inputFiles()``, which classic and Connect sessions have, names the files of a plan.
    Files of a table have names of their own, so those of scans that this process still holds tell
    which scans the plan reads. Nothing is asked of Spark while no scan of the table is held.

    A file may belong to scans of several versions. A version whose scans have all the files that
    the plan reads counts, the oldest of those that do; if none has them all, every version that
    fits may be in the plan.
    """
    scans = [scan for scan in held_scans() if scan.store.address.uri == uri]
    if not scans:
        return ()
    present = {_name(path) for path in frame.inputFiles()}
    fitting = [(scan, names) for scan in scans if (names := _names(scan)) and names <= present]
    by_version: dict[int, set[str]] = {}
    for scan, names in fitting:
        by_version.setdefault(scan.version, set()).update(names)
    every = set().union(*by_version.values())
    whole = [version for version, names in by_version.items() if names == every]
    return tuple(s for s, _ in fitting if not whole or s.version == min(whole))


def read_set_of(scans: tuple[Scan, ...]) -> ReadSet | None:
    """Return what rows that were computed from scans rest on; None if there are none."""
    if not scans:
        return None
    return ReadSet(min(s.version for s in scans), tuple(s.read_predicate for s in scans))


def _parts(
    scan: Scan, spark: SparkSession, aliases: Mapping[tuple[str, ...], str]
) -> Iterator[DataFrame]:
    """Return a DataFrame of the files of each schema that some were written with.

    Behind the columns that are asked for stands, under its alias, what the predicate looks at. A
    filter on an alias is a filter on the column of the file that it was made of, so that Spark
    still pushes it down, whatever becomes of the column that is shown.
    """

    def schema_of(file: LiveFile) -> int:
        return file.schema_id

    reading, known = scan.snapshot.spec.schema, scan.snapshot.schemas
    wanted = [((name,), name) for name in scan.schema.names] + list(aliases.items())
    files = sorted(live_files(scan.plan.files), key=schema_of)
    for schema_id, group in itertools.groupby(files, schema_of):
        chosen = list(group)
        columns = StoredColumns(Values.of(spark), known.get(schema_id, reading), reading)
        stored = columns.read({path[0] for path, _ in wanted})
        frame = spark.read.schema(spark_schema(stored)).options(**_OPTIONS)
        _compare(scan, chosen)
        places = _locations(scan, spark, chosen)
        with _settled(scan, spark, len(places)):
            rows = frame.parquet(*places)
        if any(file.masked for file in chosen):
            rows = without_hidden(rows, spark, scan.store, chosen)
        yield rows.select(*(columns.at(path).alias(name) for path, name in wanted))


def _compare(scan: Scan, files: Sequence[LiveFile]) -> None:
    """Refuse files that are not those of the metadata: Spark itself does not look.

    Only on a disk, where that is quick: in an object store it would be a request a file. What
    happens to a file later shows nowhere but in ``verify``.

    Raises:
        CorruptMetadataError: a file is missing, damaged, or another one.
    """
    if local_root(scan.store.address) is not None and len(files) <= _COMPARED_MAX:
        for file in files:
            check_footer(scan.store, file)


@contextmanager
def _settled(scan: Scan, spark: SparkSession, count: int) -> Iterator[None]:
    """Hold the settings of a session that Spark reads while it looks at files.

    Rows are hidden by their place in a file, and only Spark's older reader of Parquet tells it.
    The driver looks at files of a disk itself: Spark starts a job for more than 32 of them. Of an
    object store each look is a request, and a job makes many at once. A client of Spark Connect
    looks at nothing, and what its server does then is for the server's settings.
    """
    if is_connect(spark):
        yield
        return
    with _settling:
        before = {name: str(spark.conf.get(name)) for name in (_V1_SOURCES, _LISTING)}
        wanted = {}
        if "parquet" not in before[_V1_SOURCES].lower().split(","):
            wanted[_V1_SOURCES] = f"{before[_V1_SOURCES]},parquet"
        if _LISTED_ANYWAY < count <= _LISTED_HERE and local_root(scan.store.address) is not None:
            wanted[_LISTING] = str(max(_LISTED_HERE, int(before[_LISTING])))
        try:
            for name, value in wanted.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name in wanted:
                spark.conf.set(name, before[name])


def _locations(scan: Scan, spark: SparkSession, files: Iterable[LiveFile]) -> list[str]:
    """Return the files' places as Hadoop spells them."""
    places = [scan.store.location(file.path) for file in files]
    if any(place.startswith("s3://") for place in places):
        # Outside of Amazon's own Spark, Hadoop knows S3 as s3a only.
        known = spark.conf.get("spark.hadoop.fs.s3.impl", "")
        scheme = "s3://" if known else "s3a://"
        places = [scheme + place.removeprefix("s3://") for place in places]
    return [_GLOB.sub(r"\\\1", place) for place in places]


def _names(scan: Scan) -> set[str]:
    return {_name(path) for path in scan.plan.files["path"].to_pylist()}


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
