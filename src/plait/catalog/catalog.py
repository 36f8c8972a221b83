"""The catalog: names of tables below a root, in a table of Plait's own (RFC 0047).

Nothing here decides who is first. Each change of a name is one commit of the table of names, which
reads what it rests on in the same transaction: a name is a record key, so of two that want it one
is refused, and a reader sees all of a rename or nothing. What belongs to one operation and cannot
be one commit, such as a table and its name, is ordered so that what a crash leaves can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Self

import pyarrow as pa

from plait.catalog.names import (
    CREATING,
    DIRECTORY,
    DROPPED,
    NAMESPACE,
    PURGING,
    TABLE,
    Row,
    TableName,
    is_place,
    require_namespace,
)
from plait.errors import (
    ConsentError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    OptionError,
    PredicateError,
    RetryableConflictError,
    SchemaError,
    TableDroppedError,
    TableExistsError,
    TableNotFoundError,
)
from plait.model.consent import Consent
from plait.model.plain import Plain, iso
from plait.ports import Ports
from plait.services.definition.drop import (
    drop_table,
    in_use,
    purge_files,
    purgeable_ms,
    undrop_table,
)
from plait.storage import open_store
from plait.table import Table, handle_of
from plait.txn.refusal import retries_exhausted
from plait.txn.table_handle import TableHandle, open_handle

_COLUMNS = pa.schema(
    [
        pa.field("namespace", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("unlisted", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("place", pa.string(), nullable=False),
        pa.field("changed_ms", pa.int64(), nullable=False),
    ]
)
_KEY = ["namespace", "name", "unlisted"]
_KEYS = pa.schema([_COLUMNS.field(name) for name in _KEY])
_CREATING_MS_MAX = 24 * 3600 * 1000
"""How long a creation may take before a purge takes its entry away."""
_ATTEMPTS_MAX, _DEADLINE_S = 200, 60.0
_PAUSE_S, _PAUSE_S_MAX = 0.005, 0.5


@dataclass(frozen=True, slots=True)
class CatalogEntry(Plain):
    """A table of a catalog."""

    KEYS = "name location state"

    name: str
    """``namespace.table``; of a dropped table, its former name."""
    location: str
    """The URI of the table, which a rename does not change."""
    state: str = TABLE
    """``table``, ``dropped``, ``creating``, or ``purging``: its files are going."""


@dataclass(frozen=True, slots=True)
class PurgeReport(Plain):
    """The result of a purge."""

    purged: tuple[CatalogEntry, ...]
    """Dropped tables whose files are gone, and entries of creations that died."""
    kept: Mapping[str, str]
    """Why others still have their files, by location."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What a commit does to the rows that it looked at."""

    removed: Sequence[Row] = ()
    put: Sequence[Row] = ()


class Catalog:
    """The names of the tables below a root. There is no server: every process may open the same.

    A name is ``namespace.table``. Creating, renaming and dropping are atomic, whoever else does so
    at the same time. A handle never changes, and threads may share it.

    >>> catalog = Catalog.create("memory://doc-catalog")
    >>> catalog.create_namespace("sales")
    >>> table = catalog.create_table("sales.trips", "id bigint", record_key=["id"])
    >>> catalog.rename("sales.trips", "sales.rides")
    >>> [entry.name for entry in catalog.tables()]
    ['sales.rides']
    """

    def __init__(
        self,
        uri: str,
        *,
        storage_options: Mapping[str, object] | None = None,
        allow: str | Iterable[str] | None = None,
    ) -> None:
        """Open a catalog.

        Args:
            uri: its root, a directory or URL.
            storage_options: passed to the file system of the URL, for every table.
            allow: as in ``Table.open``, for every table.

        Raises:
            TableNotFoundError: there is no catalog; ``Catalog.create`` makes one.
        """
        self.uri = uri.rstrip("/") or uri
        self._storage, self._allow = storage_options, allow
        try:
            self._names = Table.open(f"{self.uri}/{DIRECTORY}", storage_options=storage_options)
        except TableNotFoundError as error:
            message = f"there is no catalog at {uri}"
            hint = "Catalog.create(uri) makes one"
            raise TableNotFoundError(message, hint=hint, uri=uri) from error
        if "://" not in uri:
            # A path is absolute from here on: the process may go to another directory, where a
            # drop would find no table, and a purge would forget one that is there.
            found = handle_of(self._names).store.address.uri
            self.uri = found.removesuffix(f"/{DIRECTORY}") or "/"

    @classmethod
    def create(
        cls,
        uri: str,
        *,
        storage_options: Mapping[str, object] | None = None,
        allow: str | Iterable[str] | None = None,
    ) -> Self:
        """Create a catalog, or open the one that is there.

        Args:
            uri: its root, a directory or URL.
            storage_options: passed to the file system of the URL, for every table.
            allow: as in ``Table.open``, for every table.
        """
        Table.create(
            f"{uri.rstrip('/') or uri}/{DIRECTORY}",
            _COLUMNS,
            record_key=_KEY,
            buckets=1,
            isolation="serializable",
            if_not_exists=True,
            storage_options=storage_options,
        )
        return cls(uri, storage_options=storage_options, allow=allow)

    # --- namespaces --------------------------------------------------------------------------

    def namespaces(self) -> tuple[str, ...]:
        """Return the names of all namespaces, sorted."""
        return tuple(sorted(row.namespace for row in self._rows("name = ''")))

    def create_namespace(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a namespace.

        Raises:
            OptionError: it is no name.
            TableExistsError: it exists.
        """
        require_namespace(name)

        def change(rows: Sequence[Row]) -> _Change:
            if not rows:
                return _Change(put=[Row(name, changed_ms=self._now_ms())])
            if if_not_exists:
                return _Change()
            message = f"the namespace {name!r} exists"
            raise TableExistsError(message, hint="pass if_not_exists=True", uri=self.uri)

        self._commit(f"namespace = '{name}' AND name = ''", change)

    def drop_namespace(self, name: str) -> None:
        """Drop a namespace without tables; dropped tables whose files are there count as well.

        Raises:
            NamespaceNotFoundError: there is none.
            NamespaceNotEmptyError: tables are in it.
        """
        require_namespace(name)

        def change(rows: Sequence[Row]) -> _Change:
            own = self._require_namespace(rows, name)
            tables = sorted(str(row.table) for row in rows if row.name)
            if tables:
                message = f"the namespace {name!r} has {len(tables)} tables, such as {tables[0]}"
                hint = "drop or rename its tables first, and purge those that were dropped"
                facts = {"uri": self.uri, "namespace": name, "tables": tables[:20]}
                raise NamespaceNotEmptyError(message, hint=hint, **facts)
            return _Change(removed=[own])

        self._commit(f"namespace = '{name}'", change)

    # --- tables ------------------------------------------------------------------------------

    def tables(self, namespace: str | None = None) -> tuple[CatalogEntry, ...]:
        """Return the tables that have a name, sorted by it; of one namespace, if it is given.

        Raises:
            NamespaceNotFoundError: there is no such namespace.
        """
        where = "unlisted = ''"
        if namespace is not None:
            where += f" AND namespace = '{require_namespace(namespace)}'"
        rows = self._rows(where)
        if namespace is not None:
            self._require_namespace(rows, namespace)
        return self._entries(row for row in rows if row.name)

    def exists(self, name: str) -> bool:
        """Tell whether a name is given to a table."""
        return self._find(TableName.parse(name)) is not None

    def location(self, name: str) -> str:
        """Return the URI of a table by its name; raise TableNotFoundError if there is none."""
        return self._uri_of(self._require(TableName.parse(name)))

    def table(self, name: str) -> Table:
        """Open a table by its name.

        Raises:
            NamespaceNotFoundError, TableNotFoundError: there is none.
            TableDroppedError: its drop, or undrop, has not ended: repeat it.
        """
        location = self.location(name)
        return Table.open(location, storage_options=self._storage, allow=self._allow)

    def create_table(
        self, name: str, schema: object, *, if_not_exists: bool = False, **definition: object
    ) -> Table:
        """Create a table under a name.

        Args:
            name: ``namespace.table``; the namespace must exist.
            schema: Arrow or Spark schema, or DDL text.
            if_not_exists: open the table of this name if there is one.
            definition: the other arguments of ``Table.create``, such as ``record_key``.

        Raises:
            NamespaceNotFoundError: create it first.
            TableExistsError: the name is taken.
            OptionError, SchemaError: the definition is invalid; nothing was written.
        """
        wanted = TableName.parse(name)
        found = self._find(wanted)
        if found is not None:
            if if_not_exists:
                return self.table(name)
            self._require_free([found, Row(wanted.namespace)], wanted)
        place = f"tables/{Ports().ids.nonce()}"
        row = Row(*wanted, place, CREATING, place, self._now_ms())
        self._commit(_of_names(wanted), lambda rows: self._begun(rows, row))
        try:
            table = Table.create(
                f"{self.uri}/{place}",
                schema,
                storage_options=self._storage,
                allow=self._allow,
                **definition,  # type: ignore[arg-type]  # checked by Table.create
            )
        except (ConsentError, OptionError, PredicateError, SchemaError):
            self._forget(row)  # nothing was written there
            raise
        try:
            self._commit(_of_names(wanted), lambda rows: self._named(rows, row))
        except (TableExistsError, NamespaceNotFoundError):
            self._discard(row)
            if not if_not_exists:
                raise
            return self.table(name)
        return table

    def rename(self, name: str, new_name: str) -> None:
        """Give a table another name, also in another namespace; its files stay where they are.

        Raises:
            NamespaceNotFoundError, TableNotFoundError: there is no such table or namespace.
            TableExistsError: the new name is taken.
        """
        old, new = TableName.parse(name), TableName.parse(new_name)

        def change(rows: Sequence[Row]) -> _Change:
            own = self._require_in(rows, old)
            self._require_free(rows, new)
            moved = replace(own, namespace=new.namespace, name=new.table)
            return _Change([own], [replace(moved, changed_ms=self._now_ms())])

        self._commit(_of_names(old, new), change)

    def drop(self, name: str) -> CatalogEntry:
        """Drop a table: nobody reads or writes it any more, and its name is free.

        Its files stay until ``clean.grace`` is over and ``purge`` deletes them; ``undrop`` takes
        it back until then. If it fails in between, repeat it.

        Raises:
            NamespaceNotFoundError, TableNotFoundError: there is no such table.
        """
        row = self._require(TableName.parse(name))
        handle = self._handle(row)
        if handle is not None:
            with suppress(TableDroppedError):  # a drop died before it took the name away
                drop_table(handle)
        # By its place: somebody may have renamed it meanwhile, and it is dropped all the same.
        self._commit(_of_place(row.place), lambda rows: self._unnamed(rows, row.place))
        return self._entry(self._moved(row, DROPPED))

    def dropped(self) -> tuple[CatalogEntry, ...]:
        """Return the tables that have no name: dropped, being created, or being purged."""
        return self._entries(self._rows("unlisted <> ''"))

    def undrop(self, location: str, name: str | None = None) -> CatalogEntry:
        """Take the drop of a table back.

        Args:
            location: where it is, as ``dropped`` and ``drop`` say.
            name: its name from now on; by default its former one.

        Raises:
            TableNotFoundError: no dropped table is there, or its files are going.
            TableExistsError: the name is taken.
        """
        row = self._at(location)
        wanted = row.table if name is None else TableName.parse(name)

        def change(rows: Sequence[Row]) -> _Change:
            own = next((each for each in rows if each.place == row.place), None)
            if own is not None and own.state == TABLE and own.table == wanted:
                return _Change()  # by one that died before it undropped the table
            if own is None or own.state != DROPPED:
                raise self._not_dropped(location)
            self._require_free(rows, wanted)
            listed = replace(self._moved(own, TABLE), namespace=wanted[0], name=wanted[1])
            return _Change([own], [listed])

        self._commit(f"{_of_names(wanted)} OR {_of_place(row.place)}", change)
        handle = self._handle(row)
        if handle is None:
            raise self._not_dropped(location)
        undrop_table(handle)
        return CatalogEntry(str(wanted), self._uri_of(row))

    def purge(self, *, now: bool = False) -> PurgeReport:
        """Delete the files of dropped tables whose grace is over and that nobody reads.

        It can be killed and repeated, and run beside everything else.

        Args:
            now: wait for no grace; live readers and writers are waited for all the same.
        """
        purged: list[CatalogEntry] = []
        kept: dict[str, str] = {}
        for row in self._rows("unlisted <> ''"):
            reason = None if row.state == PURGING else self._begin_purge(row, now=now)
            if reason is not None:
                kept[self._uri_of(row)] = reason
                continue
            purge_files(open_store(self._uri_of(row), self._storage))
            self._forget(row)
            purged.append(self._entry(row))
        return PurgeReport(tuple(purged), kept)

    # --- inside: rows --------------------------------------------------------------------------

    def _rows(self, where: str) -> list[Row]:
        return [Row.of(each) for each in self._names.scan(where=where).to_arrow().to_pylist()]

    def _find(self, name: TableName) -> Row | None:
        """Return the row of a name; raise NamespaceNotFoundError if nothing is there for it."""
        rows = self._rows(_of_names(name))
        self._require_namespace(rows, name.namespace)
        return _listed(rows, name)

    def _require(self, name: TableName) -> Row:
        return self._require_in(self._rows(_of_names(name)), name)

    def _require_in(self, rows: Sequence[Row], name: TableName) -> Row:
        self._require_namespace(rows, name.namespace)
        found = _listed(rows, name)
        if found is None:
            message = f"the catalog at {self.uri} has no table {name}"
            hint = "`tablectl list` shows the names; a dropped table can be undropped"
            raise TableNotFoundError(message, hint=hint, uri=self.uri)
        return found

    def _require_free(self, rows: Sequence[Row], name: TableName) -> None:
        self._require_namespace(rows, name.namespace)
        if _listed(rows, name) is not None:
            message = f"the name {name} is taken"
            hint = "rename or drop the table that has it, or choose another name"
            raise TableExistsError(message, hint=hint, uri=self.uri)

    def _require_namespace(self, rows: Iterable[Row], name: str) -> Row:
        for row in rows:
            if row.namespace == name and row.state == NAMESPACE:
                return row
        message = f"the catalog at {self.uri} has no namespace {name!r}"
        hint = "create it with create_namespace"
        raise NamespaceNotFoundError(message, hint=hint, uri=self.uri, namespace=name)

    def _begun(self, rows: Sequence[Row], row: Row) -> _Change:
        self._require_free(rows, row.table)
        return _Change(put=[row])

    def _named(self, rows: Sequence[Row], row: Row) -> _Change:
        """Give the name to a table that was created."""
        own = next((each for each in rows if each.key == row.key), None)
        if own is None or own.state != CREATING:
            message = f"the creation of {row.table} took more than a day, and was purged"
            raise TableNotFoundError(message, hint="create it again", uri=self._uri_of(row))
        self._require_free(rows, row.table)
        return _Change([own], [self._moved(own, TABLE)])

    def _unnamed(self, rows: Sequence[Row], place: str) -> _Change:
        """Take its name from a table that is dropped; another drop may have done so."""
        own = next((each for each in rows if each.place == place), None)
        if own is None or own.state not in (TABLE, CREATING):
            return _Change()
        return _Change([own], [self._moved(own, DROPPED)])

    def _moved(self, row: Row, state: str) -> Row:
        unlisted = "" if state == TABLE else row.place
        return replace(row, state=state, unlisted=unlisted, changed_ms=self._now_ms())

    def _discard(self, row: Row) -> None:
        """Delete what was created for a name that somebody else got: nobody knows the place."""
        self._commit(
            _of_place(row.place),
            lambda rows: _Change(put=[self._moved(each, PURGING) for each in rows]),
        )
        purge_files(open_store(self._uri_of(row), self._storage))
        self._forget(row)

    def _forget(self, row: Row) -> None:
        self._commit(
            _of_place(row.place), lambda rows: _Change([r for r in rows if r.place == row.place])
        )

    def _commit(self, where: str, change: Callable[[Sequence[Row]], _Change]) -> None:
        """Commit what ``change`` makes of the rows of a predicate, anew if others changed them.

        The rows are read in the transaction, and the table is serializable: so nothing is decided
        on rows that are not those any more.
        """
        ports = Ports()
        started, backoff = ports.clock.monotonic(), ports.backoff(_PAUSE_S, _PAUSE_S_MAX)
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                with self._names.transaction() as tx:
                    found = tx.scan(where=where).to_arrow().to_pylist()
                    asked = change([Row.of(each) for each in found])
                    if asked.removed:
                        keys = [row.key for row in asked.removed]
                        tx.delete(keys=pa.Table.from_pylist(keys, schema=_KEYS))
                    if asked.put:
                        rows = [asdict(row) for row in asked.put]
                        tx.upsert(pa.Table.from_pylist(rows, schema=_COLUMNS))
            except RetryableConflictError as conflict:
                elapsed_s = ports.clock.monotonic() - started
                if attempt == _ATTEMPTS_MAX or elapsed_s > _DEADLINE_S:
                    raise retries_exhausted(
                        conflict, attempts=attempt, elapsed_s=elapsed_s
                    ) from conflict
                backoff.pause()
            else:
                return

    # --- inside: tables ------------------------------------------------------------------------

    def _begin_purge(self, row: Row, *, now: bool) -> str | None:
        """Decide that the files of a place go; return why not."""
        reason = self._kept(row, now=now)
        if reason is not None:
            return reason
        doomed = False

        def change(rows: Sequence[Row]) -> _Change:
            nonlocal doomed
            own = next((each for each in rows if each.place == row.place), None)
            doomed = own is not None and own.state in (row.state, PURGING)
            if own is None or own.state != row.state:
                return _Change()
            return _Change(put=[self._moved(own, PURGING)])

        # From here on no undrop, and no creator that wakes up, gives the place a name again.
        self._commit(_of_place(row.place), change)
        return None if doomed else "it was undropped, or purged by another client"

    def _kept(self, row: Row, *, now: bool) -> str | None:
        """Tell why the files of a place cannot go yet; None: they can."""
        if row.state == CREATING:
            over = self._now_ms() - row.changed_ms > _CREATING_MS_MAX
            return None if over else "it is being created"
        handle = self._handle(row)
        if handle is None:
            return None
        due_ms = purgeable_ms(handle)
        if due_ms is None:
            return "it is not dropped any more: undrop it to give it a name"
        if not now and handle.store.now_ms() < due_ms:
            return f"its grace is over at {iso(due_ms)}"
        user = in_use(handle)
        return None if user is None else f"{user} needs it"

    def _handle(self, row: Row) -> TableHandle | None:
        """Open a table, dropped or not; None if there is none."""
        store = open_store(self._uri_of(row), self._storage)
        try:
            return open_handle(store, Ports(), Consent.of(self._allow), dropped=True)
        except TableNotFoundError:
            return None

    def _at(self, location: str) -> Row:
        place = location.rstrip("/").removeprefix(f"{self.uri}/")
        if is_place(place):
            for row in self._rows(_of_place(place)):
                return row
        raise self._not_dropped(location)

    def _not_dropped(self, location: str) -> TableNotFoundError:
        message = f"the catalog at {self.uri} has no dropped table at {location}"
        hint = "`tablectl list --dropped` shows them, as Catalog.dropped() does"
        return TableNotFoundError(message, hint=hint, uri=location)

    def _uri_of(self, row: Row) -> str:
        return f"{self.uri}/{row.place}"

    def _entry(self, row: Row) -> CatalogEntry:
        return CatalogEntry(str(row.table), self._uri_of(row), row.state)

    def _entries(self, rows: Iterable[Row]) -> tuple[CatalogEntry, ...]:
        entries = map(self._entry, rows)
        return tuple(sorted(entries, key=lambda entry: (entry.name, entry.location)))

    def _now_ms(self) -> int:
        return handle_of(self._names).store.now_ms()


def _listed(rows: Iterable[Row], name: TableName) -> Row | None:
    return next((row for row in rows if row.table == name and row.state == TABLE), None)


def _of_names(*names: TableName) -> str:
    """Return the predicate of the rows of some names, and of their namespaces."""
    each = (f"(namespace = '{n.namespace}' AND name IN ('', '{n.table}'))" for n in names)
    return " OR ".join(each)


def _of_place(place: str) -> str:
    return f"place = '{place}'"
