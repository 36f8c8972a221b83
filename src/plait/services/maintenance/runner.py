"""Keep tables in shape by their policies, in one process or in many on many hosts.

Runners share the work without a server. A runner leaves a partition alone if a pending record says
that another client is rewriting files there. This saves work. Correctness does not depend on it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from plait.definition.features import ARCHIVE, ROW_MAPS
from plait.errors import TableError
from plait.interop.publication import PublishReport, catch_up
from plait.model.bucket import Partition
from plait.model.plain import Plain
from plait.services.index.build import IndexReport
from plait.services.index.record_index import bring_up_to_date
from plait.services.maintenance.archive import ArchiveReport, archive, plan_archive
from plait.services.maintenance.clean import CleanReport, clean
from plait.services.maintenance.clustering import ClusteringReport, cluster, plan_due
from plait.services.maintenance.compaction import CompactionReport, compact, plan_compaction
from plait.services.maintenance.expiry import ExpiryReport, expire, plan_expiry
from plait.services.maintenance.rewrite import Sharing
from plait.state.state import may_use
from plait.timeline.pending import load_pending
from plait.txn.liveness import is_alive
from plait.txn.liveness_cache import SleepGuard
from plait.txn.matrix import REWRITES
from plait.txn.recovery import RollbackReport, roll_back_failed
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)
_EXPIRY_S_MAX = 3600.0
_REST_S = 600.0
"""Time between two cleans of a table, and between two plans of rewrites of one version: to plan
them takes seconds and hundreds of megabytes where files are many."""
_TURN_S = 600.0
"""Time limit of one look for compaction and clustering, since other tables wait meanwhile."""
_LOOKS = 24
"""Number of looks for expired rows within a time to live. A look may read a column."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OptimizeReport(Plain):
    """What was done to keep a table in shape. A service that failed, or rests, has no report."""

    KEYS = "rollback compaction clustering clean archive index published idle"

    rollback: RollbackReport | None
    compaction: CompactionReport | None
    clustering: ClusteringReport | None
    """None if the table has no order."""
    clean: CleanReport | None
    archive: ArchiveReport | None
    """None if none fell due."""
    index: IndexReport | None = None
    """What was done to the record index; None if it is up to date, or the table has none."""
    published: PublishReport | None = None
    """What was published for other engines; None if the table is not published."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        rewritten = (each.commits for each in (self.compaction, self.clustering) if each)
        return not (
            (self.rollback is not None and self.rollback.ended)
            or any(rewritten)
            or (self.clean is not None and not self.clean.idle)
            or self.archive is not None
            or self.index is not None
            or (self.published is not None and not self.published.idle)
        )


@dataclass(frozen=True, slots=True)
class ServiceRun(Plain):
    """One look at one table."""

    KEYS = "table=uri report expiry error"

    uri: str
    report: OptimizeReport | None
    """None if the table could not be opened."""
    expiry: ExpiryReport | None = None
    """What expired; None if it was not looked for."""
    error: Exception | None = None
    """The first error. The other services of the table ran all the same."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        expired = self.expiry is not None and self.expiry.commits
        return self.error is None and not expired and (self.report is None or self.report.idle)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        error = None if self.error is None else _error_facts(self.error)
        return Plain.to_dict(self) | {"error": error}


def _error_facts(error: Exception) -> dict[str, object]:
    if isinstance(error, TableError):
        return error.to_dict()
    return {"code": "bug", "message": f"{type(error).__name__}: {error}"}


@dataclass(slots=True)
class _Attempts:
    """Runs steps one after another. If one fails, the others run all the same."""

    where: str
    first: Exception | None = None
    """The first error."""

    def take(self, step: Callable[[], T]) -> T | None:
        """Take a step; None if it failed."""
        try:
            return step()
        except TableError as error:
            _log.warning("%s: %s", self.where, error)
            self.first = self.first or error
        except Exception as error:  # noqa: BLE001 - what it hit in one table is not in the others' way
            _log.exception("%s: a bug, or something that the machine lacks", self.where)
            self.first = self.first or error
        return None


def optimize(handle: TableHandle) -> OptimizeReport:
    """Roll the dead back, compact and cluster what falls due by policy, clean, and archive.

    Raises:
        TableError: one of them failed; the others were done all the same.
    """
    attempts = _Attempts("a service of this table failed")
    report = _optimized(handle, attempts)
    if attempts.first is not None:
        raise attempts.first
    return report


def _optimized(
    handle: TableHandle,
    attempts: _Attempts,
    *,
    within_s: float = math.inf,
    rewrites: bool = True,
    cleans: bool = True,
) -> OptimizeReport:
    until_s = handle.ports.clock.monotonic() + within_s
    sharing = Sharing(lambda: _claimed(handle), lambda: handle.ports.clock.monotonic() >= until_s)
    return OptimizeReport(
        attempts.take(lambda: roll_back_failed(handle, reason="found dead by a service")),
        attempts.take(lambda: _compacted(handle, sharing)) if rewrites else None,
        attempts.take(lambda: _clustered(handle, sharing)) if rewrites else None,
        attempts.take(lambda: clean(handle)) if cleans else None,
        attempts.take(lambda: _archived(handle)),
        attempts.take(lambda: _indexed(handle)),
        attempts.take(lambda: _published(handle)),
    )


def _compacted(handle: TableHandle, sharing: Sharing) -> CompactionReport | None:
    if not may_use(handle.cache.refresh(), ROW_MAPS):
        return None
    plan = plan_compaction(handle)
    tasks = _from_anywhere(handle, plan.tasks)
    return compact(handle, replace(plan, tasks=tasks), sharing=sharing)


def _clustered(handle: TableHandle, sharing: Sharing) -> ClusteringReport | None:
    plan = plan_due(handle) if may_use(handle.cache.known(), ROW_MAPS) else None
    if plan is None:
        return None
    tasks = _from_anywhere(handle, plan.tasks)
    return cluster(handle, replace(plan, tasks=tasks), sharing=sharing)


def _archived(handle: TableHandle) -> ArchiveReport | None:
    if not may_use(handle.cache.known(), ARCHIVE):
        return None
    old = plan_archive(handle)
    return archive(handle, old) if old.due or old.unfinished else None


def _indexed(handle: TableHandle) -> IndexReport | None:
    if handle.cache.known().table.index is None:
        return None
    return bring_up_to_date(handle)


def _published(handle: TableHandle) -> PublishReport | None:
    return catch_up(handle) if handle.cache.known().table.published else None


def _from_anywhere(handle: TableHandle, tasks: tuple[T, ...]) -> tuple[T, ...]:
    """Begin at a random task, so that runners that look at the same time do not start at one."""
    start = int(handle.ports.ids.jitter() * len(tasks))
    return (*tasks[start:], *tasks[:start])


def _claimed(handle: TableHandle) -> frozenset[Partition]:
    """Return the partitions in which a living rewrite is at work."""
    rewrites = [each for each in load_pending(handle.store) if each.operation in REWRITES]
    if not rewrites:
        return frozenset()
    now_ms = handle.store.now_ms()
    default_s = handle.cache.known().table.options.seconds("heartbeat.timeout")
    living = (each for each in rewrites if is_alive(handle, each, now_ms, default_s))
    return frozenset(partition for each in living for partition in each.partitions)


@dataclass(slots=True)
class Looks:
    """What a runner remembers of its looks at one table."""

    expiry_s: float | None = None
    """When expired rows were looked for last, by this machine's monotonic clock."""
    clean_s: float | None = None
    """When it was cleaned last."""
    idle: tuple[int, float] = (-1, 0.0)
    """The version in which nothing was left to compact or cluster, and when that was found."""
    sleep_guard: SleepGuard = field(default_factory=SleepGuard)
    """Writers and readers that were silent, maybe because this machine was suspended."""


def serve(
    uris: Sequence[str],
    open_table: Callable[[str], TableHandle],
    looks: MutableMapping[str, Looks] | None = None,
) -> Iterator[ServiceRun]:
    """Look after each table once, one after the other; a table that fails does not stop others.

    What has expired goes first, so that it is not compacted before.

    Args:
        uris: the tables.
        open_table: opens one; called again for each look, so that a table may come and go.
        looks: what is remembered of each table; kept from call to call.
    """
    looks = {} if looks is None else looks
    for uri in uris:
        yield _look(uri, open_table, looks.setdefault(uri, Looks()))


def _look(uri: str, open_table: Callable[[str], TableHandle], looks: Looks) -> ServiceRun:
    attempts = _Attempts(uri)
    opened = attempts.take(lambda: open_table(uri))
    if opened is None:
        return ServiceRun(uri, None, None, attempts.first)
    handle = replace(opened, sleep_guard=looks.sleep_guard)
    expiry = attempts.take(lambda: _expire_if_due(handle, looks))
    now_s, version = handle.ports.clock.monotonic(), handle.cache.known().version
    cleans = _is_over(looks.clean_s, now_s, _REST_S)
    rewrites = looks.idle[0] != version or _is_over(looks.idle[1], now_s, _REST_S)
    report = _optimized(handle, attempts, within_s=_TURN_S, rewrites=rewrites, cleans=cleans)
    if cleans:
        looks.clean_s = now_s
    if rewrites:
        looks.idle = _idle_version(report), now_s
    return ServiceRun(uri, report, expiry, attempts.first)


def _idle_version(report: OptimizeReport) -> int:
    """Return the version in which nothing is left to compact or cluster; -1 if something is."""
    if report.compaction is None or report.compaction.plan.tasks:
        return -1
    if report.clustering is not None and report.clustering.plan.tasks:
        return -1
    return report.compaction.plan.version


def _is_over(last_s: float | None, now_s: float, rest_s: float) -> bool:
    return last_s is None or now_s - last_s >= rest_s


def _expire_if_due(handle: TableHandle, looks: Looks) -> ExpiryReport | None:
    """Take away what has expired, unless it was looked for a short while ago."""
    ttl, now_s = handle.cache.known().table.ttl, handle.ports.clock.monotonic()
    if ttl is None:
        return None
    if not _is_over(looks.expiry_s, now_s, min(_EXPIRY_S_MAX, ttl.after / _LOOKS)):
        return None
    looks.expiry_s = now_s
    return expire(handle, plan_expiry(handle))
