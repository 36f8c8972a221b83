"""What happened to a file before and after a version: the events of a table by path and version.

A restore, and the undo of a repush, add files again that were removed. So a path may be added,
masked and removed several times, and what an event means follows from the order of versions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.plan import LIVE

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Succession:
    """Events, sorted by path and version; a path has one event at most in each version."""

    places: Numbers
    """Where each of them stands in its table."""
    _paths: pa.Array
    _versions: Numbers
    """Each version once, rising."""
    _keys: Numbers
    """A number for path and version; rising."""

    @classmethod
    def of(cls, events: pa.Table) -> Succession:
        """Take a table with the columns ``path`` and ``version``."""
        encoded = events["path"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        versions, ranks = np.unique(events["version"].to_numpy(), return_inverse=True)
        keys = codes * (len(versions) + 1) + ranks + 1
        places = np.argsort(keys, kind="stable")
        return cls(places, encoded.dictionary, versions, keys[places])

    def find_next(self, paths: pa.ChunkedArray, versions: Numbers) -> Numbers:
        """Return the place of the first event of each path after a version; -1 for none."""
        return self._found(paths, versions, 0)

    def find_last(self, paths: pa.ChunkedArray, versions: Numbers) -> Numbers:
        """Return the place of the last event of each path at or before a version; -1 for none."""
        return self._found(paths, versions, -1)

    def _found(self, paths: pa.ChunkedArray, versions: Numbers, step: int) -> Numbers:
        width = len(self._versions) + 1
        known = pc.fill_null(pc.index_in(paths, value_set=self._paths), -1)
        codes = known.to_numpy().astype(np.int64)
        ranks = np.searchsorted(self._versions, versions, side="right")
        at = np.searchsorted(self._keys, codes * width + ranks, side="right") + step
        keys = np.append(self._keys, -1)  # beyond the last: no path's
        at = np.clip(at, -1, len(self._keys))
        same = (keys[at] > codes * width) & (keys[at] < (codes + 1) * width) & (codes >= 0)
        return np.where(same, np.append(self.places, -1)[at], -1)


def with_first_versions(files: pa.Table, every: pa.Table) -> pa.Table:
    """Return live files (LIVE); of those that were added again, the first version too.

    Args:
        files: live files.
        every: all additions of their paths, each with its version.
    """
    every = every.filter(pc.is_in(every["path"], files["path"].combine_chunks()))
    since = every.group_by("path").aggregate([("version", "min")])
    at = pc.index_in(files["path"], value_set=since["path"].combine_chunks())
    first = pc.take(since["version_min"].combine_chunks(), at)
    older = pc.if_else(pc.less(first, files["version"]), first, pa.scalar(None, pa.int64()))
    name = "first_version"
    return files.set_column(files.schema.get_field_index(name), LIVE.field(name), older)
