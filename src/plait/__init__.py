"""Plait: a table format for many independent jobs that write one table, and lose no row.

The public face is small: ``Table``, what its methods give back, and the errors. ``Table`` is
imported when it is first named, so that ``import plait`` (and ``tablectl --help``) stay quick.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from plait.errors import (
    BadRecordError,
    CapabilityMissingError,
    CommitError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConflictError,
    ContractError,
    CorruptMetadataError,
    DeletedRowsError,
    DuplicateKeyError,
    EpochRewoundError,
    EpochUnknownError,
    FencedError,
    FormatError,
    IllegalTransitionError,
    IncompatibleConflictError,
    IncompatibleEvolutionError,
    InstantError,
    InstantExpiredError,
    InstantNotFoundError,
    InvariantError,
    LeaseLostError,
    LockError,
    LockTimeoutError,
    LockUnavailableError,
    MissingDependencyError,
    OffsetGapError,
    OptionError,
    PlanStaleError,
    PredicateError,
    RetentionViolationError,
    Retry,
    RetryableConflictError,
    RolledBackError,
    SchemaError,
    SchemaMismatchError,
    ServiceError,
    StorageError,
    StreamError,
    TableError,
    TableExistsError,
    TableNotFoundError,
    TransactionClosedError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from plait.model.clauses import Delete, Insert, Update
    from plait.model.decision import CommitResult
    from plait.table import Table

__all__ = [
    "BadRecordError",
    "CapabilityMissingError",
    "CommitError",
    "CommitOutcomeUnknownError",
    "CommitResult",
    "CommitRetriesExhaustedError",
    "ConflictError",
    "ContractError",
    "CorruptMetadataError",
    "Delete",
    "DeletedRowsError",
    "DuplicateKeyError",
    "EpochRewoundError",
    "EpochUnknownError",
    "FencedError",
    "FormatError",
    "IllegalTransitionError",
    "IncompatibleConflictError",
    "IncompatibleEvolutionError",
    "Insert",
    "InstantError",
    "InstantExpiredError",
    "InstantNotFoundError",
    "InvariantError",
    "LeaseLostError",
    "LockError",
    "LockTimeoutError",
    "LockUnavailableError",
    "MissingDependencyError",
    "OffsetGapError",
    "OptionError",
    "PlanStaleError",
    "PredicateError",
    "RetentionViolationError",
    "Retry",
    "RetryableConflictError",
    "RolledBackError",
    "SchemaError",
    "SchemaMismatchError",
    "ServiceError",
    "StorageError",
    "StreamError",
    "Table",
    "TableError",
    "TableExistsError",
    "TableNotFoundError",
    "TransactionClosedError",
    "UnsupportedFeatureError",
    "Update",
]

_LAZY = {
    "CommitResult": "plait.model.decision",
    "Delete": "plait.model.clauses",
    "Insert": "plait.model.clauses",
    "Table": "plait.table",
    "Update": "plait.model.clauses",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    """Import what needs Arrow when it is first asked for."""
    if name not in _LAZY:
        message = f"module 'plait' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
