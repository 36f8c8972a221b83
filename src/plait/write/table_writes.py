"""One-call writes: the half of ``Table`` that changes rows. Each call is one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from plait.arrow.check import prepare_all
from plait.arrow.clauses import rows_spec
from plait.arrow.memory import MemoryLimits
from plait.arrow.merge_into import Merging
from plait.definition.evolving import with_added_columns, with_columns_of
from plait.definition.table_def import TableDef
from plait.model.clauses import Clauses, Insert, Matched
from plait.model.data import Data
from plait.model.decision import CommitResult
from plait.model.plan import TableSpec
from plait.model.request import WriteRequest
from plait.model.words import Evolve, MissingColumns, OnConflict, OnDuplicate, Partitions
from plait.read.scan import Pinned, Scan
from plait.txn.table_handle import Namespace
from plait.write.request import (
    merge_request,
    partitions_of,
    read_set_of,
    require_one,
    update_request,
    write_request,
)
from plait.write.writer import Writer

if TYPE_CHECKING:
    from plait.expr import Where


def write_once(
    make: Callable[[WriteRequest], Writer], request: WriteRequest, table: TableDef, data: object
) -> CommitResult:
    """Write data in one commit.

    An Arrow table is prepared first. Its partitions are then known at begin, which saves a record.
    The writer takes the prepared rows, unless the columns have changed since this client looked.
    A stream is checked batch by batch as it arrives.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        spec = table.spec
        if request.joins:
            source = rows_spec(request.operation, spec, data.schema)
            Merging.bind(request.clauses or Clauses(), spec, source)
            spec = source
        chunk = MemoryLimits.of(table.options).chunk
        data = rows = prepare_all(data, spec, request.operation, piece_bytes=chunk)
        if rows.batches:
            partitions = partitions_of(pa.Table.from_batches(rows.batches), spec)
            request = replace(request, partitions=partitions)
    with make(request) as writer:
        if data is not None:
            writer.write(cast("Data", data))  # the Arrow engine takes prepared rows as well
    return writer.result


class Writes(Namespace):
    """One-call writes; ``Table.writer`` documents their arguments."""

    def _writer(self, request: WriteRequest, session: object = None) -> Writer:
        """Return the writer for a request; without input rows it works in ``session``."""
        return Writer(self._handle, request, session=session)

    @property
    def _spec(self) -> TableSpec:
        """The table's spec, as far as this client knows."""
        return self._handle.cache.known().table.spec

    def _write(self, request: WriteRequest, data: object) -> CommitResult:
        table = self._handle.cache.known().table
        if request.adds_columns and isinstance(data, (pa.Table, pa.RecordBatch)):
            table = with_columns_of(table, with_added_columns(request, table, data.schema))
        return write_once(self._writer, request, table, data)

    def _change(self, request: WriteRequest, session: object) -> CommitResult:
        """Change rows of the table, without input rows."""
        with self._writer(request, session) as writer:
            pass
        return writer.result

    def append(
        self,
        data: Data,
        *,
        commit_id: str | None = None,
        read_from: Scan | Pinned | int | None = None,
        evolve: Evolve = "none",
    ) -> CommitResult:
        """Add rows; see ``writer``."""
        read_set = read_set_of(self._handle, read_from)
        request = write_request(
            "append", self._spec, commit_id=commit_id, read_set=read_set, evolve=evolve
        )
        return self._write(request, data)

    def insert(
        self,
        data: Data,
        *,
        on_duplicate: OnDuplicate = "raise",
        commit_id: str | None = None,
        on_conflict: OnConflict = "raise",
        read_from: Scan | Pinned | int | None = None,
        evolve: Evolve = "none",
    ) -> CommitResult:
        """Add rows whose keys are not in the table yet; see ``writer``."""
        read_set = read_set_of(self._handle, read_from)
        request = write_request(
            "insert",
            self._spec,
            commit_id=commit_id,
            on_conflict=on_conflict,
            on_duplicate=on_duplicate,
            read_set=read_set,
            evolve=evolve,
        )
        return self._write(request, data)

    def upsert(
        self,
        data: Data,
        *,
        missing_columns: MissingColumns = "raise",
        commit_id: str | None = None,
        on_conflict: OnConflict = "raise",
        read_from: Scan | Pinned | int | None = None,
        evolve: Evolve = "none",
    ) -> CommitResult:
        """Add rows and replace existing rows with the same key; see ``writer``.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-upsert", "id bigint, n bigint", record_key=["id"])
        >>> _ = t.upsert(pa.table({"id": [1], "n": [1]}))
        >>> seen = t.scan()
        >>> row = seen.to_arrow().to_pylist()[0]
        >>> t.upsert(pa.table({"id": [1], "n": [row["n"] + 1]}), read_from=seen).version
        2
        >>> t.upsert(pa.table({"id": [1]}), missing_columns="keep").version  # n stays
        3
        """
        read_set = read_set_of(self._handle, read_from)
        request = write_request(
            "upsert",
            self._spec,
            missing_columns=missing_columns,
            commit_id=commit_id,
            on_conflict=on_conflict,
            read_set=read_set,
            evolve=evolve,
        )
        return self._write(request, data)

    def overwrite(  # noqa: PLR0913 - each by name, as every write
        self,
        data: Data,
        *,
        where: Where = None,
        partitions: Partitions | None = None,
        commit_id: str | None = None,
        on_conflict: OnConflict = "raise",
        read_from: Scan | Pinned | int | None = None,
        evolve: Evolve = "none",
    ) -> CommitResult:
        """Replace the table, the rows that match ``where``, or the partitions of the input rows."""
        read_set = read_set_of(self._handle, read_from)
        request = write_request(
            "overwrite",
            self._spec,
            commit_id=commit_id,
            on_conflict=on_conflict,
            where=where,
            partitions=partitions,
            read_set=read_set,
            evolve=evolve,
        )
        return self._write(request, data)

    def delete(
        self,
        *,
        where: Where = None,
        keys: Data | None = None,
        commit_id: str | None = None,
        on_conflict: OnConflict = "raise",
        read_from: Scan | Pinned | int | None = None,
        spark: object = None,
    ) -> CommitResult:
        """Delete the rows that match ``where``, or the rows with these keys.

        With ``spark``, the executors of that session do the work; by default this process does.
        """
        require_one(where, keys)
        read_set = read_set_of(self._handle, read_from)
        request = write_request(
            "delete",
            self._spec,
            commit_id=commit_id,
            on_conflict=on_conflict,
            where=where,
            read_set=read_set,
        )
        return self._change(request, spark) if keys is None else self._write(request, keys)

    def update(
        self,
        values: Mapping[str, object],
        *,
        where: Where = None,
        commit_id: str | None = None,
        on_conflict: OnConflict = "raise",
        read_from: Scan | Pinned | int | None = None,
        spark: object = None,
    ) -> CommitResult:
        """Set columns to new values in the rows that match ``where``.

        Values are computed from the rows that the commit finds. If another commit changed other
        keys of a bucket in the meantime, the bucket is updated again on top of that commit. If it
        changed the same rows, the table's policy decides, as for every write.

        Args:
            values: column: value. Text is SQL over the columns (``"n + 1"``, ``"'text'"``);
                anything else is a literal, a pyarrow expression, or a function that takes a
                record batch and returns an array.
            where: the rows to update; all by default.
            commit_id: an idempotency key, as in ``writer``.
            on_conflict: ``raise`` or ``retry``, as in ``writer``.
            read_from: what the values were computed from, as in ``writer``.
            spark: a Spark session whose executors do the work; by default this process does.

        Raises:
            OptionError: a column of the record key or of the partitions would change.
            PredicateError: a value or ``where`` cannot be parsed.
            SchemaMismatchError: a column does not exist, or a value does not fit its type.
            BadRecordError: a value cannot be computed for a row, or not stored without loss.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-update", "id bigint, n bigint", record_key=["id"])
        >>> _ = t.upsert(pa.table({"id": [1, 2], "n": [1, 1]}))
        >>> t.update({"n": "n + 1"}, where="id = 2").stats.rows_updated
        1
        >>> sorted(t.scan().to_arrow()["n"].to_pylist())
        [1, 2]
        """
        request = update_request(
            values,
            self._spec,
            where=where,
            commit_id=commit_id,
            on_conflict=on_conflict,
            read_set=read_set_of(self._handle, read_from),
        )
        return self._change(request, spark)

    def merge(  # noqa: PLR0913 - each list of clauses by name, as every write
        self,
        source: Data,
        *,
        on: str | Sequence[str] | None = None,
        matched: Matched | Sequence[Matched] = (),
        not_matched: Insert | Sequence[Insert] = (),
        not_matched_by_source: Matched | Sequence[Matched] = (),
        commit_id: str | None = None,
        on_conflict: OnConflict = "raise",
        read_from: Scan | Pinned | int | None = None,
    ) -> CommitResult:
        """Match the rows of a source with the table by record key, and apply clauses to them.

        In each list, the first clause whose ``when`` is true for a row applies. A row without
        such a clause stays unchanged. In values and conditions ``s.`` is the source and ``t.`` the
        table, whatever columns are called: part ``a`` of a column ``s`` is ``t.s.a``. The source
        has one row per key, and has the columns of the key and the partitions.

        Args:
            source: a Spark DataFrame (stays distributed), or Arrow data as in ``writer``.
            on: the columns of the record key. It only documents the call: rows are always matched
                by the record key.
            matched: ``Update`` and ``Delete`` for rows that are in both.
            not_matched: ``Insert`` for rows that are only in the source.
            not_matched_by_source: ``Update`` and ``Delete`` for rows that are only in the table.
            commit_id: an idempotency key, as in ``writer``.
            on_conflict: ``raise`` or ``retry``, as in ``writer``.
            read_from: what the source was computed from, as in ``writer``.

        Raises:
            DuplicateKeyError: the source has two rows with the same key.
            OptionError, PredicateError, SchemaMismatchError, BadRecordError: as in ``update``.

        >>> import pyarrow as pa
        >>> from plait import Delete, Insert, Table, Update
        >>> t = Table.create("memory://doc-merge", "id bigint, n bigint", record_key=["id"])
        >>> _ = t.upsert(pa.table({"id": [1, 2], "n": [1, 1]}))
        >>> changes = pa.table({"id": [1, 2, 3], "n": [10, 10, 10], "op": ["u", "d", "u"]})
        >>> matched = [Delete(when="s.op = 'd'"), Update({"n": "t.n + s.n"})]
        >>> stats = t.merge(changes, matched=matched, not_matched=[Insert()]).stats
        >>> stats.rows_inserted, stats.rows_updated, stats.rows_deleted
        (1, 1, 1)
        """
        clauses = Clauses.of(matched, not_matched, not_matched_by_source)
        request = merge_request(
            clauses,
            on,
            self._spec,
            commit_id=commit_id,
            on_conflict=on_conflict,
            read_set=read_set_of(self._handle, read_from),
        )
        return self._write(request, source)
