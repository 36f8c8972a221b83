"""Published versions of a table: who publishes when, how far it is, and what may be cleaned.

A publication is no decision, and nothing that Plait reads depends on it. So a client that has
decided something publishes what is missing, for as long as the table says; whatever is missing
still, the next client or a service publishes (RFC 0046).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from plait.errors import PublishRefusedError, TableError
from plait.files.data_file import EXTENSIONS, MASK
from plait.interop.delta import TARGET as DELTA
from plait.interop.delta import DeltaPublisher, Foreign
from plait.interop.delta_actions import vector_copy
from plait.interop.delta_log import Tip
from plait.model.plain import Plain
from plait.state.cache import StateCache
from plait.state.state import TableState
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)
_VECTORS = f".{MASK}.{EXTENSIONS[MASK]}"


@dataclass(frozen=True, slots=True)
class Published(Plain):
    """What was published in one format."""

    target: str
    """The format: ``delta``."""
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


_PUBLISHERS: WeakKeyDictionary[StateCache, DeltaPublisher] = WeakKeyDictionary()
"""What each client of this process remembers of the end of its table's log."""


def follow(handle: TableHandle) -> None:
    """Publish what is missing, within the time that the table grants. It raises nothing."""
    within_s = handle.cache.known().table.options.seconds("publish.deadline")
    try:
        publisher = _PUBLISHERS.get(handle.cache)
        if publisher is None:
            publisher = _PUBLISHERS[handle.cache] = delta_publisher(handle)
        report = _catch_up(handle, publisher, within_s=within_s)
    except Exception:  # noqa: BLE001 - the decision stands; the next client publishes it
        _log.warning("a version was not published; the next client does it", exc_info=True)
        return
    for target in report.targets:
        for each in target.undone:
            _log.warning(
                "%s: commits %s of others (%s) were undone by commit %d",
                target.target,
                list(each.commits),
                ", ".join(each.operations) or "unnamed",
                each.number,
            )


def catch_up(handle: TableHandle) -> PublishReport:
    """Publish what is missing, and undo what others wrote.

    Raises:
        StorageError: the store failed; what was published stands.
    """
    handle.cache.refresh()
    return _catch_up(handle, delta_publisher(handle), whole=True)


def _catch_up(
    handle: TableHandle,
    publisher: DeltaPublisher,
    *,
    within_s: float = math.inf,
    whole: bool = False,
) -> PublishReport:
    """Publish what is missing up to the newest known version.

    Args:
        handle: the table.
        publisher: of its log.
        within_s: how long; it is asked between versions.
        whole: also look for what others wrote where nothing is missing.
    """
    state = handle.cache.known()
    if DELTA not in state.table.published:
        return PublishReport(state.version, ())
    clock = handle.ports.clock
    end_s = clock.monotonic() + within_s
    caught = publisher.catch_up(
        state,
        late=lambda: clock.monotonic() >= end_s,
        refresh=handle.cache.refresh,
        whole=whole,
    )
    state = handle.cache.known()
    done = Published(
        DELTA, publisher.version, caught.published, caught.left_out, tuple(caught.undone)
    )
    return PublishReport(state.version, (done,))


def delta_publisher(handle: TableHandle) -> DeltaPublisher:
    """Return a publisher of a table's Delta log."""
    return DeltaPublisher(handle.plain_store, handle.identity)


def list_publications(handle: TableHandle) -> tuple[PublicationStatus, ...]:
    """Tell how far each publication of the table is; change nothing."""
    state = handle.cache.refresh()
    if DELTA not in state.table.published:
        return ()
    try:
        tip, state = delta_publisher(handle).look(state, handle.cache.refresh)
    except TableError as error:
        return (PublicationStatus(DELTA, None, state.version + 1, 0, 0, str(error)),)
    return (_status(DELTA, state, tip),)


def _status(target: str, state: TableState, tip: Tip) -> PublicationStatus:
    mark = tip.mark
    if mark is None:
        return PublicationStatus(target, None, state.version + 1, 0, len(tip.foreign))
    missing, lag_ms = state.version - mark.version, max(0, state.completed_ms - mark.time_ms)
    return PublicationStatus(target, mark.version, missing, lag_ms, len(tip.foreign))


def publish_before_clean(handle: TableHandle) -> int | None:
    """Publish what is missing; return the version from which on files stay: None for all.

    What a publication that could not catch up still shows is kept, as by a read pin (INV-05).
    """
    try:
        report = catch_up(handle)
        versions = [each.version for each in report.targets]
    except PublishRefusedError as error:
        _log.warning("nothing is published: %s", error)
        return None
    except TableError as error:
        _log.warning("a clean keeps what the published versions show: %s", error)
        versions = [each.version for each in list_publications(handle)]
    return min((-1 if each is None else each for each in versions), default=None)


def trim_published(handle: TableHandle, state: TableState, horizon: int) -> None:
    """Take the versions below a horizon out of the published logs, before it is decided.

    So no published version names a file when the grace of its clean begins.

    Raises:
        StorageError, CorruptMetadataError: it failed; no higher horizon may be decided.
    """
    try:
        delta_publisher(handle).trim(state, horizon, handle.cache.refresh)
    except PublishRefusedError as error:
        _log.info("nothing is trimmed: %s", error)


def with_copies(paths: Sequence[str]) -> list[str]:
    """Return files that a clean deletes, and the copies of them that readers of the log had."""
    return [*paths, *(vector_copy(path) for path in paths if path.endswith(_VECTORS))]
