"""The dual write: each batch goes to every sink, then to the table (RFC 0022)."""

from __future__ import annotations

from plait.replicate.lane import Retries
from plait.replicate.repair import ReplicaRepair, repair
from plait.replicate.replicas import Replicas
from plait.replicate.sink import Sink, SinkSchema, SinkSession
from plait.replicate.sql_sink import SqlSink
from plait.replicate.status import status
from plait.replicate.table_sink import TableSink
from plait.services.verify.sink_status import ReplicaStatus

__all__ = [
    "ReplicaRepair",
    "ReplicaStatus",
    "Replicas",
    "Retries",
    "Sink",
    "SinkSchema",
    "SinkSession",
    "SqlSink",
    "TableSink",
    "repair",
    "status",
]
