"""Load the files of some partitions: of large parts only the row groups in which they lie.

A small table is loaded whole, once. A large one is never loaded to look at a part of it: first the
places (partition and directory) that are there, of those the ones wanted, then their row groups.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa

from plait.errors import CorruptMetadataError
from plait.expr.prune import Flags
from plait.files.bounds import Kinds
from plait.read.wanted import Wanted
from plait.state.events import TABLES, Events, joined
from plait.state.part_file import (
    PartFile,
    PieceReader,
    below,
    part_schema,
    places_of,
    read_whole,
    require_counted,
)
from plait.state.parts import Part, recover_part
from plait.storage.port import Store

LIVE_TABLES: Final = ("added", "removed", "masked")
"""What tells which files are live."""
WHOLE_ROWS_MAX: Final = 1 << 14
"""The events of so many files are loaded whole, and kept."""
_KEPT_ROWS_MAX: Final = 1 << 18


class PartCache:
    """What a client has loaded of parts, up to a limit. A file never changes, so it stays right."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._tables: OrderedDict[object, pa.Table] = OrderedDict()

    def get(self, key: object, load: Callable[[], pa.Table]) -> pa.Table:
        """Return what was loaded under a key, or load it."""
        with self._lock:
            known = self._tables.get(key)
            if known is not None:
                self._tables.move_to_end(key)
                return known
        made = load()
        with self._lock:
            self._tables[key] = made
            while self._rows() > _KEPT_ROWS_MAX and len(self._tables) > 1:
                self._tables.popitem(last=False)
        return made

    def _rows(self) -> int:
        return sum(table.num_rows for table in self._tables.values())


def is_large(parts: Iterable[Part]) -> bool:
    """Tell whether the files of these parts are too many to load them all for any question."""
    files = (file for part in parts for file in part.files if file.table in LIVE_TABLES)
    return sum(file.rows for file in files) > WHOLE_ROWS_MAX


def load_wanted(
    store: Store, parts: Sequence[Part], recent: Events, wanted: Wanted, cache: PartCache
) -> Events:
    """Return the events of the files wanted, ``recent`` ones included; of other files maybe too.

    Raises:
        CorruptMetadataError: a part is damaged, and so are its decisions.
    """
    recent = Events(added=recent.added, removed=recent.removed, masked=recent.masked)
    directories = None
    if wanted.partitions is not None:
        places = [_places(store, part, cache) for part in parts]
        directories = _directories(joined([*places, places_of(recent.added)]), wanted.partitions)
    pieces = [_pieces(store, part, directories, wanted.kinds, cache) for part in parts]
    if directories is not None:
        recent = _below(recent, directories)
    return Events.concat([*pieces, recent])


def load_commits(
    store: Store, part: Part, *, since: int, columns: Sequence[str], cache: PartCache
) -> pa.Table:
    """Load columns of what a part says of decisions after a version, and maybe of some before.

    Raises:
        CorruptMetadataError: the part is damaged, and so are its decisions.
    """
    file = part.file("commits")
    schema = pa.schema([TABLES["commits"].field(name) for name in columns])
    if file is None or file.small:
        return recover_part(store, part, ("commits",)).commits.select(columns)

    def load() -> pa.Table:
        with PieceReader(store, file) as reader:
            return reader.read_after(schema, since)

    try:
        return cache.get((file.path, tuple(columns), since), load)
    except CorruptMetadataError:
        return recover_part(store, part, ("commits",)).commits.select(columns)


def _directories(places: pa.Table, wanted: Callable[[pa.Array], Flags]) -> frozenset[str] | None:
    encoded = places["partition"].combine_chunks().dictionary_encode()
    flags = wanted(encoded.dictionary)
    if bool(flags.all()):
        return None
    chosen = places["directory"].filter(pa.array(flags[encoded.indices.to_numpy()]))
    return frozenset(chosen.to_pylist())


def _places(store: Store, part: Part, cache: PartCache) -> pa.Table:
    added, places = part.file("added"), part.file("places")
    if added is None:
        return places_of(Events().added)
    try:
        if places is not None:
            known = cache.get(places.path, functools.partial(read_whole, store, places))
            require_counted(known, added.rows, added.path)
            return known
        return places_of(cache.get(added.path, functools.partial(read_whole, store, added)))
    except CorruptMetadataError:
        return places_of(_recovered(store, part, cache).added)


def _pieces(
    store: Store,
    part: Part,
    directories: frozenset[str] | None,
    kinds: Kinds,
    cache: PartCache,
) -> Events:
    """Load what a part says of files in these directories; if it is damaged, from decisions."""
    files = [file for file in part.files if file.table in LIVE_TABLES]
    try:
        loaded = {file.table: _piece(store, file, directories, kinds, cache) for file in files}
        if directories is not None and "added" in loaded:
            places = _places(store, part, cache)
            require_counted(places, loaded["added"].num_rows, part.files[0].path, directories)
    except CorruptMetadataError:
        return _below(_recovered(store, part, cache), directories)
    return Events(**loaded)


def _piece(
    store: Store,
    file: PartFile,
    directories: frozenset[str] | None,
    kinds: Kinds,
    cache: PartCache,
) -> pa.Table:
    if file.small:
        rows = cache.get(file.path, lambda: read_whole(store, file))
        return rows if directories is None else below(rows, directories)
    schema = part_schema(file.table, kinds if file.table == "added" else {}, cold=False)

    def load() -> pa.Table:
        with PieceReader(store, file) as reader:
            return reader.read(schema, directories)

    return cache.get((file.path, tuple(schema.names), directories), load)


def _recovered(store: Store, part: Part, cache: PartCache) -> Events:
    """Load a part whole, from its decisions if need be; so it is kept."""

    def load(name: str) -> pa.Table:
        return recover_part(store, part, (name,)).tables()[name]

    keys = {name: (part.first, part.last, name) for name in LIVE_TABLES}
    return Events(**{n: cache.get(key, functools.partial(load, n)) for n, key in keys.items()})


def _below(events: Events, directories: frozenset[str] | None) -> Events:
    if directories is None:
        return events
    return Events(
        added=below(events.added, directories),
        removed=below(events.removed, directories),
        masked=below(events.masked, directories),
    )
