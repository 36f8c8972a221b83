"""What one client has read of a record index; safe to share between threads."""

from __future__ import annotations

from dataclasses import dataclass, field

from plait.index.lookup import Footers
from plait.index.manifest import Manifest
from plait.index.window import KeyWindow


@dataclass(slots=True)
class IndexCache:
    """Values that are replaced whole: whoever comes last leaves its own, and each is right."""

    footers: Footers = field(default_factory=Footers)
    manifest: Manifest | None = None
    window: KeyWindow | None = None
