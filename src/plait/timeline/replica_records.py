"""Records of the dual write: attempts to send rows to sinks, and positions of sinks (RFC 0022).

A table is complete without them. If one is lost, a sink has to be compared again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeVar

from plait.errors import CorruptMetadataError, FormatError
from plait.model.instant import Instant
from plait.model.replicas import Attempt, SinkPosition
from plait.storage.port import Store
from plait.timeline import paths

_BYTES_MAX = 16 << 20
R = TypeVar("R", Attempt, SinkPosition)


def write_attempt(store: Store, attempt: Attempt) -> None:
    """Write the record of a writer that is about to send rows to sinks, or that failed."""
    path = paths.attempt(attempt.instant, attempt.task)
    store.put(path, _body(attempt))
    store.persist([path])  # the sinks survive a power cut; so must this


def delete_attempts(store: Store, instant: Instant, tasks: Iterable[str] = ("",)) -> None:
    """Delete the records of an instant that are settled: the writer's own, or those of tasks."""
    if doomed := [paths.attempt(instant, task) for task in tasks]:
        store.delete(doomed)


def load_attempts(store: Store) -> list[Attempt]:
    """Load all attempts, oldest first.

    Raises:
        CorruptMetadataError: one cannot be read.
    """
    names = [info.path for info in store.list(paths.ATTEMPTS)]
    found = [_load(store, path, Attempt) for path in names if paths.attempt_of(path)]
    return sorted(filter(None, found), key=lambda each: (each.instant, each.task))


def write_position(store: Store, position: SinkPosition) -> None:
    """Write at which version a sink was equal; replaces an older position."""
    store.put(paths.position(position.sink), _body(position))


def load_positions(store: Store) -> list[SinkPosition]:
    """Load the position of each sink that was ever compared.

    Raises:
        CorruptMetadataError: one cannot be read.
    """
    names = sorted(info.path for info in store.list(paths.POSITIONS))
    found = (_load(store, path, SinkPosition) for path in names if paths.is_position(path))
    return [each for each in found if each is not None]


def _body(record: Attempt | SinkPosition) -> bytes:
    return json.dumps(record.to_dict(), separators=(",", ":"), ensure_ascii=False).encode()


def _load(store: Store, path: str, kind: type[R]) -> R | None:
    body = store.find(path, size_max=_BYTES_MAX)
    if body is None:  # deleted since it was listed
        return None
    try:
        document = json.loads(body)
        if not isinstance(document, dict):
            raise TypeError(document)
        return kind.from_dict(document)
    except (KeyError, TypeError, ValueError, RecursionError, FormatError) as error:
        message = f"{path} is damaged: {type(error).__name__}"
        hint = "remove the file, then repair the sinks: only a comparison shows what they hold"
        raise CorruptMetadataError(message, hint=hint, path=path) from error
