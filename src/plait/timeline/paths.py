"""Names under ``.meta/``: the only place that spells them."""

from __future__ import annotations

from plait.model.instant import Instant

META = ".meta"
TABLE = f"{META}/table.json"
TIMELINE = f"{META}/timeline"
PENDING = f"{META}/pending"
HEARTBEATS = f"{META}/heartbeats"
MANIFESTS = f"{META}/manifests"
CHECKPOINTS = f"{META}/checkpoints"
LEASES = f"{META}/leases"
CHECKPOINT_HINT = f"{META}/hints/checkpoint"

_BLOCK = 10_000


def slot(version: int) -> str:
    """Name the slot of a version.

    >>> slot(12345)
    '.meta/timeline/00000000000000000001/00000000000000012345.json'
    """
    return f"{TIMELINE}/{version // _BLOCK:020d}/{version:020d}.json"


def requested(instant: Instant) -> str:
    """Name the record that begins an instant."""
    return f"{PENDING}/{instant}.requested"


def inflight(instant: Instant, attempt: str = "") -> str:
    """Name a record of partitions about to be written; one a task attempt."""
    return f"{PENDING}/{instant}.inflight" + (f".{attempt}" if attempt else "")


def heartbeat(instant: Instant) -> str:
    """Name the heartbeat of an instant."""
    return f"{HEARTBEATS}/{instant}"


def manifests(instant: Instant) -> str:
    """Name the directory of an instant's manifests: what recovery lists."""
    return f"{MANIFESTS}/{instant}"


def manifest(instant: Instant, attempt: str, section: str) -> str:
    """Name a columnar part of a large decision."""
    return f"{manifests(instant)}/{attempt}-{section}.parquet"


def checkpoint(version: int, name: str = "state.json") -> str:
    """Name a file of the checkpoint at a version."""
    return f"{CHECKPOINTS}/{version:020d}/{name}"
