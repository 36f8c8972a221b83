"""Published versions of a table: who publishes when, how far it is, and what may be cleaned.

A publication is no decision, and nothing that Plait reads depends on it. So a client that has
decided something publishes what is missing, for as long as the table says; whatever is missing
still, the next client or a service publishes (RFC 0046).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from plait.errors import MissingDependencyError, PublishRefusedError, TableError
from plait.interop.delta import TARGET as DELTA
from plait.interop.delta import DeltaPublisher
from plait.interop.iceberg import TARGET as ICEBERG
from plait.interop.iceberg import IcebergPublisher
from plait.interop.iceberg_files import Json, load_avro
from plait.interop.publisher import Foreign, FormatPublisher, KeptRange
from plait.model.contract import PUBLISH_OPTION, Options
from plait.model.plain import Plain
from plait.state.cache import StateCache
from plait.state.state import TableState
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Published(Plain):
    """What was published in one format."""

    target: str
    """The format: ``delta`` or ``iceberg``."""
    version: int | None
    """The newest version that is published; None for none."""
    published: int
    """How many versions this call published."""
    left_out: int
    """How many it left out, because it was too far behind."""
    undone: tuple[Foreign, ...] = ()
    """What others had written to the published metadata, and this call undid."""


@dataclass(frozen=True, slots=True)
class PublishReport(Plain):
    """The result of publishing."""

    version: int
    """The newest version of the table."""
    targets: tuple[Published, ...]

    @property
    def idle(self) -> bool:
        """Whether there was nothing to publish."""
        return not any(each.published or each.undone for each in self.targets)


@dataclass(frozen=True, slots=True)
class PublicationStatus(Plain):
    """How far a publication is."""

    target: str
    version: int | None
    """The newest version that is published; None for none."""
    lag_versions: int
    """How many versions of the table are not published."""
    lag_ms: int
    """How much younger the table's newest version is than the published one."""
    foreign: int
    """How many commits at the end of the published log are of others, or of a history that was cut
    off; the next call undoes them."""
    problem: str | None = None
    """Why it cannot be read."""


_PUBLISHERS: WeakKeyDictionary[StateCache, dict[str, FormatPublisher[Any]]] = WeakKeyDictionary()
"""What each client of this process remembers of the ends of its table's publications."""
DEFERRED: Final = (ICEBERG,)
"""Formats that a client publishes on a thread of its own, after its commit."""


def follow(handle: TableHandle, *, deferred: bool = False) -> None:
    """Publish what is missing, within the time that the table grants. It raises nothing.

    Args:
        handle: the table.
        deferred: publish the formats that are published on a thread, and no others.
    """
    table = handle.cache.known().table
    within_s = table.options.seconds("publish.deadline")
    for target in table.published:
        if (target in DEFERRED) != deferred:
            continue
        try:
            remembered = _PUBLISHERS.setdefault(handle.cache, {})
            publisher = remembered.get(target) or _publisher(handle, target)
            remembered[target] = publisher
            done = _catch_up(handle, publisher, within_s=within_s)
        except MissingDependencyError as error:
            _log.warning("a version was not published; another client does it: %s", error)
        except Exception:  # noqa: BLE001 - the decision stands; the next client publishes it
            _log.warning("a version was not published; the next client does it", exc_info=True)
        else:
            for each in done.undone:
                _log.warning(
                    "%s: commits %s of others (%s) were undone by commit %d",
                    target,
                    list(each.commits),
                    ", ".join(each.operations) or "unnamed",
                    each.number,
                )


def catch_up(handle: TableHandle) -> PublishReport:
    """Publish what is missing, and undo what others wrote.

    Where a format cannot be published, the others are published first.

    Raises:
        MissingDependencyError: a library is missing that a format needs.
        StorageError: the store failed; what was published stands.
    """
    done, problem = [], None
    for target in handle.cache.refresh().table.published:
        try:
            done.append(_catch_up(handle, _publisher(handle, target), whole=True))
        except TableError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return PublishReport(handle.cache.known().version, tuple(done))


def _catch_up(
    handle: TableHandle,
    publisher: FormatPublisher[Any],
    *,
    within_s: float = math.inf,
    whole: bool = False,
) -> Published:
    """Publish what is missing up to the newest known version.

    Args:
        handle: the table.
        publisher: of one of its formats.
        within_s: how long; it is asked between versions.
        whole: also look for what others wrote where nothing is missing.
    """
    clock = handle.ports.clock
    end_s = clock.monotonic() + within_s
    caught = publisher.catch_up(
        handle.cache.known(),
        late=lambda: clock.monotonic() >= end_s,
        refresh=handle.cache.refresh,
        whole=whole,
    )
    undone = tuple(caught.undone)
    return Published(publisher.target, publisher.version, caught.published, caught.left_out, undone)


def delta_publisher(handle: TableHandle) -> DeltaPublisher:
    """Return a publisher of a table's Delta log."""
    return DeltaPublisher(handle.plain_store, handle.identity)


def iceberg_publisher(handle: TableHandle) -> IcebergPublisher:
    """Return a publisher of a table's Iceberg metadata."""
    return IcebergPublisher(handle.plain_store, handle.identity, handle.ports.ids)


def _publisher(handle: TableHandle, target: str) -> FormatPublisher[Any]:
    return delta_publisher(handle) if target == DELTA else iceberg_publisher(handle)


def newest_metadata(handle: TableHandle) -> tuple[str, Json] | None:
    """Return where the newest Iceberg metadata of a table is, and what it says.

    None if it has none yet: ``catch_up`` publishes it.

    Raises:
        PublishRefusedError: the metadata there is not the table's.
        StorageError: the store failed.
    """
    state = handle.cache.refresh()
    return iceberg_publisher(handle).newest(state, handle.cache.refresh)


def list_publications(handle: TableHandle) -> tuple[PublicationStatus, ...]:
    """Tell how far each publication of the table is; change nothing."""
    state = handle.cache.refresh()
    return tuple(_status(handle, state, target) for target in state.table.published)


def _status(handle: TableHandle, state: TableState, target: str) -> PublicationStatus:
    try:
        found, state = _publisher(handle, target).find_position(state, handle.cache.refresh)
    except TableError as error:
        return PublicationStatus(target, None, state.version + 1, 0, 0, str(error))
    if found.version is None:
        return PublicationStatus(target, None, state.version + 1, 0, found.foreign)
    missing, lag_ms = state.version - found.version, max(0, state.completed_ms - found.time_ms)
    behind = missing or found.problem
    problem = (_missing_library() if target == ICEBERG and behind else None) or found.problem
    return PublicationStatus(target, found.version, missing, lag_ms, found.foreign, problem)


def _missing_library() -> str | None:
    try:
        load_avro()
    except MissingDependencyError as error:
        return str(error)
    return None


def require_libraries(properties: Mapping[str, object]) -> None:
    """Refuse formats that this client could not publish, before a property names them.

    Raises:
        OptionError: the property names an unknown format.
        MissingDependencyError: with the extra to install.
    """
    named = {key: value for key, value in properties.items() if key == PUBLISH_OPTION}
    if ICEBERG in Options.of(named).names(PUBLISH_OPTION):
        load_avro()


def publish_before_clean(handle: TableHandle) -> int | None:
    """Publish what is missing; return the version from which on files stay: None for all.

    What a publication that could not catch up still shows is kept, as by a read pin (INV-05).
    """
    versions = []
    for target in handle.cache.refresh().table.published:
        try:
            versions.append(_catch_up(handle, _publisher(handle, target), whole=True).version)
        except PublishRefusedError as error:
            _log.warning("nothing is published: %s", error)
        except TableError as error:
            _log.warning("a clean keeps what the published versions show: %s", error)
            versions.append(_status(handle, handle.cache.known(), target).version)
    return min((-1 if each is None else each for each in versions), default=None)


def trim_published(handle: TableHandle, state: TableState, kept: KeptRange) -> None:
    """Take the versions below a horizon out of what is published, before it is decided.

    So no published version names a file when the grace of its clean begins.

    Raises:
        StorageError, CorruptMetadataError: it failed; no higher horizon may be decided.
        MissingDependencyError: a library is missing; the same.
    """
    for target in state.table.published:
        try:
            _publisher(handle, target).trim(state, kept, handle.cache.refresh)
        except PublishRefusedError as error:
            _log.info("nothing is trimmed: %s", error)
