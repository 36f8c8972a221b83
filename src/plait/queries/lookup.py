"""Look up rows by their record keys alone, through the record index where there is one."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.check import prepare
from plait.arrow.ingest import accepts
from plait.errors import BadRecordError, CorruptMetadataError, OptionError
from plait.expr.prune import Flags
from plait.files.data_file import bucket_pairs
from plait.files.hash import sorted_once
from plait.files.keys import Indices
from plait.files.partition_values import is_computable, values_of
from plait.model.bucket import partition_text
from plait.model.instant import Operation
from plait.model.plan import Snapshot, TableSpec
from plait.model.schema import column_of, type_name
from plait.model.value import is_kept, is_plain, texts_of
from plait.read.plan import FileCriteria
from plait.read.points import ANY, PointReader, Points, WantedKeys
from plait.read.scan import known_columns
from plait.read.slices import SliceReader
from plait.state.state import TableState
from plait.txn.key_window import KnownKeys, entries_of, forget_index, is_of_index, load_known_keys
from plait.txn.matrix import DATA
from plait.txn.read_pin import pinned
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)
INDEX: Final = "index"
PARTITION: Final = "partition"
BUCKETS: Final = "buckets"


@dataclass(frozen=True, slots=True)
class LookUp:
    """The result of a look-up."""

    rows: pa.Table
    version: int
    files: int
    """How many data files were opened."""
    through: str
    """``index``; ``partition``, where the key says it; or ``buckets``, of every partition."""


def look_up(
    handle: TableHandle, keys: object, columns: str | Sequence[str] | None = None
) -> LookUp:
    """Return the rows of some keys at the newest version; see ``Table.get``."""
    with pinned(handle, lambda state: _looked_up(handle, state, keys, columns)) as found:
        return found


def _looked_up(
    handle: TableHandle, state: TableState, keys: object, columns: str | Sequence[str] | None
) -> LookUp:
    wanted = _wanted(keys, state.table.spec)
    names = known_columns(columns, state.table.spec.schema.arrow, None)
    try:
        return _look_up(handle, state, wanted, names, load_known_keys(handle, state))
    except CorruptMetadataError as error:
        # A run that was merged into another one is gone; a damaged one is as good as gone.
        if not is_of_index(error):
            raise
        _log.info("the record index is looked for again: %s", error)
    forget_index(handle)
    try:
        known = load_known_keys(handle, state, newest=True)
        return _look_up(handle, state, wanted, names, known)
    except CorruptMetadataError as error:
        if not is_of_index(error):
            raise
        _log.warning("the record index is damaged; run tablectl index build --anew: %s", error)
    return _look_up(handle, state, wanted, names, None)


def _look_up(
    handle: TableHandle,
    state: TableState,
    wanted: WantedKeys,
    columns: Sequence[str],
    known: KnownKeys | None,
) -> LookUp:
    computed = _partitions_of(wanted, state.table.spec)
    points: Points | None = None
    through = BUCKETS
    if computed is not None and state.table.spec.layout.partition_by:
        points, through = computed, PARTITION
    elif known is not None and known.usable:
        points, through = _by_index(handle, known, wanted), INDEX
    texts = None if points is None else [points.partitions[at] for at in set(points.places)]
    snapshot = _snapshot(handle, state, wanted, texts)
    if points is None:
        points = _everywhere(snapshot, wanted)

    @functools.cache
    def operations() -> dict[int, str]:
        since = min(snapshot.files["version"].to_pylist(), default=state.version) - 1
        rows = state.commits(handle.store, since=since, columns=("version", "operation"))
        return dict(zip(rows["version"].to_pylist(), rows["operation"].to_pylist(), strict=True))

    def rewritten(version: int) -> bool:
        return operations().get(version, "") not in _DATA

    spec = state.table.spec
    reader = PointReader(
        snapshot, wanted, SliceReader.of(handle.store, snapshot), columns, rewritten
    )
    fields = (column_of(name, spec.schema)[1].remove_metadata() for name in columns)
    schema = pa.schema(list(fields))
    batches = [pa.record_batch(rows.columns, schema=schema) for rows in reader.rows(points)]
    rows = pa.Table.from_batches(batches, schema=schema)
    return LookUp(rows, state.version, len(reader.opened), through)


def _wanted(keys: object, spec: TableSpec) -> WantedKeys:
    """Take keys in any form.

    Raises:
        OptionError: the table has no record key, or these are no keys.
        SchemaMismatchError, BadRecordError: they do not fit the key columns.
    """
    if not spec.keyed:
        message = "the table has no record key, so no row can be looked up by it"
        raise OptionError(message, hint="use scan(where=...)", key="keys", value="")
    arrow = isinstance(keys, (pa.Array, pa.ChunkedArray)) and not pa.types.is_struct(keys.type)
    if arrow and len(spec.key) == 1:
        keys = pa.table([keys], names=list(spec.key))
    data = keys if accepts(keys) else _listed(keys, spec)
    batches = [rows.select(list(spec.key)) for rows in prepare(data, spec, Operation.DELETE)]
    schema = pa.schema([spec.schema.arrow.field(name) for name in spec.key])
    rows = pa.Table.from_arrays(
        [
            pa.chunked_array([batch.column(name) for batch in batches], schema.field(name).type)
            for name in spec.key
        ],
        names=list(spec.key),
    )
    return WantedKeys.of(rows, spec)


def _listed(keys: object, spec: TableSpec) -> pa.Table:
    """Make a table of a list of values, or of tuples or dicts where the key has several columns."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        keys = [keys]
    values = list(keys)
    if all(isinstance(value, dict) for value in values) and values:
        columns = [[value.get(name) for value in values] for name in spec.key]
    elif len(spec.key) == 1:
        columns = [values]
    else:
        for value in values:
            if not isinstance(value, (tuple, list)) or len(value) != len(spec.key):
                message = f"a key has {len(spec.key)} values ({', '.join(spec.key)}): {value!r}"
                hint = "pass a tuple or a dict for each key, or Arrow data"
                raise OptionError(message, hint=hint, key="keys", value=str(value))
        columns = [[value[at] for value in values] for at in range(len(spec.key))]
    arrays = [_array(column, name, spec) for column, name in zip(columns, spec.key, strict=True)]
    return pa.table(arrays, names=list(spec.key))


def _array(values: list[object], name: str, spec: TableSpec) -> pa.Array:
    kind = spec.schema.arrow.field(name).type
    plain = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    try:
        array = pa.array(plain, kind)
        # Arrow cuts off what has no place in the type, without a word.
        pairs = zip(plain, array.to_pylist(), strict=True)
        changed = [value for value, kept in pairs if not is_kept(value, kept)]
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        message = f"a value for key column {name!r} of type {type_name(kind)} is none: {error}"
        raise BadRecordError(message, hint="pass values of that type", column=name) from error
    if changed:
        message = f"a value for key column {name!r} of type {type_name(kind)} would change: "
        message += repr(changed[0])[:100]
        raise BadRecordError(message, hint="pass values of that type", column=name)
    return array


def _partitions_of(wanted: WantedKeys, spec: TableSpec) -> Points | None:
    """Return the partition of each key; None if the key does not say it."""
    if not spec.layout.partition_by:
        texts = [partition_text(())]
        places = np.zeros(len(wanted), np.int64)
        return Points(np.arange(len(wanted)), places, np.full(len(wanted), ANY), texts)
    if not set(spec.partition_sources) <= set(spec.key) or not all(map(is_computable, spec.fields)):
        return None
    batch = pa.Table.to_batches(wanted.rows.combine_chunks())
    if not batch:
        nothing = np.zeros(0, np.int64)
        return Points(nothing, nothing, nothing, [])
    columns = [texts_of(values_of(each, batch[0])) for each in spec.fields]
    partition_texts = [partition_text(values) for values in zip(*columns, strict=True)]
    encoded = pa.array(partition_texts, pa.string()).dictionary_encode()
    places = encoded.indices.to_numpy().astype(np.int64)
    every = np.arange(len(wanted))
    return Points(every, places, np.full(len(wanted), ANY), encoded.dictionary.to_pylist())


def _by_index(handle: TableHandle, known: KnownKeys, wanted: WantedKeys) -> Points:
    """Ask the index where the keys are, and add the buckets in which any key may have come."""
    entries, places = entries_of(handle, known, sorted_once(wanted.hashes))
    low = np.searchsorted(entries.hashes, wanted.hashes, side="left")
    count = np.searchsorted(entries.hashes, wanted.hashes, side="right") - low
    keys = np.repeat(np.arange(len(wanted)), count)
    before = np.cumsum(count) - count
    at = np.arange(int(count.sum())) + np.repeat(low - before, count)
    found_in = entries.places[at].astype(np.int64)
    versions = entries.versions[at].astype(np.int64)
    parts = [(keys, found_in, versions)]
    for (partition, bucket), version in known.window.whole.items():
        place = places.number(partition_text(partition))
        here = (found_in == place) & (wanted.buckets[keys] == bucket)
        versions[here & (versions <= version)] = ANY
        others = np.setdiff1d(np.flatnonzero(wanted.buckets == bucket), keys[here])
        parts.append((others, np.full(len(others), place), np.full(len(others), ANY)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Points(columns[0], columns[1], columns[2], places.texts)


def _everywhere(snapshot: Snapshot, wanted: WantedKeys) -> Points:
    """Look for each key in its bucket of every partition that has a file of it."""
    present: dict[str, set[int]] = {}
    for text, bucket in bucket_pairs(snapshot.files):
        present.setdefault(text, set()).add(bucket)
    texts = sorted(present)
    keys: list[Indices] = [np.zeros(0, np.int64)]
    places: list[Indices] = [np.zeros(0, np.int64)]
    for number, text in enumerate(texts):
        here = np.flatnonzero(np.isin(wanted.buckets, list(present[text])))
        keys.append(here)
        places.append(np.full(len(here), number))
    every = np.concatenate(keys)
    return Points(every, np.concatenate(places), np.full(len(every), ANY), texts)


def _snapshot(
    handle: TableHandle, state: TableState, wanted: WantedKeys, texts: Sequence[str] | None
) -> Snapshot:
    """Load the files of the partitions in question, with the bounds of the first key column."""
    chosen = None if texts is None else pa.array(sorted(texts), pa.string())

    def among(known: pa.Array) -> Flags:
        flags: Flags = pc.is_in(known, value_set=chosen).to_numpy(zero_copy_only=False)
        return flags

    def file_filter(spec: TableSpec) -> FileCriteria:
        kind = spec.schema.arrow.field(spec.key[0]).type
        kinds = {spec.schema.ids[spec.key[0]]: kind} if is_plain(kind) else {}
        return FileCriteria(None if chosen is None else among, kinds)

    snapshot = state.snapshot(handle.store, file_filter=file_filter)
    numbers = np.unique(wanted.buckets)
    files = snapshot.files
    files = files.filter(pc.is_in(files["bucket"], value_set=pa.array(numbers, pa.int32())))
    if chosen is not None:
        files = files.filter(pc.is_in(files["partition"], value_set=chosen))
    return Snapshot(snapshot.version, snapshot.spec, snapshot.schemas, files)


_DATA: Final = frozenset(operation.value for operation in DATA)
