"""The catalog: names of tables below a root, in a table of Plait's own (RFC 0047).

Nothing here decides who is first. Each change of a name is one commit of the table of names, which
reads what it rests on in the same transaction: a name is a record key, so of two that want it one
is refused, and a reader sees all of a rename or nothing. What belongs to one operation and cannot
be one commit, such as a table and its name, is ordered so that what a crash leaves can be repeated.

Rows are what strangers may have written. So no row is a reason to delete a file: that is the
decision in the table's own timeline, which says that the table is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Never, Self

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
    parse_namespace,
)
from plait.errors import (
    CommitRetriesExhaustedError,
    ContractError,
    CorruptMetadataError,
    FormatError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    OptionError,
    RetryableConflictError,
    TableDroppedError,
    TableError,
    TableExistsError,
    TableNotFoundError,
    redacted_url,
)
from plait.expr import parse_where
from plait.expr.evaluate import Sides, holds
from plait.expr.tree import TARGET
from plait.locks.identity import FORMAT_VERSION, IDENTITY_BYTES_MAX, identity_of
from plait.model.consent import Consent, absolute_path
from plait.model.plain import Plain, iso
from plait.ports import Ports
from plait.services.definition.drop import (
    drop_table,
    in_use,
    purge_begun,
    purge_files,
    purgeable_ms,
    undrop_table,
)
from plait.storage import open_store
from plait.storage.local import LocalStore
from plait.storage.location import is_url, plain_url, text_of
from plait.storage.port import Store
from plait.storage.tree import require_plain
from plait.table import Table, handle_of
from plait.timeline import paths
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
_BUSY = "another client is at it"
_FRESH = "it is being created"
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

    A name is ``namespace.table``, in any case of letters. Creating, renaming and dropping are
    atomic, whoever else does so at the same time. A handle never changes, and threads may share it.

    >>> catalog = Catalog.create("memory://doc-catalog")
    >>> catalog.create_namespace("sales")
    >>> table = catalog.create_table("sales.trips", "id bigint", record_key=["id"])
    >>> catalog.rename("sales.trips", "sales.rides")
    >>> [entry.name for entry in catalog.tables()]
    ['sales.rides']
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
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
        self.uri = _root_of(uri)
        self._storage, self._allow = storage_options, allow
        self._read: tuple[int, pa.Table] = (-1, _COLUMNS.empty_table())
        try:
            self._names = Table.open(f"{self.uri}/{DIRECTORY}", storage_options=storage_options)
        except TableNotFoundError as error:
            message = f"there is no catalog at {uri}"
            hint = "make one with Catalog.create(uri)"
            raise TableNotFoundError(message, hint=hint, uri=self.uri) from error
        if not is_url(self.uri):
            # A path is absolute from here on: the process may go to another directory, where a
            # drop would find no table, and a purge would forget one that is there.
            found = handle_of(self._names).store.address.uri
            self.uri = found.removesuffix(f"/{DIRECTORY}") or "/"

    def __repr__(self) -> str:
        """Say where it is."""
        return f"Catalog({redacted_url(self.uri)!r})"

    def __reduce__(self) -> Never:
        """Refuse to be pickled: another process opens the catalog itself.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} cannot be pickled: pass its location, and open it there")

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        allow: str | Iterable[str] | None = None,
    ) -> Self:
        """Create a catalog, or open the one that is there.

        Args:
            uri: its root, a directory or URL.
            storage_options: passed to the file system of the URL, for every table.
            allow: as in ``Table.open``, for every table.

        Raises:
            TableExistsError: a table is there; nothing was written.
        """
        root = _root_of(uri)
        store = open_store(root, storage_options)
        if store.find(paths.TABLE, size_max=IDENTITY_BYTES_MAX) is not None:
            message = f"{uri} is a table, and a catalog cannot be in it"
            hint = "choose another directory; a catalog makes directories for its tables"
            raise TableExistsError(message, hint=hint, uri=root)
        Table.create(
            f"{root}/{DIRECTORY}",
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
        name = parse_namespace(name)

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
        name = parse_namespace(name)

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
            namespace = parse_namespace(namespace)
            where += f" AND namespace = '{namespace}'"
        rows = self._rows(where)
        if namespace is not None:
            self._require_namespace(rows, namespace)
        return self._entries(row for row in rows if row.name)

    def exists(self, name: str) -> bool:
        """Tell whether a name is given to a table; where there is no such namespace, it is not.

        Raises:
            OptionError: it is not the name of a table.
        """
        wanted = TableName.parse(name)
        return _listed(self._rows(_of_names(wanted)), wanted) is not None

    def location(self, name: str) -> str:
        """Return the URI of a table by its name; raise TableNotFoundError if there is none."""
        return self._uri_of(self._require(TableName.parse(name)))

    def table(self, name: str) -> Table:
        """Open a table by its name.

        Raises:
            NamespaceNotFoundError, TableNotFoundError: there is none.
            TableDroppedError: its drop, or undrop, has not ended: repeat it.
        """
        row = self._require(TableName.parse(name))
        self._store(row)  # refuses a link
        return Table.open(self._uri_of(row), storage_options=self._storage, allow=self._allow)

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
        try:
            return self._create(wanted, schema, definition)
        except TableExistsError:
            if not if_not_exists:
                raise
            return self.table(name)

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
            return _Change([own], [self._moved(own, TABLE, new)])

        self._commit(_of_names(old, new), change)

    def drop(self, name: str) -> CatalogEntry:
        """Drop a table: nobody reads or writes it any more, and its name is free.

        Its files stay until ``clean.grace`` is over and ``purge`` deletes them; ``undrop`` takes
        it back until then. If it fails in between, repeat it.

        Raises:
            NamespaceNotFoundError, TableNotFoundError: there is no such table.
        """
        row = self._require(TableName.parse(name))

        def dropped(row: Row) -> CatalogEntry | None:
            if row.state != TABLE:
                return self._entry(row)  # by another drop; and an undrop begins after it
            handle = self._handle(row)
            if handle is not None:
                drop_table(handle)
            moved = self._moved(row, DROPPED)
            return self._entry(moved) if self._replace(row, moved) else None

        # By its place: somebody may have renamed it meanwhile, and it is dropped all the same.
        return self._settle(row, dropped) or self._entry(self._moved(row, DROPPED))

    def dropped(self) -> tuple[CatalogEntry, ...]:
        """Return the tables that have no name: dropped, being created, or being purged."""
        return self._entries(self._rows("unlisted <> ''"))

    def undrop(self, location: str | os.PathLike[str], name: str | None = None) -> CatalogEntry:
        """Take the drop of a table back.

        Args:
            location: where it is, as ``dropped`` and ``drop`` say; the last part of that alone; or
                its former name, if no other dropped table had the same.
            name: its name from now on; by default its former one.

        Raises:
            OptionError: several dropped tables had this name.
            TableNotFoundError: no dropped table is there, or its files are going.
            TableExistsError: the name is taken.
        """
        location = text_of(location)
        row = self._at(location)
        wanted = None if name is None else TableName.parse(name)

        def undropped(row: Row) -> CatalogEntry | None:
            listed = self._moved(row, TABLE, wanted)
            renamed = row.state == TABLE and row.table != listed.table
            if row.state not in (DROPPED, TABLE) or renamed:
                raise self._not_dropped(location)
            # Opened first: a drop that comes from here on is not taken back by what follows.
            handle = self._handle(row)
            if handle is None:
                raise self._not_dropped(location)
            if row.state == TABLE and not handle.cache.known().table.contract.dropped:
                return self._entry(row)
            if not self._replace(row, listed):
                return None
            undrop_table(handle)
            return self._entry(listed)

        entry = self._settle(row, undropped)
        if entry is None:
            raise self._not_dropped(location)
        return entry

    def purge(self, *, now: bool = False, dry_run: bool = False) -> PurgeReport:
        """Delete the files of dropped tables whose grace is over and that nobody reads.

        It can be killed and repeated, and run beside everything else. An entry whose table does not
        say itself that it is dropped is kept, and the report says so.

        Args:
            now: wait for no grace; live readers and writers are waited for all the same.
            dry_run: change nothing, and return what a purge would do. It does not look for readers
                and writers, which keep a table all the same.
        """
        purged: list[CatalogEntry] = []
        kept: dict[str, str] = {}
        for row in self._rows("unlisted <> ''"):
            try:
                reason = (self._planned if dry_run else self._purge)(row, now=now)
            except (ContractError, FormatError, TableNotFoundError) as error:  # the others go on
                reason = f"{row.table} is kept: {error}"
            if reason is None:
                purged.append(self._entry(row))
            else:
                kept[self._uri_of(row)] = reason
        return PurgeReport(tuple(purged), kept)

    # --- inside: rows --------------------------------------------------------------------------

    def _rows(self, where: str) -> list[Row]:
        """Return the newest rows of a predicate: read anew only if a commit came since.

        So a look that finds nothing new writes no read pin.
        """
        version, rows = self._read
        if self._names.version != version:
            scan = self._names.scan()
            version, rows = scan.version, scan.to_arrow()
            self._read = version, rows
        chosen = holds(parse_where(where, rows.schema), Sides.of(**{TARGET: rows}))
        return [Row.of(each) for each in rows.filter(chosen).to_pylist()]

    def _require(self, name: TableName) -> Row:
        return self._require_in(self._rows(_of_names(name)), name)

    def _require_in(self, rows: Sequence[Row], name: TableName) -> Row:
        self._require_namespace(rows, name.namespace)
        found = _listed(rows, name)
        if found is None:
            message = f"the catalog at {self.uri} has no table {name}"
            hint = "see Catalog.tables(); a dropped table can be undropped"
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
        hint = "create it with Catalog.create_namespace(name)"
        raise NamespaceNotFoundError(message, hint=hint, uri=self.uri, namespace=name)

    def _begun(self, rows: Sequence[Row], row: Row) -> _Change:
        self._require_free(rows, row.table)
        return _Change(put=[row])

    def _moved(self, row: Row, state: str, name: TableName | None = None) -> Row:
        """Return the row of a place as it is next; it never becomes one that it was before."""
        namespace, table = name or row.table
        unlisted = "" if state == TABLE else row.place
        changed_ms = max(self._now_ms(), row.changed_ms + 1)
        return Row(namespace, table, unlisted, state, row.place, changed_ms)

    def _replace(self, row: Row, moved: Row | None) -> bool:
        """Change the row of a place if it is still the one that was read; tell whether it was.

        So what was found out about the table in between still holds: whoever changes that changes
        the row afterwards.

        Args:
            row: as it was read.
            moved: as it is from now on; None deletes it.

        Raises:
            TableExistsError, NamespaceNotFoundError: it gets a name that it cannot have.
            CorruptMetadataError: another row names the same place.
        """
        replaced = False

        def change(rows: Sequence[Row]) -> _Change:
            nonlocal replaced
            own = [each for each in rows if each.place == row.place]
            if len(own) > 1:
                raise _damaged(f"two entries, {own[0].table} and {own[1].table}, have one place")
            replaced = own == [row]
            if not replaced:
                return _Change()
            if moved is not None and moved.state == TABLE and row.key != moved.key:
                self._require_free(rows, moved.table)
            return _Change([row], [] if moved is None else [moved])

        where = _of_place(row.place)
        self._commit(where if moved is None else f"{_of_names(moved.table)} OR {where}", change)
        return replaced

    def _settle(
        self, row: Row, attempt: Callable[[Row], CatalogEntry | None]
    ) -> CatalogEntry | None:
        """Try an operation of two commits until nobody changed the row or the table in between.

        Returns:
            What ``attempt`` did; None if the row is gone.
        """
        ports = Ports()
        started, backoff = ports.clock.monotonic(), ports.backoff(_PAUSE_S, _PAUSE_S_MAX)
        for _ in range(_ATTEMPTS_MAX):
            with suppress(ContractError, TableDroppedError):
                entry = attempt(row)
                if entry is not None:
                    return entry
            found = self._rows(_of_place(row.place))
            if not found:
                return None
            row = found[0]
            if ports.clock.monotonic() - started > _DEADLINE_S:
                break
            backoff.pause()
        message = f"others changed {row.table} again and again"
        elapsed_ms = int(1000 * (ports.clock.monotonic() - started))
        raise CommitRetriesExhaustedError(
            message,
            hint="run it again",
            conflict=None,
            attempts=_ATTEMPTS_MAX,
            elapsed_ms=elapsed_ms,
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

    def _create(self, name: TableName, schema: object, definition: Mapping[str, object]) -> Table:
        """Create a table, and give it its name."""
        place = f"tables/{Ports().ids.nonce()}"
        row = Row(*name, place, CREATING, place, self._now_ms())
        self._commit(_of_names(name), lambda rows: self._begun(rows, row))
        try:
            self._claim(row)
            table = Table.create(
                self._uri_of(row),
                schema,
                storage_options=self._storage,
                allow=self._allow,
                **definition,  # type: ignore[arg-type]  # checked by Table.create
            )
            if not self._replace(row, self._moved(row, TABLE)):
                message = f"the creation of {name} took more than a day, and was given up"
                raise TableNotFoundError(message, hint="create it again", uri=self._uri_of(row))
        except (TableError, TypeError):
            with suppress(TableError):  # a purge does it after a day
                self._give_up(row)
            raise
        return table

    def _claim(self, row: Row) -> None:
        """Give a place to the table that is created next: its identity begins with the place.

        By that a table is known to be this creation's, if it has to be taken away again.
        """
        identity = {"format": FORMAT_VERSION, "id": _digits(row) + Ports().ids.nonce()}
        uri = self._uri_of(row)
        store = open_store(uri, self._storage, create=True)
        if not store.put_if_absent(paths.TABLE, json.dumps(identity).encode()):
            message = f"a table is at {uri} already"
            raise TableExistsError(message, hint="run it again", uri=uri)

    def _give_up(self, row: Row) -> None:
        """Take away what a creation left that got no name."""
        dropped = self._moved(row, DROPPED)
        if self._replace(row, dropped):  # from here on it gets none
            self._purge(dropped, now=True)

    def _purge(self, row: Row, *, now: bool) -> str | None:
        """Delete the files of a place, and its entry; return why not."""
        if self._is_fresh(row):
            return _FRESH
        if row.state == CREATING:
            creating, row = row, self._moved(row, DROPPED)
            if not self._replace(creating, row):
                return _BUSY
        store = self._store(row)
        if not (row.state == PURGING and purge_begun(store)):
            reason = self._kept(row, store, now=now)
            if reason is not None:
                return reason
        # From here on no undrop gives the place a name again; one that began before had to change
        # the row. Of two purges one is refused.
        purging = self._moved(row, PURGING)
        if not self._replace(row, purging):
            return _BUSY
        purge_files(store)
        self._replace(purging, None)
        return None

    def _planned(self, row: Row, *, now: bool) -> str | None:
        """Tell why a purge would keep the files of a place; None: it would not. Nothing changes."""
        if self._is_fresh(row):
            return _FRESH
        store = self._store(row)
        if row.state == PURGING and purge_begun(store):
            return None
        if row.state == CREATING:
            row = replace(row, state=DROPPED)
        return self._kept(row, store, now=now, plans=True)

    def _is_fresh(self, row: Row) -> bool:
        """Tell whether a place may still become a table."""
        return row.state == CREATING and self._now_ms() - row.changed_ms <= _CREATING_MS_MAX

    def _kept(self, row: Row, store: Store, *, now: bool, plans: bool = False) -> str | None:
        """Tell why the files of a place cannot go yet; None: they can.

        Args:
            row: the entry of the place.
            store: the place.
            now: wait for no grace.
            plans: change nothing, which leaves out who uses the table.
        """
        handle = self._handle(row)
        if handle is None:
            if self._only_claimed(row, store):
                return None
            return f"{row.table} is kept: there are files and no table"
        due_ms = purgeable_ms(handle)
        if due_ms is None:
            empty = handle.cache.known().version == 0 and handle.identity.startswith(_digits(row))
            if row.state != DROPPED or not empty:
                return f"{row.table} is kept: its own timeline does not say that it is dropped"
            if plans:
                return None if now else "it got no name; a purge drops it, and its grace begins"
            drop_table(handle)  # a creation that got no name
            due_ms = purgeable_ms(handle)
        if not now and due_ms is not None and handle.store.now_ms() < due_ms:
            return f"its grace is over at {iso(due_ms)}"
        user = None if plans else in_use(handle)
        return None if user is None else f"{user} needs it"

    def _only_claimed(self, row: Row, store: Store) -> bool:
        """Tell whether nothing is in a place but what its creation put there."""
        body = store.find(paths.TABLE, size_max=IDENTITY_BYTES_MAX)
        if body is not None and not identity_of(body).startswith(_digits(row)):
            return False
        return all(info.path == paths.TABLE for info in store.list(""))

    def _store(self, row: Row) -> Store:
        """Open the store of a place.

        Raises:
            CorruptMetadataError: a link is in its way, which may lead out of the root.
        """
        store = open_store(self._uri_of(row), self._storage)
        if isinstance(store, LocalStore):
            require_plain(store.root.removesuffix(f"/{row.place}") or "/", row.place)
        return store

    def _handle(self, row: Row) -> TableHandle | None:
        """Open a table, dropped or not; None if there is none."""
        store = self._store(row)
        try:
            return open_handle(store, Ports(), Consent.of(self._allow), dropped=True)
        except TableNotFoundError:
            return None

    def _at(self, told: str) -> Row:
        """Find a dropped table by its location, by the last part of that, or by its former name."""
        place = self._place_of(told)
        if is_place(place):
            for row in self._rows(_of_place(place)):
                return row
        named = [row for row in self._rows("unlisted <> ''") if str(row.table) == told.lower()]
        if len(named) > 1:
            places = ", ".join(sorted(map(self._uri_of, named)))
            message = f"{len(named)} dropped tables were named {told}: {places}"
            raise OptionError(message, hint="name one by its location", key="location", value=told)
        if not named:
            raise self._not_dropped(told)
        return named[0]

    def _place_of(self, told: str) -> str:
        """Return a location relative to the root, in whichever form it is given."""
        for place in (told, f"tables/{told}"):
            if is_place(place):
                return place
        uri = plain_url(told)
        if not is_url(uri):
            uri = os.path.normpath(absolute_path(uri))
        return uri.rstrip("/").removeprefix(f"{self.uri.rstrip('/')}/")

    def _not_dropped(self, location: str) -> TableNotFoundError:
        message = f"the catalog at {self.uri} has no dropped table at {location}"
        hint = "see Catalog.dropped()"
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


def _root_of(uri: str | os.PathLike[str]) -> str:
    root = plain_url(uri)
    return root.rstrip("/") or root


def _listed(rows: Iterable[Row], name: TableName) -> Row | None:
    return next((row for row in rows if row.table == name and row.state == TABLE), None)


def _of_names(*names: TableName) -> str:
    """Return the predicate of the rows of some names, and of their namespaces."""
    each = (f"(namespace = '{n.namespace}' AND name IN ('', '{n.table}'))" for n in names)
    return " OR ".join(each)


def _of_place(place: str) -> str:
    return f"place = '{place}'"


def _digits(row: Row) -> str:
    """Return the part of a place that was drawn."""
    return row.place.removeprefix("tables/")


def _damaged(problem: str) -> CorruptMetadataError:
    message = f"the catalog is damaged: {problem}"
    hint = "do not use this catalog before you know who wrote it"
    return CorruptMetadataError(message, hint=hint, path=DIRECTORY, found=problem)
