"""Import: a new table whose rows come from a source (RFC 0048)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, overload

import pyarrow as pa
import pyarrow.fs as pafs

from plait.definition.create import define_table
from plait.definition.table_def import TableDef
from plait.errors import (
    InvariantError,
    OptionError,
    RepushRefusedError,
    SchemaError,
    TableExistsError,
    TableNotFoundError,
)
from plait.locks import default_lock, resolve_lock
from plait.model.consent import NOTHING, SOURCE, Consent, absolute_path
from plait.model.contract import Options
from plait.model.instant import Operation
from plait.model.plain import Plain
from plait.model.repush import DELTA, HUDI, ICEBERG, KINDS, PARQUET, TABLE, SourceAddress
from plait.model.schema import LISTS, ColumnNote, Schema, id_of, names_of, parts_of, type_name
from plait.model.words import TableType
from plait.queries.opening import create_handle, open_expected
from plait.repush.begin import ROWS_PER_TASK, RepushRequest, cancel, is_over, resumed
from plait.repush.history import HistoryImport, find_history
from plait.repush.iceberg import CATALOG
from plait.repush.parts import RowSource, SourceHistory, SourceOrigin
from plait.repush.run import RepushReport, repush
from plait.repush.source import WantedSource, located, read_source, require_no_options
from plait.services.maintenance.upkeep import keep_in_shape
from plait.storage import open_store
from plait.storage.location import text_of
from plait.storage.port import Store
from plait.timeline.paths import slot
from plait.txn.table_handle import TableHandle

_COMMENTS = (b"comment", b"doc")
_BEGINNINGS = frozenset(
    each.value for each in (Operation.CREATE, Operation.BEGIN_REPUSH, Operation.CANCEL_REPUSH)
)
"""What is done to a table by imports that were cut short."""


@dataclass(frozen=True, slots=True)
class ImportPlan(Plain):
    """What an import would create."""

    source: str
    source_version: int
    """Version or snapshot that is read; 0 where the source has none."""
    rows: int
    columns: Mapping[str, str]
    """The type of each column, by its name."""
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    buckets: int
    """Buckets in each partition; 0 for an append-only table."""
    table_type: str
    lost: tuple[str, ...]
    """What the table will not have of its source, one sentence each."""
    versions: int = 1
    """Versions of the source that it would have."""


@dataclass(frozen=True, slots=True)
class ImportReport(Plain):
    """What an import did."""

    source: str
    source_version: int | None
    """None if it had been imported before this call."""
    version: int
    """The version of the target that shows the rows."""
    rows: int
    """Rows that this call copied: 0 if others had copied all."""
    lost: tuple[str, ...] = ()
    versions: int = 1
    """Versions of the source that this call brought over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """How the caller wants the table to be; what is None is as the source says."""

    record_key: tuple[str, ...] | None
    partition_by: tuple[str, ...] | None
    ordering: str | None
    table_type: TableType | None
    buckets: int | None
    bucket_by: tuple[str, ...] | None
    lock: str | None
    properties: Mapping[str, object] = field(default_factory=dict)

    def definition(self, source: RowSource, store: Store) -> TableDef:
        """Return the definition of the table; raise OptionError or SchemaError."""
        arguments = {
            "record_key": source.origin.record_key,
            "partition_by": source.origin.partition_by,
            "lock": default_lock(store),
            **self._named(),
        }
        try:
            made = define_table(source.schema, properties=self.properties, **arguments)  # type: ignore[arg-type]  # by name
        except SchemaError as error:
            hint = f"{error.hint}; " if error.hint else ""
            hint += "or change the source, as by writing its rows as Parquet with other columns"
            raise type(error)(error.message, hint=hint, **error.facts) from error
        return _commented(made, source.schema)

    def require_began(self, handle: TableHandle) -> None:
        """Refuse to go on with an import that began otherwise; what is not named stays as it began.

        The table is compared as it was created: since the import is over, its layout and properties
        may have changed.

        Raises:
            OptionError: an argument differs; it tells which.
        """
        first = handle.cache.timeline.find(0)
        if first is None or first.table is None:
            raise InvariantError("the first decision of a table does not define it")
        began = TableDef.from_dict(first.table, where=slot(0))
        arguments = _arguments(began)
        for name, value in self._named().items():
            given = resolve_lock(str(value), handle.plain_store) if name == "lock" else value
            try:
                asked = define_table(began.spec.schema.arrow, **{**arguments, name: given})  # type: ignore[arg-type]  # by name
                same = _arguments(asked)[name] == arguments[name]
            except (OptionError, SchemaError):  # it does not go with the rest, so it is another one
                same = False
            if not same:
                raise _began_otherwise(name, arguments[name], value)
        there = began.options.to_dict()
        for name, text in Options.of(self.properties).to_dict().items():
            if there.get(name) != text:
                raise _began_otherwise(name, there.get(name), text)

    def _named(self) -> dict[str, object]:
        """Return the arguments of the definition that the caller gave, without properties."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        del given["properties"]
        return {name: value for name, value in given.items() if value is not None}


def _arguments(table: TableDef) -> dict[str, object]:
    """Return the arguments that define such a table, with the names of those of an import."""
    key, layout = table.spec.key, table.spec.layout
    return {
        "record_key": key,
        "partition_by": layout.partition_by,
        "ordering": layout.ordering,
        "table_type": layout.table_type,
        "buckets": layout.buckets.count or None,
        "bucket_by": layout.buckets.by,
        "lock": table.contract.lock,
    }


def _began_otherwise(name: str, there: object, asked: object) -> OptionError:
    there, asked = (list(each) if isinstance(each, tuple) else each for each in (there, asked))
    message = f"the import began with {name}={there}, not {asked}"
    hint = "run it again as it was, or delete the target and begin anew"
    return OptionError(message, hint=hint, key=name, value=asked)


@overload
def import_table(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] | None = ...,
    partition_by: str | Sequence[str] | None = ...,
    ordering: str | None = ...,
    table_type: TableType | None = ...,
    buckets: int | None = ...,
    bucket_by: str | Sequence[str] | None = ...,
    lock: str | None = ...,
    properties: Mapping[str, object] | None = ...,
    rows_per_task: int = ...,
    source_options: Mapping[str, object] | None = ...,
    storage_options: Mapping[str, object] | None = ...,
    allow: str | Sequence[str] | None = ...,
    history: bool = ...,
    dry_run: Literal[False] = False,
) -> ImportReport: ...
@overload
def import_table(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] | None = ...,
    partition_by: str | Sequence[str] | None = ...,
    ordering: str | None = ...,
    table_type: TableType | None = ...,
    buckets: int | None = ...,
    bucket_by: str | Sequence[str] | None = ...,
    lock: str | None = ...,
    properties: Mapping[str, object] | None = ...,
    rows_per_task: int = ...,
    source_options: Mapping[str, object] | None = ...,
    storage_options: Mapping[str, object] | None = ...,
    allow: str | Sequence[str] | None = ...,
    history: bool = ...,
    dry_run: Literal[True],
) -> ImportPlan: ...
def import_table(  # noqa: PLR0913 - one parameter an option
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | None = None,
    table_type: TableType | None = None,
    buckets: int | None = None,
    bucket_by: str | Sequence[str] | None = None,
    lock: str | None = None,
    properties: Mapping[str, object] | None = None,
    rows_per_task: int = ROWS_PER_TASK,
    source_options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, object] | None = None,
    allow: str | Sequence[str] | None = None,
    history: bool = False,
    dry_run: bool = False,
) -> ImportReport | ImportPlan:
    """Create a table from Parquet files, or a table of Delta, Iceberg, Hudi or Plait.

    Rows are copied in bounded memory, and the source stays as it is. One decision shows all of them
    at once. If the call is killed, the same call goes on where it was, in any process, and no row
    comes twice. Once it is over, the same call changes nothing.

    Args:
        source: ``parquet:PLACE``, ``delta:PLACE``, ``iceberg:PLACE`` (a metadata file, a directory
            with a version hint, or ``catalog://CATALOG/NAMESPACE.TABLE``), ``hudi:PLACE``, or a
            place alone: what lies there tells which it is.
        target: the URI of the new table.
        record_key: the column or columns that identify a row; by default none: append-only.
        partition_by: by default the partition columns of the source; ``()`` for none.
        ordering: as in ``Table.create``.
        table_type: ``cow`` (default) or ``mor``.
        buckets: number of buckets in each partition.
        bucket_by: the columns of the record key whose hash chooses the bucket; by default all.
        lock: as in ``Table.create``.
        properties: options of the new table.
        rows_per_task: how many rows one commit of the copy has; a kill repeats one at most.
        source_options: what is needed to reach the source, as the properties of a catalog of
            Iceberg that no configuration file has; never kept.
        storage_options: what is needed to reach the target.
        allow: files elsewhere that the source may name, as in ``Table.open``.
        history: bring each version of a Delta table or each snapshot of an Iceberg table that can
            be read over as a version of its own, oldest first; the same call brings later ones.
        dry_run: return what would be created and what is lost; write nothing.

    Raises:
        ConsentError: the source names a file elsewhere that the caller did not allow.
        MissingDependencyError: the library that reads the source is not installed.
        OptionError: there is no such source, or the definition is invalid; nothing was written.
        SchemaError: a column has a type that no table can have; nothing was written.
        TableExistsError: the target exists, and is not an import of this source.
        RepushRefusedError: rows share a key, or cannot be in the table, or the source changed. The
            target is an empty table.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from plait import Table, import_table
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), f"{folder}/part-0.parquet")
    >>> import_table(folder, "memory://doc-import", record_key="id", dry_run=True).columns
    {'id': 'bigint', 'name': 'string'}
    >>> import_table(folder, "memory://doc-import", record_key="id").rows
    2
    >>> Table.open("memory://doc-import").scan().count()
    2
    """
    source, target = text_of(source), text_of(target)
    consent = Consent.of(allow)
    address = located(_address(source))
    options = dict(source_options or {})
    require_no_options(address, options)
    store = open_store(target, storage_options)
    if address.kind != TABLE:
        _require_apart(address.place.removeprefix("file://"), address, store.address.uri)
    wish = _Wish(
        record_key=None if record_key is None else names_of(record_key, "record_key"),
        partition_by=None if partition_by is None else names_of(partition_by, "partition_by"),
        ordering=ordering,
        table_type=table_type,
        buckets=buckets,
        bucket_by=None if bucket_by is None else names_of(bucket_by, "bucket_by"),
        lock=lock,
        properties=dict(properties or {}),
    )
    wanted = WantedSource(address, options, given=True)
    request = RepushRequest(
        rows_per_task=rows_per_task, source=wanted, commit_id=f"import {address}"
    )
    there = _existing(target, storage_options, consent)
    if there is not None and not dry_run and not history:
        done = _go_on(there, request, wish)
        if done is not None:
            return done
    consent_here = consent.also(address.place)
    allowed = consent_here.require(address.place, SOURCE, target)
    found = read_source(address, allowed, options, None, wanted=None, consent=consent_here)
    try:
        _require_apart(found.origin.directory, address, store.address.uri)
        definition = wish.definition(found, store)
        plan = _plan(address, found, definition)
    finally:
        found.close()
    past = find_history(wanted, allowed, consent_here) if history else None
    plan = _with_older(plan, found.origin, past)
    if there is not None and not (_is_ours(there, request, past) or _is_same(there, definition)):
        raise _exists(target)
    if dry_run:
        return plan
    handle = there or _created(target, storage_options, definition, consent, wish)
    if past is not None:
        return _bring_versions(
            handle, wish, HistoryImport(handle, request, consent_here), plan, past
        )
    report = _load(handle, request)
    return replace(report, source_version=plan.source_version, lost=plan.lost)


def _with_older(plan: ImportPlan, origin: SourceOrigin, past: SourceHistory | None) -> ImportPlan:
    if past is None:
        return replace(plan, lost=(*plan.lost, origin.older)) if origin.older else plan
    when = "reads by time find the time of the copy; the commit id of each version tells its own"
    return replace(plan, versions=len(past.versions), lost=(*plan.lost, *past.lost, when))


def _bring_versions(
    handle: TableHandle, wish: _Wish, work: HistoryImport, plan: ImportPlan, past: SourceHistory
) -> ImportReport:
    wish.require_began(handle)
    brought, rows = work.run(past, _load_version)
    version = handle.cache.refresh().version
    return ImportReport(plan.source, past.versions[-1].number, version, rows, plan.lost, brought)


def _load_version(handle: TableHandle, request: RepushRequest) -> int:
    return _load(handle, request).rows


def _address(text: str) -> SourceAddress:
    """Return the address of a source, whose kind may be left to what lies there.

    Raises:
        OptionError: it names nothing, or a version of a table.
    """
    kind, colon, _ = text.partition(":")
    if not (colon and kind in KINDS):
        text = f"{_kind_of(text)}:{text}"
    address = SourceAddress.of(text)
    if address.own:
        message = f"{text!r} is a version of a table, and a new table has none"
        raise OptionError(message, hint="name a place", key="source", value=text)
    return address


def _kind_of(place: str) -> str:
    if place.startswith(CATALOG):
        return ICEBERG
    try:
        files, path = pafs.FileSystem.from_uri(place if "://" in place else absolute_path(place))
        base = path.rstrip("/")
        if base.endswith(".metadata.json"):
            return ICEBERG
        signs = {"_delta_log": DELTA, ".meta": TABLE, "metadata": ICEBERG, ".hoodie": HUDI}
        infos = files.get_file_info([f"{base}/{name}" for name in signs])
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"{place} cannot be looked at: {error}"
        hint = "name its kind too: parquet:PLACE, delta:PLACE, iceberg:PLACE or hudi:PLACE"
        raise OptionError(message, hint=hint, key="source", value=place) from error
    found = [each.type is pafs.FileType.Directory for each in infos]
    # A table of Plait that is published has the metadata of others too.
    kinds = [kind for kind, is_there in zip(signs.values(), found, strict=True) if is_there]
    return TABLE if TABLE in kinds else next(iter(kinds), PARQUET)


def _require_apart(directory: str, address: SourceAddress, target: str) -> None:
    """Refuse a target in the directory of its source: a table there would spoil the source.

    Raises:
        OptionError: it is there; nothing was written.
    """
    if directory and f"{target}/".startswith(f"{directory.rstrip('/')}/"):
        message = f"the target {target} is in the directory of its source {address}"
        raise OptionError(message, hint="choose a target elsewhere", key="target", value=target)


def _existing(
    target: str, storage_options: Mapping[str, object] | None, consent: Consent
) -> TableHandle | None:
    try:
        return _with_upkeep(open_expected(target, storage_options, consent=consent))
    except TableNotFoundError:
        return None


def _go_on(handle: TableHandle, request: RepushRequest, wish: _Wish) -> ImportReport | None:
    """Go on with the import that is open, or tell of the one that is over; None: neither.

    Raises:
        OptionError: the caller wants another table than it began.
    """
    if not _is_ours(handle, request):
        return None
    wish.require_began(handle)
    opened = handle.cache.known().table.repush
    if opened is not None and opened.commit_id == request.commit_id:
        # The source of the decision: it has the version with which the import began.
        request = replace(resumed(opened), source=request.source)
        version = None if opened.source is None else opened.source.version
        return replace(_load(handle, request), source_version=version)
    return _report(request, repush(handle, request))


def _is_ours(
    handle: TableHandle, request: RepushRequest, past: SourceHistory | None = None
) -> bool:
    """Tell whether this import is open in a table, or over."""
    if past is not None:
        return HistoryImport(handle, request, NOTHING).is_ours()
    state = handle.cache.refresh()
    opened = state.table.repush
    if opened is not None and opened.commit_id == request.commit_id:
        return True
    return is_over(handle, state, request.commit_id)


def _load(handle: TableHandle, request: RepushRequest) -> ImportReport:
    try:
        return _report(request, repush(handle, request))
    except RepushRefusedError as error:
        if isinstance(error.__cause__, OSError):  # maybe of a moment: what was copied stays
            hint = "run the import again once the source can be read; if it is gone, delete the "
            hint += "target"
        else:
            cancel(handle)
            hint = "the copy of these rows was deleted, and the target is as it was before: mend "
            hint += "the source and run the import again; for another key, delete the target first"
        raise RepushRefusedError(error.message, hint=hint, **error.facts) from error


def _report(request: RepushRequest, done: RepushReport) -> ImportReport:
    source = "" if request.source is None else str(request.source.address)
    version = -1 if done.version is None else done.version
    return ImportReport(source, None, version, done.rows_loaded)


def _is_same(handle: TableHandle, definition: TableDef) -> bool:
    """Tell whether a table is as an import that was cut short left it: defined, without rows."""
    state = handle.cache.refresh()
    table, then = state.table, definition
    done = state.commits(handle.store, columns=("version", "operation"))["operation"].to_pylist()
    return (
        table.repush is None
        and table.spec.schema.same_columns(then.spec.schema)
        and table.spec.key == then.spec.key
        and table.spec.layout.same_place(then.spec.layout)
        and table.options == then.options
        and _BEGINNINGS.issuperset(done)
    )


def _exists(target: str) -> TableExistsError:
    message = f"{target} exists, and is not an import of this source"
    hint = "choose another target; or replace its rows: tablectl repush TARGET --source SOURCE"
    return TableExistsError(message, hint=hint, uri=target)


def _created(
    target: str,
    storage_options: Mapping[str, object] | None,
    definition: TableDef,
    consent: Consent,
    wish: _Wish,
) -> TableHandle:
    try:
        store = open_store(target, storage_options, create=True)
        return _with_upkeep(create_handle(store, definition, consent))
    except TableExistsError:
        # Another process runs the same import, and created it a moment ago.
        handle = open_expected(target, storage_options, consent=consent)
        if not handle.cache.refresh().table.spec.schema.same_columns(definition.spec.schema):
            raise
        wish.require_began(handle)
        return _with_upkeep(handle)


def _with_upkeep(handle: TableHandle) -> TableHandle:
    """Let each decision of an import be published, as those of any client are."""
    return replace(handle, upkeep=keep_in_shape)


def _plan(address: SourceAddress, source: RowSource, table: TableDef) -> ImportPlan:
    spec = table.spec
    kept = {each.name: each.type for each in spec.schema.arrow}
    changed = [
        f"{each.name} is {each.type} and becomes {type_name(kept[each.name])}"
        for each in source.schema
        if not _alike(each.type, kept[each.name])
    ]
    return ImportPlan(
        source=str(address),
        source_version=source.version,
        rows=source.rows,
        columns={name: type_name(kind) for name, kind in kept.items()},
        record_key=spec.key,
        partition_by=spec.layout.partition_by,
        buckets=spec.layout.buckets.count,
        table_type=spec.layout.table_type,
        lost=(*changed, *source.origin.lost),
    )


def _alike(found: pa.DataType, kept: pa.DataType) -> bool:
    """Tell whether types have one name; in a nested type, only whether both are nested."""
    if pa.types.is_nested(found) or pa.types.is_dictionary(found):
        return True
    texts = (pa.types.is_large_string, pa.types.is_string_view)
    return found == kept or any(test(found) for test in texts)


def _commented(table: TableDef, given_schema: pa.Schema) -> TableDef:
    """Return a definition with the comments of the source's columns."""
    schema = table.spec.schema
    notes = dict(_comments(given_schema, schema.arrow))
    if not notes:
        return table
    made = Schema(schema.id, schema.arrow, notes, schema.checks)
    return replace(table, spec=replace(table.spec, schema=made), schemas={made.id: made})


def _comments(
    found: Sequence[pa.Field], kept: Sequence[pa.Field]
) -> Iterator[tuple[int, ColumnNote]]:
    for one, other in zip(found, kept, strict=True):
        said = one.metadata or {}
        text = next((said[key] for key in _COMMENTS if said.get(key)), b"")
        if text:
            yield id_of(other), ColumnNote(comment=text.decode(errors="replace"))
        lists = any(is_list(one.type) for is_list in LISTS)
        parts = [one.type.value_field] if lists else parts_of(one.type)
        yield from _comments(parts, parts_of(other.type))
