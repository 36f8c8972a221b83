"""What decisions after a version wrote: by key where they tell it, else by bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from plait.index.entries import IndexEntries, Places
from plait.model.bucket import BucketId

FOLD_LAG_MAX = 32
"""Number of decisions after which their keys become a run."""
LAG_MAX = 2048
"""An index that is so many decisions behind is made anew: to read them costs more."""
ENTRIES_MAX = 1 << 22
"""Maximum number of keys in memory; of a commit with more keys, whole buckets are noted."""


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The keys that decisions after a version wrote, up to another."""

    since: int
    until: int
    decision: str
    """The checksum of the decision at ``until``."""
    entries: IndexEntries = field(default_factory=IndexEntries.none)
    """Entries of all keys that the decisions list, in no order."""
    places: Places = field(default_factory=Places)
    whole: Mapping[BucketId, int] = field(default_factory=dict)
    """Buckets in which any key may have been written, and by which version last."""
    lost: str = ""
    """Why an index that goes up to ``since`` is of no use any more; "" while it is of use."""

    @property
    def lag(self) -> int:
        """How many decisions there are in it."""
        return self.until - self.since

    def losing(self, why: str, until: int, decision: str) -> KeyWindow:
        """Return it with a decision after which the index is of no use."""
        return replace(self, until=until, decision=decision, lost=self.lost or why)
