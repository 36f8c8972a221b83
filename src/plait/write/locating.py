"""Which partitions have the keys of a write, as the table's record index tells (RFC 0030).

An index that is lost, behind or damaged costs time: then every partition is looked at (INV-11).
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.engine import Staging
from plait.errors import CorruptMetadataError
from plait.files.hash import Hashes
from plait.model.bucket import Partition, partition_text
from plait.model.plan import Snapshot
from plait.state.state import TableState
from plait.txn.key_window import entries_of, forget_index, is_of_index, load_known_keys
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)


def located(handle: TableHandle, snapshot: Snapshot, staging: Staging) -> Snapshot:
    """Leave out the files of partitions that cannot have a key of a write, and get no row.

    For tables that have a record index.

    Raises:
        CorruptMetadataError: a decision is damaged.
        StorageError: the store failed.
    """
    state = handle.cache.known()
    asked = staging.keys_asked()
    if asked is None or state.version != snapshot.version:
        return snapshot
    hashes, partitions = asked
    try:
        texts = _places_of(handle, state, hashes)
    except CorruptMetadataError as error:
        if not is_of_index(error):
            raise
        _log.info("the record index is of no use, so every partition is looked at: %s", error)
        forget_index(handle)
        return snapshot
    return snapshot if texts is None else _narrowed(snapshot, texts, partitions)


def _places_of(handle: TableHandle, state: TableState, hashes: Hashes) -> set[str] | None:
    """Return the partitions that may have keys; None: nobody knows."""
    known = load_known_keys(handle, state)
    if known is None or not known.usable:
        return None
    entries, places = entries_of(handle, known, hashes)
    texts = {places.texts[number] for number in set(entries.places.tolist())}
    return texts | {partition_text(partition) for partition, _ in known.window.whole}


def _narrowed(snapshot: Snapshot, texts: set[str], partitions: frozenset[Partition]) -> Snapshot:
    wanted = texts | set(map(partition_text, partitions))
    chosen = pc.is_in(snapshot.files["partition"], value_set=pa.array(sorted(wanted), pa.string()))
    return replace(snapshot, files=snapshot.files.filter(chosen))
