"""Load the files of some partitions: of large parts only the row groups in which they lie.

A small table is loaded whole, once. A large one is never loaded to look at a part of it: first the
places (partition and directory) that are there, of those the ones wanted, then their row groups.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.expr.prune import Flags
from plait.files.data_file import corrupt
from plait.model.decision import TableStatistics
from plait.model.plan import Spans
from plait.read.plan import FileCriteria
from plait.state.events import TABLES, Events, joined
from plait.state.part_file import (
    PLACES,
    PartFile,
    PieceReader,
    below,
    directories_of,
    part_schema,
    places_of,
    read_whole,
    require_counted,
    written_in,
)
from plait.state.parts import FILE_TABLES, Part, recover_part
from plait.state.statistics import add_places, statistics_at
from plait.storage.port import Store

LIVE_TABLES: Final = ("added", "removed", "masked")
"""Tables from which the live files follow."""
WHOLE_ROWS_MAX: Final = 1 << 14
"""Up to this number of files, all events are loaded at once, and kept."""
_KEPT_ROWS_MAX: Final = 1 << 18
_PIECE_KEY: Final = 3
"""Length of the key of a piece: path, columns and directories."""


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
        # Load outside of the lock. Two threads may load the same piece, which costs time only;
        # holding the lock would make every reader wait for one read of the store.
        made = load()
        with self._lock:
            self._tables[key] = made
            while self._rows() > _KEPT_ROWS_MAX and len(self._tables) > 1:
                self._tables.popitem(last=False)
        return made

    def covering(self, path: str, directories: frozenset[str]) -> pa.Table | None:
        """Return rows of a file that include all of those in some directories; None if none do."""
        with self._lock:
            for key, table in self._tables.items():
                if not isinstance(key, tuple) or key[0] != path or len(key) != _PIECE_KEY:
                    continue
                held = key[2]
                if held is None or (isinstance(held, frozenset) and directories <= held):
                    return table
        return None

    def _rows(self) -> int:
        return sum(table.num_rows for table in self._tables.values())


def is_large(parts: Iterable[Part]) -> bool:
    """Tell whether the files of these parts are too many to load them all for any question."""
    files = (file for part in parts for file in part.files if file.table in LIVE_TABLES)
    return sum(file.rows for file in files) > WHOLE_ROWS_MAX


@dataclass(slots=True)
class Selection:
    """What is loaded for one question."""

    store: Store
    cache: PartCache
    criteria: FileCriteria
    written: Spans
    """The versions that lay out rows as the version asked for does."""
    unmatched: int = 0
    """How many files were left out because of their bounds."""
    total: TableStatistics | None = None
    """Statistics of the parts over all live files; None if a part does not record them."""
    chosen: TableStatistics | None = None
    """Statistics of the wanted files; None if unknown, or if bounds excluded some of them."""
    _all_recorded: bool = True
    """Whether every part records its statistics."""
    _few: bool = False
    """Whether the wanted files are few enough to load and compare them all, without pruning."""

    def load(self, parts: Sequence[Part], recent: Events) -> Events:
        """Return the events of the files wanted, ``recent`` ones included.

        Raises:
            CorruptMetadataError: a part is damaged, and so are its decisions.
        """
        recent = Events(added=recent.added, removed=recent.removed, masked=recent.masked)
        directories = None
        places = add_places([self._places(part) for part in parts])
        if self.criteria.partitions is not None:
            laid_out = [self._laid_out(part) for part in parts]
            known = add_places([*laid_out, places_of(written_in(recent.added, self.written))])
            directories = _directories(known, places, self.criteria.partitions)
        count = pc.sum(_inside(places, directories)["files"]).as_py() or 0
        self._few = count <= WHOLE_ROWS_MAX
        if self._all_recorded:
            self.total = statistics_at(places)
            # With pruning by bounds the loaded files are fewer than those in the directories, so
            # there is nothing to compare them with. Then only the sums over all places are checked.
            if self._few or self.criteria.matching is None:
                self.chosen = statistics_at(_inside(places, directories))
        pieces = [self._pieces(part, directories) for part in parts]
        return Events.concat([*pieces, _below(recent, directories)])

    def _places(self, part: Part) -> pa.Table:
        try:
            return load_places(self.store, part, self.cache)
        except CorruptMetadataError:
            self._all_recorded = False
            return places_of(self._recovered(part).added)

    def _laid_out(self, part: Part) -> pa.Table:
        """Return where the files lie that were written under the layout of the version (PLACES).

        The values of a partition are texts, which say something only under the layout that wrote
        them: after a repush the same table has places of two layouts, and ``["7"]`` may be a day
        in one and a user in the other. The files that are live at a version all have its layout, so
        other places hold nothing that is wanted. A part of one layout is told by its table of
        places; in one that a repush went through, each file tells by its version.
        """
        spans = [(f, last) for f, last in self.written if f <= part.last and part.first <= last]
        if any(first <= part.first and part.last <= last for first, last in spans):
            return self._places(part)
        added = part.file("added")
        if added is None or not spans:
            return PLACES.empty_table()
        return self.cache.get((added.path, self.written), lambda: self._written(part, added))

    def _written(self, part: Part, added: PartFile) -> pa.Table:
        try:
            if added.small:
                return places_of(written_in(self._whole(added), self.written))
            with PieceReader(self.store, added) as reader:
                return reader.read_places(self.written)
        except CorruptMetadataError:
            return places_of(written_in(self._recovered(part).added, self.written))

    def _pieces(self, part: Part, directories: frozenset[str] | None) -> Events:
        """Load what a part says of files in these directories; if it is damaged, from decisions."""
        try:
            loaded = {
                name: self._piece(file, directories)
                for name in ("removed", "masked")
                if (file := part.file(name)) is not None
            }
            added = part.file("added")
            if added is not None:
                loaded["added"], count = self._added(added, directories)
                if directories is not None:
                    # Checksums of pages prove only what was read. The table of places tells how
                    # many files there must be, so that a wrong search overlooks none.
                    require_counted(self._places(part), count, added.path, directories)
                self.unmatched += count - loaded["added"].num_rows
        except CorruptMetadataError:
            return _below(self._recovered(part), directories)
        return Events(**loaded)

    def _added(self, file: PartFile, directories: frozenset[str] | None) -> tuple[pa.Table, int]:
        """Load files; tell also how many there are in the directories."""
        matching = self.criteria.matching
        if file.small or matching is None or self._few:
            rows = self._piece(file, directories)
            return rows, rows.num_rows
        schema = part_schema(file.table, self.criteria.kinds, cold=False)
        with PieceReader(self.store, file) as reader:
            return reader.read_matching(schema, matching, directories)

    def _piece(self, file: PartFile, directories: frozenset[str] | None) -> pa.Table:
        if file.small:
            rows = self._whole(file)
            return rows if directories is None else below(rows, directories)
        kinds = self.criteria.kinds if file.table == "added" else {}
        schema = part_schema(file.table, kinds, cold=False)

        def load() -> pa.Table:
            with PieceReader(self.store, file) as reader:
                return reader.read(schema, directories)

        return self.cache.get((file.path, tuple(schema.names), directories), load)

    def _whole(self, file: PartFile) -> pa.Table:
        return self.cache.get(file.path, lambda: read_whole(self.store, file))

    def _recovered(self, part: Part) -> Events:
        """Load a part whole, from its decisions if need be; so it is kept."""

        def load(name: str) -> pa.Table:
            return recover_part(self.store, part, (name,)).tables()[name]

        keys = {name: (part.first, part.last, name) for name in LIVE_TABLES}
        loads = {name: functools.partial(load, name) for name in LIVE_TABLES}
        return Events(**{name: self.cache.get(keys[name], loads[name]) for name in LIVE_TABLES})


def load_places(store: Store, part: Part, cache: PartCache) -> pa.Table:
    """Load where the files of a part lie, and its sums over live files (PLACES).

    Raises:
        CorruptMetadataError: its table of places is damaged, or gone.
    """
    added, places = part.file("added"), part.file("places")
    if places is None:
        for file in part.files:
            if file.table in LIVE_TABLES:
                raise corrupt(file.path, "a table of places beside it", "none")
        return PLACES.empty_table()
    known = cache.get(places.path, lambda: read_whole(store, places))
    require_counted(known, 0 if added is None else added.rows, places.path)
    return known


def load_named(
    store: Store, part: Part, names: pa.Array, cache: PartCache, *, cold: bool = False
) -> Events:
    """Load what a part says of some files; of a large table only the row groups that they are in.

    ``cold``: the JSON of bounds too, which is never kept.

    Raises:
        CorruptMetadataError: the part is damaged, and so are its decisions.
    """
    files = [file for name in LIVE_TABLES if (file := part.file(name)) is not None]
    try:
        return Events(
            **{file.table: _named(store, file, names, cache, cold=cold) for file in files}
        )
    except CorruptMetadataError:
        return named(recover_part(store, part, LIVE_TABLES), names)


def _named(
    store: Store, file: PartFile, names: pa.Array, cache: PartCache, *, cold: bool
) -> pa.Table:
    if file.small:
        rows = cache.get(file.path, lambda: read_whole(store, file))
        return rows.filter(pc.is_in(rows["path"], value_set=names))
    directories = frozenset(directories_of(pa.table({"path": names})).to_pylist())
    held = cache.covering(file.path, directories)
    schema = part_schema(file.table, {}, cold=cold)
    if held is not None and not cold:
        held = held.select(schema.names)
        return held.filter(pc.is_in(held["path"], value_set=names))
    with PieceReader(store, file) as reader:
        return reader.read_named(schema, names)


def named(events: Events, names: pa.Array) -> Events:
    """Return what events say of some files: which of them are live, and their masks."""
    tables = {name: getattr(events, name) for name in LIVE_TABLES}
    return Events(
        **{
            name: rows.filter(pc.is_in(rows["path"], value_set=names))
            for name, rows in tables.items()
            if rows.num_rows
        }
    )


def load_whole(store: Store, part: Part) -> Events:
    """Load all file events of a part.

    Raises:
        CorruptMetadataError: the part is damaged, and so are its decisions.
    """
    return recover_part(store, part, FILE_TABLES)


def load_lean(store: Store, part: Part) -> Events:
    """Load all file events of a part, without the JSON of bounds where that is much.

    Raises:
        CorruptMetadataError: the part is damaged, and so are its decisions.
    """
    added = part.file("added")
    if added is None or added.small:
        return load_whole(store, part)
    try:
        with PieceReader(store, added) as reader:
            files = reader.read(part_schema("added", {}, cold=False))
    except CorruptMetadataError:
        return load_whole(store, part)
    others = tuple(name for name in FILE_TABLES if name != "added")
    return replace(recover_part(store, part, others), added=joined([Events().added, files]))


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


def _directories(
    known: pa.Table, places: pa.Table, wanted: Callable[[pa.Array], Flags]
) -> frozenset[str] | None:
    """Return the directories in which files wanted may be; None: all that there are.

    Args:
        known: where the files lie that may be wanted at all (PLACES).
        places: where all files of the parts lie (PLACES).
        wanted: says of partitions which are wanted.
    """
    encoded = known["partition"].combine_chunks().dictionary_encode()
    flags = wanted(encoded.dictionary)
    chosen = known["directory"].filter(pa.array(flags[encoded.indices.to_numpy()]))
    directories = frozenset(chosen.to_pylist())
    # Decisions after the parts may lie in directories of their own, which ``known`` has too.
    there = {*places["directory"].to_pylist(), *known["directory"].to_pylist()}
    return None if directories >= there else directories


def _inside(places: pa.Table, directories: frozenset[str] | None) -> pa.Table:
    if directories is None:
        return places
    chosen = pa.array(sorted(directories), pa.string())
    return places.filter(pc.is_in(places["directory"], value_set=chosen))


def _below(events: Events, directories: frozenset[str] | None) -> Events:
    if directories is None:
        return events
    return Events(
        added=below(events.added, directories),
        removed=below(events.removed, directories),
        masked=below(events.masked, directories),
    )
