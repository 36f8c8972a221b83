"""Pending records: what an instant says of itself before it is decided.

A record is written before any file of the instant, so that recovery knows where to look and
cleaning knows what to spare. One of a decided instant is garbage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from plait.definition.features import KNOWN
from plait.errors import CorruptMetadataError
from plait.model.bucket import Partition
from plait.model.document import Proof, open_record, seal_record
from plait.model.instant import Instant, Operation, State
from plait.storage.port import FileInfo, Store
from plait.timeline import paths

_BYTES_MAX = 16 << 20
_TIMEOUT_S_MAX = 1e9
_MARK_MAX = 200
_TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class PendingInstant:
    """An instant that has records but maybe no decision yet.

    Whoever begins one makes it to write its first record. ``load_pending`` makes it of the records
    that it finds, for recovery, ``clean`` and those who look at the timeline.
    """

    instant: Instant
    state: State
    operation: Operation | None
    v0: int
    """Everything live at this version or later may be needed by it."""
    partitions: tuple[Partition, ...]
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    timeout_s: float = 0.0
    process: str = ""
    """The one process that the instant lives and dies with; "" if there are several."""
    writer: str = ""
    """What instants of one writer share, where it has more than one at a time."""
    features: tuple[str, ...] = ()
    """What its client knows; () if it does not say."""
    stream: str = ""
    """The application of the stream whose turn it is; the writer is its coordinator's session."""
    touched_ms: int | None = None
    """When a record of it or its heartbeat last changed, by the store's clock."""
    records: tuple[str, ...] = ()
    heartbeat: str | None = None


def write_requested(store: Store, pending: PendingInstant) -> str:
    """Write the record that begins an instant; return its path."""
    path = paths.requested(pending.instant)
    document = {
        "instant": str(pending.instant),
        "operation": None if pending.operation is None else pending.operation.value,
        "v0": pending.v0,
        "partitions": [list(partition) for partition in pending.partitions],
        "host": pending.host,
        "pid": pending.pid,
        "started_ms": pending.started_ms,
        "timeout_s": pending.timeout_s,
        "process": pending.process,
        "writer": pending.writer,
        "stream": pending.stream,
        "features": list(KNOWN),
    }
    store.put(path, seal_record(path, document))
    return path


def write_inflight(
    store: Store, instant: Instant, partitions: Iterable[Partition], *, attempt: str = ""
) -> str:
    """Name partitions before a file appears in them; return the path of the record."""
    path = paths.inflight(instant, attempt)
    document = {"instant": str(instant), "partitions": [list(p) for p in partitions]}
    store.put(path, seal_record(path, document))
    return path


def find_request(store: Store, instant: Instant) -> PendingInstant | None:
    """Find what an instant said when it began; None if there is no record, or a damaged one.

    Raises:
        StorageError: it cannot be read now.
    """
    path = paths.requested(instant)
    try:
        body = store.find(path, size_max=_BYTES_MAX)
    except CorruptMetadataError:  # too large to be one
        return None
    if body is None:
        return None
    entry = PendingInstant(instant, State.REQUESTED, None, 0, ())
    found = _with_record(entry, FileInfo(path, len(body), None), body)
    return None if found is entry or not found.writer else found


def load_pending(store: Store) -> list[PendingInstant]:
    """Load every pending instant, oldest first, with its heartbeat's age.

    A record that does not prove itself still counts: it protects everything (v0 = 0), nothing
    proves the end of its process, and its client knows no feature. So damage makes cleaning and an
    upgrade wait, and deletes nothing. What an older client wrote, without a seal, says besides
    where it writes, and for people who it is.
    """
    instants: dict[Instant, PendingInstant] = {}
    for info in store.list(paths.PENDING):
        instant = paths.record_of(info.path)
        if instant is None:
            continue
        try:
            body = store.find(info.path, size_max=_BYTES_MAX)
        except CorruptMetadataError:  # too large to be one
            body = b""
        if body is None:  # removed since it was listed: the instant was decided
            continue
        known = instants.get(instant)
        entry = known or PendingInstant(instant, State.REQUESTED, None, 0, ())
        instants[instant] = _with_record(entry, info, body)
    for info in store.list(paths.HEARTBEATS):
        instant = paths.heartbeat_of(info.path)
        if instant in instants:
            entry = instants[instant]
            touched = _later(entry.touched_ms, info.modified_ms)
            instants[instant] = replace(entry, heartbeat=info.path, touched_ms=touched)
    return [instants[instant] for instant in sorted(instants)]


def _with_record(entry: PendingInstant, info: FileInfo, body: bytes) -> PendingInstant:
    touched = _later(entry.touched_ms, info.modified_ms)
    entry = replace(entry, records=(*entry.records, info.path), touched_ms=touched)
    proof, document = open_record(info.path, body)
    if proof is Proof.DAMAGED and info.path.endswith(".requested"):
        return entry
    partitions = tuple(dict.fromkeys((*entry.partitions, *_partitions(document))))
    entry = replace(entry, partitions=partitions)
    if not info.path.endswith(".requested"):
        return replace(entry, state=State.INFLIGHT)
    try:
        request = replace(
            entry,
            operation=Operation(str(document["operation"])) if document["operation"] else None,
            v0=int(str(document["v0"])),
            host=str(document["host"])[:200],
            pid=int(str(document["pid"])),
            started_ms=int(str(document["started_ms"])),
            timeout_s=float(str(document["timeout_s"])),
            process=str(document.get("process", ""))[:_MARK_MAX],
            writer=str(document.get("writer", ""))[:_MARK_MAX],
            stream=str(document.get("stream", "")),
            features=tuple(_texts(document.get("features"))),
        )
    except (KeyError, ValueError):
        return entry
    sensible = 0 <= request.timeout_s <= _TIMEOUT_S_MAX and 0 <= request.started_ms <= _TIME_MS_MAX
    if not sensible or request.v0 < 0:
        return entry
    if proof is Proof.SEALED:
        return request
    doubtful = replace(request, v0=0, timeout_s=0.0, process="", features=())
    return replace(doubtful, writer="", stream="")


def _partitions(document: dict[str, object]) -> Iterable[Partition]:
    value = document.get("partitions")
    for item in value if isinstance(value, list) else []:
        if isinstance(item, list) and all(v is None or isinstance(v, str) for v in item):
            yield tuple(item)


def _texts(value: object) -> Iterable[str]:
    return map(str, value) if isinstance(value, list) else ()


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
