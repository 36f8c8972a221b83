"""Keep tables in shape by their policies, in one process or in many on many hosts.

Runners share the work without a server. A partition with a living rewrite is left to whoever is at
it, by its pending record; that saves work, and nothing hangs on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace

from plait.errors import TableError
from plait.model.bucket import Partition
from plait.services.archive import ArchiveReport, archive, plan_archive
from plait.services.clean import CleanReport, clean
from plait.services.clustering import ClusteringReport, cluster, plan_due
from plait.services.compaction import CompactionReport, compact, plan_compaction
from plait.services.expiry import ExpiryReport, expire, plan_expiry
from plait.timeline.pending import load_pending
from plait.txn.liveness import is_alive
from plait.txn.matrix import REWRITES
from plait.txn.recovery import RollbackReport, roll_back_failed
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)
_EXPIRY_S_MAX = 3600.0
_LOOKS = 24
"""Expired rows are looked for so often within a time to live: a look may read a column."""


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """What was done to keep a table in shape."""

    rollback: RollbackReport
    compaction: CompactionReport
    clustering: ClusteringReport | None
    """None if the table has no order."""
    clean: CleanReport
    archive: ArchiveReport | None
    """None if none fell due."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (
            self.rollback.ended
            or self.compaction.commits
            or (self.clustering is not None and self.clustering.commits)
            or self.clean.version is not None
            or self.clean.deleted
            or self.clean.late
            or self.archive is not None
        )

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "rollback": self.rollback.to_dict(),
            "compaction": self.compaction.to_dict(),
            "clustering": None if self.clustering is None else self.clustering.to_dict(),
            "clean": self.clean.to_dict(),
            "archive": None if self.archive is None else self.archive.to_dict(),
            "idle": self.idle,
        }


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """One look at one table."""

    uri: str
    report: OptimizeReport | None
    expiry: ExpiryReport | None = None
    """What expired; None if it was not looked for."""
    error: TableError | None = None
    """What kept the table from being served; the others go on."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        expired = self.expiry is not None and self.expiry.commits
        return self.error is None and not expired and (self.report is None or self.report.idle)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "table": self.uri,
            "report": None if self.report is None else self.report.to_dict(),
            "expiry": None if self.expiry is None else self.expiry.to_dict(),
            "error": None if self.error is None else self.error.to_dict(),
        }


def optimize(handle: TableHandle) -> OptimizeReport:
    """Roll the dead back, compact and cluster what falls due by policy, clean, and archive.

    Raises:
        TableError: one of them failed; what was done before stands.
    """
    rollback = roll_back_failed(handle, reason="found dead by a service")
    plan = plan_compaction(handle)
    claimed = _claimed(handle)
    tasks = tuple(task for task in plan.tasks if task.bucket[0] not in claimed)
    compaction = compact(handle, replace(plan, tasks=tasks))
    clustering = _clustered(handle, claimed)
    cleaned = clean(handle)
    old = plan_archive(handle)
    archived = archive(handle, old) if old.due or old.unfinished else None
    return OptimizeReport(rollback, compaction, clustering, cleaned, archived)


def _clustered(handle: TableHandle, claimed: frozenset[Partition]) -> ClusteringReport | None:
    plan = plan_due(handle)
    if plan is None:
        return None
    tasks = tuple(task for task in plan.tasks if task.bucket[0] not in claimed)
    return cluster(handle, replace(plan, tasks=tasks))


def _claimed(handle: TableHandle) -> frozenset[Partition]:
    """Return the partitions in which a living rewrite is at work."""
    rewrites = [each for each in load_pending(handle.store) if each.operation in REWRITES]
    if not rewrites:
        return frozenset()
    now_ms = handle.store.now_ms()
    default_s = handle.cache.known().table.options.seconds("heartbeat.timeout")
    living = (each for each in rewrites if is_alive(handle, each, now_ms, default_s))
    return frozenset(partition for each in living for partition in each.partitions)


def serve(
    uris: Sequence[str],
    open_table: Callable[[str], TableHandle],
    looked: MutableMapping[str, float] | None = None,
) -> Iterator[ServiceRun]:
    """Look after each table once, one after the other; a table that fails does not stop others.

    What has expired goes first, so that it is not compacted before.

    Args:
        uris: the tables.
        open_table: opens one; called again for each look, so that a table may come and go.
        looked: when expired rows were looked for last, by table; kept from call to call.
    """
    looked = {} if looked is None else looked
    for uri in uris:
        expiry = None
        try:
            handle = open_table(uri)
            expiry = _expire_if_due(handle, uri, looked)
            run = ServiceRun(uri, optimize(handle), expiry)
        except TableError as error:
            _log.warning("%s was not served: %s", uri, error)
            run = ServiceRun(uri, None, expiry, error)
        yield run


def _expire_if_due(
    handle: TableHandle, uri: str, looked: MutableMapping[str, float]
) -> ExpiryReport | None:
    """Take away what has expired, unless it was looked for a short while ago."""
    ttl, now_s = handle.cache.known().table.ttl, handle.ports.clock.monotonic()
    if ttl is None:
        return None
    last_s = looked.get(uri)
    if last_s is not None and now_s - last_s < min(_EXPIRY_S_MAX, ttl.after / _LOOKS):
        return None
    looked[uri] = now_s
    return expire(handle, plan_expiry(handle))
