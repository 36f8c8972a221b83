"""The Kafka sink of one process."""

from __future__ import annotations

import threading
from contextlib import nullcontext

from plait.kafka.member import Member
from plait.kafka.monitoring import MonitoringServer, stall_limit
from plait.kafka.task import SinkTask
from plait.table import handle_of


class KafkaSink(SinkTask):
    """Writes topics into a table, each record exactly once, together with other processes.

    Any number of processes with the same settings share the partitions of the topics. Each
    commit has the rows of all of them, and the offsets that they reached (RFC 0019).

    ``run`` does everything. A program that has records already, as a Connect task has, calls
    ``open``, ``put``, ``pre_commit`` and ``close`` in its place.
    """

    def run(self, stop: threading.Event | None = None) -> None:
        """Run as a member of the consumer group until ``stop`` is set.

        When it returns, what was read is in the table, unless a commit takes longer than
        ``patience_s``: then another process reads it again.

        Raises:
            TableError: the sink cannot go on; another process may.
        """
        clock, settings = handle_of(self.table).ports.clock, self.settings
        limit_s = stall_limit(settings.interval_s, settings.patience_s)
        server = (
            MonitoringServer(settings.metrics, settings.name, self.counts, clock, limit_s)
            if settings.metrics
            else nullcontext()
        )
        try:
            with server:
                Member(self).run(stop or threading.Event())
        finally:
            self.close()
