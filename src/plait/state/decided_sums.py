"""The sums over the live files of a state, and how its newest decisions changed them."""

from __future__ import annotations

import pyarrow as pa

from plait.model.changes import Changes
from plait.model.plan import LIVE
from plait.model.sums import Sums
from plait.state.events import Events, fold, gathered
from plait.state.selected import is_large, load_named, named
from plait.state.state import TableState
from plait.state.sums import changed_files, changed_paths, changed_places, sums_after, sums_of
from plait.storage.port import Store


def decided_sums(store: Store, state: TableState, changes: Changes) -> Sums:
    """Return the sums after the decision that follows a state: the cost is that of its changes.

    If the decision before does not tell its sums, all live files are summed up.

    Raises:
        CorruptMetadataError: the state is damaged, and so are its decisions.
    """
    before = state.live
    if before is None and not state.tail:
        before = state.trust.base_of(store, state.parts)
    if before is None:
        before = sums_of(state.folded(store).live(state.version))
    if not (changes.added.num_rows or changes.removed.num_rows or changes.masked.num_rows):
        return before  # as of a clean, which deletes files that are live no more
    known = _live_of(store, state, changed_paths(changes))
    return sums_after(before, *changed_files(known, changes, state.version + 1))


def tail_places(store: Store, state: TableState) -> pa.Table:
    """Return how the decisions after the parts changed the sums over live files (PLACES).

    Raises:
        CorruptMetadataError: the state is damaged, and so are its decisions.
    """
    events = gathered(state.tail)
    touched = [events.added["path"], events.removed["path"], events.masked["path"]]
    chunks = [chunk for each in touched for chunk in each.chunks]
    names = pa.chunked_array(chunks, pa.string()).unique()
    before, after = LIVE.empty_table(), _live_of(store, state, names)
    if state.parts:
        older = _named(store, state, names, recent=False)
        before = fold(older).live(state.parts[-1].last)
    return changed_places(before, after)


def _live_of(store: Store, state: TableState, names: pa.Array) -> pa.Table:
    """Load those of some files that are live (LIVE)."""
    if not len(names):
        return LIVE.empty_table()
    if state.seen:
        return state.seen[0].named(names).live(state.version)
    return fold(_named(store, state, names)).live(state.version)


def _named(store: Store, state: TableState, names: pa.Array, *, recent: bool = True) -> Events:
    if not state.loaded and is_large(state.parts) and not state.trust.wrong:
        known = [load_named(store, part, names, state.cache) for part in state.parts]
    else:
        if not state.loaded:
            state.folded(store)
        known = [named(state.loaded[0], names)]
    tail = [named(gathered(state.tail), names)] if recent else []
    return Events.concat([Events(), *known, *tail])
