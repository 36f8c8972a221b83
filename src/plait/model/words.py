"""The words among the arguments, as types: a type checker finds one that is misspelt."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

WriteOperation: TypeAlias = Literal["append", "insert", "upsert", "overwrite", "delete"]
OnConflict: TypeAlias = Literal["raise", "retry"]
OnDuplicate: TypeAlias = Literal["raise", "skip"]
MissingColumns: TypeAlias = Literal["raise", "keep"]
Evolve: TypeAlias = Literal["none", "add"]
Partitions: TypeAlias = Literal["dynamic"]
TableType: TypeAlias = Literal["cow", "mor"]
Isolation: TypeAlias = Literal["snapshot", "serializable"]
Unique: TypeAlias = Literal["partition", "table"]
FailedWrites: TypeAlias = Literal["lazy", "eager"]
Concurrency: TypeAlias = Literal["multi_writer", "single_writer"]
OrderKind: TypeAlias = Literal["sort", "zorder", "hilbert"]

WRITE_OPERATIONS: Final = get_args(WriteOperation)
ON_CONFLICT: Final = get_args(OnConflict)
ON_DUPLICATE: Final = get_args(OnDuplicate)
MISSING_COLUMNS: Final = get_args(MissingColumns)
EVOLVE: Final = get_args(Evolve)
TABLE_TYPES: Final = get_args(TableType)
ISOLATIONS: Final = get_args(Isolation)
UNIQUE: Final = get_args(Unique)
FAILED_WRITES: Final = get_args(FailedWrites)
CONCURRENCY: Final = get_args(Concurrency)
ORDER_KINDS: Final = get_args(OrderKind)
"""The same, for the checks at run time."""
