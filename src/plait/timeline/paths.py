"""Names under ``.meta/``: the only place that spells them."""

from __future__ import annotations

import re
from typing import NamedTuple

from plait.definition.table_def import is_index
from plait.errors import FormatError
from plait.model.changes import SECTIONS
from plait.model.instant import Instant
from plait.model.sink_ledger import is_sink_name

META = ".meta"
CATALOG = ".catalog"
"""The table of names in the root of a catalog, where no table can be (RFC 0047)."""
TABLE = f"{META}/table.json"
PURGING = f"{META}/purging.json"
"""The mark of a purge that has begun: a copy of ``table.json`` (RFC 0047)."""
TIMELINE = f"{META}/timeline"
PENDING = f"{META}/pending"
HEARTBEATS = f"{META}/heartbeats"
MANIFESTS = f"{META}/manifests"
CHECKPOINTS = f"{META}/checkpoints"
ARCHIVE = f"{META}/archive"
OWNED = (MANIFESTS, ARCHIVE)
"""Where files of metadata lie that belong to an instant, and that its decision names."""
PUBLISHED = ("_delta_log/", "_dv/", "metadata/")
"""Where metadata lies that is published for other engines (RFC 0046)."""
LEASES = f"{META}/leases"
CHECKPOINT_HINT = f"{META}/hints/checkpoint"
INDEX = f"{META}/index"
INDEX_HINT = f"{META}/hints/index"
REPLICAS = f"{META}/replicas"
ATTEMPTS = f"{REPLICAS}/attempts"
POSITIONS = f"{REPLICAS}/positions"

_BLOCK = 10_000
_SLOT = f"{TIMELINE}/{{:020d}}/{{:020d}}.json"
_LATER = tuple(1 << step for step in range(10))
_ATTEMPT = r"[A-Za-z0-9._-]{1,200}"
_RECORD = re.compile(rf"([^.]+)\.(requested|inflight(\.{_ATTEMPT})?)", re.ASCII)
_ARCHIVE = re.compile(r"(\d{20})-(\d{20})-([^.]+)\.parquet", re.ASCII)
_INDEX_FILE = re.compile(r"(\d{20})(\.json|-[0-9a-f]{16}-\d{6}\.run)", re.ASCII)
_LEASE = re.compile(r"\d{20}-[0-9a-f]{16}", re.ASCII)
_MANIFEST = re.compile(rf"{_ATTEMPT}-({'|'.join(SECTIONS)})\.parquet", re.ASCII)


def slot(version: int) -> str:
    """Name the slot of a version.

    >>> slot(12345)
    '.meta/timeline/00000000000000000001/00000000000000012345.json'
    """
    return _SLOT.format(version // _BLOCK, version)


def slots_after(version: int) -> list[str]:
    """Name slots that are only there if this one was: the next, then in doubling steps."""
    return [_SLOT.format(each // _BLOCK, each) for each in map(version.__add__, _LATER)]


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


class ArchiveName(NamedTuple):
    """The name of a file of the archive."""

    first: int
    last: int
    instant: Instant


def archive(first: int, last: int, instant: Instant) -> str:
    """Name the file of an instant with the decisions of these versions."""
    return f"{ARCHIVE}/{first:020d}-{last:020d}-{instant}.parquet"


def archive_of(path: str) -> ArchiveName | None:
    """Tell which versions a file of the archive has, and whose it is; None for any other name.

    >>> archive_of(".meta/archive/notes.parquet")
    """
    directory, _, name = path.rpartition("/")
    match = _ARCHIVE.fullmatch(name)
    instant = _instant(match[3]) if match and directory == ARCHIVE else None
    if match is None or instant is None or int(match[1]) > int(match[2]):
        return None
    return ArchiveName(int(match[1]), int(match[2]), instant)


def record_of(path: str) -> Instant | None:
    """Tell whose pending record this is; None for any other name."""
    directory, _, name = path.rpartition("/")
    match = _RECORD.fullmatch(name)
    return _instant(match[1]) if match and directory == PENDING else None


def heartbeat_of(path: str) -> Instant | None:
    """Tell whose heartbeat this is; None for any other name."""
    directory, _, name = path.rpartition("/")
    return _instant(name) if directory == HEARTBEATS else None


def manifest_of(path: str) -> Instant | None:
    """Tell whose manifest this is; None for any other name.

    >>> manifest_of(".meta/manifests/notes.txt")
    """
    directory, _, name = path.rpartition("/")
    outer, _, owner = directory.rpartition("/")
    return _instant(owner) if outer == MANIFESTS and _MANIFEST.fullmatch(name) else None


def owner_of(path: str) -> Instant | None:
    """Tell whose manifest or file of the archive this is; None for any other name."""
    name = archive_of(path)
    return manifest_of(path) if name is None else name.instant


def is_lease(path: str) -> bool:
    """Tell whether this is the name of a lease."""
    directory, _, name = path.rpartition("/")
    return directory == LEASES and _LEASE.fullmatch(name) is not None


def lease_version(path: str) -> int:
    """Return the version in the name of a lease.

    >>> lease_version(f"{LEASES}/{7:020d}-0123456789abcdef")
    7
    """
    return int(path.rpartition("/")[2][:20])


def attempt(instant: Instant, task: str = "") -> str:
    """Name the record of a writer that sends rows to sinks, or of one attempt of a task of it."""
    return f"{ATTEMPTS}/{instant}" + (f".{task}" if task else "")


def attempt_of(path: str) -> Instant | None:
    """Tell whose attempt this is; None for any other name."""
    directory, _, name = path.rpartition("/")
    instant, dot, task = name.partition(".")
    whole = directory == ATTEMPTS and (re.fullmatch(_ATTEMPT, task, re.ASCII) or not dot)
    return _instant(instant) if whole else None


def attempt_task_of(path: str) -> str:
    """Return the task in the name of an attempt; empty for the record of a writer."""
    return path.rpartition("/")[2].partition(".")[2]


def position(sink: str) -> str:
    """Name the record of the version at which a sink was compared."""
    return f"{POSITIONS}/{sink}"


def is_position(path: str) -> bool:
    """Tell whether this is the name of a sink's position."""
    directory, _, name = path.rpartition("/")
    return directory == POSITIONS and is_sink_name(name)


def index(name: str) -> str:
    """Name the directory of a record index."""
    return f"{INDEX}/{name}"


def index_manifest(name: str, number: int) -> str:
    """Name a manifest of a record index."""
    return f"{index(name)}/{number:020d}.json"


def index_run(name: str, version: int, nonce: str, number: int) -> str:
    """Name a file of a run that goes up to a version."""
    return f"{index(name)}/{version:020d}-{nonce}-{number:06d}.run"


def index_of(path: str) -> str | None:
    """Tell of which record index this is a file; None for any other name."""
    directory, _, name = path.rpartition("/")
    outer, _, owner = directory.rpartition("/")
    known = outer == INDEX and is_index(owner) and _INDEX_FILE.fullmatch(name)
    return owner if known else None


def index_manifest_of(path: str) -> int | None:
    """Return the number of a manifest of a record index; None for any other name.

    >>> index_manifest_of(index_manifest("0123456789abcdef", 7))
    7
    """
    match = _INDEX_FILE.fullmatch(path.rpartition("/")[-1])
    whole = match is not None and match[2] == ".json" and index_of(path) is not None
    return int(match[1]) if match is not None and whole else None


def index_run_of(path: str) -> int | None:
    """Return the version up to which a run file goes; None for any other name."""
    match = _INDEX_FILE.fullmatch(path.rpartition("/")[-1])
    whole = match is not None and match[2] != ".json" and index_of(path) is not None
    return int(match[1]) if match is not None and whole else None


def _instant(text: str) -> Instant | None:
    try:
        return Instant.parse(text)
    except FormatError:
        return None


def checkpoint(version: int, name: str = "state.json") -> str:
    """Name a file of the checkpoint at a version."""
    return f"{CHECKPOINTS}/{version:020d}/{name}"
