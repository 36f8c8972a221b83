"""Upkeep by clients: after a decision, its client publishes it, and compacts where it wrote."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from plait.definition.features import ROW_MAPS
from plait.interop.publication import DEFERRED, follow
from plait.model.bucket import BucketId
from plait.model.decision import Decision
from plait.services.index.build import WRITER_ENTRIES_MAX, falls_due, fold_index
from plait.services.maintenance.compaction import compact, plan_compaction
from plait.state.state import may_use
from plait.txn.conflict import touched_buckets
from plait.txn.matrix import DATA
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)


def keep_in_shape(handle: TableHandle, decision: Decision | None) -> None:
    """Publish a decision; after rows also fold the record index, and compact.

    It is called where ``TableDef.has_upkeep`` says so. The decision stands, whatever this meets: no
    error is raised.
    """
    known = handle.cache.known()
    if known.table.published:
        follow(handle)
        if not set(DEFERRED).isdisjoint(known.table.published):
            _PUBLISHING.submit(handle)
    if decision is None or decision.operation not in DATA:
        return
    if known.table.index is not None:
        _fold(handle, decision)
    mode = known.table.options.choice("compact")
    if mode == "off" or not may_use(known, ROW_MAPS):
        return
    buckets = touched_buckets(decision.changes)
    if not buckets:
        return  # such as a commit id without rows
    if mode == "inline":
        _compact(handle, buckets)
    else:
        _COMPACTING.submit(handle, buckets)


def finish_upkeep() -> None:
    """Wait until all that was left for later is done."""
    _COMPACTING.wait()
    _PUBLISHING.wait()


def _publish(handle: TableHandle, _: frozenset[BucketId]) -> None:
    follow(handle, deferred=True)


def _compact(handle: TableHandle, buckets: frozenset[BucketId]) -> None:
    try:
        plan = plan_compaction(handle, buckets=buckets)
        if plan.tasks:
            compact(handle, plan)
    except Exception:  # noqa: BLE001 - the commit stands; what falls due stays due
        _log.warning("the compaction after a commit failed; the next one does it", exc_info=True)


def _fold(handle: TableHandle, decision: Decision) -> None:
    """Make a run of the keys that came since the last one, if that falls to this client."""
    try:
        if falls_due(handle, decision):
            fold_index(handle, most=WRITER_ENTRIES_MAX)
    except Exception:  # noqa: BLE001 - the commit stands; look-ups read its decision
        _log.warning("the record index was not brought up to date", exc_info=True)


class _Later:
    """One thread of the process, with at most one piece of work waiting for each table.

    The interpreter waits for it when it ends.
    """

    def __init__(self, work: Callable[[TableHandle, frozenset[BucketId]], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._due: dict[str, tuple[TableHandle, frozenset[BucketId]]] = {}
        self._last: Future[None] | None = None

    def reset(self) -> None:
        """Forget the thread of the parent, in a forked child."""
        self.__init__(self._work)  # type: ignore[misc]  # as new

    def submit(self, handle: TableHandle, buckets: frozenset[BucketId] = frozenset()) -> None:
        uri = handle.store.address.uri
        with self._lock:
            waits = uri in self._due
            _, waiting = self._due.get(uri, (handle, frozenset[BucketId]()))
            self._due[uri] = handle, waiting | buckets
            if waits:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="plait-upkeep")
            try:
                self._last = self._pool.submit(self._run, uri)
            except RuntimeError as error:  # the interpreter ends, or the system gives no thread
                del self._due[uri]
                _log.warning("upkeep after this commit is left to the next one: %s", error)

    def wait(self) -> None:
        last = self._last
        if last is not None:
            last.result()

    def _run(self, uri: str) -> None:
        with self._lock:
            due = self._due.pop(uri, None)
        if due is not None:
            self._work(*due)


_COMPACTING, _PUBLISHING = _Later(_compact), _Later(_publish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPACTING.reset)
    os.register_at_fork(after_in_child=_PUBLISHING.reset)
