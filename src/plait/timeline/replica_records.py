"""Records of the dual write: attempts to send rows to sinks, and positions of sinks (RFC 0022).

A table is complete without them. If one is lost, a sink has to be compared again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from plait.errors import CorruptMetadataError, FormatError
from plait.model.document import Proof, open_record, seal_record
from plait.model.instant import Instant
from plait.model.sink_ledger import Attempt, SinkPosition
from plait.storage.port import Store
from plait.timeline import paths

_BYTES_MAX = 16 << 20
R = TypeVar("R", Attempt, SinkPosition)


def write_attempt(store: Store, attempt: Attempt) -> None:
    """Write the record of a writer that is about to send rows to sinks, or that failed."""
    path = paths.attempt(attempt.instant, attempt.task)
    store.put(path, seal_record(path, attempt.to_dict()))
    store.persist([path])  # the sinks survive a power cut; so must this


def delete_attempts(store: Store, instant: Instant, tasks: Iterable[str] = ("",)) -> None:
    """Delete the records of an instant that are settled: the writer's own, or those of tasks."""
    if doomed := [paths.attempt(instant, task) for task in tasks]:
        store.delete(doomed)


def load_attempts(store: Store) -> list[Attempt]:
    """Load all attempts, oldest first; one that does not prove itself may be at any sink."""
    found: list[Attempt] = []
    for info in store.list(paths.ATTEMPTS):
        instant = paths.attempt_of(info.path)
        if instant is not None:
            attempt = find_attempt(store, instant, paths.attempt_task_of(info.path))
            found += [] if attempt is None else [attempt]
    return sorted(found, key=lambda each: (each.instant, each.task))


def find_attempt(store: Store, instant: Instant, task: str) -> Attempt | None:
    """Load an attempt, or None; one that does not prove itself may be at any sink."""
    path = paths.attempt(instant, task)
    body = _find(store, path)
    if body is None:
        return None
    return _read(path, body, Attempt) or Attempt(instant, (), 0, "", 0, task)


def write_position(store: Store, position: SinkPosition) -> None:
    """Write at which version a sink was equal; replaces an older position."""
    path = paths.position(position.sink)
    store.put(path, seal_record(path, position.to_dict()))


def load_positions(store: Store) -> list[SinkPosition]:
    """Load the position of each sink that was ever compared; one may be lost.

    A position that does not prove itself may have been any, and any instant may have overlapped the
    comparison.
    """
    found: list[SinkPosition] = []
    for path in sorted(info.path for info in store.list(paths.POSITIONS)):
        body = _find(store, path) if paths.is_position(path) else None
        if body is not None:
            lost = SinkPosition(path.rpartition("/")[2], 0, lost=True)
            found.append(_read(path, body, SinkPosition) or lost)
    return found


def _find(store: Store, path: str) -> bytes | None:
    """Read a record; None if it was deleted since it was listed."""
    try:
        return store.find(path, size_max=_BYTES_MAX)
    except CorruptMetadataError:  # too large to be one
        return b""


def _read(path: str, body: bytes, kind: type[R]) -> R | None:
    """Read a record that proves itself; None for anything else."""
    proof, document = open_record(path, body)
    try:
        return kind.from_dict(document) if proof is Proof.SEALED else None
    except (KeyError, TypeError, ValueError, FormatError):
        return None
