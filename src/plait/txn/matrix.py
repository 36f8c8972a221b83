"""The conflict matrix: operation x operation x policy, as data (RFC 0004).

Code, docs/reference/conflicts.md and tests are made from ``MATRIX``; nothing else says who stands
in whose way.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plait.definition.policy import FILE_GROUP, KEY, MERGE, POLICIES, Verdict
from plait.model.decision import SCOPE_PARTITIONS, SCOPE_TABLE, Scope
from plait.model.instant import Operation

HARMLESS: Final = (Verdict.COMPATIBLE, Verdict.CARRY, Verdict.REBASE, Verdict.RESTAGE)
"""Verdicts on decisions before the version that our files rest on: no update is lost."""


class Meets(enum.StrEnum):
    """When two operations can be in each other's way."""

    NEVER = "never"
    SCOPES = "scopes"
    """Where their scopes overlap."""
    ALWAYS = "always"


class Kind(enum.StrEnum):
    """Operations that conflict in the same way."""

    ROWS = "rows"
    """Operations that write rows into single buckets."""
    PLACE = "place"
    """Operations that replace what is in a place, or do several things at once."""
    REWRITE = "rewrite"
    """Services that put the same rows into other files."""
    EXPIRE = "expire"
    """A service that takes rows away whose time is over."""
    NOTE = "note"
    """Operations that change no row: upkeep, options, marks."""
    SHAPE = "shape"
    """Operations that change the columns; rows are staged again with the new ones."""
    LAYOUT = "layout"
    """Operations that change the layout: buckets, partitions, or the type of the table."""
    RESET = "reset"
    """Operations after which staged changes mean nothing."""


KINDS: Final[Mapping[Operation, Kind]] = {
    Operation.APPEND: Kind.ROWS,
    Operation.INSERT: Kind.ROWS,
    Operation.UPSERT: Kind.ROWS,
    Operation.UPDATE: Kind.ROWS,
    Operation.DELETE: Kind.ROWS,
    Operation.MERGE: Kind.ROWS,
    Operation.TRANSACTION: Kind.ROWS,
    Operation.REPAIR: Kind.ROWS,
    Operation.OVERWRITE: Kind.PLACE,
    Operation.COMPACT: Kind.REWRITE,
    Operation.CLUSTER: Kind.REWRITE,
    Operation.EXPIRE: Kind.EXPIRE,
    Operation.CLEAN: Kind.NOTE,
    Operation.ARCHIVE: Kind.NOTE,
    Operation.SAVEPOINT: Kind.NOTE,
    Operation.REPLAY: Kind.NOTE,
    Operation.ROLLBACK: Kind.NOTE,
    Operation.PROPERTY: Kind.NOTE,
    Operation.RESERVE: Kind.NOTE,
    Operation.REBUILD: Kind.NOTE,
    Operation.BEGIN_REPUSH: Kind.NOTE,
    Operation.CANCEL_REPUSH: Kind.NOTE,
    Operation.REPUSH: Kind.LAYOUT,
    Operation.REPUSH_SOURCE: Kind.LAYOUT,
    Operation.SCHEMA: Kind.SHAPE,
    Operation.RESTORE: Kind.RESET,
    Operation.CREATE: Kind.RESET,
}
DATA: Final = tuple(op for op, kind in KINDS.items() if kind in (Kind.ROWS, Kind.PLACE))
ARRIVING: Final = tuple(op for op in DATA if op not in (Operation.UPDATE, Operation.DELETE))
"""Operations by which a key may come into a partition."""
REWRITES: Final = tuple(op for op, kind in KINDS.items() if kind is Kind.REWRITE)
SERVICES: Final = (*REWRITES, Operation.EXPIRE)
"""Services that have records and files as writers do. They make no writer fail (INV-15)."""
SWAPS: Final = (Operation.REPUSH, Operation.REPUSH_SOURCE)
NO_RIVALS: Final = (*SERVICES, Operation.ARCHIVE, *SWAPS)
"""Operations with pending records that do not exclude a writer from a single-writer table."""
DATA_KINDS: Final = (Kind.ROWS, Kind.PLACE)
WRITERS: Final = (*DATA_KINDS, Kind.REWRITE, Kind.EXPIRE)
"""Kinds that stage files, and so have a side of their own in the matrix."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a meeting means."""

    meets: Meets
    other_keys: Verdict
    """Verdict for a bucket in which they wrote other keys than we did."""
    same_key: Verdict
    """Verdict for a bucket in which they wrote a key of ours, or may have."""


def _every(meets: Meets, verdict: Verdict) -> Mapping[str, Cell]:
    return dict.fromkeys(POLICIES, Cell(meets, verdict, verdict))


_AT_PLACE = Meets.SCOPES
_BY_POLICY: Mapping[str, Cell] = {
    FILE_GROUP: Cell(_AT_PLACE, Verdict.RETRY, Verdict.RETRY),
    KEY: Cell(_AT_PLACE, Verdict.REBASE, Verdict.RETRY),
    MERGE: Cell(_AT_PLACE, Verdict.REBASE, Verdict.REBASE),
}
# A place that is replaced whole is written whole: nothing in it is apart.
_PLACES: Mapping[str, Cell] = {
    FILE_GROUP: Cell(_AT_PLACE, Verdict.RETRY, Verdict.RETRY),
    KEY: Cell(_AT_PLACE, Verdict.REBASE, Verdict.RETRY),
    MERGE: Cell(_AT_PLACE, Verdict.REBASE, Verdict.RETRY),
}

MATRIX: Final[Mapping[tuple[Kind, Kind], Mapping[str, Cell]]] = {
    (Kind.ROWS, Kind.ROWS): _BY_POLICY,
    (Kind.ROWS, Kind.PLACE): _PLACES,
    (Kind.PLACE, Kind.ROWS): _PLACES,
    (Kind.PLACE, Kind.PLACE): _PLACES,
    # Rewrites change no row: both sides carry places of rows over, and nobody fails (INV-15).
    (Kind.ROWS, Kind.REWRITE): _every(_AT_PLACE, Verdict.CARRY),
    (Kind.PLACE, Kind.REWRITE): _every(_AT_PLACE, Verdict.CARRY),
    (Kind.REWRITE, Kind.ROWS): _every(_AT_PLACE, Verdict.CARRY),
    (Kind.REWRITE, Kind.PLACE): _every(_AT_PLACE, Verdict.CARRY),
    (Kind.REWRITE, Kind.REWRITE): _every(_AT_PLACE, Verdict.CARRY),
    # What has expired may go at any time: nobody fails because it goes, and it waits for nobody.
    (Kind.ROWS, Kind.EXPIRE): _every(_AT_PLACE, Verdict.CARRY),
    (Kind.PLACE, Kind.EXPIRE): _every(_AT_PLACE, Verdict.CARRY),
    (Kind.REWRITE, Kind.EXPIRE): _every(_AT_PLACE, Verdict.CARRY),
    **{(Kind.EXPIRE, theirs): _every(Meets.ALWAYS, Verdict.CARRY) for theirs in Kind},
    **{
        (ours, Kind.NOTE): _every(Meets.NEVER, Verdict.COMPATIBLE)
        for ours in WRITERS
        if ours is not Kind.EXPIRE
    },
    **{(ours, Kind.SHAPE): _every(Meets.ALWAYS, Verdict.RESTAGE) for ours in DATA_KINDS},
    **{(ours, Kind.LAYOUT): _every(Meets.ALWAYS, Verdict.RESTAGE) for ours in DATA_KINDS},
    **{(ours, Kind.RESET): _every(Meets.ALWAYS, Verdict.INCOMPATIBLE) for ours in DATA_KINDS},
    (Kind.REWRITE, Kind.SHAPE): _every(Meets.ALWAYS, Verdict.CARRY),
    (Kind.REWRITE, Kind.LAYOUT): _every(Meets.ALWAYS, Verdict.CARRY),
    (Kind.REWRITE, Kind.RESET): _every(Meets.ALWAYS, Verdict.CARRY),
}
"""(our kind, their kind) -> policy -> what it means for us that they were first."""


def kind_of(operation: Operation, scope: Scope) -> Kind:
    """Tell how an operation conflicts; one of several parts as the widest of them.

    >>> kind_of(Operation.UPSERT, Scope()).value
    'rows'
    """
    kind = KINDS[operation]
    wide = scope.kind in (SCOPE_PARTITIONS, SCOPE_TABLE)
    return Kind.PLACE if kind is Kind.ROWS and wide else kind
