"""One writer's work on Spark: jobs that stage, reports that come back, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.check import prepare_removals
from plait.arrow.clauses import check_again, rows_spec
from plait.arrow.existing import Existing, Matching
from plait.arrow.merge_into import Merging
from plait.arrow.restage import remap_field_ids, require_restageable
from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Task
from plait.engine import Relay, Staging
from plait.errors import (
    OptionError,
    TableError,
    TransactionClosedError,
)
from plait.files.data_file import bucket_pairs, files_in
from plait.model.bucket import BucketId, Partition, partition_text
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import ReadSet
from plait.model.instant import Operation
from plait.model.plan import Snapshot, TableSpec
from plait.model.request import WritePlan
from plait.model.sink_ledger import TaskLedger
from plait.read.scan import Scan
from plait.spark.columns import in_columns_of
from plait.spark.exchange import Exchange, goes_through_files
from plait.spark.frame import (
    arrow_schema,
    check_frame,
    is_frame,
    numbered,
    routed,
    union,
)
from plait.spark.job import cancelled_with, counting, run, speculates, tasks_wanted
from plait.spark.received import require_same, require_total, total
from plait.spark.route import Route
from plait.spark.scan import find_reads, read_set_of
from plait.spark.task import StageRest, StageRows
from plait.spark.transfer import PackedSnapshot, TaskReport
from plait.storage import open_store
from plait.write.combine import (
    announced_places,
    combine_tasks,
    files_of,
    leftovers,
    places_of,
    with_garbage,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkStaging(Staging):
    """Stages DataFrames: one task a share of the buckets, one report a task.

    Rows of a table with a key are brought to their tasks, so that each (partition, bucket) has one:
    through files where Spark runs on one machine (``exchange``), elsewhere by its shuffle. Rows
    without a key are written where they are.

    A DataFrame is a query, and ``stage`` runs it: once, if its rows go through files. What a
    shuffle brought is not kept. Where others committed to the same buckets first and the writer may
    redo them, the query then runs again for their tasks, and each task must get as many rows as
    before, with the same keys; a query that gives others (random keys, a source that moves) is
    refused rather than mixed from two evaluations. Persist such a DataFrame before writing it.
    """

    engine = "spark"

    def __init__(
        self,
        plan: WritePlan,
        announce: Callable[[Iterable[Partition]], None],
        session: SparkSession | None = None,
    ) -> None:
        """Begin; no job is run yet. ``session`` is where work is done for which no rows come."""
        self._plan = plan
        self._announce = announce
        self._store = open_store(plan.store)
        self._frames: list[DataFrame] = []
        self._spark = session
        self._source: TableSpec | None = None
        """The spec of rows that come in for clauses."""
        self._scans: tuple[Scan, ...] = ()
        """What the DataFrames read of this table; held, so that its files stay."""
        self._route: Route | None = None
        self._exchange: Exchange | None = None
        self._before: Exchange | None = None
        """The rows, divided for an older layout of the table."""
        self._rows: dict[int, TaskReport] = {}
        self._rest: list[WriteStatus] = []
        self._replaced: list[WriteStatus] = []
        self._relay: Relay | None = None
        self._rounds = self._first = 0
        self._expected: tuple[int, int] | None = None
        """What came under an older layout of the table, and is to come again."""
        self._began = self._closed = False

    def write(self, data: object) -> None:
        """Take a DataFrame; its rows are looked at by ``stage``.

        Raises:
            OptionError: this is no DataFrame, or the predicate of a delete has no use for one.
            SchemaMismatchError: columns do not fit the table; no job is run.
        """
        plan = self._plan
        if self._closed or self._rounds:
            message = "the writer got rows after it had staged its files"
            raise TransactionClosedError(message, hint="open a new writer")
        request = plan.request
        if not is_frame(data):
            message = f"not a Spark DataFrame: {type(data).__qualname__}"
            raise OptionError(message, hint="use one writer for each engine", key="data", value="")
        if plan.spec.unique_in_table and request.overwrite == "partitions":
            message = "partitions='dynamic' with Spark is not possible where keys are unique in "
            message += "the table: a task does not know which partitions others replace"
            hint = "use overwrite(where=...), or write Arrow data"
            raise OptionError(message, hint=hint, key="partitions", value="dynamic")
        by_predicate = request.operation in (Operation.DELETE, Operation.UPDATE)
        if by_predicate and request.predicate is not None:
            message = f"{request.operation} by predicate does not take rows"
            raise OptionError(message, hint="pass either keys or where", key="where", value="rows")
        schema = arrow_schema(data.schema)
        if plan.request.clauses is not None and plan.request.joins:
            if self._source is None:
                source = rows_spec(plan.request.operation, plan.spec, schema)
                Merging.bind(plan.request.clauses, plan.spec, source)
                self._source = source
            check_again(self._source, schema.names)
        check_frame(schema, self._layout, plan.request.operation)
        if self._relay is not None and request.operation is Operation.DELETE:
            for _ in prepare_removals(schema.empty_table(), plan.spec):
                pass  # the key of a row in a sink has its partition columns
        self._scans += find_reads(data, plan.store.uri)
        if self._scans:
            self._plan = replace(plan, claims=True)
        self._frames.append(data)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Run the job and return the status of the whole operation.

        Raises:
            BadRecordError: an executor met a row that cannot be stored.
            DuplicateKeyError: an insert met keys that are in the table.
            RetryableConflictError: to redo buckets, the rows had to be computed again, and they
                came out otherwise.
            RolledBackError: somebody took this writer for dead; its Spark jobs were cancelled.
        """
        self._began = True
        with self._cancelled_with_us(), self._owned():
            if buckets is None and self._frames:
                self._stage_rows(snapshot, None)
                require_total(self._expected, self._rows.values())
                self._expected = None
            elif buckets is not None and self._route is not None:
                self._stage_rows(snapshot, self._tasks_of(buckets))
            self._stage_rest(snapshot)
        self._rounds += 1
        reports = [self._rows[task].status for task in sorted(self._rows)]
        status = combine_tasks([*reports, *self._rest], keyed=self._plan.spec.keyed)
        status = with_garbage(status, leftovers(self._replaced) | self._strays(status))
        if self._plan.digests and status.digest is None:  # no task had a row
            status = replace(status, digest=Digest())
        self._announce(places_of(status))
        return status

    def restaged(self, plan: WritePlan) -> SparkStaging:
        """Return a staging of the same DataFrames under another layout; close this one.

        Rows in files are divided anew, if the columns are the same. Others are computed again, and
        as many must come as before, with the same keys.

        Raises:
            RetryableConflictError: the operation would mean something else there.
        """
        old, request = self._plan.spec, plan.request
        deletes = request.operation is Operation.DELETE and bool(old.layout.partition_by)
        named = any(set(old.partition_sources) <= set(frame.columns) for frame in self._frames)
        require_restageable(self._plan, plan, removes=lambda: deletes and named)
        fresh = SparkStaging(replace(plan, claims=self._plan.claims), self._announce, self._spark)
        fresh._frames, fresh._scans, fresh._source = list(self._frames), self._scans, self._source
        before = remap_field_ids(old.schema, self._plan.added, plan.spec.schema)
        same = before.same_columns(plan.spec.schema)
        if not same:
            fresh._frames, fresh._source = in_columns_of(plan, self._frames, before), None
        staged = [report.status for report in self._rows.values()]
        fresh._replaced = [*self._replaced, *staged, *self._rest]
        fresh._rounds = fresh._first = self._rounds
        if same:
            fresh._before, self._exchange = self._exchange, None  # these are computed once
        if self._frames and self._rounds and fresh._before is None:
            fresh._expected = total(self._rows.values())
        fresh._began = self._began
        self.close()
        return fresh

    def _tasks_of(self, buckets: frozenset[BucketId]) -> frozenset[int] | None:
        """Return the tasks to run again; None for all.

        Where a bucket can have been left as it was, it was in no window, and is asked again.
        """
        plan = self._plan
        idle = plan.request.operation in (Operation.DELETE, Operation.MERGE)
        idle = idle or plan.request.on_duplicate == "skip"
        if self._route is None or idle or plan.spec.layout.ordering is not None:
            return None
        return frozenset(map(self._route.task_of, buckets))

    @property
    def relays(self) -> bool:
        """Each task can send its rows to sinks."""
        return True

    def relay_through(self, relay: Relay) -> None:
        """Have each task send its rows to sinks through this, before it stages them."""
        self._relay = relay

    @property
    def relayed(self) -> list[TaskLedger]:
        """What the attempts that count sent to sinks, a task each."""
        ledgers = (self._rows[task].ledger for task in sorted(self._rows))
        return [ledger for ledger in ledgers if ledger is not None]

    @property
    def read_set(self) -> ReadSet | None:
        """What the DataFrames read of this table, where Spark tells; see ``find_reads``."""
        return read_set_of(self._scans)

    @property
    def wrote(self) -> bool:
        """Whether a task may have written a file: a job was begun."""
        return self._began

    def close(self) -> None:
        """Let go of the DataFrames; staged files stay."""
        self._closed = True
        self._frames.clear()
        self._scans = ()
        for each in (self._exchange, self._before):
            if each is not None:
                each.close()

    @property
    def _layout(self) -> TableSpec:
        return self._source or self._plan.spec

    def _stage_rows(self, snapshot: Snapshot, only: frozenset[int] | None) -> None:
        plan = self._plan
        frame = union(self._frames, self._layout, plan.request.operation)
        columns = tuple(frame.columns)
        if not plan.spec.keyed:
            snapshot = replace(snapshot, files=snapshot.files.slice(0, 0))
            work = StageRows(plan, None, PackedSnapshot.pack(snapshot), columns)
            self._replace(run(numbered(frame), work), only)
            return
        route = self._route = self._route or self._plan_route(frame, snapshot)
        work = StageRows(plan, route, PackedSnapshot.pack(snapshot), columns, self._relay)
        if not goes_through_files(frame.sparkSession):
            self._replace(run(numbered(routed(frame, route, only)), work), only)
            return
        before, self._before = self._before, None
        self._exchange = self._exchange or Exchange(frame, plan, route, before)
        self._replace(self._exchange.stage(work, only), only)

    def _plan_route(self, frame: DataFrame, snapshot: Snapshot) -> Route:
        return Route.plan(
            self._plan.spec,
            columns=frame.columns,
            wanted=tasks_wanted(frame.sparkSession, into_files=snapshot.files.num_rows > 0),
            files=snapshot.files,
        )

    def _replace(self, reports: list[TaskReport], only: frozenset[int] | None) -> None:
        found = {report.task: report for report in reports}
        # What a sink got of the first evaluation has no other record than that of the second.
        relayed = self._rows.keys() | found if self._relay and self._rounds > self._first else None
        if (same := only if only is not None else relayed) is not None:
            for task in same:
                require_same(self._rows.get(task), found.get(task))
        # All were run again: a task that had rows before, and has none now, counts no more.
        again = set(self._rows) if only is None else set(found)
        self._replaced += [self._rows.pop(task).status for task in again if task in self._rows]
        self._rows.update(found)

    def _stage_rest(self, snapshot: Snapshot) -> None:
        """Stage what an operation does to buckets that no task with rows had."""
        self._replaced += self._rest
        self._rest = []
        plan = self._plan
        if plan.request.predicate is not None:
            snapshot = _matching(snapshot, plan)
        elif plan.request.operation is Operation.MERGE:
            if plan.request.clauses is None or not plan.request.clauses.by_source:
                return
        elif plan.request.operation is not Operation.OVERWRITE:
            return
        rest = replace(snapshot, files=snapshot.files.filter(pa.array(self._is_rest(snapshot))))
        if not rest.files.num_rows:
            return
        if plan.request.predicate is not None or plan.request.operation is Operation.MERGE:
            self._rest = self._run_rest(rest)
        else:
            self._rest = [self._remove_rest(rest)]

    def _is_rest(self, snapshot: Snapshot) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        files = snapshot.files
        whole = np.ones(files.num_rows, dtype=np.bool_)
        if self._plan.request.overwrite == "partitions":
            texts = pa.array(sorted(map(partition_text, self._places())), pa.string())
            whole = pc.is_in(files["partition"], value_set=texts).to_numpy()
        if self._route is None:
            return whole
        had = np.isin(self._route.tasks_of(files), list(self._rows))
        if self._plan.request.overwrite != "partitions":
            return whole & ~had
        # A task knows the partitions of its own rows only.
        touched = combine_tasks([r.status for r in self._rows.values()], keyed=True).changes.touched
        done = set(bucket_pairs(touched))
        return whole & ~np.fromiter(
            (p in done for p in bucket_pairs(files)), np.bool_, files.num_rows
        )

    def _remove_rest(self, rest: Snapshot) -> WriteStatus:
        """Take whole files out: no row is read, so the driver does it."""
        task = Task(f"d{self._rounds}", partitions=tuple(self._places()))
        staging = ArrowStaging(self._plan, self._announce, task=task, store=self._store)
        try:
            return staging.stage(rest, None)
        finally:
            staging.close()

    def _run_rest(self, rest: Snapshot) -> list[WriteStatus]:
        spark = self._session
        groups = rest.files.group_by(["partition", "bucket"]).aggregate([]).num_rows
        wanted = min(tasks_wanted(spark, into_files=True), groups)
        spec = self._plan.spec
        route = Route.plan(spec, columns=spec.partition_sources, wanted=wanted, files=rest.files)
        work = StageRest(self._plan, route, PackedSnapshot.pack(rest))
        return [report.status for report in run(counting(spark, route.tasks), work)]

    @property
    def _session(self) -> SparkSession:
        return self._spark or self._frames[0].sparkSession

    def _places(self) -> set[Partition]:
        return {place for report in self._rows.values() for place in places_of(report.status)}

    def _strays(self, status: WriteStatus) -> set[str]:
        """Find what attempts left that did not bring their task to its end."""
        again = any(report.attempt for report in self._rows.values())
        if not again and not speculates(self._session):
            return set()
        places = self._pending_places() | places_of(status)
        return files_of(self._store, self._plan.instant, places).difference(status.changes.named())

    def _cancelled_with_us(self) -> AbstractContextManager[None]:
        """Cancel our jobs if our instant is ended while they run."""
        if self._spark is None and not self._frames:
            return nullcontext()
        interval_s = self._plan.options.seconds("heartbeat.interval")
        return cancelled_with(
            self._session,
            str(self._plan.instant),
            lambda: self._announce(()),
            interval_s=interval_s,
        )

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """See to it that a roll-back here clears the partitions that tasks wrote into."""
        try:
            yield
        except BaseException:
            with suppress(TableError):
                self._announce(self._pending_places())
            raise

    def _pending_places(self) -> set[Partition]:
        """Return the partitions that the records of our tasks name."""
        alone = not self._plan.spec.layout.partition_by
        if alone and not self._replaced:
            return {()}
        return announced_places(self._store, self._plan.instant) | {()}


def _matching(snapshot: Snapshot, plan: WritePlan) -> Snapshot:
    """Leave out the buckets in which no row can match the predicate."""
    matching = Matching.of(plan)
    if matching is None:
        return snapshot
    found = matching.on(Existing(open_store(plan.store), snapshot, plan.spec)).buckets()
    return replace(snapshot, files=files_in(snapshot.files, found))
