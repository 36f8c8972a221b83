"""The facade: ``Table``. It delegates, and decides nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Never, Self

from plait.definition.create import define_table
from plait.definition.ttl import Ttl
from plait.errors import TableExistsError, redacted_url
from plait.locks import default_lock
from plait.model.consent import Consent
from plait.model.words import (
    Concurrency,
    Evolve,
    FailedWrites,
    Isolation,
    MissingColumns,
    OnConflict,
    OnDuplicate,
    Partitions,
    TableType,
    Unique,
    WriteOperation,
)
from plait.queries.opening import create_handle, open_expected
from plait.queries.table_inspect import Inspect
from plait.queries.table_queries import Reads
from plait.read.scan import Pinned, Scan
from plait.repush.table_repush import Layout
from plait.services.definition.alter import Alter
from plait.services.definition.sinks import DefinedReplicas
from plait.services.index.record_index import RecordIndex
from plait.services.maintenance.upkeep import keep_in_shape
from plait.services.table_check import Soundness
from plait.services.table_maintenance import Maintenance
from plait.services.table_versions import Versions
from plait.storage import open_store
from plait.stream.stream import Stream
from plait.txn.table_handle import OpenTable, TableHandle
from plait.write.replication import Replication
from plait.write.request import read_set_of, write_request
from plait.write.sink_address import parse_replicas
from plait.write.table_writes import Writes
from plait.write.transaction import Transaction
from plait.write.writer import Writer

if TYPE_CHECKING:
    from plait.expr import Where


class Table(Writes, Reads):
    """A table at a URI. Every call reads the newest version first.

    Any number of processes may open the same table and write to it; there is no server between
    them. A handle never changes in place, and threads may share it.

    Writes and reads of rows are methods of the table. Everything else is by subject: ``inspect``,
    ``maintenance``, ``versions``, ``check``, ``alter``, ``layout``, ``index`` and ``replicas``.
    A call with a plan takes ``dry_run=True``, which returns the plan, and takes that plan later.

    >>> import pyarrow as pa
    >>> t = Table.create("memory://doc-table", pa.schema([("id", pa.int64())]), record_key=["id"])
    >>> t.upsert(pa.table({"id": [1, 2]})).version
    1
    >>> t.scan(where="id = 2").to_arrow().to_pylist()
    [{'id': 2}]
    """

    def __init__(self, handle: TableHandle) -> None:
        super().__init__(OpenTable(_connected(handle)))

    def __repr__(self) -> str:
        """Say where it is."""
        return f"Table({redacted_url(self._handle.store.address.uri)!r})"

    def __reduce__(self) -> Never:
        """Refuse to be pickled: another process opens the table itself.

        Raises:
            TypeError: always.
        """
        message = f"{self!r} cannot be pickled: pass its location, and call Table.open there"
        raise TypeError(f"{message}; a scan can be pickled, as table.scan() makes it")

    # --- open and create -------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: object,
        *,
        record_key: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        ordering: str | None = None,
        table_type: TableType = "cow",
        buckets: int | None = None,
        bucket_by: str | Sequence[str] = (),
        lock: str | None = None,
        policy: str = "key",
        isolation: Isolation = "snapshot",
        unique: Unique = "partition",
        failed_writes: FailedWrites = "lazy",
        concurrency: Concurrency = "multi_writer",
        if_not_exists: bool = False,
        properties: Mapping[str, object] | None = None,
        ttl: Ttl | str | None = None,
        replicas: Iterable[str] = (),
        checks: Mapping[str, str] | None = None,
        generated: Mapping[str, str] | None = None,
        storage_options: Mapping[str, object] | None = None,
        allow: str | Iterable[str] | None = None,
    ) -> Self:
        """Create a table.

        If several callers race, one creates the table. The others get TableExistsError or, with
        ``if_not_exists``, the table as the winner defined it.

        Args:
            uri: a directory, or the URL of a file system or object store.
            schema: Arrow or Spark schema, or DDL text.
            record_key: the column or columns that identify a row; without: append-only.
            partition_by: the column or columns whose values divide the table.
            ordering: of two rows with the same key, the one with the greater value here wins.
            table_type: ``cow`` rewrites a bucket on change; ``mor`` masks old rows and adds a log.
            buckets: number of buckets in each partition; by default 1 if partitioned, else 8.
            bucket_by: the columns of the record key whose hash chooses the bucket; by default all.
            lock: ``file``, ``process``, ``none``, or ``zookeeper://h1:2181,h2:2181/path``. By
                default ``file`` on a disk, ``process`` in memory, else ``none``.
            policy: what happens if two commits write to one bucket. ``key``: they conflict if
                they wrote the same key, otherwise the later one merges its rows again.
                ``file_group``: they always conflict. ``merge``: they never conflict; the ordering
                column decides, then the order of commits. Or the name of your own policy, an
                entry point in ``plait.policies``.
            isolation: ``snapshot``; or ``serializable``, which also checks what a commit read.
            unique: ``partition``: keys are unique in each partition. ``table``: in all of them, so
                an upsert whose partition changed moves the row.
            failed_writes: when the files of dead writers are deleted. ``lazy``: by recovery and
                ``clean``. ``eager``, for a single writer: before the next writer begins.
            concurrency: ``multi_writer``; or ``single_writer``, which refuses a second live writer.
            if_not_exists: open the table if it exists, instead of raising.
            properties: table options, see the options page.
            ttl: when rows may disappear, see ``Table.alter.set_ttl``; by default never.
            replicas: stores that get each row before the table does, see ``Table.replicas``.
            checks: conditions that no row may break, as SQL text by name; see
                ``Alteration.add_check``.
            generated: columns whose value comes from others of their row, and the expression of
                each, such as ``{"day": "day(at)"}``; see ``Alteration.generate``.
            storage_options: passed to the file system of the URL.
            allow: as in ``open``; ``lock`` and ``replicas`` of this call are allowed anyway.

        Raises:
            OptionError: the definition is invalid; nothing was written.
            PredicateError: a check or an expression is not understood.
            SchemaError: a type that Spark and Parquet do not both support.
            TableExistsError: the table exists.
        """
        consent = Consent.of(allow)
        store = open_store(uri, storage_options, create=True)
        table = define_table(
            schema,
            record_key=record_key,
            partition_by=partition_by,
            ordering=ordering,
            table_type=table_type,
            buckets=buckets,
            bucket_by=bucket_by,
            lock=lock or default_lock(store),
            policy=policy,
            isolation=isolation,
            unique=unique,
            failed_writes=failed_writes,
            concurrency=concurrency,
            properties=properties,
            ttl=ttl,
            replicas=parse_replicas([replicas] if isinstance(replicas, str) else replicas),
            checks=checks,
            generated=generated,
        )
        try:
            handle = create_handle(store, table, consent)
        except TableExistsError:
            if not if_not_exists:
                raise
        else:
            created = cls(handle)
            created._handle.keep_up()
            return created
        allowed = consent.also(*table.replicas.values(), *([lock] if lock else []))
        return cls(open_expected(uri, storage_options, consent=allowed))

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        contract: Mapping[str, str] | None = None,
        storage_options: Mapping[str, object] | None = None,
        allow: str | Iterable[str] | None = None,
    ) -> Self:
        """Open a table. Its lock, mode and policy are read from the table.

        Args:
            uri: the URI of the table.
            contract: the contract that the caller expects, or parts of it:
                ``concurrency``, ``lock``, ``failed_writes``.
            storage_options: passed to the file system of the URL.
            allow: places outside of the table that it may name and that are then used: sinks, the
                servers of a lock, the source of a repush. ``s3://bucket/x/*`` allows all below. The
                environment variable ``PLAIT_ALLOW`` allows more. Readers need none of it, except
                where ZooKeeper decides the slots.

        Raises:
            ConsentError: ZooKeeper decides the slots, and its servers are not allowed.
            ContractError: the table has another contract.
            TableNotFoundError: there is no table at this URI.
            UnsupportedFeatureError: a newer Plait wrote it.
        """
        return cls(open_expected(uri, storage_options, contract, consent=Consent.of(allow)))

    # --- writing ---------------------------------------------------------------------------

    def writer(
        self,
        operation: WriteOperation = "append",
        *,
        commit_id: str | None = None,
        on_conflict: OnConflict = "raise",
        on_duplicate: OnDuplicate = "raise",
        missing_columns: MissingColumns = "raise",
        where: Where = None,
        partitions: Partitions | None = None,
        read_from: Scan | Pinned | int | None = None,
        replicas: Replication | None = None,
        evolve: Evolve = "none",
    ) -> Writer:
        """Open a writer for one operation: append, insert, upsert, overwrite or delete.

        Args:
            operation: the operation. On a table with a key, ``append`` means ``insert``. An
                ``upsert`` also takes keys to remove among its rows; see ``Writer.remove``.
            commit_id: an idempotency key. If it was committed before, however long ago, the
                first result is returned and nothing is written.
            on_conflict: ``raise``; or ``retry``, which stages the conflicting buckets again.
            on_duplicate: for ``insert``, if the key exists: ``raise`` or ``skip``.
            missing_columns: for ``upsert``, if rows lack columns of the table: ``raise``; or
                ``keep``, which keeps the values of existing rows. New rows get the columns'
                defaults, or null.
            where: for ``overwrite`` and ``delete``: the rows to remove.
            partitions: ``dynamic``: ``overwrite`` only the partitions that the rows are in.
            read_from: the scan, snapshot or version that the rows were computed from. If another
                commit wrote the same keys since then, this one conflicts, so no update is lost.
            replicas: stores that get each batch before the commit; see ``plait.replicate``. By
                default those that the table's definition names.
            evolve: if rows have columns that the table lacks: ``none`` refuses them; ``add`` adds
                the columns to the table in the same commit. The first rows say which.

        Raises:
            ConsentError: the table names sinks or servers that the caller did not allow.
            OptionError: the arguments do not go together, or the replicas cannot take them.
            ReplicationError: a replica failed, and nothing was committed.
            InstantExpiredError: ``read_from`` was cleaned in the meantime; read again.
        """
        read_set = read_set_of(self._handle, read_from)
        request = write_request(
            operation,
            self._handle.cache.known().table.spec,
            read_set=read_set,
            commit_id=commit_id,
            on_conflict=on_conflict,
            on_duplicate=on_duplicate,
            missing_columns=missing_columns,
            where=where,
            partitions=partitions,
            evolve=evolve,
        )
        return Writer(self._handle, request, replicas=replicas)

    def transaction(
        self, *, commit_id: str | None = None, on_conflict: OnConflict = "raise"
    ) -> Transaction:
        """Open a transaction: several operations in one commit; see ``Transaction``.

        Args:
            commit_id: an idempotency key, as in ``writer``.
            on_conflict: ``raise``; or ``retry``: run all operations again, unless it used ``scan``.
        """
        return Transaction(self._handle, commit_id=commit_id, on_conflict=on_conflict)

    def stream(self, application: str) -> Stream:
        """Return the stream of one application into this table."""
        return Stream(self._handle, application)

    # --- everything else, by subject ---------------------------------------------------------

    @property
    def inspect(self) -> Inspect:
        """What the table is, what happened to it, and who works on it."""
        return Inspect(self._opened)

    @property
    def maintenance(self) -> Maintenance:
        """The upkeep of its files: compact, cluster, clean, expire and more."""
        return Maintenance(self._opened)

    @property
    def versions(self) -> Versions:
        """Savepoints, and the way back to an older version."""
        return Versions(self._opened)

    @property
    def check(self) -> Soundness:
        """Whether the table is sound, and what repairs it."""
        return Soundness(self._opened)

    @property
    def alter(self) -> Alter:
        """The definition of the table: columns, options, contract and features."""
        return Alter(self._opened)

    @property
    def layout(self) -> Layout:
        """The table laid out anew: a repush."""
        return Layout(self._opened)

    @property
    def index(self) -> RecordIndex:
        """The record index of the table."""
        return RecordIndex(self._opened)

    @property
    def replicas(self) -> DefinedReplicas:
        """The stores that get each row before the table does."""
        return DefinedReplicas(self._opened)


def handle_of(table: Table) -> TableHandle:
    """Return the handle that engines, the command line and sinks work on; not public."""
    return table._handle  # noqa: SLF001 - the one door for the rooms inside


def _connected(handle: TableHandle) -> TableHandle:
    """Connect the port of a handle that leads up: its decisions do the upkeep of the services."""
    return replace(handle, upkeep=keep_in_shape)
