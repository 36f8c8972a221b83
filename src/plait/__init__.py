"""Plait: a table format for many independent jobs that write one table, and lose no row.

The public interface is ``Table``, the types that its methods take and return, and the errors.
All but the errors are imported when they are first named, so that ``import plait`` (and
``tablectl --help``) stay quick.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from plait.errors import (
    AccessDeniedError,
    BadRecordError,
    CapabilityMissingError,
    ClockUnavailableError,
    CommitError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConflictError,
    ConsentError,
    ConstraintError,
    ContractError,
    CoordinatorFencedError,
    CorruptMetadataError,
    DeletedRowsError,
    DuplicateKeyError,
    EpochRewoundError,
    EpochUnknownError,
    FeatureError,
    FormatError,
    IllegalTransitionError,
    IncompatibleConflictError,
    InstantError,
    InstantExpiredError,
    InstantNotFoundError,
    InvariantError,
    LockError,
    LockTimeoutError,
    LockUnavailableError,
    MissingDependencyError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    OffsetGapError,
    OffsetsLostError,
    OptionError,
    PartitionsAddedError,
    PlanStaleError,
    PolicyError,
    PredicateError,
    PublishRefusedError,
    ReplicationError,
    RepushCancelledError,
    RepushError,
    RepushOpenError,
    RepushRefusedError,
    RestoreRefusedError,
    Retry,
    RetryableConflictError,
    RolledBackError,
    SchemaError,
    SchemaMismatchError,
    SingleWriterError,
    StorageError,
    StreamError,
    TableDroppedError,
    TableError,
    TableExistsError,
    TableNotFoundError,
    TopicReplacedError,
    TransactionClosedError,
    UndecodableError,
    UndoneError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from plait.catalog.catalog import Catalog, CatalogEntry, PurgeReport
    from plait.definition.ttl import Ttl
    from plait.files.partition_values import register_partition_function
    from plait.interop.publication import PublicationStatus, Published, PublishReport
    from plait.interop.publisher import Foreign
    from plait.model.changes import Digest, WriteStats
    from plait.model.clauses import Delete, Insert, Matched, Update
    from plait.model.contract import Meeting
    from plait.model.decision import ArchiveFile, CommitResult, Savepoint, SetBack, Span, Token
    from plait.model.history import (
        HistoryEntry,
        LockHolder,
        LockState,
        PendingEntry,
        ReaderEntry,
        TimelineView,
    )
    from plait.model.instant import Instant
    from plait.model.order import Order
    from plait.model.stream import Audit, EpochEntry, Position, StreamProblem
    from plait.queries.compare import Comparison
    from plait.queries.explain import ExplainedConflict, Explanation
    from plait.queries.table_inspect import Inspect
    from plait.read.change_scan import ChangeScan
    from plait.read.dataset import ScanDataset, ScanFragment, ScanScanner
    from plait.read.scan import Pinned, Scan
    from plait.read.splits import ScanSplit
    from plait.repush.bring import ImportPlan, ImportReport, import_table
    from plait.repush.run import RepushReport
    from plait.repush.table_repush import Layout
    from plait.services.definition.alter import Alter, Alteration
    from plait.services.definition.sinks import DefinedReplicas
    from plait.services.definition.upgrade import FeaturePlan, FeatureUse
    from plait.services.index.build import IndexReport
    from plait.services.index.record_index import IndexStatus, RecordIndex
    from plait.services.index.verify import IndexVerified
    from plait.services.maintenance.archive import ArchivePlan, ArchiveReport
    from plait.services.maintenance.clean import CleanPlan, CleanReport, CleanUndone
    from plait.services.maintenance.clustering import (
        ClusteringPlan,
        ClusteringReport,
        ClusteringTask,
    )
    from plait.services.maintenance.compaction import (
        CompactionPlan,
        CompactionReport,
        CompactionTask,
    )
    from plait.services.maintenance.expiry import ExpiryPlan, ExpiryReport, ExpiryTask
    from plait.services.maintenance.replay import ReplayPlan, ReplayReport
    from plait.services.maintenance.restore import RestoredCommit, RestorePlan, RestoreReport
    from plait.services.maintenance.runner import OptimizeReport
    from plait.services.table_check import Soundness
    from plait.services.table_maintenance import Maintenance
    from plait.services.table_versions import Versions
    from plait.services.verify.foreign import ForeignFile, ForeignRemoval
    from plait.services.verify.rebuild import RebuildPlan, RebuildReport
    from plait.services.verify.repair import Finding, RepairPlan, RepairReport
    from plait.services.verify.replica_repair import DamagedBucket, ReplicaRepairReport
    from plait.services.verify.report import Note, Problem, VerifyReport
    from plait.stream.coordinator import Coordinator
    from plait.stream.messages import EncodedMessage
    from plait.stream.open_turn import TurnLoad
    from plait.stream.participant import Participant
    from plait.stream.stream import Stream
    from plait.stream.transport import Endpoint
    from plait.table import Table
    from plait.txn.recovery import RollbackReport, RolledBackInstant
    from plait.write.replication import Replication
    from plait.write.transaction import Transaction
    from plait.write.writer import Writer

__all__ = [
    "AccessDeniedError",
    "Alter",
    "Alteration",
    "ArchiveFile",
    "ArchivePlan",
    "ArchiveReport",
    "Audit",
    "BadRecordError",
    "CapabilityMissingError",
    "Catalog",
    "CatalogEntry",
    "ChangeScan",
    "CleanPlan",
    "CleanReport",
    "CleanUndone",
    "ClockUnavailableError",
    "ClusteringPlan",
    "ClusteringReport",
    "ClusteringTask",
    "CommitError",
    "CommitOutcomeUnknownError",
    "CommitResult",
    "CommitRetriesExhaustedError",
    "CompactionPlan",
    "CompactionReport",
    "CompactionTask",
    "Comparison",
    "ConflictError",
    "ConsentError",
    "ConstraintError",
    "ContractError",
    "Coordinator",
    "CoordinatorFencedError",
    "CorruptMetadataError",
    "DamagedBucket",
    "DefinedReplicas",
    "Delete",
    "DeletedRowsError",
    "Digest",
    "DuplicateKeyError",
    "EncodedMessage",
    "Endpoint",
    "EpochEntry",
    "EpochRewoundError",
    "EpochUnknownError",
    "ExpiryPlan",
    "ExpiryReport",
    "ExpiryTask",
    "ExplainedConflict",
    "Explanation",
    "FeatureError",
    "FeaturePlan",
    "FeatureUse",
    "Finding",
    "Foreign",
    "ForeignFile",
    "ForeignRemoval",
    "FormatError",
    "HistoryEntry",
    "IllegalTransitionError",
    "ImportPlan",
    "ImportReport",
    "IncompatibleConflictError",
    "IndexReport",
    "IndexStatus",
    "IndexVerified",
    "Insert",
    "Inspect",
    "Instant",
    "InstantError",
    "InstantExpiredError",
    "InstantNotFoundError",
    "InvariantError",
    "Layout",
    "LockError",
    "LockHolder",
    "LockState",
    "LockTimeoutError",
    "LockUnavailableError",
    "Maintenance",
    "Matched",
    "Meeting",
    "MissingDependencyError",
    "NamespaceNotEmptyError",
    "NamespaceNotFoundError",
    "Note",
    "OffsetGapError",
    "OffsetsLostError",
    "OptimizeReport",
    "OptionError",
    "Order",
    "Participant",
    "PartitionsAddedError",
    "PendingEntry",
    "Pinned",
    "PlanStaleError",
    "PolicyError",
    "Position",
    "PredicateError",
    "Problem",
    "PublicationStatus",
    "PublishRefusedError",
    "PublishReport",
    "Published",
    "PurgeReport",
    "ReaderEntry",
    "RebuildPlan",
    "RebuildReport",
    "RecordIndex",
    "RepairPlan",
    "RepairReport",
    "ReplayPlan",
    "ReplayReport",
    "ReplicaRepairReport",
    "Replication",
    "ReplicationError",
    "RepushCancelledError",
    "RepushError",
    "RepushOpenError",
    "RepushRefusedError",
    "RepushReport",
    "RestorePlan",
    "RestoreRefusedError",
    "RestoreReport",
    "RestoredCommit",
    "Retry",
    "RetryableConflictError",
    "RollbackReport",
    "RolledBackError",
    "RolledBackInstant",
    "Savepoint",
    "Scan",
    "ScanDataset",
    "ScanFragment",
    "ScanScanner",
    "ScanSplit",
    "SchemaError",
    "SchemaMismatchError",
    "SetBack",
    "SingleWriterError",
    "Soundness",
    "Span",
    "StorageError",
    "Stream",
    "StreamError",
    "StreamProblem",
    "Table",
    "TableDroppedError",
    "TableError",
    "TableExistsError",
    "TableNotFoundError",
    "TimelineView",
    "Token",
    "TopicReplacedError",
    "Transaction",
    "TransactionClosedError",
    "Ttl",
    "TurnLoad",
    "UndecodableError",
    "UndoneError",
    "UnsupportedFeatureError",
    "Update",
    "VerifyReport",
    "Versions",
    "WriteStats",
    "Writer",
    "import_table",
    "register_partition_function",
]

__version__ = "0.1.0"

_LAZY = {
    "Alter": "plait.services.definition.alter",
    "Soundness": "plait.services.table_check",
    "Inspect": "plait.queries.table_inspect",
    "Layout": "plait.repush.table_repush",
    "Maintenance": "plait.services.table_maintenance",
    "RecordIndex": "plait.services.index.record_index",
    "DefinedReplicas": "plait.services.definition.sinks",
    "Versions": "plait.services.table_versions",
    "ArchiveFile": "plait.model.decision",
    "Alteration": "plait.services.definition.alter",
    "ArchivePlan": "plait.services.maintenance.archive",
    "ArchiveReport": "plait.services.maintenance.archive",
    "Audit": "plait.model.stream",
    "ChangeScan": "plait.read.change_scan",
    "CleanPlan": "plait.services.maintenance.clean",
    "CleanReport": "plait.services.maintenance.clean",
    "CleanUndone": "plait.services.maintenance.clean",
    "ClusteringPlan": "plait.services.maintenance.clustering",
    "ClusteringReport": "plait.services.maintenance.clustering",
    "ClusteringTask": "plait.services.maintenance.clustering",
    "Order": "plait.model.order",
    "CompactionPlan": "plait.services.maintenance.compaction",
    "CompactionReport": "plait.services.maintenance.compaction",
    "CompactionTask": "plait.services.maintenance.compaction",
    "OptimizeReport": "plait.services.maintenance.runner",
    "CommitResult": "plait.model.decision",
    "Comparison": "plait.queries.compare",
    "Foreign": "plait.interop.delta",
    "PublicationStatus": "plait.interop.publication",
    "PublishReport": "plait.interop.publication",
    "Published": "plait.interop.publication",
    "Coordinator": "plait.stream.coordinator",
    "Delete": "plait.model.clauses",
    "Digest": "plait.model.changes",
    "EncodedMessage": "plait.stream.messages",
    "Endpoint": "plait.stream.transport",
    "EpochEntry": "plait.model.stream",
    "ExplainedConflict": "plait.queries.explain",
    "Explanation": "plait.queries.explain",
    "ExpiryPlan": "plait.services.maintenance.expiry",
    "ExpiryReport": "plait.services.maintenance.expiry",
    "ExpiryTask": "plait.services.maintenance.expiry",
    "FeaturePlan": "plait.services.definition.upgrade",
    "FeatureUse": "plait.services.definition.upgrade",
    "Finding": "plait.services.verify.repair",
    "RepairPlan": "plait.services.verify.repair",
    "RepairReport": "plait.services.verify.repair",
    "ForeignFile": "plait.services.verify.foreign",
    "ForeignRemoval": "plait.services.verify.foreign",
    "HistoryEntry": "plait.model.history",
    "IndexReport": "plait.services.index.build",
    "IndexStatus": "plait.services.index.record_index",
    "IndexVerified": "plait.services.index.verify",
    "Insert": "plait.model.clauses",
    "Instant": "plait.model.instant",
    "LockHolder": "plait.model.history",
    "LockState": "plait.model.history",
    "Matched": "plait.model.clauses",
    "Meeting": "plait.model.contract",
    "Note": "plait.services.verify.report",
    "Participant": "plait.stream.participant",
    "TurnLoad": "plait.stream.open_turn",
    "PendingEntry": "plait.model.history",
    "Pinned": "plait.read.scan",
    "Position": "plait.model.stream",
    "Problem": "plait.services.verify.report",
    "ReaderEntry": "plait.model.history",
    "RebuildPlan": "plait.services.verify.rebuild",
    "RebuildReport": "plait.services.verify.rebuild",
    "ReplayPlan": "plait.services.maintenance.replay",
    "ReplayReport": "plait.services.maintenance.replay",
    "DamagedBucket": "plait.services.verify.replica_repair",
    "ReplicaRepairReport": "plait.services.verify.replica_repair",
    "Replication": "plait.write.replication",
    "RestorePlan": "plait.services.maintenance.restore",
    "RepushReport": "plait.repush.run",
    "ImportPlan": "plait.repush.bring",
    "ImportReport": "plait.repush.bring",
    "import_table": "plait.repush.bring",
    "RestoreReport": "plait.services.maintenance.restore",
    "RestoredCommit": "plait.services.maintenance.restore",
    "RollbackReport": "plait.txn.recovery",
    "RolledBackInstant": "plait.txn.recovery",
    "Savepoint": "plait.model.decision",
    "Scan": "plait.read.scan",
    "ScanDataset": "plait.read.dataset",
    "ScanFragment": "plait.read.dataset",
    "ScanScanner": "plait.read.dataset",
    "ScanSplit": "plait.read.splits",
    "SetBack": "plait.model.decision",
    "Span": "plait.model.decision",
    "Stream": "plait.stream.stream",
    "StreamProblem": "plait.model.stream",
    "Table": "plait.table",
    "Catalog": "plait.catalog.catalog",
    "CatalogEntry": "plait.catalog.catalog",
    "PurgeReport": "plait.catalog.catalog",
    "TimelineView": "plait.model.history",
    "Token": "plait.model.decision",
    "Transaction": "plait.write.transaction",
    "Ttl": "plait.definition.ttl",
    "Update": "plait.model.clauses",
    "VerifyReport": "plait.services.verify.report",
    "WriteStats": "plait.model.changes",
    "Writer": "plait.write.writer",
    "register_partition_function": "plait.files.partition_values",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    """Import what needs Arrow when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'plait' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
