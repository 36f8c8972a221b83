"""Run a repush from wherever it stands to its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.engine import ArrowEngine
from plait.engine import require_session
from plait.errors import (
    CommitOutcomeUnknownError,
    InvariantError,
    RepushCancelledError,
    StorageError,
    StreamError,
    TableError,
    TableNotFoundError,
)
from plait.model.decision import Decision
from plait.model.instant import Operation
from plait.model.plain import Plain
from plait.model.repush import TABLE, OpenRepush
from plait.model.store_address import StoreAddress
from plait.repush.begin import RepushRequest, begin, is_over, require_layout
from plait.repush.follow import FollowRound, changing_operations
from plait.repush.load import Load
from plait.repush.shadow import Shadow
from plait.repush.source import located
from plait.repush.swap import Swap, reserved
from plait.services.maintenance.clustering import cluster, plan_clustering
from plait.services.maintenance.expiry import expire, plan_expiry
from plait.services.maintenance.leftovers import delete_repushed
from plait.txn.refusal import find_commit
from plait.txn.table_handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
PROGRESS: Final = "repush-progress"
"""Name of the observer phase after each task and each round."""
PAUSE_S: Final = 5.0
"""Seconds that a round may take so that the next one is the last; writers wait about as long."""
_SOON: Final = 3
"""Number of rounds after which the last round may take twice as long after each further one."""
_PAUSE_SHARE: Final = 4
"""Writers wait for the last round at most ``commit.deadline`` divided by this."""
_LAST_ROUNDS: Final = 16
"""Maximum number of rounds while writers wait. Meanwhile only older reservations commit."""
_LOOK_S, _LOOK_S_MAX = 0.02, 1.0
_ENDS: Final = (Operation.REPUSH, Operation.REPUSH_SOURCE, Operation.CANCEL_REPUSH)


@dataclass(slots=True)
class RepushReport(Plain):
    """What a repush did in this process."""

    directory: str
    base: int
    source: str | None = None
    """Address of the source whose rows the table got; None if it kept its own rows."""
    version: int | None = None
    """The version of the swap, also if another process published it."""
    rows_expired: int = 0
    """Rows that were too old, and were removed before the copy began."""
    rows_loaded: int = 0
    rows_followed: int = 0
    rows_kept: int = 0
    """Rows that the table had after the swap."""
    rounds: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase: expire, load, sort, follow, swap, delete."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        seconds = {name: round(spent, 3) for name, spent in self.seconds.items()}
        return Plain.to_dict(self) | {"seconds": seconds}


def repush(
    handle: TableHandle, request: RepushRequest, *, spark: SparkSession | None = None
) -> RepushReport:
    """Lay a table out anew beside its writers; go on with a repush that is open.

    Readers see the old table until one decision, and the new one from there on. It may be killed
    at any point: the same call goes on where it was.

    Raises:
        OptionError, SchemaError: the table cannot have this layout, or the rows of the source, or
            no engine works in such a session; nothing was written.
        CapabilityMissingError: the session's executors cannot reach the table or the source;
            nothing was written.
        InstantError: the version that is the source cannot be read; nothing was written.
        RepushOpenError: another repush is open.
        RepushCancelledError: somebody cancelled this one; the table is as it was.
        RepushRefusedError: keys are not unique under this layout, or its ordering column is NaN in
            a row, or the source went away or changed, or what was committed cannot be carried over,
            or the commit id is that of another operation; the table is as it was.
        ClockUnavailableError: rows are to expire, and the store tells no time.
    """
    handle = handle if request.source is None else request.source.allowed_by(handle)
    _require_session(handle, request, spark)
    expired, spent_s = _expire(handle, request)
    # Expired rows are removed before the base is fixed, so the copy never contains them.
    opened = begin(handle, request)
    if opened is None:
        return _finished(handle, str(request.commit_id))
    source = None if opened.source is None else str(opened.source.address)
    report = RepushReport(opened.directory, opened.base, source, rows_expired=expired)
    if request.expire is not None:
        report.seconds["expire"] = spent_s
    options = {} if request.source is None else request.source.options
    work = _Work(handle, opened, report, options, spark)
    return work.run()


def _require_session(
    handle: TableHandle, request: RepushRequest, spark: SparkSession | None
) -> None:
    """Refuse a session that could not do the work of a repush, before that is open."""
    stores = [handle.store.address]
    if request.source is not None and request.source.address.kind == TABLE:
        stores.append(StoreAddress(located(request.source.address).place))
    require_session(spark, ArrowEngine(store=handle.store), stores)


def _finished(handle: TableHandle, commit_id: str) -> RepushReport:
    """Return the report of a repush that was swapped in before, maybe by a process that died."""
    state = handle.cache.known()
    version = find_commit(handle.store, state, commit_id)
    delete_repushed(handle)
    return RepushReport("", -1 if version is None else version - 1, version=version)


def _expire(handle: TableHandle, request: RepushRequest) -> tuple[int, float]:
    """Remove the rows that are too old; return how many, and the seconds that it took.

    A repush that is open has its rows already: nothing is removed for it any more.
    """
    if request.expire is None:
        return 0, 0.0
    require_layout(handle, request)
    state = handle.cache.known()
    if state.table.repush is not None or is_over(handle, state, request.commit_id):
        return 0, 0.0
    clock = handle.ports.clock
    began = clock.monotonic()
    report = expire(handle, plan_expiry(handle, request.expire))
    return report.rows_deleted, clock.monotonic() - began


def last_round_limit_s(rounds: int, deadline_s: float) -> float:
    """Return how long a round may have taken so that writers wait for the next, the last one.

    The last round has what was committed while the one before it ran, so it takes about as long as
    that. If rounds do not become short by themselves, because rows are written nearly as fast as
    they are copied, writers wait longer, up to a part of what a commit waits at all.

    Args:
        rounds: those before.
        deadline_s: the property ``commit.deadline``.

    >>> [last_round_limit_s(rounds, 300) for rounds in (0, 2, 3, 5, 99)]
    [5.0, 5.0, 10.0, 40.0, 75.0]
    """
    doubled = min(max(0, rounds + 1 - _SOON), 32)
    return min(PAUSE_S * (1 << doubled), max(PAUSE_S, deadline_s / _PAUSE_SHARE))


@dataclass(slots=True)
class _Work:
    handle: TableHandle
    opened: OpenRepush
    report: RepushReport
    options: Mapping[str, object]
    """Options to reach the source."""
    spark: SparkSession | None = None

    def run(self) -> RepushReport:
        """Load, follow and swap, whatever of it is left to do.

        If another process swaps meanwhile, its work is done, whatever that broke here. If the
        table is deleted meanwhile, what was written for it goes too: nobody else knows of it.

        Raises:
            RepushCancelledError: another process cancelled it.
        """
        try:
            return self._run()
        except TableNotFoundError:
            self._leave_nothing()
            raise

    def _leave_nothing(self) -> None:
        """Delete the directory if the table is gone; else its files may be the table's by now."""
        try:
            self.handle.require_same_table()
        except TableNotFoundError:
            store = self.handle.plain_store
            with suppress(StorageError):
                store.delete([info.path for info in store.list(self.opened.directory)])
        except TableError:
            return

    def _run(self) -> RepushReport:
        try:
            decision = self._build()
        except CommitOutcomeUnknownError:
            raise
        except TableError:
            # A swap or cancel by another process deletes files that are read here, which looks like
            # damage. It is our error only if the repush is still open.
            if self._is_open():
                raise
            # Whoever swapped or cancelled deleted files while they were used here.
            _log.info("another process ended %s", self.opened.directory, exc_info=True)
            decision = None
        self.report.version = self._ended() if decision is None else decision.version
        with self._timed("delete"):
            delete_repushed(self.handle)
        return self.report

    def _ended(self) -> int:
        """Return the version in which another process swapped.

        Raises:
            RepushCancelledError: it cancelled.
        """
        # The first end after the base is ours: no other repush can begin while this one is open.
        state, opened = self.handle.cache.refresh(), self.opened
        rows = state.commits(self.handle.store, since=opened.base, columns=("version", "operation"))
        ends = pa.array([each.value for each in _ENDS])
        ended = rows.filter(pc.is_in(rows["operation"], value_set=ends)).sort_by("version")
        if not ended.num_rows:
            message = f"the repush in {opened.directory} is over, and no decision ended it"
            raise InvariantError(message)
        version, operation = ended["version"][0].as_py(), ended["operation"][0].as_py()
        if operation == Operation.CANCEL_REPUSH.value:
            raise RepushCancelledError(
                f"the repush in {opened.directory} was cancelled in version {version}",
                hint="the table is as it was; `tablectl history` shows who cancelled",
                directory=opened.directory,
                base=opened.base,
                version=version,
            )
        return int(version)

    def _build(self) -> Decision | None:
        """Return the swap; None if the repush was ended elsewhere."""
        shadow = Shadow.open(self.handle, self.opened)
        with self._timed("load"):
            self._load(shadow)
        self._sort(shadow)
        decision: Decision | None = None
        rounds = 0
        while decision is None and self._is_open():
            took_s = self._follow(shadow)
            options = self.handle.cache.known().table.options
            # Writers wait during the last round, which takes about as long as the one before. So go
            # on in the open until rounds are short enough.
            if took_s <= last_round_limit_s(rounds, options.seconds("commit.deadline")):
                decision = self._swap(shadow)
            rounds += 1
        return decision

    def _wait_for_others(self, shadow: Shadow) -> None:
        """Wait while another process is at work: what we did meanwhile would be done twice."""
        backoff = self.handle.ports.backoff(_LOOK_S, _LOOK_S_MAX)
        while shadow.other_processes() and self._is_open():
            backoff.pause()

    def _is_open(self) -> bool:
        return self.handle.cache.refresh().table.builds(self.opened.directory)

    def _load(self, shadow: Shadow) -> None:
        if shadow.progress().version is not None:
            return
        # Every task ends with a token in the shadow. After a kill, or beside another process, each
        # task is committed once, whoever did it (INV-09).
        load = Load.of(self.handle, shadow, self.spark, self.options)
        try:
            while True:
                self._wait_for_others(shadow)
                progress = shadow.progress()
                if progress.version is not None or not self._is_open():
                    break
                try:
                    self.report.rows_loaded += load.run(shadow, progress)
                    self._report_progress()
                except StreamError:
                    _log.info("another process loads %s", self.opened.directory)
        finally:
            load.close()

    def _sort(self, shadow: Shadow) -> None:
        """Put rows in the order that the table is to have; what is in it already stays."""
        if shadow.order is None:
            return
        self._wait_for_others(shadow)
        if not self._is_open():
            return
        with self._timed("sort"):
            plan = plan_clustering(shadow.handle)
            cluster(shadow.handle, plan, self.spark)

    def _follow(self, shadow: Shadow) -> float:
        """Do a round; return how long it took."""
        clock = self.handle.ports.clock
        self._wait_for_others(shadow)
        began = clock.monotonic()
        with self._timed("follow"):
            progress, state = shadow.progress(), self.handle.cache.refresh()
            if progress.version is not None and changing_operations(
                state, self.handle, progress.version
            ):
                one = FollowRound(self.handle, shadow)
                try:
                    self.report.rows_followed += one.run(progress, state.version)
                    self.report.rounds += 1
                    self._report_progress()
                except StreamError:
                    _log.info("another process follows for %s", self.opened.directory)
        return clock.monotonic() - began

    def _report_progress(self) -> None:
        self.handle.ports.observer.phase(
            PROGRESS,
            rows_loaded=self.report.rows_loaded,
            rows_followed=self.report.rows_followed,
            rounds=self.report.rounds,
        )

    def _swap(self, shadow: Shadow) -> Decision | None:
        """Do the last round while writers wait, and swap; None if it took too long."""
        swap = Swap(self.handle, shadow)
        with self._timed("swap"):
            # Without a reservation first: in a quiet table nobody has to wait at all.
            decision = swap.publish()
            if decision is not None or not self._is_open():
                self.report.rows_kept = swap.rows
                return decision
            # The reservation only makes writers wait. If they pass it over, the draft finds the new
            # commit, publishes nothing, and another round follows.
            with reserved(self.handle):
                for _ in range(_LAST_ROUNDS):
                    self._follow(shadow)
                    decision = swap.publish()
                    if decision is not None or not self._is_open():
                        break
                self.report.rows_kept = swap.rows
                return decision

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        clock = self.handle.ports.clock
        began = clock.monotonic()
        self.handle.ports.observer.phase(f"repush-{phase}", directory=self.opened.directory)
        try:
            yield
        finally:
            spent = self.report.seconds
            spent[phase] = spent.get(phase, 0.0) + clock.monotonic() - began
