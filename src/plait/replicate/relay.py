"""The dual write of an engine whose tasks run elsewhere: each task sends its own rows.

Nobody can say when an attempt of a task has ended: Spark may run a task twice at once, or lose an
executor that goes on. So each attempt leaves a record of its own before it sends anything, and the
writer removes the records of those that count. A record that stays tells that the sink may have
got, or may still get, rows of an attempt that does not count.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from plait.engine import Staging
from plait.errors import RetryableConflictError, RolledBackError, StorageError
from plait.model.bucket import BucketId
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import CommitResult
from plait.model.instant import Instant
from plait.model.plan import Snapshot
from plait.model.request import WritePlan
from plait.model.sink_ledger import SinkLedger, TaskLedger
from plait.ports import Ports
from plait.replicate.fan_out import FanOut, Pace
from plait.replicate.sender import Sender
from plait.replicate.sink import Sink, SinkSchema
from plait.replicate.staging import DualStaging, restaged_with_sinks
from plait.storage import open_store
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.replica_records import delete_attempts
from plait.write.replication import ReplicatedStaging

_log = logging.getLogger(__name__)
_LOOK_S: Final = 1.0


@dataclass(slots=True)
class TaskFence:
    """Stops an attempt of a task whose instant was decided without it.

    It looks before a batch if the last look is a second old, so a process that was paused looks
    before it sends anything more.
    """

    store: Store
    instant: Instant
    ports: Ports
    _looked: float | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise RolledBackError if the instant is no longer pending."""
        now = self.ports.clock.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_S:
            return
        if self.store.find(paths.requested(self.instant)) is None:
            message = f"instant {self.instant} has ended, and this attempt of a task does not count"
            raise RolledBackError(message, instant=str(self.instant), reason="it has ended")
        self._looked = now


@dataclass(frozen=True, slots=True)
class TaskRelay:
    """Sends the rows of one attempt of a task; it travels to the executors."""

    sinks: tuple[Sink, ...]
    pace: Pace

    def stage(
        self, inner: Staging, plan: WritePlan, task: str, rows: object, snapshot: Snapshot
    ) -> tuple[WriteStatus, TaskLedger | None]:
        """Send rows to every sink, then stage them; sinks are opened once.

        Raises:
            ReplicationError: a sink failed.
            RolledBackError: the commit was decided without this attempt.
        """
        store, ports = open_store(plan.store), Ports()
        fence = TaskFence(store, plan.instant, ports)
        sender = Sender(store, plan.instant, ports, fence.check, plan.label(task))
        staging, whole = DualStaging(inner, plan, sender, self.sinks, self.pace), False
        try:
            staging.write(rows)
            status = staging.stage(snapshot, None)
            whole = True
        finally:
            staging.close()
            if not whole:
                staging.end(None)
        ledger = staging.ledger
        return status, None if ledger is None else ledger.tasks[0]


class RelayedStaging(ReplicatedStaging):
    """Opens the sinks once, leaves the writer's record, and has the tasks send their rows."""

    def __init__(
        self,
        inner: Staging,
        plan: WritePlan,
        sender: Sender,
        sinks: Sequence[Sink],
        pace: Pace,
    ) -> None:
        """Begin; nothing is written, and no sink is opened."""
        super().__init__(inner)
        self._plan, self._sender = plan, sender
        self._sinks, self._pace = tuple(sinks), pace
        self._began = False
        self._reported: set[str] = set()
        """Attempts that came to their end, those of rounds before the last too."""
        self._expected: Digest | None = None
        """What sinks got under an older layout of the table, and are to get again."""
        self._have_tasks_relay()

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Have the tasks send and stage their rows; what is staged again is sent again.

        Raises:
            ReplicationError: a sink cannot be opened, or failed in a task for good.
        """
        if not self._began:
            self._connect()
        status = super().stage(snapshot, buckets)
        self._reported.update(each.task for each in self._inner.relayed)
        self._require_expected()
        return status

    def restaged(self, plan: WritePlan) -> Self:
        """Have tasks send and stage the same rows again, under another layout of the table.

        Raises:
            RetryableConflictError: the operation would mean something else there, for the table or
                for the sinks.
        """
        sent = sum((each.digest for each in self._inner.relayed), Digest())
        self._inner = restaged_with_sinks(self._inner, self._plan, plan)
        self._have_tasks_relay()
        self._plan, self._expected = plan, sent if self._began else None
        return self

    @property
    def ledger(self) -> SinkLedger | None:
        """What every sink holds; None if no row came."""
        tasks = tuple(self._inner.relayed)
        return SinkLedger(tuple(sink.name for sink in self._sinks), tasks) if tasks else None

    @property
    def wrote(self) -> bool:
        """Whether the instant must be rolled back if it fails: something of it exists."""
        return self._began or super().wrote

    def end(self, result: CommitResult | None) -> None:
        """Remove the records that the commit settles; after anything else, write the own again."""
        if not self._began:
            return  # nothing was sent, and there is no record
        sender = self._sender
        try:
            if result is None:
                sender.write_record(self._sinks)
                return
            delete_attempts(sender.store, sender.instant, ["", *sorted(self._reported)])
        except StorageError:
            _log.warning("attempt records of %s are as they were", sender.instant, exc_info=True)

    def _have_tasks_relay(self) -> None:
        self._inner.relay_through(TaskRelay(self._sinks, self._pace))

    def _require_expected(self) -> None:
        """Refuse other rows than were sent before: the sinks would keep those, too.

        Raises:
            RetryableConflictError: the query gives others each time.
        """
        expected, self._expected = self._expected, None
        if expected is None:
            return
        sent = sum((each.digest for each in self._inner.relayed), Digest())
        if sent != expected:
            message = "the DataFrame returned different rows after a repush than before it"
            hint = "persist or checkpoint it before writing, or run the whole job again"
            raise RetryableConflictError(message, hint=hint)

    def _connect(self) -> None:
        """Open every sink; then, and before anything is sent, write the record of the attempt."""
        sender, schema = self._sender, SinkSchema.of(self._plan.spec)
        fan_out = FanOut(self._sinks, schema, self._pace, sender.ports, str(sender.instant))
        try:
            fan_out.connect()
        finally:
            fan_out.close()
        sender.write_record(self._sinks)
        self._began = True
